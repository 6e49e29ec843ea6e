"""Flags of `paceline train` from what a run's run.json says that it was trained with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from paceline.train.choices import flag_of
from paceline.train.config import TrainConfig

_NOT_OF_THE_RECIPE = {"task", "epochs", "steps", "target", "patience", "eval_every", "init_from", "train_samples"}
"""What a short training beside the run has its own of."""


def recipe_flags(config: Mapping[str, Any], **changes: Any) -> tuple[str, ...]:
    """The flags that make a training like that one, but for its length.

    Args:
        config: of run.json.
        changes: by field name: a value instead, or None to leave the flag out.
    """
    flags: list[str] = []
    kept = {
        f.name: config[f.name]
        for f in dataclasses.fields(TrainConfig)
        if f.metadata["recipe"] and f.name not in _NOT_OF_THE_RECIPE and f.name in config
        if config[f.name] is not None and config[f.name] != f.default
    }
    for name, value in (kept | changes).items():
        if value is None or value is False:
            continue
        flags += [flag_of(name)] if value is True else [flag_of(name), str(value)]
    return tuple(flags)
