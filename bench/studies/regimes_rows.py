"""What the records of the regimes study say: when targets were reached, how steps fall with the batch, and the regime.

A run is evaluated every half epoch, so its steps to the target are known only to lie above those of the evaluation
before the first one that reached it. A slope between two batches is as uncertain as both ends allow, and a regime is
named only where that uncertainty does not reach across a border.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bench.studies.compare import Arrival, arrivals
from bench.studies.pages import diverged
from bench.studies.regimes import BASE_BATCH, BATCHES, RULES, reached

Rows = dict[tuple[str, int], list[Mapping[str, Any]]]
"""(rule, batch) -> its records."""
LABELS = {"none": "no rule", "linear": "linear rule"}
PERFECT, MAXIMAL = -0.8, -0.2
"""Slopes of log steps against log batch: below the first is called near perfect, above the second near maximal."""
_END = {"step": "steps", "samples": "samples", "elapsed_s": "elapsed_s"}


def rows_of(records: Sequence[Mapping[str, Any]], kind: str) -> Rows:
    """Cells of a kind (`target`, `10ep`); batch 128 is both rules at once."""
    found: Rows = {}
    for record in records:
        batch, rule, of_kind = record["setting"].split("-")
        if of_kind != kind:
            continue
        number = int(batch.removeprefix("b"))
        for each in RULES if number == BASE_BATCH else (rule,):
            found.setdefault((each, number), []).append(record)
    return found


def places(rows: Rows) -> Iterator[tuple[list[str], list[Mapping[str, Any]]]]:
    """Every line of a table: batch and rule in words, and its records, none where it was not run."""
    for batch in BATCHES:
        for rule in RULES if batch != BASE_BATCH else RULES[:1]:
            label = "either" if batch == BASE_BATCH else LABELS[rule]
            yield [f"{batch}", label], rows.get((rule, batch), [])


def to_target(records: Sequence[Mapping[str, Any]], field: str) -> Arrival:
    """Steps, samples or elapsed_s to the target over seeds; a diverged run never arrives, one cut off might have."""
    hits = [reached(record) for record in records]
    ends = [None if diverged(record) else record["training"][_END[field]] for record in records]
    return arrivals([None if hit is None else float(hit[field]) for hit in hits], ends)


def window(record: Mapping[str, Any]) -> tuple[float, float]:
    """Steps between which a run reached the target: above the first number, at most the second.

    Without an evaluation before, the first is 1: no run has learned anything before its first step. One that was cut
    off arrives anywhere after its end, one that diverged never.
    """
    hit = reached(record)
    if hit is None:
        return (math.inf if diverged(record) else float(record["training"]["steps"] or 1)), math.inf
    before = [e["step"] for e in record["training"]["evaluations"] if e["step"] < hit["step"]]
    return float(max([1, *before])), float(hit["step"])


@dataclass(frozen=True)
class Slope:
    """Of log steps against log batch.

    Attributes:
        smaller, larger: the two batches.
        runs: of either.
        value: between the medians.
        low, high: the least and the greatest that any pair of runs allows, evaluations being half an epoch apart; not
            finite where a run of either batch did not arrive.
    """

    smaller: int
    larger: int
    runs: tuple[int, int]
    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """With its range, and the regime as far as that is known."""
        ends = [f"{end:+.2f}" if math.isfinite(end) else "unknown" for end in (self.low, self.high)]
        found = f"{self.smaller} to {self.larger}: {self.value:+.2f}, range {ends[0]} to {ends[1]}"
        return f"{found}, n = {self.runs[0]} and {self.runs[1]} ({self.regime})"

    @property
    def regime(self) -> str:
        """Its name where the whole range has one, else the names of both ends."""
        first, last = regime(self.low), regime(self.high)
        return first if first == last else f"between {first} and {last}"


def slopes(rows: Rows, rule: str) -> list[Slope]:
    """From each batch whose median is known to the next such batch."""
    known = []
    for batch in BATCHES:
        records = rows.get((rule, batch), [])
        median = to_target(records, "step").median if records else None
        if median is not None:
            windows = [window(record) for record in records]
            known.append(
                _Steps(batch, len(records), median, min(low for low, _ in windows), max(h for _, h in windows))
            )
    return [_slope(before, after) for before, after in itertools.pairwise(known)]


class _Steps(NamedTuple):
    """To the target, at one batch."""

    batch: int
    runs: int
    median: float
    low: float
    high: float


def _slope(before: _Steps, after: _Steps) -> Slope:
    width = math.log(after.batch / before.batch)
    return Slope(
        smaller=before.batch,
        larger=after.batch,
        runs=(before.runs, after.runs),
        value=math.log(after.median / before.median) / width,
        low=(math.log(after.low) - math.log(before.high)) / width,
        high=(math.log(after.high) - math.log(before.low)) / width,
    )


def without_median(rows: Rows, rule: str) -> list[str]:
    """Every batch of a rule that has no median, and why."""
    found = []
    for batch in BATCHES:
        records = rows.get((rule, batch), [])
        if not records:
            found.append(f"{batch}: not run")
            continue
        arrival = to_target(records, "step")
        if arrival.median is None:
            lost = f", {arrival.diverged} diverged" if arrival.diverged else ""
            found.append(f"{batch}: reached by {arrival.arrived} of {arrival.runs}{lost}")
    return found


def regime(slope: float) -> str:
    """The name of a regime by its slope; the borders are ours."""
    if slope < PERFECT:
        return "near perfect scaling"
    return "little or no gain" if slope > MAXIMAL else "diminishing returns"
