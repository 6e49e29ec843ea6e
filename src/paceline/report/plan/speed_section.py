"""`paceline plan speed` in words and tables: facts, the rows that answer, what mending would give."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from paceline.records.plan_results import Estimate, Measured, Mending, SpeedResult, SpeedRow
from paceline.report import words
from paceline.report.page.figures import Table, tabulate
from paceline.report.plan.content import Bar
from paceline.report.plan.evidence import held_out_quantity
from paceline.report.plan.numbers import about, interval_of, percent, reach, reach_in_short, step_time, value_of
from paceline.report.quantities import Quantity

FAR = 16.0
"""Workers over the most that were measured, beyond which the planner warns; a test holds it to the planner's own."""
SCALINGS = ("strong", "weak")
PARTS = {
    "work": "computing",
    "floor": "launching",
    "sharing": "sharing a machine",
    "network": "network",
    "jitter": "waiting for the slowest",
    "rest": "the rest of the step",
}
_SOURCES = {"probe": "as a probe found it", "given": "as it was given, not measured", "none": "none is needed"}


def headline(result: SpeedResult) -> str:
    """What it was fitted to: one line."""
    counts = sorted({one.workers for one in result.measured})
    on = words.plural(counts[-1], "worker") if counts else "no worker"
    if len(counts) > 1:
        on = f"{counts[0]} to {on}"
    parts = [f"fitted to {words.plural(len(result.measured), 'measured run')} on {on}"]
    parts.append(f"{words.size(result.size_bytes)} of gradients a step")
    parts.append(f"network: {_SOURCES.get(result.network.source, result.network.source)}")
    return " · ".join(parts)


def quantities(result: SpeedResult) -> list[Quantity]:
    """Every number, in the order of reading."""
    found = list(_efficiencies(result))
    found += _mending(result)
    found.append(held_out_quantity(result.evidence))
    found += _network(result)
    if result.noise_scale is not None:
        detail = "samples; given, or from a run: with it, efficiency to a target is known"
        found.append(Quantity.of("noise scale", about(result.noise_scale), detail))
    return found


def rows_of(result: SpeedResult, scaling: str) -> list[SpeedRow]:
    """Rows that were asked for, ascending in workers."""
    return sorted((row for row in result.rows if row.scaling == scaling), key=lambda row: row.workers)


def curve_of(result: SpeedResult, scaling: str) -> list[SpeedRow]:
    """Rows for drawing and rows that were asked for, each number of workers once, ascending."""
    merged = {row.workers: row for row in (*result.curve, *result.rows) if row.scaling == scaling}
    return [merged[workers] for workers in sorted(merged)]


def per_second(one: Measured) -> float:
    """Measured samples a second."""
    return one.workers * one.micro * one.accumulation / one.step_s


def measured_like(result: SpeedResult, scaling: str) -> list[Measured]:
    """Measured runs that lie on the curve of a scaling: of its global batch, or of its batch a worker."""
    rows = curve_of(result, scaling)
    if not rows:
        return []
    batch, micro = rows[0].batch, rows[0].batch / rows[0].workers

    def lies_on(one: Measured) -> bool:
        if scaling == "strong":
            return math.isclose(one.workers * one.micro * one.accumulation, batch)
        return math.isclose(one.micro, micro) and one.accumulation == 1

    return [one for one in result.measured if lies_on(one)]


def measured_efficiency(result: SpeedResult, scaling: str) -> list[tuple[Measured, float]]:
    """Measured runs of a scaling with more than one worker, and their efficiency beside measured ones with one."""
    like = measured_like(result, scaling)
    alone = [per_second(one) for one in like if one.workers == 1]
    if not alone:
        return []
    base = sum(alone) / len(alone)
    return [(one, per_second(one) / (one.workers * base)) for one in like if one.workers > 1]


def to_target(rows: Sequence[SpeedRow]) -> bool:
    """Whether efficiency to the target differs from that of the machines anywhere."""
    return any(row.target_efficiency is not None and row.target_efficiency != row.efficiency for row in rows)


def table(result: SpeedResult) -> Table:
    """Every setting that was asked for. All but the numbers of workers are predictions."""
    rows = [row for scaling in SCALINGS for row in rows_of(result, scaling)]
    columns: dict[str, Callable[[SpeedRow], str]] = {
        "Scaling": lambda row: row.scaling,
        "Workers": lambda row: words.integer(row.workers),
        "Batch": lambda row: words.integer(row.batch),
        "Step": lambda row: value_of(row.step_s, step_time),
        f"{percent(result.evidence.confidence)} interval": _interval,
        "Samples/s": lambda row: words.rate(row.samples_per_s),
        "Efficiency": lambda row: _with_ends(row.efficiency, row.efficiency_interval),
        "To the target": lambda row: _with_ends(row.target_efficiency, row.target_efficiency_interval),
        "Slowed by": bottleneck,
        "Beyond the runs": lambda row: reach_in_short(row.beyond, FAR),
    }
    if not to_target(rows):
        del columns["To the target"]
    return tabulate("Predicted settings", rows, columns, heads=2)


def bottleneck(row: SpeedRow) -> str:
    """What takes most besides computing, in words."""
    return "nothing much" if row.bottleneck == "work" else PARTS.get(row.bottleneck, row.bottleneck)


def _efficiencies(result: SpeedResult) -> Iterator[Quantity]:
    for scaling in SCALINGS:
        rows = rows_of(result, scaling)
        if not rows:
            continue
        near = [row for row in rows if row.beyond <= FAR]
        row = near[-1] if near else rows[0]
        parts = [f"{row.workers:,} workers, {value_of(row.step_s, step_time)} a step ({_interval(row)})"]
        parts += [f"{words.rate(row.samples_per_s)} samples/s", f"slowed by: {bottleneck(row)}", reach(row.beyond, FAR)]
        name = f"predicted efficiency, {scaling} scaling"
        yield Quantity.of(
            name, _with_ends(row.efficiency, row.efficiency_interval), "; ".join(parts), sure=row.beyond <= FAR
        )
        if to_target(rows) and row.target_efficiency is not None and row.target_efficiency != row.efficiency:
            detail = f"{row.workers:,} workers; counts that a sample of a larger batch brings less"
            name = f"predicted efficiency to the target, {scaling} scaling"
            shown = _with_ends(row.target_efficiency, row.target_efficiency_interval)
            yield Quantity.of(name, shown, detail, sure=row.beyond <= FAR)


def _with_ends(share: float | None, ends: Estimate | None) -> str:
    """`71 % (60 % to 80 %)`; records before intervals were kept have the share alone."""
    return words.share(share) + ("" if ends is None else f" ({interval_of(ends, words.share)})")


def _interval(row: SpeedRow) -> str:
    return interval_of(row.step_s, step_time)


def mended_at(result: SpeedResult) -> str:
    """The setting that mending was looked at: `weak scaling, 8 workers, 31 ms a step`."""
    at = f"weak scaling, {words.plural(result.mending_workers, 'worker')}"
    if not result.mending:
        return at
    now = result.mending[0].step_s * (1 + result.mending[0].gain)
    return f"{at}, {step_time(now)} a step"


def mending_bars(result: SpeedResult) -> list[Bar]:
    """What single changes would give, the most first."""
    most = max((one.gain for one in result.mending), default=0.0) or 1.0
    return [
        Bar(
            name=one.what,
            value=_gain(one.gain),
            detail=f"predicted step: {step_time(one.step_s)}{_gain_ends(one)}",
            width=max(0.0, one.gain / most),
        )
        for one in sorted(result.mending, key=lambda one: -one.gain)
    ]


def _gain(gain: float) -> str:
    return "nothing" if abs(gain) < 5e-4 else f"{words.share(gain)} more samples/s"


def _gain_ends(one: Mending) -> str:
    ends = one.gain_interval
    return "" if ends is None or abs(one.gain) < 5e-4 else f"; gain {interval_of(ends, words.share)}"


def _mending(result: SpeedResult) -> Iterator[Quantity]:
    bars = [one for one in result.mending if one.gain >= 5e-4]
    if bars:
        best = max(bars, key=lambda one: one.gain)
        detail = f"more samples/s, predicted, by {best.what}; {mended_at(result)}{_gain_ends(best)}"
        yield Quantity.of("most that one change would give", words.share(best.gain), detail)


def _network(result: SpeedResult) -> Iterator[Quantity]:
    network = result.network
    kind = "measured by a probe" if network.source == "probe" else "as given"
    worst = f"; the fit's worst error {words.share(network.worst_error)}" if network.worst_error is not None else ""
    if network.latency_s is not None:
        yield Quantity.of("latency of the network", step_time(network.latency_s), kind + worst)
    for name, rate, source in (
        ("bandwidth of the network", network.bandwidth_bytes_per_s, kind),
        ("what a machine's workers move together", network.shared_bytes_per_s, kind),
        ("bandwidth between machines", network.outer_bandwidth_bytes_per_s, "as given"),
    ):
        if rate is not None:
            yield Quantity.of(name, f"{about(rate / 1e9)} GB/s", source)
    if network.outer_latency_s is not None:
        yield Quantity.of("latency between machines", step_time(network.outer_latency_s), "as given")
