"""Flags handed on in one text are read as the command line of `paceline train` reads them, and refused by name."""

from __future__ import annotations

import pytest

from paceline.records.errors import PacelineError
from paceline.settings.flag_text import as_flags, parse_flags
from paceline.train.config import TrainConfig


def test_flags_become_settings_of_their_types() -> None:
    """Numbers, names, switches both ways, with and without an equals sign."""
    text = "--optimizer adamw --weight-decay=0.1 --accumulate 2 --nesterov --no-deterministic --augment 'crop,flip'"

    found = parse_flags(TrainConfig, text, "--train-flags", ())

    assert found == {
        "optimizer": "adamw",
        "weight_decay": 0.1,
        "accumulate": 2,
        "nesterov": True,
        "deterministic": False,
        "augment": "crop,flip",
    }
    assert parse_flags(TrainConfig, "", "--train-flags", ()) == {}


def test_settings_become_flags_again() -> None:
    """As they would be typed."""
    settings = {"optimizer": "adamw", "nesterov": True, "deterministic": False, "accumulate": 2}

    flags = as_flags(TrainConfig, settings)

    assert flags == ["--optimizer", "adamw", "--nesterov", "--no-deterministic", "--accumulate", "2"]
    assert parse_flags(TrainConfig, " ".join(flags), "--train-flags", ()) == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--optimiser adamw", "did you mean --optimizer"),
        ("adamw", "adamw is unknown"),
        ("--weight-decay much", "--weight-decay much is not a number"),
        ("--accumulate 1.5", "--accumulate 1.5 is not a whole number"),
        ("--optimizer", "--optimizer has no value"),
        ("--accumulate 2 --accumulate 3", "twice"),
        ("--seed 3", "cannot hold --seed"),
        ("--run-dir x", "cannot hold --run-dir"),
        ("--no-optimizer", "--no-optimizer is unknown"),
        ("--optimizer 'adamw", "cannot be read"),
    ],
)
def test_what_cannot_be_handed_on_is_refused(text: str, message: str) -> None:
    """Unknown, without a value, of another type, twice, or what the plan sets itself."""
    with pytest.raises(PacelineError) as refused:
        parse_flags(TrainConfig, text, "--train-flags", ("seed",))

    assert message in str(refused.value)
    assert "--train-flags" in refused.value.what
