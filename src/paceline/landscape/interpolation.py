"""The measure `interpolation`: the loss on the straight line to another run, and the barrier on it.

    L(t) = loss at (1 - t) * a + t * b,    barrier = max over 0 <= t <= 1 of L(t) - ((1 - t) * L(0) + t * L(1))

(Goodfellow et al. 2015, arXiv 1412.6544; Frankle et al. 2020, arXiv 1912.05671). At t = 0 and t = 1 the weights are
exactly those of the two. A barrier says that the two are not joined by a straight line, not that no path joins them:
exchanging hidden units leaves what a network computes and raises a barrier.

At t = 1 everything is the other run's, whether it was trained or not. Frozen weights go straight on beyond the ends, as
trained ones do. Buffers stop there: a running variance that is a tenth of the other run's would be below zero soon
behind it. What is no floating-point number has nothing in between and is that of the nearer end, which is said.

A rank holds two copies of the trained weights besides the model: the point, and what the model looks at. Those of the
other run stand in a mapped file. Of what is not trained and differs, such as saved statistics, it holds two more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from paceline.checkpoint.find import does_not_fit, find_checkpoint
from paceline.checkpoint.state import load_model
from paceline.curvature.fixed_loss import Value
from paceline.landscape.config import LandscapeConfig
from paceline.landscape.kept_parts import blocks, mapped, save_rows
from paceline.landscape.session import Outcome, Session, shown
from paceline.landscape.slices import Floats, evaluate
from paceline.landscape.subject import digest_of_checkpoint, flat_weights
from paceline.landscape.target import task_settings, train_run
from paceline.parallel import agree
from paceline.records.errors import PacelineError
from paceline.records.landscape import Interpolation, finite, finites

_COUNT = "num_batches_tracked"
"""The counter of a batch norm; no measure depends on it."""


@dataclass(frozen=True)
class _Other:
    """What every rank must know of the other run.

    Attributes:
        step: of its checkpoint.
        weights: the digest of it.
        distance: between the parameters of the two, trained and frozen.
        rest: what differs besides the trained weights, by name.
    """

    step: int
    weights: str
    distance: float
    rest: dict[str, Tensor]


def interpolation(session: Session) -> Outcome:
    """Loss and metrics on the line to the other run, and the barrier."""
    config, loss = session.config, session.slices
    path = session.ranks.parts / "other.npy"
    other = agree.from_rank_zero(lambda: _compare(session, path))
    (there,) = mapped(path)
    where = positions(config.points)

    def at(index: int) -> Value:
        t = float(where[index])
        with _moved(session.subject.model, other.rest, t):
            return loss.value_alone(move(loss.point(), there, t))

    values = evaluate(session.ranks, "interpolation", len(where), at)
    height, place = barrier(where, values.loss)
    result = Interpolation(
        other=config.other or "",
        other_checkpoint=other.step,
        other_weights=other.weights,
        points=where.tolist(),
        loss=finites(values.loss),
        ends=finites(values.loss[(where == 0) | (where == 1)]),
        barrier=finite(height),
        barrier_at=finite(place),
        distance=other.distance,
    )
    arrays = {"interpolation_t": where, **values.arrays("interpolation")}
    ends = " and ".join(shown(end) for end in result.ends)
    summary = f"barrier {shown(result.barrier)} at t = {place:.2f}; ends {ends}"
    return Outcome(result, arrays, summary, _warnings(height, other.rest))


def _warnings(height: float, rest: dict[str, Tensor]) -> list[str]:
    found = [] if math.isfinite(height) else ["interpolation: the loss between the runs is no finite number"]
    whole = [name for name, tensor in rest.items() if not tensor.is_floating_point()]
    if whole:
        found.append(
            f"interpolation: {', '.join(whole)} of the two runs differ and hold whole numbers, which have nothing in "
            "between: at each point they are those of the nearer run"
        )
    return found


def positions(points: int) -> Floats:
    """`points` numbers from 0 to 1, both among them exactly, and a quarter as many on either side."""
    beyond = points // 4
    line: Floats = np.arange(-beyond, points + beyond, dtype=np.float64) / (points - 1)
    return line


def barrier(t: Floats, loss: Floats) -> tuple[float, float]:
    """The barrier and where it is: never below 0, since at the ends the difference is 0.

    Args:
        t: (n,) 0 and 1 among them.
        loss: (n,) likewise.

    Returns:
        NaN for both where a loss between the ends, or at one of them, is no finite number.
    """
    within = (t >= 0) & (t <= 1)
    t, loss = t[within], loss[within]
    if not np.isfinite(loss).all():
        return float("nan"), float("nan")
    above = loss - ((1 - t) * loss[t == 0] + t * loss[t == 1])
    highest = int(np.argmax(above))
    return float(above[highest]), float(t[highest])


def move(point: Tensor, other: NDArray[Any], t: float) -> Tensor:
    """`point` (P,) in place to (1 - t) * point + t * other, which is exactly one of the two at 0 and at 1.

    Args:
        point: (P,) moved.
        other: (P,) may be mapped from a file.
        t: how far.
    """
    for block in blocks(len(point)):
        part = point[block]
        part.lerp_(torch.from_numpy(np.array(other[block])).to(part), t)
    return point


def find_other(config: LandscapeConfig, model: nn.Module) -> tuple[int, Path, dict[str, Tensor]]:
    """Step, directory and tensors of the checkpoint of `--with`.

    Raises:
        PacelineError: it is of another task, has no such checkpoint, or does not fit the model.
    """
    run = Path(config.other or "")
    own, theirs = task_settings(config)[0], train_run(run).config.get("task")
    if own != theirs:
        raise PacelineError(
            f"{config.target} is of the task {own}, and {config.other} of {theirs}",
            hint="a straight line joins two runs of one task",
        )
    step, checkpoint = find_checkpoint(run, config.other_checkpoint)
    state = load_model(checkpoint)
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in state.items()}
    for name in (*wanted, *found):
        if wanted.get(name) != found.get(name):
            here, there = (f"of shape {each[name]}" if name in each else "missing" for each in (wanted, found))
            raise does_not_fit(checkpoint, f"{name} is {here} here, and {there} there")
    return step, checkpoint, state


def _compare(session: Session, path: Path) -> _Other:
    """Read the other run once, and leave its trained weights in a file."""
    loss, model = session.slices, session.subject.model
    step, checkpoint, state = find_other(session.config, model)
    here = loss.point().cpu()
    there = flat_weights(state, loss.layout, here, checkpoint)
    save_rows(path, [there.numpy()], 1)
    square = float((there.double() - here.double()).square().sum())
    rest: dict[str, Tensor] = {}
    for name, own in _untrained(model).items():
        tensor = state.get(name)  # None: a buffer that no checkpoint holds
        if tensor is None or name.endswith(_COUNT) or torch.equal(tensor.to(own), own):
            continue
        rest[name] = tensor.clone()  # of its own memory, without the file's
        if isinstance(own, nn.Parameter):
            square += float((tensor.to(own).double() - own.double()).square().sum())
    return _Other(step, digest_of_checkpoint(checkpoint), math.sqrt(square), rest)


def _untrained(model: nn.Module) -> dict[str, Tensor]:
    """What the flat vector leaves out: frozen parameters, and buffers."""
    frozen = {name: parameter for name, parameter in model.named_parameters() if not parameter.requires_grad}
    return {**frozen, **dict(model.named_buffers())}


@contextmanager
def _moved(model: nn.Module, rest: dict[str, Tensor], t: float) -> Iterator[None]:
    """What is not trained on its way to `rest`, the other run's; the model's own memory is not written to."""
    own = {name: tensor for name, tensor in _untrained(model).items() if name in rest}
    at_home = {name: tensor.data for name, tensor in own.items()}
    try:
        for name, tensor in own.items():
            tensor.data = _between(at_home[name], rest[name], t, beyond=isinstance(tensor, nn.Parameter))
        yield
    finally:
        for name, tensor in own.items():
            tensor.data = at_home[name]


def _between(here: Tensor, there: Tensor, t: float, *, beyond: bool) -> Tensor:
    there = torch.empty_like(here).copy_(there)  # laid out as the model's
    if not here.is_floating_point():
        return here if t < 0.5 else there
    return torch.lerp(here, there, t if beyond else min(max(t, 0.0), 1.0))
