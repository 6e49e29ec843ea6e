"""Compares what the ranks of a job printed: lines that every rank prints are N times what a person needs.

Lines are equal when they differ in numbers only. Those that name a rank are left out: they are meant to be printed.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from paceline.records.observed_rank import OutputCompared, OutputRepeated

_BYTES = 1 << 20
_EXAMPLES = 3
_SHORTEST = 4
_NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")
_FILES = ("output.log", "stdout.log")


def compare_output(folder: Path, local_ranks: list[int]) -> OutputCompared | None:
    """Compare the kept stdout of ranks; None where fewer than two kept any.

    Args:
        folder: holds `<local_rank>/`.
        local_ranks: of this machine.
    """
    found = [_lines(folder / str(rank)) for rank in local_ranks]
    if len(found) < 2 or any(each is None for each in found):
        return None
    lines = [each for each in found if each is not None]
    counts = [Counter(_NUMBER.sub("#", line) for line in each) for each in lines]
    common = counts[0].copy()
    for each in counts[1:]:
        common &= each
    shown = {_NUMBER.sub("#", line): line for line in reversed(lines[0])}
    examples = [
        OutputRepeated(text=shown[text][:200], ranks=len(counts), times=sum(each[text] for each in counts))
        for text, _ in common.most_common(_EXAMPLES)
    ]
    return OutputCompared(lines=counts[0].total(), repeated=common.total(), examples=examples)


def _lines(folder: Path) -> list[str] | None:
    path = next((folder / name for name in _FILES if (folder / name).is_file()), None)
    if path is None:
        return None
    with path.open("rb") as file:
        text = file.read(_BYTES).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if len(line) >= _SHORTEST and "rank" not in line.lower()]
