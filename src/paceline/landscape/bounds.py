"""Sharpness as a maximum near the weights: Keskar's in a box, SAM's in a ball; lower bounds, from several starts."""

from __future__ import annotations

import math
from collections.abc import Callable

from paceline.landscape import keskar, sam
from paceline.landscape.kept_parts import Entries, as_number
from paceline.landscape.session import Outcome, Session, shown
from paceline.landscape.spectrum import entries
from paceline.records.landscape import Keskar, Sam, finite

KESKAR_STARTS = 3
SAM_STARTS = 3


def keskar_sharpness(session: Session) -> Outcome:
    """In the whole space and in a random subspace."""
    weights, config = session.weights, session.config
    centre, _ = session.centre_gradient
    kept = entries(session.work, "keskar")
    columns = min(keskar.SUBSPACE, len(weights))

    def search(embedding: Callable[[], keskar.Embedding]) -> Callable[[int], float]:
        made: list[keskar.Box] = []

        def from_start(start: int) -> float:
            if not made:
                made.append(keskar.Box.around(weights, embedding(), config.epsilon))
            highest = keskar.climb(session.gradient, weights, made[0], seed=config.seed, start=start)
            return keskar.sharpness(highest, centre)

        return from_start

    whole = search(lambda: keskar.Identity(weights))
    subspace = search(lambda: keskar.RandomSubspace(weights, columns, config.seed))
    values = _starts(session, kept, "keskar", [("whole", whole), ("subspace", subspace)], KESKAR_STARTS)
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
    kept = entries(session.work, "sam")

    def search(adaptive: bool) -> Callable[[int], float]:
        return lambda start: (
            sam.climb(session.gradient, weights, config.rho, adaptive=adaptive, seed=config.seed, start=start) - centre
        )

    values = _starts(session, kept, "sam", [("plain", search(False)), ("adaptive", search(True))], SAM_STARTS)
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
    session: Session, kept: Entries, measure: str, searches: list[tuple[str, Callable[[int], float]]], starts: int
) -> dict[str, list[float | None]]:
    """The value of each start of each search; one that was kept is not made again."""
    total = starts * len(searches)
    values: dict[str, list[float | None]] = {}
    done = 0
    for name, search in searches:
        values[name] = []
        for start in range(starts):
            session.work.tell(measure, done, total, "searches", name)
            key = f"{name} {start}"
            value = kept[key] if key in kept else kept.add(key, finite(search(start)))
            values[name].append(value)
            done += 1
    session.work.tell(measure, total, total, "searches")
    return values


def _best(values: list[float | None]) -> float | None:
    return finite(max((as_number(value) for value in values if value is not None), default=math.nan))


def _unfinished(what: str, *values: float | None) -> list[str]:
    if all(value is not None for value in values):
        return []
    return [f"{what}: the loss was no finite number at every start"]
