"""Figures of the trainings that the grader ran: one colour a configuration, the chosen one first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.report import words
from paceline.report.page.figures import Table, evenly
from paceline.report.page.theme import Look, look
from paceline_course.assess.grade import Curve, Grade
from paceline_course.assess.held import reached
from paceline_course.assess.text import visible

_CURVES = 60
_POINTS = 200
_ROWS = 40


@dataclass(frozen=True)
class Drawn:
    """A curve as the page shows it.

    Attributes:
        name: of the configuration, short and safe.
        place: of the configuration among the others, from 0.
        own: the record.
        look: the same for all seeds of a configuration.
        points: samples and accuracy at the end of each epoch; what is not finite is left out.
        samples: trained on until the target had been held for two epochs running; None: never.
    """

    name: str
    place: int
    own: Curve
    look: Look
    points: list[tuple[int, float]]
    samples: int | None


def drawn(grade: Grade) -> list[Drawn]:
    """Its curves, the chosen configuration's first."""
    curves = sorted(grade.curves, key=lambda curve: not curve.chosen)[:_CURVES]
    order = list(dict.fromkeys(curve.name for curve in curves))
    return [_drawn(curve, order.index(curve.name), grade.target) for curve in curves]


def legend(curves: Sequence[Drawn]) -> list[dict[str, Any]]:
    """One entry a configuration."""
    first = {one.place: one for one in reversed(curves)}
    entries = []
    for place, one in sorted(first.items()):
        said = f"batch {words.integer(one.own.batch)} on {words.plural(one.own.workers, 'worker')}"
        seeds = sum(other.place == place for other in curves)
        said += f", {words.plural(seeds, 'seed')}" + (", chosen" if one.own.chosen else "")
        entries.append({"name": f"{one.name} ({said})", "look": one.look, "chosen": one.own.chosen})
    return entries


def payload(curves: Sequence[Drawn], target: float) -> dict[str, Any]:
    """What the script draws."""
    return {
        "target": target if target > 0 and math.isfinite(target) else None,
        "curves": [
            {
                "name": one.name,
                "place": one.place,
                "seed": str(one.own.seed),
                "chosen": one.own.chosen,
                "colour": one.look.colour,
                "dash": one.look.dash,
                "marker": one.look.marker,
                "samples": [samples for samples, _ in one.points],
                "accuracy": [accuracy for _, accuracy in one.points],
                "reached": one.samples,
                "ended": one.points[-1][0] if one.points else None,
            }
            for one in curves
        ],
    }


def accuracy_table(curves: Sequence[Drawn]) -> Table:
    """A row an epoch of a configuration, its seeds side by side; at most 40 rows of each training."""
    rows = []
    for place in dict.fromkeys(one.place for one in curves):
        seeds = [one for one in curves if one.place == place]
        found = [dict(one.points[at] for at in evenly(len(one.points), _ROWS)) for one in seeds]
        names = " · ".join(str(one.own.seed) for one in seeds)
        for samples in sorted({samples for one in found for samples in one}):
            values = [words.share(one[samples]) if samples in one else "–" for one in found]
            rows.append([seeds[0].name, names, words.integer(samples), " · ".join(values)])
    columns = ["Configuration", "Seeds", "Samples", "Accuracy, in the order of the seeds"]
    return Table("Accuracy at the end of each epoch", columns, rows)


def target_table(curves: Sequence[Drawn]) -> Table:
    """One row a training."""
    columns = ["Configuration", "Seed", "Workers", "Batch", "Epochs", "Best", "Last", "Samples to target", "Time"]
    rows = []
    for one in curves:
        values = [accuracy for _, accuracy in one.points]
        rows.append(
            [
                one.name,
                str(one.own.seed),
                words.integer(one.own.workers),
                words.integer(one.own.batch),
                words.integer(len(one.own.samples)),
                words.share(max(values)) if values else "none",
                words.share(values[-1]) if values else "none",
                "not reached" if one.samples is None else words.integer(one.samples),
                words.duration(one.own.seconds),
            ]
        )
    return Table("Trainings that the grader ran", columns, rows)


def _drawn(curve: Curve, index: int, target: float) -> Drawn:
    pairs = list(zip(curve.samples, curve.accuracy, strict=False))
    points = [(samples, accuracy) for samples, accuracy in pairs if math.isfinite(accuracy)]
    at = reached([accuracy for _, accuracy in pairs], target)
    return Drawn(
        name=visible(curve.name, 60, single=True) or "(no name)",
        place=index,
        own=curve,
        look=look(index),
        points=[points[each] for each in evenly(len(points), _POINTS)],
        samples=None if at is None else curve.samples[at],
    )
