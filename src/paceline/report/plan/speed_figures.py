"""The figures of `paceline plan speed`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from paceline.records.plan_results import Measured, NetworkFacts, SpeedResult, SpeedRow
from paceline.report import words
from paceline.report.page.figures import (
    DASHED,
    DOTTED,
    Axis,
    Figure,
    Mark,
    Series,
    Table,
    ends,
    open_points,
    tabulate,
)
from paceline.report.page.theme import COLOURS, look
from paceline.report.plan.numbers import error, interval_of, reach, reach_in_short, step_time, value_of
from paceline.report.plan.speed_section import (
    FAR,
    PARTS,
    SCALINGS,
    curve_of,
    measured_efficiency,
    measured_like,
    per_second,
    rows_of,
    to_target,
)

_LOOKS = {"strong": ("run-0", "circle"), "weak": ("run-1", "square"), "target": ("run-2", "diamond")}
_PAINTS = {
    "work": "phase-2",
    "floor": "phase-1",
    "sharing": "phase-3",
    "network": "phase-5",
    "jitter": "phase-4",
    "rest": "phase-0",
}
_WORKERS = (1.0, 8.0, 64.0, 512.0, 4096.0)


def figures(result: SpeedResult) -> list[Figure]:
    """In the order of reading."""
    found = [_efficiency(result), _throughput(result)]
    found += [_parts(result, scaling) for scaling in SCALINGS if rows_of(result, scaling)]
    if result.measured:
        found.append(_fit(result))
    if result.network.probed:
        found.append(_network(result.network))
    return found


def _efficiency(result: SpeedResult) -> Figure:
    series, marks = [], _far(result)
    for scaling in SCALINGS:
        rows = curve_of(result, scaling)
        series += _split(f"{scaling} scaling", rows, result, scaling, [row.efficiency for row in rows])
        if to_target(rows):
            values = [row.target_efficiency for row in rows]
            series += _split(f"{scaling} scaling, to the target", rows, result, "target", values)
    for scaling in SCALINGS:
        points = measured_efficiency(result, scaling)
        if points:
            shares = [share for _, share in points]
            at, runs = [one.workers for one, _ in points], [one.run for one, _ in points]
            series.append(_measured(scaling, at, shares, runs))
    note = (
        "1 is perfect. Strong: the global batch stays; weak: the batch a worker stays. Lines are predicted: solid up "
        "to the most workers that were measured, dashed beyond (extrapolation)."
    )
    if any(to_target(curve_of(result, scaling)) for scaling in SCALINGS):
        note += " To the target: also counts that a sample of a larger batch brings less."
    return Figure(
        "plot-efficiency",
        "Efficiency over workers",
        note,
        _workers_axis(),
        Axis("efficiency", "share", zero=True),
        series,
        _curve_table(result),
        marks=marks,
        picture="efficiency.png",
    )


def _throughput(result: SpeedResult) -> Figure:
    series = []
    for scaling in SCALINGS:
        rows = curve_of(result, scaling)
        rates = [row.samples_per_s for row in rows]
        slow, fast = ends([row.step_s for row in rows])
        low = [None if end is None else row.batch / end for row, end in zip(rows, fast, strict=True)]
        high = [None if not end else row.batch / end for row, end in zip(rows, slow, strict=True)]
        series += _split(f"{scaling} scaling", rows, result, scaling, rates, low, high)
    for scaling in SCALINGS:
        rows = curve_of(result, scaling)
        if rows and rows[0].workers == 1:
            perfect = [row.workers * rows[0].samples_per_s for row in rows]
            at = [row.workers for row in rows]
            series.append(Series("perfect scaling", at, perfect, paint="soft", dash=DOTTED))
        like = measured_like(result, scaling)
        if like:
            values = [per_second(one) for one in like]
            series.append(_measured(scaling, [one.workers for one in like], values, [one.run for one in like]))
    return Figure(
        "plot-throughput",
        "Samples a second over workers",
        "Lines are predicted, with their intervals; dashed: extrapolation. Dotted: as many single workers.",
        _workers_axis(),
        Axis("samples/s", "count", log=True),
        series,
        _curve_table(result),
        marks=_far(result),
        picture="throughput.png",
    )


def _workers_axis() -> Axis:
    return Axis("workers", "count", log=True, ticks=_WORKERS)


def _far(result: SpeedResult) -> list[Mark]:
    most = max((row.workers for row in result.curve), default=0)
    at = FAR * result.most_workers
    return [Mark("x", at, f"{FAR:g} × the most measured")] if at <= most else []


def _split(
    name: str,
    rows: Sequence[SpeedRow],
    result: SpeedResult,
    key: str,
    values: Sequence[float | None],
    low: Sequence[float | None] = (),
    high: Sequence[float | None] = (),
) -> list[Series]:
    """One line as two: what lies within the runs solid, what lies beyond dashed, joined at the last within."""
    paint, marker = _LOOKS[key]
    at = [float(row.workers) for row in rows]
    within = sum(row.workers <= result.most_workers for row in rows)
    stretches = [(name, 0, within, "")] if within > 1 else []
    if within < len(rows):
        stretches.append((f"{name}, extrapolation", max(0, within - 1), len(rows), DASHED))
    return [
        Series(
            f"{called}, predicted" if not dash else called,
            at[first:last],
            values[first:last],
            paint=paint,
            dash=dash,
            marker=marker,
            low=low[first:last],
            high=high[first:last],
            said=[reach(row.beyond, FAR) for row in rows[first:last]],
        )
        for called, first, last, dash in stretches
    ]


def _measured(scaling: str, at: Sequence[float], values: Sequence[float], runs: Sequence[str]) -> Series:
    return Series(
        f"{scaling} scaling, measured", at, values, kind="points", paint="ink", marker=_LOOKS[scaling][1], said=runs
    )


def _curve_table(result: SpeedResult) -> Table:
    target = any(to_target(curve_of(result, scaling)) for scaling in SCALINGS)
    columns = ["Scaling", "Workers", "Batch", "Step", "Samples/s", "Efficiency"]
    columns += ["To the target"] if target else []
    cells = []
    for scaling in SCALINGS:
        for row in curve_of(result, scaling):
            shown = [scaling, words.integer(row.workers), words.integer(row.batch), value_of(row.step_s, step_time)]
            shown += [words.rate(row.samples_per_s), words.share(row.efficiency)]
            shown += [words.share(row.target_efficiency)] if target else []
            cells.append([*shown, reach_in_short(row.beyond, FAR)])
    measured = []
    for scaling in SCALINGS:
        shares = {one.run: words.share(share) for one, share in measured_efficiency(result, scaling)}
        for one in measured_like(result, scaling):
            shown = [scaling, words.integer(one.workers), words.integer(one.workers * one.micro * one.accumulation)]
            shown += [step_time(one.step_s), words.rate(per_second(one)), shares.get(one.run, "")]
            measured.append([*shown, *([""] if target else []), "measured"])
    return Table(
        "Predicted, and measured where there is a run", [*columns, "Beyond the runs"], cells + measured, heads=2
    )


def _parts(result: SpeedResult, scaling: str) -> Figure:
    rows = rows_of(result, scaling)
    at = [f"{row.workers:,}" for row in rows]
    series = [
        Series(name, at, [getattr(row.parts, f"{key}_s") for row in rows], kind="bars", paint=_PAINTS[key])
        for key, name in PARTS.items()
    ]
    columns: dict[str, Callable[[SpeedRow], str]] = {
        "Workers": lambda row: f"{row.workers:,}",
        "Step": lambda row: value_of(row.step_s, step_time),
        "Interval": lambda row: interval_of(row.step_s, step_time),
    }
    columns |= {name.capitalize(): functools.partial(_part, key) for key, name in PARTS.items()}
    stays = "the global batch stays" if scaling == "strong" else "the batch a worker stays"
    return Figure(
        f"plot-parts-{scaling}",
        f"A step by its parts, {scaling} scaling",
        f"Predicted; {stays}. Network is what does not hide behind computing.",
        Axis("workers", "name"),
        Axis("time of a step", "seconds", zero=True),
        series,
        tabulate(f"Parts of a step, {scaling} scaling, predicted", rows, columns),
        shares=True,
    )


def _part(key: str, row: SpeedRow) -> str:
    return step_time(getattr(row.parts, f"{key}_s"))


def _fit(result: SpeedResult) -> Figure:
    measured = result.measured
    times = [one.step_s for one in measured]
    spread = [one.step_s * one.spread for one in measured]
    held = result.evidence.held_out
    every = times + [one.measured for one in held] + [one.fitted_s for one in measured]
    line = [min(every) / 1.2, max(every) * 1.2]
    series = [
        Series("equal", line, line, paint="soft", dash=DOTTED),
        Series(
            "in the fit: fitted",
            times,
            [one.fitted_s for one in measured],
            kind="points",
            marker="circle",
            left=[time - off for time, off in zip(times, spread, strict=True)],
            right=[time + off for time, off in zip(times, spread, strict=True)],
            said=[_setting(one) for one in measured],
        ),
    ]
    if held:
        at, there = [one.measured for one in held], [one.predicted for one in held]
        said = [one.what for one in held]
        series.append(open_points("left out of the fit: predicted", at, there, "run-1", "diamond", said=said))
    columns: dict[str, Callable[[Measured], str]] = {
        "Setting": _setting,
        "Measured step": lambda one: step_time(one.step_s),
        "Spread": lambda one: words.share(one.spread),
        "Fitted step": lambda one: step_time(one.fitted_s),
        "Error of the fit": lambda one: error(one.fitted_s / one.step_s - 1),
        "Run": lambda one: one.run,
    }
    return Figure(
        "plot-fit",
        "Measured against fitted",
        "Points on the dotted line agree. Whiskers: half of a run's steps lie within. Open points were left out of the "
        "fit, and are the ones to judge it by.",
        Axis("measured step", "seconds", log=True),
        Axis("fitted or predicted step", "seconds", log=True),
        series,
        tabulate("Runs in the fit", measured, columns),
    )


def _setting(one: Measured) -> str:
    more = f" × {one.accumulation}" if one.accumulation != 1 else ""
    return f"{words.plural(one.workers, 'worker')}, {words.integer(one.micro)}{more} samples each"


def ring_s(network: NetworkFacts, ranks: float, size_bytes: float) -> float:
    """Seconds of an all-reduce over a ring by the fitted numbers; the formula is that of `plan.collectives.ring`.

    Args:
        network: with latency and bandwidth.
        ranks: at least 2.
        size_bytes: that each of them sums.
    """
    assert network.latency_s is not None
    assert network.bandwidth_bytes_per_s is not None
    rounds = 2 * (ranks - 1)
    own = rounds / ranks * size_bytes / network.bandwidth_bytes_per_s
    together = rounds * size_bytes / network.shared_bytes_per_s if network.shared_bytes_per_s else 0.0
    turns = max(1.0, ranks / network.processors) if network.processors else 1.0
    return rounds * turns * network.latency_s + max(own, together)


def _network(network: NetworkFacts) -> Figure:
    fitted = network.latency_s is not None and network.bandwidth_bytes_per_s is not None
    groups = sorted({ranks for ranks, _, _ in network.probed})
    series, cells = [], []
    for number, ranks in enumerate(groups):
        points = sorted((size, seconds) for count, size, seconds in network.probed if count == ranks)
        paint, marker = f"run-{number % COLOURS}", look(number % COLOURS).marker
        if fitted:
            sizes = _between(points[0][0], points[-1][0])
            line = [ring_s(network, ranks, size) for size in sizes]
            series.append(Series(f"{ranks:g} ranks, fitted", sizes, line, paint=paint))
        name = f"{ranks:g} ranks, measured"
        at, took = [size for size, _ in points], [seconds for _, seconds in points]
        series.append(Series(name, at, took, kind="points", paint=paint, marker=marker))
        for size, seconds in points:
            there = ring_s(network, ranks, size) if fitted else None
            off = "" if there is None else error(there / seconds - 1)
            fit = "" if there is None else step_time(there)
            cells.append([f"{ranks:g}", words.size(size), step_time(seconds), fit, off])
    return Figure(
        "plot-network",
        "The network",
        "Time of one sum over all ranks, by bytes. Points were measured by the probe, lines are fitted to them.",
        Axis("bytes", "bytes", log=True),
        Axis("time", "seconds", log=True),
        series,
        Table("Probed sums over ranks", ["Ranks", "Size", "Measured", "Fitted", "Error of the fit"], cells),
    )


def _between(low: float, high: float) -> list[float]:
    if not 0 < low < high:
        return [low]
    return [low * (high / low) ** (step / 40) for step in range(41)]
