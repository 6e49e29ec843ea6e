"""The figures of `paceline plan batch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from paceline.records.plan_results import BatchPoint, BatchResult, Branch, Estimate, NoisePoint
from paceline.report import words
from paceline.report.page.figures import DASHED, DOTTED, Axis, Figure, Mark, Series, Table, ends, tabulate
from paceline.report.page.theme import COLOURS, look
from paceline.report.plan.batch_section import aim, ends_name
from paceline.report.plan.numbers import about, interval_of, percent, value_of

_FINE = 80
_BEYOND = 4.0
"""Times the smallest and the largest batch that the curve is drawn beyond the runs and the table."""


def figures(result: BatchResult) -> list[Figure]:
    """In the order of reading; each only where there is something to draw."""
    found = []
    reached = [point for point in result.points if point.steps is not None]
    if _curve(result) or len(reached) > 1:
        found.append(_trade(result))
    if _curve(result) or reached or result.table:
        found.append(_steps(result))
    if result.noise:
        found.append(_noise(result))
    if any(branch.loss is not None for branch in result.branches):
        found.append(_branches(result))
    return found


def _curve(result: BatchResult) -> tuple[float, float] | None:
    """Fewest steps and fewest samples of the fitted curve."""
    steps, samples = result.least_steps, result.least_samples
    if steps is None or samples is None or not steps.value or not samples.value:
        return None
    return steps.value, samples.value


def _batches(result: BatchResult, *within: float) -> list[float]:
    """Batches along the curve, evenly by factors; `within` are among them."""
    seen = [point.batch for point in result.points] + [row.batch for row in result.table] + list(within)
    low, high = min(seen) / _BEYOND, max(seen) * _BEYOND
    even = [low * (high / low) ** (step / _FINE) for step in range(_FINE + 1)]
    return sorted({*even, *within})


def _trade(result: BatchResult) -> Figure:
    curve, series, confidence = _curve(result), [], percent(result.evidence.confidence)
    if curve is not None:
        steps, samples = curve
        critical = samples / steps
        at = _batches(result, critical)
        series += _critical(result.critical, curve, at, confidence)
        series.append(_along("fitted", at, curve))
    series += [
        _points(seed, number, [point.samples or 0.0 for point in group], group)
        for number, (seed, group) in enumerate(_by_seed(result.points))
    ]
    note = "Each point is a measured run to the target. "
    if curve is not None:
        note += (
            "Along the curve, to the left: small batches, few samples, many steps; to the right: large ones. At the "
            "critical batch both are twice their least."
        )
    return Figure(
        "plot-trade",
        "Steps against samples",
        note + _not_reached(result),
        Axis("samples to the target", "count", log=True),
        Axis(f"steps {aim(result)}", "count", log=True),
        series,
        _runs_table(result),
        picture="steps-against-samples.png",
    )


def _along(name: str, batches: Sequence[float], curve: tuple[float, float]) -> Series:
    steps, samples = curve
    return Series(
        name,
        [samples + steps * batch for batch in batches],
        [steps + samples / batch for batch in batches],
        said=[f"batch {about(batch)}" for batch in batches],
    )


def _critical(of: Estimate | None, curve: tuple[float, float], at: Sequence[float], confidence: str) -> list[Series]:
    if of is None or of.value is None:
        return []
    low, high = of.low or min(at), of.high or max(at)
    inside = [batch for batch in at if low < batch < high]
    stretch = _along("", [low, *inside, high], curve)
    name = f"critical batch: {confidence} interval {interval_of(of)}"
    point = _along("", [of.value], curve)
    return [
        replace(stretch, name=name, paint="run-3", width=9, alpha=0.35),
        replace(point, name=f"critical batch: {value_of(of)}", kind="points", paint="run-3", marker="x"),
    ]


def _steps(result: BatchResult) -> Figure:
    curve, series, marks = _curve(result), [], []
    if curve is not None:
        steps, samples = curve
        at = _batches(result)
        series += [
            Series("fewest steps", [at[0], at[-1]], [steps, steps], paint="soft", dash=DOTTED),
            _halving(at, curve),
            Series("fitted", at, [steps + samples / batch for batch in at]),
        ]
        if result.critical is not None and result.critical.value is not None:
            marks.append(Mark("x", result.critical.value, "critical batch"))
            if result.critical.low and result.critical.high:
                marks.append(Mark("x", result.critical.low, "", result.critical.high))
    rows = list({row.batch: row for row in result.table}.values())
    if rows:
        low, high = ends([row.steps for row in rows])
        at, values = [float(row.batch) for row in rows], [row.steps.value for row in rows]
        name = f"{ends_name(result)} of the prediction"
        series.append(Series(name, at, values, kind="band", low=low, high=high))
        if curve is None:
            series.append(Series("predicted", at, values))
    series += [
        _points(seed, number, [float(point.batch) for point in group], group)
        for number, (seed, group) in enumerate(_by_seed(result.points))
    ]
    return Figure(
        "plot-steps",
        "Steps over the batch",
        _steps_note(result) + _not_reached(result),
        Axis("batch, samples a step", "count", log=True),
        Axis(f"steps {aim(result)}", "count", log=True),
        series,
        _steps_table(result),
        marks=marks,
        picture="steps-over-batch.png",
    )


def _steps_note(result: BatchResult) -> str:
    if _curve(result) is None:
        return "Predicted, with its bounds: without a fit to runs this is an indication, no more."
    return "Up to the critical batch a larger batch saves steps almost in proportion, beyond it hardly any."


def _halving(at: Sequence[float], curve: tuple[float, float]) -> Series:
    """What steps would be if samples were all that counted, down to where the figure would become empty."""
    steps, samples = curve
    shown = [batch for batch in at if samples / batch > steps / 4]
    values = [samples / batch for batch in shown]
    return Series("each doubling halves the steps", shown, values, paint="soft", dash=DASHED)


def _by_seed(points: Sequence[BatchPoint]) -> list[tuple[int, list[BatchPoint]]]:
    seeds = sorted({point.seed for point in points})
    return [(seed, [point for point in points if point.seed == seed and point.steps is not None]) for seed in seeds]


def _points(seed: int, number: int, x: Sequence[float], group: Sequence[BatchPoint]) -> Series:
    said = [f"batch {point.batch:,}<br>{point.run}" for point in group]
    steps = [point.steps for point in group]
    return Series(f"measured, seed {seed}", x, steps, "points", "run-1", marker=look(number).marker, said=said)


def _not_reached(result: BatchResult) -> str:
    missed = sum(point.steps is None for point in result.points)
    return f" Not drawn: {words.plural(missed, 'run')} that did not reach the target." if missed else ""


def _runs_table(result: BatchResult) -> Table:
    curve = _curve(result)
    columns: dict[str, Callable[[BatchPoint], str]] = {
        "Batch": lambda point: words.integer(point.batch),
        "Seed": lambda point: str(point.seed),
        "Measured steps": lambda point: "not reached" if point.steps is None else words.integer(point.steps),
        "Measured samples": lambda point: "not reached" if point.steps is None else words.integer(point.samples),
        "Fitted steps": lambda point: "" if curve is None else about(curve[0] + curve[1] / point.batch),
        "Run": lambda point: point.run,
    }
    points = sorted(result.points, key=lambda one: (one.batch, one.seed))
    return tabulate("Measured runs to the target", points, columns, heads=2)


def _steps_table(result: BatchResult) -> Table:
    rows = {row.batch: row for row in result.table}
    cells = []
    for batch in sorted({*rows, *(point.batch for point in result.points)}):
        reached = [point.steps for point in result.points if point.batch == batch and point.steps is not None]
        mean = words.integer(sum(reached) / len(reached)) if reached else ""
        row = rows.get(batch)
        steps = ["", ""] if row is None else [value_of(row.steps), interval_of(row.steps)]
        cells.append([words.integer(batch), mean, words.integer(len(reached)), *steps])
    columns = ["Batch", "Measured steps, mean", "Runs that reached it", "Predicted steps"]
    columns.append(ends_name(result).capitalize())
    return Table(f"Steps {aim(result)}", columns, cells)


def _noise(result: BatchResult) -> Figure:
    known = [point for point in result.noise if not point.exhausts_data]
    beyond = [point for point in result.noise if point.exhausts_data]
    series = [_noise_points("noise scale, measured", known, "circle")] if known else []
    series += [replace(_noise_points("at least the data set", beyond, "triangle-up"), hollow=True)] if beyond else []
    marks = []
    if result.critical is not None and result.critical.value is not None:
        marks.append(Mark("y", result.critical.value, "critical batch"))
    confidence = percent(result.evidence.confidence)
    columns: dict[str, Callable[[NoisePoint], str]] = {
        "Steps": lambda point: f"{point.first:,} to {point.last:,}",
        "Noise scale": lambda point: "at least the data set" if point.exhausts_data else value_of(point.noise_scale),
        f"{confidence} interval": lambda point: interval_of(point.noise_scale),
    }
    return Figure(
        "plot-noise",
        "Gradient noise scale over training",
        f"The batch at which gradient and noise are equally long, measured in stretches of the run, with {confidence} "
        "intervals; whiskers without an end run to the edge. It indicates what a larger batch would bring, no more.",
        Axis("steps", "count", zero=True),
        Axis("noise scale, samples", "count", log=True),
        series,
        tabulate("Gradient noise scale, measured", result.noise, columns),
        marks=marks,
        picture="noise-scale.png",
    )


def _noise_points(name: str, group: Sequence[NoisePoint], marker: str) -> Series:
    low, high = ends([point.noise_scale for point in group])
    at, values = [float(point.last) for point in group], [point.noise_scale.value for point in group]
    tops = [end if value is None else value for value, end in zip(values, low, strict=True)]
    said = [f"steps {point.first:,} to {point.last:,}" for point in group]
    return Series(name, at, tops, kind="points", marker=marker, low=low, high=high, said=said)


def _branches(result: BatchResult) -> Figure:
    series = []
    counts = sorted({branch.samples for branch in result.branches})
    for number, samples in enumerate(counts):
        group = [one for one in result.branches if one.samples == samples]
        batches = sorted({one.batch for one in group})
        means = [_mean([one for one in group if one.batch == batch]) for batch in batches]
        paint, marker = f"run-{number % COLOURS}", look(number % COLOURS).marker
        after = f"after {samples:,} samples"
        at = [float(batch) for batch in batches]
        series.append(Series(f"mean, {after}", at, means, paint=paint, dash=DOTTED))
        series.append(
            Series(
                f"measured, {after}",
                [float(one.batch) for one in group],
                [one.loss for one in group],
                kind="points",
                paint=paint,
                marker=marker,
                said=[f"seed {one.seed}<br>{one.run}" for one in group],
            )
        )
    return Figure(
        "plot-branches",
        "Branches: loss at equal samples",
        "Short measured runs from one checkpoint, each at another batch. Where the loss stays level, the larger batch "
        "costs nothing yet; where it rises, samples are being wasted." + _diverged(result.branches),
        Axis("batch, samples a step", "count", log=True),
        Axis("loss", "number"),
        series,
        _branches_table(result.branches),
    )


def _mean(group: Sequence[Branch]) -> float | None:
    losses = [one.loss for one in group if one.loss is not None]
    return sum(losses) / len(losses) if losses else None


def _diverged(branches: Sequence[Branch]) -> str:
    failed = sum(one.loss is None for one in branches)
    return f" Not drawn: {words.plural(failed, 'branch', 'branches')} that diverged." if failed else ""


def _branches_table(branches: Sequence[Branch]) -> Table:
    columns: dict[str, Callable[[Branch], str]] = {
        "Batch": lambda one: words.integer(one.batch),
        "Seed": lambda one: str(one.seed),
        "Samples": lambda one: words.integer(one.samples),
        "Loss": lambda one: "diverged" if one.loss is None else words.decimal(one.loss),
        "Run": lambda one: one.run,
    }
    ordered = sorted(branches, key=lambda one: (one.batch, one.seed, one.samples))
    return tabulate("Branches, measured", ordered, columns, heads=2)
