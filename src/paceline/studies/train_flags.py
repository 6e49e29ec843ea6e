"""Settings and flags of `paceline train` from what a run's run.json says that it was trained with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from paceline.records.schema import RunInfo
from paceline.settings.flag_text import as_flags
from paceline.train.config import TrainConfig
from paceline.train.rules import keep_momentum

_NOT_OF_THE_RECIPE = {"task", "epochs", "steps", "target", "patience", "eval_every", "init_from"}
"""What a short training beside the run has its own of."""


def recipe(config: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The settings that make a training like that one, but for its length; none that is off or a default.

    Args:
        config: of run.json.
        changes: by field name: a value instead, or None to leave the setting out.
    """
    kept = {
        f.name: config[f.name]
        for f in dataclasses.fields(TrainConfig)
        if f.metadata["recipe"] and f.name not in _NOT_OF_THE_RECIPE and f.name in config
        if config[f.name] is not None and config[f.name] != f.default
    }
    return {name: value for name, value in (kept | changes).items() if value is not None and value is not False}


def recipe_flags(config: Mapping[str, Any], **changes: Any) -> tuple[str, ...]:
    """The same as flags."""
    return tuple(as_flags(TrainConfig, recipe(config, **changes)))


def used(info: RunInfo) -> dict[str, Any]:
    """Settings of a training as it really used them: what its scaling rule made of those of the base batch.

    Args:
        info: of a run of `paceline train`, whose facts hold the rate, and the rest where there was a rule.

    Returns:
        values by field name, for a training at the run's own batch without a rule.
    """
    config, rule = info.config, info.facts.get("rule")
    found: dict[str, Any] = {"lr": info.facts.get("lr", config.get("lr")), "lr_rule": None, "base_batch": None}
    if rule is None:
        return found
    made = {"weight_decay": rule["weight_decay"], "eps": rule["eps"]}
    made |= {"beta1": rule["betas"][0], "beta2": rule["betas"][1]}
    momenta = rule.get("bn_momenta", [])
    if config.get("bn_momentum") is not None:
        times = rule.get("micro_batch_times", rule["batch_times"])
        made["bn_momentum"] = keep_momentum(float(config["bn_momentum"]), float(times))
    elif len(momenta) == 1:  # what the rule made of the model's own; of several, none can be said for all
        found["bn_momentum"] = momenta[0]
    # The rule scales all of them; an optimizer has only those that its config holds.
    return found | {name: value for name, value in made.items() if config.get(name) is not None}
