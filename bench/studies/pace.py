"""What cells cost: from the cells that are done, else from a stated default. Always stated before anything runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.studies.cell import Cell

EPOCH_S = 10.0
"""Default seconds an epoch of 60,000 samples with its evaluation, on 2 cores."""
STARTUP_S = 5.0
"""Default seconds from the command to its first step, and from its last to its end."""
SAMPLES = 60_000


@dataclass(frozen=True)
class Pace:
    """Measured costs.

    Attributes:
        epoch_s: (global batch, training samples) -> median seconds an epoch.
        epochs: setting -> median epochs that it took with other seeds, where that depends on how it goes.
        startup_s: median of the rest of a run.
        whole_s: kind -> median seconds of cells that are no training.
        cells: how many all this was measured on.
    """

    epoch_s: Mapping[tuple[int, int], float]
    epochs: Mapping[str, float]
    startup_s: float | None
    whole_s: Mapping[str, float]
    cells: int

    @property
    def source(self) -> str:
        """Where estimates come from, in words."""
        if not self.cells:
            return f"a default of {EPOCH_S:g} s an epoch of {SAMPLES:,} samples on 2 cores"
        return f"{self.cells} cell(s) already done, and defaults ({EPOCH_S:g} s an epoch) for what was not measured"


def pace_of(records: Iterable[Mapping[str, Any]]) -> Pace:
    """The pace of finished cells."""
    epochs: dict[tuple[int, int], list[float]] = {}
    lengths: dict[str, list[float]] = {}
    wholes: dict[str, list[float]] = {}
    startups: list[float] = []
    count = 0
    for record in records:
        count += 1
        training = record.get("training")
        if training is None:
            wholes.setdefault(record["kind"], []).append(record["duration_s"])
        elif training["epochs"] and training["elapsed_s"] and training["epochs"] >= 0.5:
            key = (training["global_batch"], training["train_samples"])
            epochs.setdefault(key, []).append(training["elapsed_s"] / training["epochs"])
            lengths.setdefault(record["setting"], []).append(training["epochs"])
            startups.append(max(0.0, record["duration_s"] - training["elapsed_s"]))
    return Pace(
        epoch_s={key: statistics.median(values) for key, values in epochs.items()},
        epochs={setting: statistics.median(values) for setting, values in lengths.items()},
        startup_s=statistics.median(startups) if startups else None,
        whole_s={kind: statistics.median(values) for kind, values in wholes.items()},
        cells=count,
    )


def estimate_s(cell: Cell, pace: Pace, *, most: bool = False) -> float:
    """Seconds that a cell will take, as it usually does or at most."""
    if cell.verb != "train":
        return pace.whole_s.get(cell.kind, cell.whole_s)
    epochs = cell.most_epochs if most else pace.epochs.get(cell.setting, cell.usual_epochs)
    samples = SAMPLES - int(cell.flag("--holdout") or 0)
    default = EPOCH_S * cell.slowness * samples / SAMPLES
    epoch_s = pace.epoch_s.get((int(cell.flag("--global-batch") or 0), samples), default)
    return epochs * epoch_s + (STARTUP_S if pace.startup_s is None else pace.startup_s)


def minutes(seconds: float) -> str:
    """For people: `12 min`, `0.4 min`."""
    return f"{seconds / 60:.0f} min" if seconds >= 570 else f"{seconds / 60:.1f} min"


def cost_lines(
    cells: Sequence[Cell], pending: Sequence[Cell], records: Iterable[Mapping[str, Any]], budget_s: float
) -> list[str]:
    """What the pending cells cost, what is spent, and the limit."""
    known = list(records)
    pace = pace_of(known)

    def total(of: Callable[[Cell], float]) -> str:
        return minutes(sum(of(cell) for cell in pending))

    usual, most = total(lambda cell: estimate_s(cell, pace)), total(lambda cell: estimate_s(cell, pace, most=True))
    upto = "" if usual == most else f" (at most {most})"
    spent = sum(record["duration_s"] for record in known)
    return [
        f"cost: {len(pending)} of {len(cells)} cell(s) to run, about {usual}{upto}; estimated from {pace.source}",
        f"spent so far: {minutes(spent)}; no cell is begun that would pass {minutes(budget_s)} in all",
    ]
