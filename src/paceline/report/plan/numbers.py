"""Predictions as people read them: no more digits than they are worth, and words where there is no number."""

from __future__ import annotations

import math
from collections.abc import Callable

from paceline.records.plan_results import Estimate
from paceline.report import words

OUT_OF_REACH = "out of reach"
NO_END = "no end"
NOT_KNOWN = "not known"
_UNITS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))


def about(value: float | None, digits: int = 3) -> str:
    """So many significant digits: 0.0123, 1.25, 183,000, 12.3 million, 4.1e+18."""
    if value is None or not math.isfinite(value):
        return OUT_OF_REACH
    size = abs(value)
    if size and not 1e-4 <= size < 1e15:
        return f"{value:.{digits}g}"
    for unit, name in _UNITS:
        if size >= 10 * unit:
            return f"{_rounded(value / unit, digits):,g} {name}"
    rounded = _rounded(value, digits)
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:.{digits}g}"


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def step_time(seconds: float | None) -> str:
    """Three significant digits: 0.83 ms, 42.1 ms, 1.24 s; a minute and more like every duration."""
    if seconds is None or not math.isfinite(seconds):
        return OUT_OF_REACH
    if seconds == 0:
        return "0"
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 59.95 else words.duration(seconds)


def duration(seconds: float | None) -> str:
    """A duration, or that it never ends."""
    return OUT_OF_REACH if seconds is None or not math.isfinite(seconds) else words.duration(seconds)


def value_of(of: Estimate | None, show: Callable[[float], str] = about) -> str:
    """The value of an estimate; what is beyond all bounds is out of reach, what is absent is not known."""
    if of is None:
        return NOT_KNOWN
    return OUT_OF_REACH if of.value is None else show(of.value)


def interval_of(of: Estimate | None, show: Callable[[float], str] = about) -> str:
    """`900 to 1,700`; an end that there is not is called so."""
    if of is None:
        return NOT_KNOWN
    if of.low is None and of.high is None:
        return NO_END
    ends = [NO_END if end is None else show(end) for end in (of.low, of.high)]
    return " to ".join(ends)


def percent(value: float) -> str:
    """A confidence: `80 %`."""
    return f"{100 * value:g} %"


def error(value: float) -> str:
    """A relative error with its sign: `+7.1 %`, `-0.4 %`."""
    return f"{100 * value:+.1f} %"


def times(value: float) -> str:
    """`16 ×`."""
    return f"{about(value)} ×"


def reach(beyond: float, far: float) -> str:
    """How far beyond what was measured: `within the runs`, `64 × the most measured, the formula's word`."""
    if beyond <= 1:
        return "within the runs"
    return f"{times(beyond)} the most measured" + (", the formula's word" if beyond > far else "")


def reach_in_short(beyond: float, far: float) -> str:
    """How far beyond what was measured, for a table: `within`, `4 ×`, `64 ×, far`."""
    if beyond <= 1:
        return "within"
    return times(beyond) + (", far" if beyond > far else "")
