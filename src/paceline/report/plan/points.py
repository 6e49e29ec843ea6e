"""Points that several figures draw alike."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.report.plan.content import Number, Series


def predicted(
    name: str,
    x: Sequence[float],
    y: Sequence[Number],
    look: tuple[str, str],
    *,
    said: Sequence[str] = (),
    reach: tuple[Sequence[Number], Sequence[Number]] = ((), ()),
) -> Series:
    """Single predictions: open points, where measured ones are filled.

    Args:
        name: in the legend.
        x, y: (n,).
        look: paint and marker.
        said: (n,) what else is said of each.
        reach: (n,) lower and (n,) upper ends of their intervals along x; empty without.
    """
    paint, marker = look
    left, right = reach
    return Series(name, x, y, kind="points", paint=paint, marker=marker, hollow=True, said=said, left=left, right=right)
