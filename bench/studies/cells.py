"""The studies' harness: a table of cells, each one record; what is done is skipped, and every stop leaves it usable.

    bench/records/<study>/cells/<setting>_seed<k>.json

A record is written whole when its cell is done. A second call reads finished cells and runs the rest. A cell whose
command has changed since, or that of a run that it measures, is refused, since the table would mix two things under one
name; `--redo` measures it anew.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import RECORDS
from bench.studies.cell import Cell
from bench.studies.pace import estimate_s, minutes, pace_of
from bench.studies.trial import ROOT, SCHEMA, as_bytes, default_program, measure
from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import RunDir, write_atomic

Record = dict[str, Any]
Records = dict[str, Record]
"""Cell name -> record."""
Skip = Callable[[Cell, Records], str | None]
"""Why a cell is not worth running given those that are done; None: run it."""


@dataclass(frozen=True)
class Study:
    """Where a study stands and how it is carried out.

    Attributes:
        name: of the study, and of its folder.
        root: below it, a folder a study.
        budget_s: no cell is begun that would make the study's cells together longer than this.
        redo: measure cells anew whose command has changed.
        program: stands for `paceline`.
        data_dir: of the data set.
        tell: shows a line.
    """

    name: str
    root: Path = RECORDS
    budget_s: float = 3600.0
    redo: bool = False
    program: tuple[str, ...] = ()
    data_dir: Path | None = None
    tell: Callable[[str], None] = print

    @property
    def folder(self) -> Path:
        """Of this study's record."""
        return self.root / self.name

    def file(self, cell: Cell) -> Path:
        """Of one cell."""
        return self.folder / "cells" / f"{cell.name}.json"


class OutOfBudget(PacelineError):  # noqa: N818  # it reads as what happened
    """The next cell would pass the limit."""


def read_json(path: Path) -> Record:
    """A JSON object.

    Raises:
        PacelineError: it cannot be read.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("it is no JSON object")
    except (OSError, ValueError) as error:
        raise PacelineError(f"the record {path.name} cannot be read", why=str(error), hint="remove it") from error
    return found


def read_record(path: Path) -> Record:
    """A cell's record.

    Raises:
        PacelineError: it cannot be read, or is of another version.
    """
    record = read_json(path)
    if record.get("schema") != SCHEMA:
        raise PacelineError(
            f"the record {path.name} has schema {record.get('schema')}, and this version reads {SCHEMA}",
            hint="remove it",
        )
    return record


def read_all(folder: Path) -> Records:
    """All records of a study, by cell name."""
    return {path.stem: read_record(path) for path in sorted((folder / "cells").glob("*.json"))}


def finished(study: Study, cells: Sequence[Cell]) -> Records:
    """Records of those of `cells` that need not run.

    Raises:
        PacelineError: a record has another command than its cell, and `redo` was not asked for.
    """
    found: Records = {}
    for cell in cells:
        path = study.file(cell)
        if not path.exists():
            continue
        record = read_record(path)
        then, now = _made_by(record), [cell.command, *needed_commands(cell, cells).values()]
        if then == now:
            found[cell.name] = record
        elif not study.redo:
            before, after = next((a, b) for a, b in itertools.zip_longest(then, now, fillvalue=[]) if a != b)
            raise PacelineError(
                f"the record of {cell.name} was made by another command",
                why=f"then: {' '.join(before)}\n        now:  {' '.join(after)}",
                hint="--redo measures such cells anew; or set the study back to what it was",
            )
    _forget_lost_runs(cells, found)
    return found


def needed_commands(cell: Cell, cells: Sequence[Cell]) -> dict[str, list[str]]:
    """The commands that make the runs which a cell measures: what it says depends on them as on its own."""
    makers = {other.keep: other.command for other in cells if other.keep is not None}
    return {run: makers.get(run, []) for run in cell.needs}


def _made_by(record: Mapping[str, Any]) -> list[list[str]]:
    return [record["command"], *record.get("needs", {}).values()]


def _forget_lost_runs(cells: Sequence[Cell], found: Records) -> None:
    """A cell whose kept run is gone counts as not done as long as another one needs that run."""
    needed = {run for cell in cells if cell.name not in found for run in cell.needs}
    for cell in cells:
        if cell.keep in needed and not RunDir(ROOT / str(cell.keep)).exists():
            found.pop(cell.name, None)


def carry_out(study: Study, cells: Sequence[Cell], skip: Skip | None = None, *, fit: bool = False) -> Records:
    """Run what is missing, in the order given.

    Args:
        study: where and how.
        cells: the table.
        skip: says which cells are not worth running.
        fit: leave a cell out that would pass the budget, and go on with those that fit, instead of raising.

    Returns:
        records of all cells that are done.

    Raises:
        OutOfBudget: cells are left that would pass the budget; what is done is written.
        PacelineError: a cell failed, or was made by another command.
        KeyboardInterrupt: what is done is written.
    """
    done = finished(study, cells)
    for number, cell in enumerate(cells, start=1):
        place = f"[{number:>2}/{len(cells)}] {cell.name:32}"
        if cell.name in done:
            study.tell(f"{place} kept      {describe(done[cell.name])}")
            continue
        over = _over_budget(study, cell)
        reason = (skip(cell, done) if skip else None) or (over.why if over and fit else None)
        if reason is not None:
            study.tell(f"{place} left out  {reason}")
            continue
        if over:
            raise over
        study.tell(f"{place} runs      about {minutes(estimate_s(cell, pace_of(read_all(study.folder).values())))}")
        record = measure(study.name, cell, study.program or default_program(), study.data_dir)
        if cell.needs:
            record["needs"] = needed_commands(cell, cells)
        write_atomic(study.file(cell), as_bytes(record))
        done[cell.name] = record
        study.tell(f"{place} measured  {describe(record)}; {minutes(spent_s(study))} spent")
    return done


def spent_s(study: Study) -> float:
    """Seconds of all cells of the study that are done, by whatever call."""
    return sum(float(record["duration_s"]) for record in read_all(study.folder).values())


def _over_budget(study: Study, cell: Cell) -> OutOfBudget | None:
    records = read_all(study.folder)
    records.pop(cell.name, None)  # one that is measured anew is not paid twice
    spent = sum(float(record["duration_s"]) for record in records.values())
    needed = estimate_s(cell, pace_of(records.values()))
    if spent + needed <= study.budget_s:
        return None
    return OutOfBudget(
        f"{cell.name} would pass the study's limit of {minutes(study.budget_s)}",
        why=f"{minutes(spent)} are spent, and it takes about {minutes(needed)}",
        hint=f"what is done is written; --budget-minutes {(spent + needed) / 60 + 1:.0f} or more goes on",
        exit_code=Exit.FAILED,
    )


def describe(record: Mapping[str, Any]) -> str:
    """What a record says, in a few words."""
    training = record.get("training")
    seconds = f"{record['duration_s']:.0f} s"
    if training is None:
        return seconds
    if training["end"] == "diverged":
        return f"diverged at step {training['steps'] or 1}, {seconds}"
    evaluations = training["evaluations"]
    accuracy = evaluations[-1]["metrics"].get("accuracy") if evaluations else None
    value = "no accuracy" if accuracy is None else f"{accuracy:.4f}"
    return f"{value} after {training['epochs'] or 0:.1f} epochs, {seconds}"
