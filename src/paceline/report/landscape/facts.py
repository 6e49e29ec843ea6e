"""The numbers of a measurement in words: the same rows for the card, the page and the table of several runs.

A number keeps its meaning only with what stands beside it: its error and what kind of error that is, whether the search
for it ended, and whether it stays the same when a network is rewritten without a change of what it computes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
from paceline.report import words
from paceline.report.facts import Tile

NOT_CONVERGED = "not converged"


@dataclass(frozen=True)
class Fact:
    """One measured number.

    Attributes:
        key: the same for the same number of every run.
        label: its name.
        value: the number, as people read it.
        detail: its error, what it was taken over, what else must be known.
        sure: False where a search or an average did not come to its end.
        kept: whether rescaling layers against each other leaves it as it is; None where the question has no sense.
        measure: the name of --measure that it is from; empty for the loss and metrics at the weights.
    """

    key: str
    label: str
    value: str
    detail: str = ""
    sure: bool = True
    kept: bool | None = None
    measure: str = ""


def significant(value: float | None, digits: int = 4) -> str:
    """So many significant digits, without trailing zeros: 12.35, 0.0009766, 1,235, 1.2e+07."""
    if value is None or not math.isfinite(value):
        return "not finite"
    if value and not 1e-4 <= abs(value) < 10**7:
        return f"{value:.{digits}g}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def facts(result: LandscapeResult) -> list[Fact]:
    """Every number of a result, in the order of reading."""
    found = list(_centre(result))
    if result.trajectory is not None:
        found += _trajectory(result.trajectory)
    if result.surface is not None:
        found += _surface(result.surface)
    if result.interpolation is not None:
        found += _interpolation(result.interpolation)
    if result.eigenvalues is not None:
        found += _eigenvalues(result.eigenvalues)
    if result.trace is not None:
        found += _trace(result.trace)
    if result.density is not None:
        found += _density(result.density)
    if result.keskar is not None:
        found += _keskar(result.keskar)
    if result.sam is not None:
        found += _sam(result.sam)
    return found


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


def tiles(result: LandscapeResult) -> list[Tile]:
    """The few numbers that stand on top of the page."""
    rows = facts(result)
    by_key = {row.key: row for row in rows}
    chosen = [row for key in _TILES if (row := by_key.get(key)) is not None]
    chosen = chosen or [rows[0]]
    return [_tile(row) for row in chosen[:5]]


_TILES = ("loss", "eigenvalue 1", "trace", "barrier", "keskar", "sam", "surface", "density", "variance")


def _tile(row: Fact) -> Tile:
    details = [part for part in row.detail.split("; ") if part]
    if row.kept is False:
        details.append("changes with rescaling")
    return Tile(row.label, row.value, tuple(details))


def _centre(result: LandscapeResult) -> Iterator[Fact]:
    over = f"on {words.plural(result.samples, 'sample')}"
    yield Fact("loss", "loss", words.decimal(_nan(result.loss)), over, kept=True)
    for name, value in result.metrics.items():
        yield Fact(f"metric {name}", name, words.decimal(_nan(value)), over, kept=True)
    if result.gradient_norm is not None:
        over = f"on {words.plural(result.curvature_samples, 'sample')}"
        yield Fact("gradient", "length of the gradient", significant(result.gradient_norm), over, kept=False)


def _eigenvalues(part: Eigenvalues) -> Iterator[Fact]:
    rows = zip(part.values, part.residuals, _sure_of_each(part), strict=True)
    for index, (value, residual, sure) in enumerate(rows):
        yield Fact(
            f"eigenvalue {index + 1}",
            "largest eigenvalue" if index == 0 else f"{_ordinal(index + 1)} eigenvalue",
            significant(value),
            _search(residual, sure, part.note, part.steps if index == 0 else None),
            sure=sure,
            kept=False,
            measure="eigenvalues",
        )
    pairs = list(zip(part.weighted_values, part.weighted_residuals, strict=True))
    for value, residual in pairs[:1]:
        yield Fact(
            "weighted eigenvalue",
            "largest eigenvalue, weighted",
            significant(value),
            _search(residual, part.weighted_converged, part.weighted_note, part.weighted_steps),
            sure=part.weighted_converged,
            kept=True,
            measure="eigenvalues",
        )


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


def _trace(part: Trace) -> Iterator[Fact]:
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
        yield Fact(key, label, significant(value), "; ".join(said), converged, kept, "trace")


def _density(part: Density) -> Iterator[Fact]:
    taken = f"{words.plural(part.probes, 'probe')} of {words.plural(part.steps, 'step')}"
    value = f"{significant(part.lowest, 3)} to {significant(part.highest, 3)}"
    yield Fact("density", "spectrum", value, f"outermost nodes; {taken}", kept=False, measure="density")


def _keskar(part: Keskar) -> Iterator[Fact]:
    box = f"lower bound; box of ε = {part.epsilon:g}"
    space = f"{box} in {words.plural(part.subspace_size, 'random direction')}"
    yield Fact("keskar", "Keskar sharpness", *_bound(part.value, part.starts, box, " %"), False, "keskar")
    subspace = _bound(part.subspace_value, part.subspace_starts, space, " %")
    yield Fact("keskar subspace", "Keskar, subspace", *subspace, False, "keskar")


def _sam(part: Sam) -> Iterator[Fact]:
    ball = f"lower bound; ρ = {part.rho:g}"
    yield Fact("sam", "SAM sharpness", *_bound(part.value, part.starts, ball), False, "sam")
    adaptive = _bound(part.adaptive_value, part.adaptive_starts, ball)
    yield Fact("adaptive sam", "SAM sharpness, adaptive", *adaptive, True, "sam")


def _bound(value: float | None, starts: Sequence[float | None], what: str, unit: str = "") -> tuple[str, str, bool]:
    """Value, detail, and whether it can be relied on, of the best of several searches."""
    shown = "not finite" if value is None else f"≥ {significant(value)}{unit}"
    return shown, f"{what}; best of {words.plural(len(starts), 'start')}", value is not None


def _surface(part: Surface) -> Iterator[Fact]:
    size = " × ".join(str(count) for count in part.points)
    detail = f"{size} points"
    if part.failed:
        detail += f"; no finite loss at {words.plural(part.failed, 'point')}"
    value = f"{significant(part.lowest, 3)} to {significant(part.highest, 3)}"
    yield Fact("surface", "loss on the surface", value, detail, sure=not part.failed, measure="surface")


def _interpolation(part: Interpolation) -> Iterator[Fact]:
    where = "" if part.barrier_at is None else f"at t = {part.barrier_at:.2f}; "
    ends = " and ".join(words.decimal(_nan(end)) for end in part.ends)
    shown = "not finite" if part.barrier is None else significant(part.barrier)
    detail = f"{where}losses of the two ends {ends}"
    yield Fact("barrier", "barrier", shown, detail, sure=part.barrier is not None, measure="interpolation")
    detail = f"to {part.other}" + ("" if part.other_checkpoint is None else f", step {part.other_checkpoint:,}")
    yield Fact("distance", "distance of the two", significant(part.distance), detail, measure="interpolation")


def _trajectory(part: Trajectory) -> Iterator[Fact]:
    shares = " and ".join(words.share(share) for share in part.variance)
    value = words.share(sum(part.variance))
    detail = f"{shares} on the two axes; {words.plural(len(part.steps), 'checkpoint')}"
    yield Fact("variance", "path in its plane", value, detail, measure="trajectory")


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _nan(value: float | None) -> float:
    return math.nan if value is None else value
