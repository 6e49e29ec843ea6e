"""Every rank prints the same lines.

What it finds:
    Half or more of rank 0's lines that every other rank prints as well.

Why it matters:
    The output is hard to read, and a progress bar of each rank overwrites those of the others.

Repair:
    `if rank == 0: print(...)`, and `tqdm(..., disable=rank != 0)`. Leave errors on all ranks.

Known problems:
    None.

References:
    F102.
"""

from __future__ import annotations

from paceline.audits.audit import Audit
from paceline.audits.run_state import RunState
from paceline.records.event import Event
from paceline.records.observed_rank import OutputCompared
from paceline.records.schema import Finding

_LEAST, _SHARE = 3, 0.5
"""Lines, and of rank 0's lines."""


class RepeatedOutput(Audit):
    """Reads what the launcher found in the ranks' output."""

    code, name, topic = "DP155", "repeated-output", "files"
    faults = ("F102",)
    needs = ("output",)

    def __init__(self, run: RunState) -> None:
        super().__init__(run)
        self._compared: OutputCompared | None = None

    def feed(self, rank: int, event: Event) -> None:
        """Take the comparison of the output with the most lines."""
        if isinstance(event, OutputCompared) and (self._compared is None or event.lines >= self._compared.lines):
            self._compared = event

    def findings(self) -> list[Finding]:
        found = self._compared
        if found is None or found.repeated < _LEAST or found.repeated < _SHARE * found.lines:
            return []
        example = f', as "{found.examples[0].text}"' if found.examples else ""
        return [
            self.finding(
                "info",
                f"every rank prints the same lines: {found.repeated} of rank 0's {found.lines}{example}",
                "print on rank 0 only, and give tqdm disable=rank != 0",
                lines=found.lines,
                repeated=found.repeated,
                examples=[each.text for each in found.examples],
            )
        ]

    def looked_at(self) -> str:
        return f"{self._compared.lines} lines of output" if self._compared else ""
