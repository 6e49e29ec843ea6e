"""The optimizers by name, with what the command line must know before torch is loaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OptimizerEntry:
    """One optimizer.

    Attributes:
        title: one line for people.
        factory: `module:function`, called as function(groups, settings) -> torch.optim.Optimizer.
        lr: the default rate for tasks that were tuned with another optimizer.
        takes: names of the settings that it uses, of momentum and nesterov.
    """

    title: str
    factory: str
    lr: float
    takes: tuple[str, ...] = ()


OPTIMIZERS: dict[str, OptimizerEntry] = {
    "sgd": OptimizerEntry(
        title="stochastic gradient descent with momentum; weight decay is added to the gradient",
        factory="paceline.train.optim.plain:sgd",
        lr=0.05,
        takes=("momentum", "nesterov"),
    ),
    "adamw": OptimizerEntry(
        title="Adam with decoupled weight decay (Loshchilov and Hutter 2019), betas 0.9 and 0.999",
        factory="paceline.train.optim.plain:adamw",
        lr=1e-3,
    ),
}


@dataclass(frozen=True)
class Settings:
    """What an optimizer is built with."""

    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
