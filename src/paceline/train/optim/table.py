"""The optimizers by name, with what the command line must know before torch is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class OptimizerEntry:
    """One optimizer.

    Attributes:
        factory: `module:name`, called as name(groups, settings) -> torch.optim.Optimizer.
        lr: the default rate for tasks that were tuned with another optimizer.
        takes: names of the settings that it uses, of momentum, nesterov, betas, eps and trust.
        momentum, betas, eps, trust: its own defaults, where it takes them.
        decay: where weight decay stands: `coupled` is added to the gradient, `decoupled` shrinks weights beside it,
            `in-update` is added to a normalised step. Scaling rules leave the first as it is (see `rules`).
        adam: whether it follows Adam's equations, for which scaling rules of its own are known.
        sparse: whether it takes sparse gradients, as of nn.Embedding(sparse=True).
        complex_numbers: whether it takes complex parameters.
    """

    factory: str
    lr: float
    takes: tuple[str, ...] = ()
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    trust: float = 1e-3
    decay: Literal["coupled", "decoupled", "in-update"] = "coupled"
    adam: bool = False
    sparse: bool = False
    complex_numbers: bool = False


OPTIMIZERS: dict[str, OptimizerEntry] = {
    "sgd": OptimizerEntry(
        factory="paceline.train.optim.build:sgd",
        lr=0.05,
        takes=("momentum", "nesterov"),
        sparse=True,
        complex_numbers=True,
    ),
    "adamw": OptimizerEntry(
        factory="paceline.train.optim.build:adamw",
        lr=1e-3,
        takes=("betas", "eps"),
        decay="decoupled",
        adam=True,
        complex_numbers=True,
    ),
    "lars": OptimizerEntry(
        factory="paceline.train.optim.layerwise:Lars",
        lr=1.0,
        takes=("momentum", "nesterov", "trust"),
    ),
    "lamb": OptimizerEntry(
        factory="paceline.train.optim.layerwise:Lamb",
        lr=5e-3,
        takes=("betas", "eps"),
        eps=1e-6,
        decay="in-update",
    ),
    "novograd": OptimizerEntry(
        factory="paceline.train.optim.layerwise:NovoGrad",
        lr=1e-2,
        takes=("betas", "eps"),
        betas=(0.95, 0.98),
        decay="in-update",
    ),
    "muon": OptimizerEntry(
        factory="paceline.train.optim.layerwise:MuonWithAdamW",
        lr=1e-3,
        takes=("momentum",),
        momentum=0.95,
        decay="decoupled",
    ),
}


@dataclass(frozen=True)
class Settings:
    """What an optimizer is built with; it ignores what it does not take."""

    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    trust: float = 1e-3
