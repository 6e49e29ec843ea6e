"""D.forecast: a speed predicted from the learner's own measurements, which are what it is held against.

A ring all-reduce of n bytes over W processes takes 2 (W - 1) (alpha + n / (W beta)), so between two processes it takes
2 alpha + n / beta. Times of a busy machine do not lie on a line, and several fits of them are reasonable: whatever lies
between the lowest and the highest of these is right.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from paceline_course.assess.analysis.context import Facts
from paceline_course.assess.analysis.judged import Part, line_of, near, number_of
from paceline_course.assess.answers import Answers
from paceline_course.assess.grade import Line

WORKERS, BATCH = 16, 512
"""Of the prediction; answers.toml names them."""
PART = BATCH // WORKERS
"""Samples of one process."""
_LEAST_SIZES, _LEAST_SPAN = 3, 8
"""Messages from which a latency and a bandwidth can be told apart: so many sizes, the largest so many times the
smallest."""
Points = list[tuple[float, float]]
"""Size and seconds, by size."""
Range = tuple[float, float]
_KEYS = ("alpha_s", "beta_bytes_per_s", "compute_s", "samples_per_s")


def judge_forecast(answers: Answers, facts: Facts) -> Line:
    """Four numbers, a quarter of the points each; the last one has to follow from the three others, right or wrong."""
    messages = points_of(facts.comm, "bytes", lambda row: row.get("collective", "all_reduce").strip() == "all_reduce")
    steps = points_of(facts.compute, "batch")
    fits = message_fits(messages)
    alpha, beta, compute = (number_of(answers, "forecast", key)[0] for key in _KEYS[:3])
    parts = [
        _alpha(answers, facts, fits, messages),
        _beta(answers, facts, fits),
        _compute(answers, facts, steps),
        _speed(answers, facts, (alpha, beta, compute), steps),
    ]
    evidence = {
        "alpha_s": list(fits[0]) if fits else None,
        "beta_bytes_per_s": list(fits[1]) if fits else None,
        "compute_s": list(found) if (found := compute_fits(steps)) else None,
        "gradient_bytes": facts.gradient_bytes,
    }
    ran = f"comm.csv with {len(messages)} sizes, compute.csv with {len(steps)}; {WORKERS} processes, batch {BATCH}"
    return line_of(facts, "D.forecast", parts, ran, evidence)


def predicted(alpha: float, beta: float, compute_s: float, gradient_bytes: float) -> float:
    """Samples a second of WORKERS processes with PART samples each, with nothing hidden."""
    return BATCH / (compute_s + 2 * (WORKERS - 1) * (alpha + gradient_bytes / (WORKERS * beta)))


# --- what was measured --------------------------------------------------------------------------------------------


def points_of(
    rows: Sequence[Mapping[str, str]], size: str, wanted: Callable[[Mapping[str, str]], bool] = lambda row: True
) -> Points:
    """The lines of a file of times that can be read, one a size: the median where there are several."""
    found: dict[float, list[float]] = {}
    for row in rows:
        try:
            at, seconds = float(row.get(size, "")), float(row.get("seconds", ""))
        except ValueError:
            continue
        if 0 < at < 1e15 and 1e-9 < seconds < 1e6 and wanted(row):
            found.setdefault(at, []).append(seconds)
    return sorted((at, statistics.median(times)) for at, times in found.items())


def fit_line(points: Points, relative: bool = True) -> tuple[float, float]:
    """(level, slope) of the line whose squared errors, relative or not, have the smallest sum."""
    import numpy as np

    sizes, seconds = (np.array(column) for column in zip(*points, strict=True))
    weights = 1 / seconds if relative else np.ones(len(seconds))
    scale = sizes.max()
    design = np.stack([weights, sizes / scale * weights], axis=1)
    level, slope = np.linalg.lstsq(design, seconds * weights, rcond=None)[0]
    return float(level), float(slope / scale)


def message_fits(points: Points) -> tuple[Range, Range] | None:
    """Between which values alpha and beta lie, over reasonable fits; None where the sizes are too few."""
    if len(points) < _LEAST_SIZES or points[-1][0] < _LEAST_SPAN * points[0][0]:
        return None
    (small, quick), (large, slow) = points[0], points[-1]
    ends = (slow - quick) / (large - small)
    half = points[: max(_LEAST_SIZES, len(points) // 2 + 1)]
    lines = [fit_line(points), fit_line(half), fit_line(points[1:]) if len(points) > _LEAST_SIZES else fit_line(points)]
    # A line through few bytes tells of no bandwidth, and one by absolute errors of no latency.
    levels = [level for level, _ in lines] + [quick - ends * small, quick]
    levels.append(statistics.median(seconds for _, seconds in half))
    slopes = [lines[0][1], lines[2][1], fit_line(points, relative=False)[1], ends, slow / large]
    return _range(level / 2 for level in levels), _range(1 / slope for slope in slopes if slope > 0)


def compute_fits(points: Points) -> Range | None:
    """Between which values the time of a step with PART samples lies; None where nothing near was measured."""
    below, above = [each for each in points if each[0] <= PART], [each for each in points if each[0] >= PART]
    if not below or not above:
        return None
    (left, first), (right, last) = below[-1], above[0]
    part = (PART - left) / (right - left) if right > left else 0.0
    found = [first + part * (last - first)]
    if len(points) >= _LEAST_SIZES:
        level, slope = fit_line(points)
        found.append(level + slope * PART)
    return _range(found)


def _range(values: Iterable[float]) -> Range:
    found = [value for value in values if value > 0]
    return min(found, default=0.0), max(found, default=0.0)


def _inside(value: float, allowed: Range, tolerance: float) -> bool:
    return allowed[0] / (1 + tolerance) <= value <= allowed[1] * (1 + tolerance)


# --- the four numbers ---------------------------------------------------------------------------------------------


def _alpha(answers: Answers, facts: Facts, fits: tuple[Range, Range] | None, points: Points) -> Part:
    def wrong(value: float, allowed: Range) -> str:
        if _inside(value / 2, allowed, facts.rubric.analysis.measured):
            return "forecast-intercept"
        if any(_inside(value / unit, allowed, facts.rubric.analysis.measured) for unit in (1e3, 1e6)):
            return "forecast-alpha-unit"
        level, _ = fit_line(points, relative=False)
        if any(near(value, level / by, facts.rubric.analysis.measured) for by in (1, 2)):
            return "forecast-unweighted"
        return "forecast-alpha"

    return _measured(answers, facts, "alpha_s", fits[0] if fits else None, wrong)


def _beta(answers: Answers, facts: Facts, fits: tuple[Range, Range] | None) -> Part:
    def wrong(value: float, allowed: Range) -> str:
        def fits_as(number: float) -> bool:
            return _inside(number, allowed, facts.rubric.analysis.measured)

        if value > 0 and fits_as(1 / value):
            return "forecast-beta-inverse"
        if any(fits_as(value * unit) for unit in (1e3, 1e6, 1e9, 2**20, 2**30)):
            return "forecast-beta-unit"
        return "forecast-beta-bits" if fits_as(value / 8) else "forecast-beta"

    return _measured(answers, facts, "beta_bytes_per_s", fits[1] if fits else None, wrong)


def _compute(answers: Answers, facts: Facts, points: Points) -> Part:
    times, tolerance = dict(points), facts.rubric.analysis.measured

    def wrong(value: float, allowed: Range) -> str:
        whole = times.get(float(BATCH))
        if whole is not None and near(value, whole, tolerance):
            return "forecast-compute-whole"
        if whole is not None and near(value, whole / WORKERS, tolerance):
            return "forecast-compute-divided"
        units = (1e3, 1e6)
        return (
            "forecast-compute-unit"
            if any(_inside(value / unit, allowed, tolerance) for unit in units)
            else "forecast-compute"
        )

    return _measured(answers, facts, "compute_s", compute_fits(points), wrong)


def _measured(
    answers: Answers,
    facts: Facts,
    key: str,
    allowed: Range | None,
    wrong: Callable[[float, Range], str],
) -> Part:
    """A number that has to agree with the learner's own file."""
    number, problem = number_of(answers, "forecast", key)
    expected, got = "from your own measurements", answers.shown("forecast", key)
    if allowed is None:
        return Part(
            key, problem or ("forecast-no-steps" if key == "compute_s" else "forecast-few-sizes"), expected, got
        )
    low, high = allowed
    expected = f"{low:.3g} to {high:.3g}, as your times say"
    if number is not None and not _inside(number, allowed, facts.rubric.analysis.measured):
        problem = wrong(number, allowed)
    return Part(key, problem, expected, got)


def _speed(answers: Answers, facts: Facts, own: tuple[float | None, float | None, float | None], steps: Points) -> Part:
    alpha, beta, compute = own
    number, problem = number_of(answers, "forecast", "samples_per_s")
    got = answers.shown("forecast", "samples_per_s")
    if alpha is None or beta is None or compute is None or min(alpha, beta, compute) <= 0:
        return Part("samples_per_s", problem or "forecast-needs-numbers", "from the three numbers before it", got)
    sizes = [float(facts.gradient_bytes)]
    gradient = number_of(answers, "bytes", "gradient")[0]
    if gradient is not None and gradient > 0:
        sizes.append(gradient)
    tolerance = facts.rubric.analysis.measured
    right = [predicted(alpha, beta, compute, size) for size in sizes]
    if number is not None and not any(near(number, each, tolerance) for each in right):
        problem = _wrong_speed(number, (alpha, beta, compute), sizes[0], dict(steps).get(float(BATCH)))
    return Part("samples_per_s", problem, f"{right[0]:,.4g}, from your alpha, beta and compute time", got)


def _wrong_speed(number: float, own: tuple[float, float, float], size: float, whole: float | None) -> str:
    """Formulas that are nearly right, by the value that they give; they must hit it closely."""
    alpha, beta, compute = own
    rounds = 2 * (WORKERS - 1)
    right = BATCH / predicted(*own, size)
    times: list[tuple[str, float, float]] = [
        ("forecast-steps", 1, right),
        ("forecast-one-process", PART, right),
        ("forecast-no-messages", BATCH, compute),
        ("forecast-not-divided", BATCH, compute + rounds * (alpha + size / beta)),
        ("forecast-one-latency", BATCH, compute + alpha + size / beta),
        ("forecast-one-latency", BATCH, compute + 2 * alpha + rounds / WORKERS * size / beta),
        ("forecast-one-phase", BATCH, compute + (WORKERS - 1) * (alpha + size / (WORKERS * beta))),
        ("forecast-numbers", BATCH, compute + rounds * (alpha + size / 4 / (WORKERS * beta))),
        ("forecast-two-processes", BATCH, compute + 2 * (alpha + size / (2 * beta))),
        ("forecast-shared-again", BATCH, compute / WORKERS + rounds * (alpha + size / (WORKERS * beta))),
        ("forecast-all-busy", BATCH * WORKERS, right),
    ]
    if whole is not None:
        times.append(("forecast-whole-batch", BATCH, whole + rounds * (alpha + size / (WORKERS * beta))))
    close = [
        (abs(math.log(number * seconds / samples)), name) for name, samples, seconds in times if number > 0 < seconds
    ]
    distance, name = min(close, default=(math.inf, ""))
    return name if distance < 0.02 else "forecast-speed"
