"""Numbers as people type them, for every numeric flag."""

from __future__ import annotations

import pytest

from paceline.records.errors import PacelineError
from paceline.settings.typed_number import parse_number, parse_share, parse_whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("70B", 70e9), ("70b", 70e9), ("1.4T", 1.4e12), ("500M", 500e6), ("64k", 64e3), ("2G", 2e9)),
        *(("7e10", 7e10), ("7E+10", 7e10), ("70_000_000", 70e6), (".5", 0.5), ("5.", 5.0), (" 3 ", 3.0)),
        *(("-1", -1.0), ("1e-3", 1e-3), ("1.5e3k", 1.5e6), ("0", 0.0), ("70 B", 70e9)),
    ],
)
def test_suffixes_exponents_and_underscores_are_read(text: str, value: float) -> None:
    """Exactly: 1.4T is the float nearest to 1.4e12."""
    assert parse_number("--tokens", text) == value


@pytest.mark.parametrize(
    "text",
    ["70Q", "", "B", "1,4", "nan", "inf", "-inf", "1e", "0x10", "7e10e2", "70BB", "７０", "50%", "1e99999", "1..2"],
)
def test_what_is_no_number_is_refused_with_an_example(text: str) -> None:
    """The flag and what was typed are named; no validator's words."""
    with pytest.raises(PacelineError) as refused:
        parse_number("--tokens", text)

    assert refused.value.what == f"--tokens {text} is not a number"
    assert "70B" in refused.value.hint
    assert refused.value.exit_code == 2


def test_whole_numbers_may_be_written_with_a_suffix() -> None:
    """1.5k samples are whole, 1.5 samples and 1e30 are none that an int of 64 bits holds."""
    assert [parse_whole("--batch", text) for text in ("64k", "1.5k", "1e3", "1_000")] == [64_000, 1_500, 1_000, 1_000]
    assert isinstance(parse_whole("--batch", "1e3"), int)
    for text in ("1.5", "0.5k1", "1e-3"):
        with pytest.raises(PacelineError, match="is not a whole number"):
            parse_whole("--batch", text)
    for text in ("1e30", "-1e999"):
        with pytest.raises(PacelineError, match="is too large"):
            parse_whole("--batch", text)
    with pytest.raises(PacelineError, match="is too large"):
        parse_number("--tokens", "1e999")


def test_shares_may_be_fractions_or_percentages() -> None:
    """And lie above 0, up to 1: 85 without a sign is refused rather than guessed at."""
    assert [parse_share("--efficiency", text) for text in ("0.9", "90%", "90 %", "1", "100%")] == [0.9, 0.9, 0.9, 1, 1]
    for text in ("85", "0", "-10%", "101%"):
        with pytest.raises(PacelineError, match="is out of range") as refused:
            parse_share("--efficiency", text)
        assert "0 < value <= 1" in refused.value.hint
