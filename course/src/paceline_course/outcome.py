"""What a check found: one record, for people and for programs."""

from __future__ import annotations

import textwrap

import msgspec

from paceline.records.wrap import columns, wrap

_WIDTH = 100
_NARROW = 60
"""Below so many columns a row becomes `name: value` lines."""
_MOST = 600
"""Characters of a value that are shown."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One property of an answer. The fields after `passed` are empty where it passed."""

    statement: str
    passed: bool
    message: str = ""
    """Id of the kind of mistake."""
    ran: str = ""
    expected: str = ""
    got: str = ""
    where: str = ""
    """File, line and function of the learner's code."""
    likely: str = ""
    look: str = ""
    card: str = ""
    """Of a hang: where each rank stands."""
    printed: str = ""
    """The end of what the answer printed."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One check of one exercise; properties after the first that failed were not tested."""

    exercise: str
    title: str
    passed: bool
    seed: int
    """The same seed repeats it."""
    seconds: float
    verdicts: list[Verdict]
    untested: list[str] = []
    """Statements of the properties that were not tested."""

    @property
    def failed(self) -> Verdict | None:
        """The property that it lacks."""
        return next((verdict for verdict in self.verdicts if not verdict.passed), None)


def as_text(outcome: Outcome) -> str:
    """For people: a line a property, and of the one that failed all that is known; no newline at the end.

    A terminal's lines are as wide as it is; elsewhere only what is long is wrapped.
    """
    wide = columns(unknown=10_000)
    lines = wrap(f"{outcome.exercise} · {outcome.title}", wide)
    for verdict in outcome.verdicts:
        lines += wrap(verdict.statement, wide, "  ok  " if verdict.passed else "  NO  ", " " * 6)
    for statement in outcome.untested:
        lines += wrap(statement, wide, "  --  ", " " * 6)
    failed = outcome.failed
    if failed is None:
        return "\n".join([*lines, "", f"  passed in {outcome.seconds:.1f} s"])
    rows = [
        ("ran", failed.ran),
        ("expected", failed.expected),
        ("got", failed.got),
        ("where", failed.where),
        ("likely", failed.likely),
        ("look at", failed.look),
    ]
    lines.append("")
    for name, value in rows:
        lines += _row(name, value, min(wide, _WIDTH))
    if failed.card:
        lines += ["", *failed.card.splitlines()]
    if failed.printed:
        lines += ["", "  your code printed:", *(f"    {line}" for line in failed.printed.splitlines())]
    again = f"message {failed.message} · again with the same numbers: --seed {outcome.seed}"
    lines += ["", *wrap(again, wide, "  ")]
    return "\n".join(lines)


def _row(name: str, value: str, width: int) -> list[str]:
    if not value:
        return []
    text = value if len(value) <= _MOST else f"{value[:_MOST]} ..."
    if width < _NARROW:
        first, *rest = text.splitlines()
        return [
            *wrap(f"{name}: {first}", width, "  ", "    "),
            *(part for line in rest for part in wrap(line, width, "    ")),
        ]
    wrapped: list[str] = []
    for line in text.splitlines():
        wrapped += textwrap.wrap(line, width - 12, drop_whitespace=False, break_long_words=False) or [""]
    return [f"  {name if number == 0 else '':<9} {line}".rstrip() for number, line in enumerate(wrapped)]
