"""What one process gives for the task: weights after each epoch, the loss, the right answers; in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from paceline.tasks.task import Loss
from paceline.verify.oracle import Problem, State, train_alone
from paceline_course.assess.kit import EVAL_SEED, in_float64, signals


@dataclass(frozen=True)
class Setting:
    """One training in its exact form: plain SGD, all numbers said.

    Attributes:
        samples, eval_samples: sizes of the data.
        batch: global.
        epochs: at most.
        variant: of the network.
        seed: of weights and order.
        data_seed: of the data.
        rate, momentum: of SGD.
    """

    samples: int
    eval_samples: int
    batch: int
    epochs: int
    variant: str
    seed: int
    data_seed: int
    rate: float = 0.05
    momentum: float = 0.9

    def arguments(self) -> tuple[str, ...]:
        """As flags of train.py."""
        named = {
            "samples": self.samples,
            "eval-samples": self.eval_samples,
            "data-seed": self.data_seed,
            "variant": self.variant,
            "seed": self.seed,
            "epochs": self.epochs,
            "batch": self.batch,
            "lr": self.rate,
            "momentum": self.momentum,
        }
        return (*(word for key, value in named.items() for word in (f"--{key}", str(value))), "--float64")

    @property
    def steps(self) -> int:
        """Of one epoch."""
        return -(-self.samples // self.batch)


@dataclass(frozen=True)
class Truth:
    """What comes out.

    Attributes:
        start: the first weights and buffers.
        states: weights and buffers after each epoch.
        losses: mean over the samples of each epoch, each sample's taken before the step of its batch.
        right: correct answers on the evaluation samples after each epoch.
    """

    start: State
    states: list[State]
    losses: list[float]
    right: list[int]


def truth(setting: Setting) -> Truth:
    """Train as one process."""
    kit = signals()
    with in_float64():
        data = kit.Signals(setting.samples, setting.data_seed)
        batches = [
            indices
            for epoch in range(setting.epochs)
            for indices in kit.order(setting.samples, setting.seed, epoch).split(setting.batch)
        ]
        problem = Problem(
            model=lambda: kit.make_model(setting.variant, setting.seed),
            loss=_loss,
            data=data.batch,
            optimizer=lambda weights: torch.optim.SGD(weights, lr=setting.rate, momentum=setting.momentum),
        )
        states = [_full(setting.variant, state) for state in train_alone(problem, batches)]
        model = kit.make_model(setting.variant, setting.seed)
        per_step = [
            _loss_of(model, state, data.batch(indices)) for state, indices in zip(states, batches, strict=False)
        ]
        ends = [states[(epoch + 1) * setting.steps] for epoch in range(setting.epochs)]
        sizes = [len(indices) for indices in batches]
        losses = [
            float(np.dot(per_step[at : at + setting.steps], sizes[at : at + setting.steps]) / setting.samples)
            for at in range(0, len(batches), setting.steps)
        ]
    right = [count_right(setting, state) for state in ends]
    return Truth(states[0], ends, losses, right)


def count_right(setting: Setting, state: State) -> int:
    """Right answers of these weights on the evaluation samples of a setting."""
    return int(which_right(setting, state).sum())


def which_right(setting: Setting, state: State) -> NDArray[np.bool_]:
    """Of each evaluation sample of a setting, whether these weights are right."""
    seed = setting.data_seed + EVAL_SEED
    return _hits(setting.variant, state, setting.eval_samples, seed)


def right_answers(variant: str, state: State, samples: int, seed: int) -> int:
    """Right answers of these weights on drawn samples, in the weights' own precision."""
    return int(_hits(variant, state, samples, seed).sum())


def _hits(variant: str, state: State, samples: int, seed: int) -> NDArray[np.bool_]:
    return np.asarray(scores(variant, state, samples, seed).argmax(axis=1) == labels(samples, seed))


def labels(samples: int, seed: int) -> NDArray[np.int64]:
    """The classes of drawn samples."""
    return np.asarray(signals().Signals(samples, seed).batch(range(samples))[1].numpy())


def scores(variant: str, state: State, samples: int, seed: int) -> NDArray[np.float64]:
    """Of the network with these weights on drawn samples, (samples, classes).

    Raises:
        ValueError: the weights do not fit the network.
    """
    kit = signals()
    double = next(iter(state.values())).dtype == np.float64
    model: nn.Module = kit.make_model(variant, 0)
    model = model.double() if double else model.float()
    try:
        model.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in state.items()})
    except (RuntimeError, TypeError) as error:
        raise ValueError(str(error)) from error
    model.eval()
    inputs: Tensor
    with in_float64():
        inputs, _ = kit.Signals(samples, seed).batch(range(samples))
    with torch.no_grad():
        parts = [model(part if double else part.float()) for part in inputs.split(512)]
    return np.asarray(torch.cat(parts).double().numpy())


def _full(variant: str, state: State) -> State:
    """With every name that a saved state_dict has: a tied weight stands under both of its names."""
    if variant == "tied" and "third.weight" not in state:
        return state | {"third.weight": state["second.weight"]}
    return state


def _loss(model: nn.Module, batch: Any) -> Loss:
    inputs, wanted = batch
    return Loss(functional.cross_entropy(model(inputs), wanted, reduction="sum"), len(wanted))


def _loss_of(model: nn.Module, state: State, batch: Any) -> float:
    """The mean loss of a batch at these weights, in training mode."""
    model.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in state.items()})
    model.train()
    with torch.no_grad():
        inputs, wanted = batch
        return float(functional.cross_entropy(model(inputs), wanted))
