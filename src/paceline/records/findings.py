"""Findings on disk: findings.jsonl of a run directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from paceline.records.errors import PacelineError
from paceline.records.schema import Finding
from paceline.records.writer import EventWriter


def append_findings(path: Path, findings: Iterable[Finding]) -> None:
    """Add findings to the file."""
    with EventWriter(path) as writer:
        for finding in findings:
            writer.write(finding)


def read_findings(path: Path) -> Iterator[Finding]:
    """Findings in the order in which they were written; a torn last line is dropped.

    Raises:
        PacelineError: a line that is not the last is damaged.
    """
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(Finding)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decoder.decode(line)
            except msgspec.MsgspecError as error:
                raise PacelineError(f"{path} is damaged in line {number}", why=str(error)) from error
