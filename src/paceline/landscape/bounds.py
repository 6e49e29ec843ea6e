"""Sharpness as a maximum near the weights: Keskar's in a box, SAM's in a ball; lower bounds, from several starts."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping

from paceline.landscape import keskar, sam
from paceline.landscape.kept_parts import KeptValues
from paceline.landscape.session import Outcome, Session, shown
from paceline.records.landscape import Keskar, Sam, finite

KESKAR_STARTS = 3
SAM_STARTS = 3


def keskar_sharpness(session: Session) -> Outcome:
    """In the whole space and in a random subspace."""
    weights, config = session.weights, session.config
    centre, _ = session.centre_gradient
    columns = min(keskar.SUBSPACE, len(weights))

    def search(embedding: Callable[[], keskar.Embedding]) -> Callable[[int], float | None]:
        box = functools.cache(lambda: keskar.Box.around(weights, embedding(), config.epsilon))

        def from_start(start: int) -> float | None:
            highest = keskar.climb(session.gradient, weights, box(), seed=config.seed, start=start)
            return finite(keskar.sharpness(highest, centre))

        return from_start

    whole = search(lambda: keskar.Identity(weights))
    subspace = search(lambda: keskar.RandomSubspace(weights, columns, config.seed))
    values = _starts(session, "keskar", {"whole": whole, "subspace": subspace}, KESKAR_STARTS)
    found = Keskar(
        epsilon=config.epsilon,
        value=_best(values["whole"]),
        starts=values["whole"],
        subspace_value=_best(values["subspace"]),
        subspace_starts=values["subspace"],
        subspace_size=columns,
    )
    summary = f"at least {shown(found.value)} %; in a random subspace of {columns}: {shown(found.subspace_value)} %"
    return Outcome(found, {}, summary, _unfinished("Keskar's sharpness", found.value, found.subspace_value))


def sam_sharpness(session: Session) -> Outcome:
    """In a ball, and in one whose axes have the weights' sizes."""
    weights, config = session.weights, session.config
    centre, _ = session.centre_gradient

    def search(start: int, adaptive: bool) -> float | None:
        highest = sam.climb(session.gradient, weights, config.rho, adaptive=adaptive, seed=config.seed, start=start)
        return finite(highest - centre)

    searches = {name: functools.partial(search, adaptive=name == "adaptive") for name in ("plain", "adaptive")}
    values = _starts(session, "sam", searches, SAM_STARTS)
    found = Sam(
        rho=config.rho,
        value=_best(values["plain"]),
        starts=values["plain"],
        adaptive_value=_best(values["adaptive"]),
        adaptive_starts=values["adaptive"],
    )
    summary = f"at least {shown(found.value)}; adaptive {shown(found.adaptive_value)}"
    return Outcome(found, {}, summary, _unfinished("SAM sharpness", found.value, found.adaptive_value))


def _starts(
    session: Session, measure: str, searches: Mapping[str, Callable[[int], float | None]], starts: int
) -> dict[str, list[float | None]]:
    """The value of each start of each search; kept ones are not computed again."""
    kept = KeptValues(session.ranks, measure)
    total = starts * len(searches)
    values: dict[str, list[float | None]] = {name: [] for name in searches}
    for done, (name, start) in enumerate(itertools.product(searches, range(starts))):
        session.ranks.progress(measure, done, total, "searches", name)
        search = functools.partial(searches[name], start)
        values[name].append(kept.get(f"{name} {start}", search))
    session.ranks.progress(measure, total, total, "searches")
    return values


def _best(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _unfinished(what: str, *values: float | None) -> list[str]:
    if all(value is not None for value in values):
        return []
    return [f"{what}: the loss was no finite number at every start"]
