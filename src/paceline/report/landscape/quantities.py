"""The numbers of a measurement in words: the same rows for the card, the page and the table of several runs.

A number keeps its meaning only with what stands beside it: its error and what kind of error that is, whether the search
for it ended, and whether it stays the same when a network is rewritten without a change of what it computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.records.landscape import (
    Density,
    Eigenvalues,
    Interpolation,
    Keskar,
    LandscapeResult,
    Sam,
    Surface,
    Trace,
    Trajectory,
)
from paceline.records.wrap import ordinal
from paceline.report import words
from paceline.report.quantities import Quantity

NOT_CONVERGED = "not converged"


@dataclass(frozen=True)
class Measured(Quantity):
    """One measured number.

    Attributes:
        key: the same for the same number of every run.
        kept: whether rescaling layers against each other leaves it as it is; None where the question has no sense.
    """

    key: str = ""
    kept: bool | None = None


def significant(value: float | None, digits: int = 4) -> str:
    """So many significant digits, without trailing zeros: 12.35, 0.0009766, 1,235, 1.2e+07."""
    if value is None or not math.isfinite(value):
        return "not finite"
    if value and not 1e-4 <= abs(value) < 10**7:
        return f"{value:.{digits}g}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def quantities(result: LandscapeResult) -> list[Measured]:
    """Every number of a result, in the order of reading."""
    parts: list[tuple[Callable[[Any], Iterator[Measured]], object]] = [
        (_trajectory, result.trajectory),
        (_surface, result.surface),
        (_interpolation, result.interpolation),
        (_eigenvalues, result.eigenvalues),
        (_trace, result.trace),
        (_density, result.density),
        (_keskar, result.keskar),
        (_sam, result.sam),
    ]
    return [*_centre(result), *(one for in_words, part in parts if part is not None for one in in_words(part))]


def headline(result: LandscapeResult) -> str:
    """What was looked at, with what: one line."""
    kind = {"train": "training", "eval": "evaluation"}.get(result.data, result.data)
    seen = f"{words.plural(result.samples, f'{kind} sample')}"
    if curvature_taken(result) and result.curvature_samples != result.samples:
        seen += f", curvature on {result.curvature_samples:,}"
    parts = [weights(result), words.plural(result.parameters, "parameter"), seen, result.precision]
    return " · ".join([*parts, words.plural(result.world, "rank")])


def weights(result: LandscapeResult) -> str:
    """Which weights: `step 2,345 of runs/...`, or `fresh weights of digits`."""
    if result.checkpoint is None:
        return f"fresh weights of {result.task}"
    return f"step {result.checkpoint:,} of {result.target}"


def curvature_taken(result: LandscapeResult) -> bool:
    """Whether anything was measured on the curvature's samples."""
    return any((result.eigenvalues, result.trace, result.density, result.keskar, result.sam))


def tiles(result: LandscapeResult) -> list[Quantity]:
    """The few numbers that stand on top of the page."""
    rows = quantities(result)
    by_key = {row.key: row for row in rows}
    chosen = [row for key in _TILES if (row := by_key.get(key)) is not None] or rows[:1]
    marked = ("changes with rescaling",)
    return [replace(row, details=row.details + (marked if row.kept is False else ())) for row in chosen[:5]]


_TILES = ("loss", "eigenvalue 1", "trace", "barrier", "keskar", "sam", "surface", "density", "variance")


def _centre(result: LandscapeResult) -> Iterator[Measured]:
    over = f"on {words.plural(result.samples, 'sample')}"
    yield Measured.of("loss", words.decimal(_nan(result.loss)), over, key="loss", kept=True)
    for name, value in result.metrics.items():
        yield Measured.of(name, words.decimal(_nan(value)), over, key=f"metric {name}", kept=True)
    if result.gradient_norm is not None:
        over = f"on {words.plural(result.curvature_samples, 'sample')}"
        length = significant(result.gradient_norm)
        yield Measured.of("length of the gradient", length, over, key="gradient", kept=False)


def _eigenvalues(part: Eigenvalues) -> Iterator[Measured]:
    rows = zip(part.values, part.residuals, _sure_of_each(part), strict=True)
    for index, (value, residual, sure) in enumerate(rows):
        label = "largest eigenvalue" if index == 0 else f"{ordinal(index + 1)} eigenvalue"
        detail = _search(residual, sure, part.note, part.steps if index == 0 else None)
        yield Measured.of(label, significant(value), detail, sure, key=f"eigenvalue {index + 1}", kept=False)
    pairs = list(zip(part.weighted_values, part.weighted_residuals, strict=True))
    for value, residual in pairs[:1]:
        sure = part.weighted_converged
        detail = _search(residual, sure, part.weighted_note, part.weighted_steps)
        label = "largest eigenvalue, weighted"
        yield Measured.of(label, significant(value), detail, sure, key="weighted eigenvalue", kept=True)


def _sure_of_each(part: Eigenvalues) -> list[bool]:
    """Which eigenvalues can be relied on: none of them, where each has converged and yet some are missing."""
    each = part.each_converged
    if len(each) == len(part.values) and (part.converged or not all(each)):
        return each
    return [part.converged] * len(part.values)


def _search(residual: float, converged: bool, note: str, steps: int | None) -> str:
    said = [f"residual {significant(residual, 2)}"]
    if steps is not None:
        said.append(words.plural(steps, "product"))
    if not converged:
        said.append(f"{NOT_CONVERGED}: {note}" if note else NOT_CONVERGED)
    return "; ".join(said)


def _trace(part: Trace) -> Iterator[Measured]:
    plain = (part.value, part.error, part.half_width, part.probes, part.converged)
    aware = (
        part.weighted_value,
        part.weighted_error,
        part.weighted_half_width,
        part.weighted_probes,
        part.weighted_converged,
    )
    for key, label, kept, (value, error, half, probes, converged) in (
        ("trace", "trace", False, plain),
        ("weighted trace", "trace, weighted", True, aware),
    ):
        if half is not None:
            said = [f"95 % interval {significant(value - half)} to {significant(value + half)}"]
        else:
            said = ["standard error not known" if error is None else f"standard error {significant(error, 2)}"]
        said.append(words.plural(probes, "probe"))
        if not converged:
            said.append(NOT_CONVERGED)
        yield Measured(label, significant(value), tuple(said), converged, key, kept)


def _density(part: Density) -> Iterator[Measured]:
    detail = f"outermost nodes; {words.plural(part.probes, 'probe')} of {words.plural(part.steps, 'step')}"
    value = f"{significant(part.lowest, 3)} to {significant(part.highest, 3)}"
    yield Measured.of("spectrum", value, detail, key="density", kept=False)


def _keskar(part: Keskar) -> Iterator[Measured]:
    box = f"lower bound; box of ε = {part.epsilon:g}"
    space = f"{box} in {words.plural(part.subspace_size, 'random direction')}"
    yield _bound("Keskar sharpness", part.value, part.starts, box, "keskar", unit=" %")
    yield _bound("Keskar, subspace", part.subspace_value, part.subspace_starts, space, "keskar subspace", unit=" %")


def _sam(part: Sam) -> Iterator[Measured]:
    ball = f"lower bound; ρ = {part.rho:g}"
    yield _bound("SAM sharpness", part.value, part.starts, ball, "sam")
    aware = _bound("SAM sharpness, adaptive", part.adaptive_value, part.adaptive_starts, ball, "adaptive sam")
    yield replace(aware, kept=True)


def _bound(
    label: str, value: float | None, starts: Sequence[float | None], what: str, key: str, *, unit: str = ""
) -> Measured:
    """The best of several searches; plain sharpness, which changes with rescaling."""
    shown = "not finite" if value is None else f"≥ {significant(value)}{unit}"
    detail = f"{what}; best of {words.plural(len(starts), 'start')}"
    return Measured.of(label, shown, detail, value is not None, key=key, kept=False)


def _surface(part: Surface) -> Iterator[Measured]:
    detail = f"{' × '.join(str(count) for count in part.points)} points"
    if part.failed:
        detail += f"; no finite loss at {words.plural(part.failed, 'point')}"
    value = f"{significant(part.lowest, 3)} to {significant(part.highest, 3)}"
    yield Measured.of("loss on the surface", value, detail, not part.failed, key="surface")


def _interpolation(part: Interpolation) -> Iterator[Measured]:
    where = "" if part.barrier_at is None else f"at t = {part.barrier_at:.2f}; "
    ends = " and ".join(words.decimal(_nan(end)) for end in part.ends)
    shown = "not finite" if part.barrier is None else significant(part.barrier)
    detail = f"{where}losses of the two ends {ends}"
    yield Measured.of("barrier", shown, detail, part.barrier is not None, key="barrier")
    detail = f"to {part.other}" + ("" if part.other_checkpoint is None else f", step {part.other_checkpoint:,}")
    yield Measured.of("distance of the two", significant(part.distance), detail, key="distance")


def _trajectory(part: Trajectory) -> Iterator[Measured]:
    shares = " and ".join(words.share(share) for share in part.variance)
    detail = f"{shares} on the two axes; {words.plural(len(part.steps), 'checkpoint')}"
    yield Measured.of("path in its plane", words.share(sum(part.variance)), detail, key="variance")


def _nan(value: float | None) -> float:
    return math.nan if value is None else value
