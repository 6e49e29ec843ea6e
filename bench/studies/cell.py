"""A cell of a study: one setting with one seed, as the command that measures it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bench.harness import rounds_of

TASK = "fashion-mnist"
WORKERS = 2
Flags = Mapping[str, str]
"""Flag -> value; an empty value stands for a switch."""


@dataclass(frozen=True)
class Cell:
    """One setting with one seed.

    Attributes:
        setting: name of the setting; letters, digits, dots and hyphens.
        seed: of weights, order and augmentation.
        flags: of the verb, without seed and workers.
        most_epochs: how long it can take.
        usual_epochs: how long it is thought to take; the cost is stated from this.
        slowness: default seconds an epoch over those of batch 128 (small batches have more steps).
        verb: train or landscape.
        target: what the verb is called with.
        keep: a run directory, relative to the repository, that stays; None: a scratch one that is removed.
        needs: run directories that must be there.
        whole_s: default seconds, of verbs other than train.
        kind: cells of one kind cost the same.
    """

    setting: str
    seed: int
    flags: Flags = field(hash=False)
    most_epochs: float = 0.0
    usual_epochs: float = 0.0
    slowness: float = 1.0
    verb: str = "train"
    target: str = TASK
    keep: str | None = None
    needs: tuple[str, ...] = ()
    whole_s: float = 0.0
    kind: str = "train"

    @property
    def name(self) -> str:
        """As it stands in file names."""
        return f"{self.setting}_seed{self.seed}"

    @property
    def command(self) -> list[str]:
        """What the record says: everything that decides the result, nothing of this machine."""
        flags = itertools.chain.from_iterable((name, value) if value else (name,) for name, value in self.flags.items())
        seed = ["--seed", str(self.seed), "--workers", str(WORKERS), "--format", "json"]
        return ["paceline", self.verb, self.target, *flags, *seed]

    def flag(self, name: str) -> str | None:
        """A flag's value."""
        return self.flags.get(name)


def interleaved(settings: Sequence[Cell], seeds: Sequence[int], order: int = 0) -> list[Cell]:
    """Every setting with every seed: all settings with the first seed, in an order shuffled anew, then the next."""
    by_name = {cell.setting: cell for cell in settings}
    if len(by_name) != len(settings):
        raise ValueError("two settings of a study have one name")
    rounds = rounds_of(list(by_name), len(seeds), order)
    return [replace(by_name[name], seed=seed) for seed, names in zip(seeds, rounds, strict=True) for name in names]


def final(record: Mapping[str, Any], metric: str = "accuracy") -> float | None:
    """The metric at the last evaluation; None for a run that diverged or was never evaluated."""
    training = record["training"]
    if training["end"] == "diverged" or not training["evaluations"]:
        return None
    value: float | None = training["evaluations"][-1]["metrics"].get(metric)
    return value
