"""The measure `interpolation`: the loss on the straight line to another run, and the barrier on it.

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

import numpy as np
import torch
from torch import Tensor, nn

from paceline.curvature.fixed_loss import Value
from paceline.landscape import interpolate
from paceline.landscape.ends import other_end
from paceline.landscape.kept_parts import save_array
from paceline.landscape.session import Outcome, Session, shown
from paceline.landscape.slices import evaluate
from paceline.landscape.subject import flat_weights
from paceline.records.landscape import Interpolation, finite, finites

_COUNT = "num_batches_tracked"
"""Of a batch norm: nothing that is measured depends on it."""


@dataclass(frozen=True)
class _Other:
    """What every rank must know of the other run.

    Attributes:
        step: of its checkpoint.
        weights: their digest.
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
    path = session.work.parts / "other.npy"
    other = session.work.from_rank_zero(lambda: _look_over(session, path))
    there = np.load(path, mmap_mode="r")
    where = interpolate.positions(config.points)

    def at(index: int) -> Value:
        t = float(where[index])
        with _moved(session.subject.model, other.rest, t):
            return loss.value_alone(interpolate.move(loss.point(), there, t))

    values = evaluate(session.work, "interpolation", len(where), at)
    height, place = interpolate.barrier(where, values.loss)
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


def _look_over(session: Session, path: Path) -> _Other:
    """Look at the other run once, and leave its trained weights in a file."""
    other, loss, model = other_end(session.config, session.subject.model), session.slices, session.subject.model
    here = loss.point().cpu()
    there = flat_weights(other.state, loss.layout, here, other.checkpoint)
    save_array(path, there.numpy())
    square = float((there.double() - here.double()).square().sum())
    rest: dict[str, Tensor] = {}
    for name, own in _untrained(model).items():
        tensor = other.state.get(name)  # None: a buffer that no checkpoint holds
        if tensor is None or name.endswith(_COUNT) or torch.equal(tensor.to(own), own):
            continue
        rest[name] = tensor.clone()  # of its own memory, without the file's
        if isinstance(own, nn.Parameter):
            square += float((tensor.to(own).double() - own.double()).square().sum())
    return _Other(other.step, other.weights, math.sqrt(square), rest)


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
    return interpolate.between(here, there, t if beyond else min(max(t, 0.0), 1.0))
