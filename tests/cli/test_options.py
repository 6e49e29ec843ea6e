"""Flags are made from a dataclass: each field is one, and what was not typed is not given."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from dataclasses import dataclass
from typing import Any

import pytest

from paceline.cli.options import command_from
from paceline.cli.parser import parse_and_run
from paceline.cli.verbs import Command
from paceline.records.errors import PacelineError
from paceline.settings.declare import VerbSettings, argument, setting
from paceline.train.config import TrainConfig


@dataclass(frozen=True)
class Config(VerbSettings):
    """One field of every kind that settings have."""

    target: str = argument("What to do.")
    plain: str = setting("blue", "A setting.")
    maybe_text: str | None = setting(None, "A setting.")
    maybe_number: int | None = setting(None, "A setting.")
    some_count: int = setting(3, "A setting.")
    rate: float = setting(0.5, "A setting.")
    maybe_rate: float | None = setting(None, "A setting.")
    switch: bool = setting(False, "A setting.")


@dataclass(frozen=True)
class Result:
    """Of a command line: what it printed, and its exit code."""

    output: str
    exit_code: int


def run(*arguments: str, config: type[VerbSettings] = Config) -> tuple[list[dict[str, Any]], Result]:
    """What the function got, and the result of the command line."""
    given: list[dict[str, Any]] = []
    function = command_from(config, given.append, "Do a thing.")
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            code = parse_and_run("command", Command("", "Do a thing."), function, list(arguments), None)
        except PacelineError as error:  # numbers are refused as Paceline refuses
            out.write(str(error))
            code = error.exit_code
    return given, Result(out.getvalue(), code)


def test_what_was_not_typed_is_not_given() -> None:
    """Not even the positional argument: --resume needs none. Defaults belong to the dataclass."""
    assert run()[0] == [{}]
    assert run("x")[0] == [{"target": "x"}]


def test_every_kind_of_field_is_parsed_to_its_type() -> None:
    """Dashes for underscores; a value that equals the default is given all the same."""
    (given,), _ = run(
        *("x", "--plain", "blue", "--maybe-text", "t", "--maybe-number", "4"),
        *("--some-count", "3", "--rate", "1e-3", "--maybe-rate", "2", "--switch"),
    )

    assert given == {
        "target": "x",
        "plain": "blue",
        "maybe_text": "t",
        "maybe_number": 4,
        "some_count": 3,
        "rate": 0.001,
        "maybe_rate": 2.0,
        "switch": True,
    }
    assert {name: type(value) for name, value in given.items()} == {
        "target": str,
        "plain": str,
        "maybe_text": str,
        "maybe_number": int,
        "some_count": int,
        "rate": float,
        "maybe_rate": float,
        "switch": bool,
    }
    assert Config(**given).rate == 0.001


def test_numbers_may_be_typed_with_a_suffix() -> None:
    """64k samples, a rate of 1e-3; the message of a wrong one names its flag."""
    (given,), _ = run("x", "--maybe-number", "64k", "--rate", "2M")

    assert given == {"target": "x", "maybe_number": 64_000, "rate": 2e6}
    assert "--some-count 70Q is not a whole number" in run("x", "--some-count", "70Q")[1].output


def test_a_switch_can_be_turned_off() -> None:
    """Which is not the same as leaving it out."""
    assert run("--no-switch")[0] == [{"switch": False}]


@pytest.mark.parametrize(
    "arguments", [["--some-count", "many"], ["--rate", "x"], ["--colour", "red"], ["a", "b"], ["--plain"]]
)
def test_what_cannot_be_parsed_never_reaches_the_function(arguments: list[str]) -> None:
    """Wrong type, unknown flag, too many arguments, missing value: exit code 2."""
    given, result = run(*arguments)

    assert given == []
    assert result.exit_code == 2


@pytest.mark.parametrize("config", [Config, TrainConfig])
def test_help_has_every_field_with_its_text_and_default(config: type[VerbSettings]) -> None:
    """None and off are no defaults worth a word."""
    positional = dataclasses.fields(config)[0].name

    _, result = run("--help", config=config)

    text = " ".join(result.output.split())
    assert "Do a thing." in text
    for each in dataclasses.fields(config):
        if each.name == positional:
            assert each.name.upper() in text
            continue
        assert f"--{each.name.replace('_', '-')} " in text.replace("[no-]", "")
        assert " ".join(each.metadata["help"].split()) in text
    assert text.count("[default: ") == sum(
        1
        for each in dataclasses.fields(config)
        if each.default not in (None, False, dataclasses.MISSING)
        or (each.default == 0 and each.default is not False)
        or "[default: " in each.metadata["help"]
    )


def test_numbers_in_help_are_short() -> None:
    """30.0 seconds are 30."""
    _, result = run("--help", config=TrainConfig)

    assert "[default: 30]" in result.output
    assert "[default: 1ep]" in result.output
