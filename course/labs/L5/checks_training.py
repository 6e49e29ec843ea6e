"""Checks of exercise L5.4: a training of several processes, held to one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from paceline.verify.compare import TOLERANCE, compare
from paceline.verify.oracle import Problem, State, state_of, train_alone
from paceline_course.checking import Answer, Wrong, learners, load_module, proves

common = load_module(Path(__file__).with_name("common.py"), "paceline_course_L5_common")
material = load_module(Path(__file__).with_name("material.py"), "paceline_course_L5_material")


# --- L5.4 -----------------------------------------------------------------------------------------------------------

STEPS, SHARE = 6, 4


def trained(seed: int) -> tuple[list[State], list[tuple[str, bool, float]]]:
    """Over there: the learner's wrap and train_step on this process's part of each batch; states, and losses."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model = material.small(seed + 1000 * rank)  # each process begins with weights of its own: wrapping makes them equal
    ddp = learners("wrap")(model, torch.device("cpu"))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    inputs, labels = material.classified(seed, STEPS * SHARE * world)
    states, losses = [state_of(model)], []
    for step in range(STEPS):
        rows = _rows(step, rank, world)
        loss = learners("train_step")(ddp, optimizer, inputs[rows], labels[rows])
        number = float(loss) if isinstance(loss, float | int) else float("nan")
        losses.append((type(loss).__name__, bool(getattr(loss, "requires_grad", False)), number))
        states.append(state_of(model))
    return states, losses


def _rows(step: int, rank: int, world: int) -> slice:
    start = (step * world + rank) * SHARE
    return slice(start, start + SHARE)


class _Adding(torch.optim.SGD):
    """Keeps the gradients of earlier steps."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing."""


def _alone(seed: int, world: int, optimizer: type[torch.optim.SGD]) -> list[State]:
    """What one process gets from the same batches."""
    inputs, labels = material.classified(seed, STEPS * SHARE * world)
    problem = Problem(
        model=lambda: material.small(seed),
        loss=common.cross_entropy,
        data=lambda rows: (inputs[list(rows)], labels[list(rows)]),
        optimizer=lambda parameters: optimizer(parameters, lr=0.1, momentum=0.9),
    )
    each = SHARE * world
    return train_alone(problem, [range(step * each, (step + 1) * each) for step in range(STEPS)])


@proves("L5.4", "two and three processes train what one trains, and hold the same bits")
def parity(answer: Answer) -> None:
    """Against the oracle, in float64."""
    for world in (2, 3):
        seed = int(answer.draw.integers(1, 1000))
        ran = f"{STEPS} steps in float64 on {world} processes"
        with common.naming(answer, ran, "a wrapped model on the CPU", {"device_ids": "device-ids"}):
            got = answer.ranks(trained, world, seed)
        inputs, labels = material.classified(seed, STEPS * SHARE * world)
        reference = _alone(seed, world, torch.optim.SGD)
        _judge_states([states for states, _ in got], reference, _alone(seed, world, _Adding), ran)
        for rank, (_, losses) in enumerate(got):
            for step, (kind, graph, loss) in enumerate(losses):
                said = f"step {step + 1} on rank {rank}"
                if kind == "Tensor":
                    which = "with its graph" if graph else "without a graph"
                    raise Wrong("loss-tensor", ran=said, expected="a number", got=f"a tensor {which}")
                if kind not in ("float", "int"):
                    raise Wrong("loss-type", ran=said, expected="a number", got=f"something of type {kind}")
                rows = _rows(step, rank, world)
                model = material.small(seed)
                model.load_state_dict({name: torch.from_numpy(value) for name, value in reference[step].items()})
                should = nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).item()
                if not np.isclose(loss, should, rtol=1e-6):
                    raise Wrong("loss-value", ran=said, expected=f"{should:.6f}", got=f"{loss:.6f}")


def _judge_states(
    ranks: Sequence[Sequence[State]], reference: Sequence[State], adding: Sequence[State], ran: str
) -> None:
    """Ranks against each other, and rank 0 against the oracle; `adding` is what it gives without zero_grad."""
    for at, message, when in ((0, "not-wrapped", "before the first step"), (-1, "ranks-differ", "after the last step")):
        for rank, states in enumerate(ranks[1:], start=1):
            if any(states[at][name].tobytes() != ranks[0][at][name].tobytes() for name in states[at]):
                got = f"rank {rank} differs from rank 0 {when}"
                raise Wrong(message, ran=ran, expected="the same bits on all", got=got)
    first, last = compare(ranks[0][1], reference[1], reference[0]), compare(ranks[0][-1], reference[-1])
    if last.equal():
        return
    message, factor = "unequal", first.factor
    got = f"{last.worst[0]} is off by {last.worst[1]:.1g}"
    if first.equal():
        message = "gradients-add-up" if compare(ranks[0][-1], adding[-1]).equal() else "later-steps"
        second = compare(ranks[0][2], reference[2])
        got = f"step 1 as it should be; after step 2 {second.worst[0]} is off by {second.worst[1]:.1g}"
    elif factor is not None:
        got += f"; the first step is {factor:.3g} times as long as it should be"
        # 4 samples a process, 2 or 3 processes: the factors differ.
        named = {0: "nothing-moves", SHARE: "summed-loss", len(ranks): "times-world"}
        message = next((name for value, name in named.items() if abs(factor - value) < 1e-3), message)
    raise Wrong(message, ran=ran, expected=f"the weights of one process, within {TOLERANCE:g}", got=got)
