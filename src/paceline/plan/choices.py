"""Names and lists that flags of `paceline plan` take."""

from __future__ import annotations

from paceline.records.errors import PacelineError, choices
from paceline.records.typed_number import parse_whole

FORMATS = ("text", "json")


def check_format(value: str) -> None:
    """Refuse another than `FORMATS`."""
    if value not in FORMATS:
        raise PacelineError(f"--format {value} is unknown", hint=f"legal values: {choices(FORMATS)}")


def whole_numbers(flag: str, text: str, least: int = 1) -> list[int]:
    """A comma-separated list, ascending, each number once.

    Raises:
        PacelineError: one is no whole number of `least` or more, or there is none.
    """
    found = set()
    for part in text.split(","):
        try:
            number = parse_whole(flag, part)
        except PacelineError:
            number = least - 1
        if number < least:
            raise PacelineError(
                f"{flag} {text} holds {part.strip() or 'nothing'}", hint=f"whole numbers of {least} or more: 1,2,4,8"
            )
        found.add(number)
    return sorted(found)


def positive(flag: str, value: float | None, most: float = float("inf")) -> None:
    """Refuse a number that is not above 0 and at most `most`; None is not given.

    Raises:
        PacelineError: naming the flag and the legal range.
    """
    if value is not None and not 0 < value <= most:
        limit = "" if most == float("inf") else f" <= {most:g}"
        raise PacelineError(f"{flag} {value:g} is out of range", hint=f"legal: 0 < value{limit}")
