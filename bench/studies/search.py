"""Climb a ladder: each rung tries some changes of the best so far, and keeps one only if the held-out images say so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.studies.cell import Cell, Flags, final
from bench.studies.cells import Records
from bench.studies.rungs import EPOCHS, SCREEN_EPOCHS, Rung, Tries

Run = Callable[[Sequence[Cell]], Records]
SEED = 0
"""Of every cell of a search; the confirmation has others."""


@dataclass
class Side:
    """How far one side has come.

    Attributes:
        name: in the cells' names.
        best: flags of the best so far.
        accuracy: on the held-out images; None before the first rung, or when all of it diverged.
        holder: the cell that has it.
        rungs: what happened, one entry a rung.
    """

    name: str
    best: dict[str, str]
    accuracy: float | None = None
    holder: str | None = None
    rungs: list[dict[str, Any]] = field(default_factory=list)


def cell_of(side: str, rung: str, name: str, flags: Flags, *, screen: bool = False) -> Cell:
    """The cell of one try."""
    if screen:
        flags = {**flags, "--epochs": str(SCREEN_EPOCHS)}
    epochs = float(flags["--epochs"])
    suffix = "-screen" if screen else ""
    return Cell(f"{side}-{rung}-{name}{suffix}", SEED, dict(flags), most_epochs=epochs, usual_epochs=epochs)


def climb(side: Side, number: int, rung: Rung, run: Run) -> None:
    """One rung; `side` is what it was afterwards, or better.

    Args:
        side: changed in place.
        number: of the rung, from 1.
        rung: what to try.
        run: from cells to their records.
    """
    stem = f"r{number}-{rung.name}"
    tries = rung.tries(side.best)
    entry: dict[str, Any] = {"rung": rung.name, "title": rung.title, "before": side.accuracy, "screened": []}
    if rung.screen:
        screens = {name: cell_of(side.name, stem, name, flags, screen=True) for name, flags in tries.items()}
        found = run(list(screens.values()))
        entry["screened"] = [_line(name, cell, found) for name, cell in screens.items()]
        tries = _best_of(tries, entry["screened"])
    cells = {name: cell_of(side.name, stem, name, flags) for name, flags in tries.items()}
    found = run(list(cells.values()))
    entry["tried"] = [_line(name, cell, found) for name, cell in cells.items()]
    _keep_best(side, rung, tries, entry)
    side.rungs.append(entry)


def _line(name: str, cell: Cell, found: Records) -> dict[str, Any]:
    record = found[cell.name]
    return {
        "name": name,
        "cell": cell.name,
        "accuracy": final(record),
        "end": record["training"]["end"],
        "epochs": cell.most_epochs,
        "duration_s": record["duration_s"],
    }


def _best_of(tries: Tries, screened: list[dict[str, Any]]) -> Tries:
    alive = [line for line in screened if line["accuracy"] is not None]
    if not alive:
        return {}
    name = max(alive, key=lambda line: line["accuracy"])["name"]
    return {name: tries[name]}


def _keep_best(side: Side, rung: Rung, tries: Tries, entry: dict[str, Any]) -> None:
    """Tries in their order, so that a longer one has to beat the shorter one that was just kept."""
    entry["kept"] = None
    for line in entry["tried"]:
        accuracy = line["accuracy"]
        if accuracy is None:
            continue
        if side.accuracy is None or accuracy > side.accuracy + rung.must_gain:
            side.accuracy, side.holder, side.best = accuracy, line["cell"], dict(tries[line["name"]])
            entry["kept"] = line["name"]
    entry["after"] = side.accuracy


def planned(name: str, start: Flags, rungs: Sequence[Rung]) -> list[Cell]:
    """The cells as they would be if nothing were kept, for the cost: as many as there will be, of the same lengths."""
    cells = []
    for number, rung in enumerate(rungs, start=1):
        stem = f"r{number}-{rung.name}"
        tries = rung.tries(start)
        if rung.screen:
            cells += [cell_of(name, stem, one, flags, screen=True) for one, flags in tries.items()]
            first = next(iter(tries))
            tries = {"best-of-screen": tries[first]}
        cells += [cell_of(name, stem, one, flags) for one, flags in tries.items()]
    return cells


def as_result(side: Side) -> dict[str, Any]:
    """For the record."""
    lines = [line for entry in side.rungs for line in (*entry["screened"], *entry["tried"])]
    return {
        "chosen": side.best,
        "chosen_cell": side.holder,
        "held_out_accuracy": side.accuracy,
        "cells": len(lines),
        "full_cells": sum(line["epochs"] >= EPOCHS for line in lines),
        "epochs": sum(line["epochs"] for line in lines),
        "rungs": side.rungs,
    }
