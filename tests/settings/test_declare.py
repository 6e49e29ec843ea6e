"""Settings are declared once: flags, checks, run.json and --resume follow from the fields."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest

from paceline.records.errors import PacelineError
from paceline.settings.declare import VerbSettings, argument, control, format_setting, run_dir_setting, setting
from paceline.settings.legal import Range
from paceline.settings.typed_number import whole_numbers


@dataclass(frozen=True)
class Bake(VerbSettings):
    """One field of every kind."""

    noun = "cake"

    flour: str = argument("What it is made of.")

    layers: int = setting(2, "Layers.", Range(1), group="Cake")
    sizes: str | None = setting(None, "Diameters.", whole_numbers)
    sugar: float = setting(0.5, "Part of sugar.", share=True)
    other: bool = setting(False, "Another one as well.", flag="and")

    shape: str = control("round", "Shape: {legal}.", ("round", "square"), group="Oven")
    run_dir: str | None = run_dir_setting("cake")
    format: str = format_setting()


def test_a_field_is_typed_by_its_name_or_by_its_flag() -> None:
    """And with its value: a switch both ways, None as a flag that is left out, a list as words."""
    assert [Bake.flag(name) for name in ("flour", "run_dir", "other")] == ["FLOUR", "--run-dir", "--and"]
    typed = [Bake.typed("other", False), Bake.typed("sizes", None), Bake.typed("flour", ["rye", "oat"])]
    assert typed == ["--no-and", "no --sizes", "FLOUR rye oat"]
    assert Bake.plain_types() == {
        **dict.fromkeys(("flour", "sizes", "shape", "run_dir", "format"), str),
        "layers": int,
        "sugar": float,
        "other": bool,
    }


def test_a_group_goes_on_until_the_next() -> None:
    """The argument has none; help lists the legal names where the text asks for them."""
    fields = {field.name: field for field in dataclasses.fields(Bake)}

    assert Bake.groups() == {"Cake": ["layers", "sizes", "sugar", "other"], "Oven": ["shape", "run_dir", "format"]}
    assert fields["shape"].metadata["help"] == "Shape: round, square."
    assert fields["run_dir"].metadata["help"].endswith("runs/<date>_<time>_cake.")


@pytest.mark.parametrize(
    ("values", "what", "hint"),
    [
        ({"layers": 0}, "--layers 0 is out of range", "legal: 1 <= value"),
        ({"sugar": 1.5}, "--sugar 1.5 is out of range", "legal: 0 < value <= 1"),
        ({"sugar": float("nan")}, "--sugar nan is out of range", "legal: 0 < value <= 1"),
        ({"sizes": "20,x"}, "--sizes 20,x holds x", "whole numbers of 1 or more: 1,2,4,8"),
        ({"shape": "squares"}, "--shape squares is unknown", "did you mean square? legal values: round, square"),
        ({"format": "xml"}, "--format xml is unknown", "legal values: text, json"),
    ],
)
def test_a_value_that_its_field_does_not_take_is_refused(values: dict[str, Any], what: str, hint: str) -> None:
    """By a range, by names, by a function; None is not checked."""
    Bake("rye").check_fields()

    with pytest.raises(PacelineError) as refused:
        Bake("rye", **values).check_fields()

    assert (refused.value.what, refused.value.hint) == (what, hint)


def test_a_resumed_run_keeps_what_decides_its_result() -> None:
    """Controls may change, and what is free to."""
    stored = Bake("rye", layers=3)

    assert stored.resumed_with({"shape": "square", "layers": 3}) == Bake("rye", layers=3, shape="square")
    assert stored.resumed_with({"layers": 5}, free=("layers",)).layers == 5
    with pytest.raises(PacelineError, match="the cake to be resumed has --layers 3, not --layers 5") as refused:
        stored.resumed_with({"layers": 5})
    assert refused.value.hint == "leave --layers out, or start a new cake with another --run-dir"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"colour": 1}, "unknown to this version: colour"),
        ({"layers": "two"}, "Expected `int`, got `str` - at `$.layers`"),
        ({}, "no flour is named"),
    ],
)
def test_a_record_that_cannot_be_read_is_refused(change: dict[str, Any], why: str) -> None:
    """What this version wrote comes back whole."""
    record = dataclasses.asdict(Bake("rye", layers=3))
    assert Bake.from_dict(record) == Bake("rye", layers=3)

    with pytest.raises(PacelineError, match="the cake's settings cannot be read") as refused:
        Bake.from_dict({**record, **change} if change else {"layers": 3})

    assert refused.value.why == why
