"""Checks of lab 10: bits that come back, batches that do not depend on the world, decisions on which all agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from paceline.verify.oracle import State, state_of
from paceline_course.checking import Answer, Message, Wrong, learners, proves

MESSAGES = {
    "momenta": Message("the optimizer's state did not come back", "state_dict and load_state_dict of the optimizer"),
    "random": Message("random numbers go on elsewhere", "torch.get_rng_state and torch.set_rng_state"),
    "step": Message("the step is another one", "what is saved, and what is returned"),
    "weights": Message("the weights did not come back", "state_dict and load_state_dict of the model"),
    "torn": Message("a save that fails destroys the last file", "another name first, then os.replace"),
    "depends-on-world": Message(
        "the batches depend on the number of processes", "what is cut first, and what is drawn"
    ),
    "same-order": Message("every epoch has the same order", "the seed of the order: seed and epoch"),
    "lost-samples": Message("samples are missing in an epoch", "the last, smaller batch"),
    "unequal-parts": Message("parts differ by more than one sample", "how a batch is shared out"),
    "not-random": Message("the order is not random, or does not depend on the seed", "where the order comes from"),
    "disagree": Message("processes decide differently", "a collective before the decision"),
    "not-in-a-row": Message("an overflow does not begin the count anew", "the count, after an overflow"),
    "grows-once": Message("the count does not begin anew after doubling", "the count, after doubling"),
    "overflow-taken": Message("a step with an overflow is taken", "what is returned"),
    "scale": Message("the scale is another one", "halving and doubling"),
    "not-sharded": Message("every process keeps the state of all", "for which parameters the optimizer is made"),
    "not-balanced": Message("one process keeps much more than its share", "the rule of the task: largest first"),
    "not-sent": Message(
        "processes do not get what others have updated", "a broadcast of each parameter, from its owner"
    ),
    "unequal": Message("the weights are not those of the whole optimizer", "who updates what, and who sends it"),
}


# --- L10.1 --------------------------------------------------------------------------------------------------------


def training(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A network with dropout, and Adam."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.4), nn.Tanh(), nn.Linear(16, 2))
    return model, torch.optim.Adam(model.parameters(), lr=0.02)


def go_on(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int, steps: range) -> None:
    """Some steps."""
    for step in steps:
        batch = torch.randn(8, 6, generator=torch.Generator().manual_seed(1000 * seed + step))
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


def unbroken(seed: int) -> State:
    """The reference, without the learner's code."""
    model, optimizer = training(seed)
    go_on(model, optimizer, seed, range(10))
    return state_of(model)


def saved(seed: int) -> bytes:
    """Over there: five steps, then the learner's save."""
    model, optimizer = training(seed)
    go_on(model, optimizer, seed, range(5))
    learners("save")("state.pt", model, optimizer, 5)
    return Path("state.pt").read_bytes()


def resumed(seed: int) -> tuple[int, State, State]:
    """Over there, in another process: the learner's load into fresh objects, then five more steps."""
    model, optimizer = training(seed + 1)
    step = learners("load")("state.pt", model, optimizer)
    loaded = state_of(model)
    go_on(model, optimizer, seed, range(5, 10))
    return int(step), loaded, state_of(model)


def momenta_after(seed: int) -> tuple[bool, bool]:
    """Over there: whether the optimizer has a state after loading, and whether random numbers go on as saved."""
    model, optimizer = training(seed)
    go_on(model, optimizer, seed, range(5))
    learners("save")("again.pt", model, optimizer, 5)
    expected = torch.rand(1).item()
    fresh, other = training(seed + 1)
    learners("load")("again.pt", fresh, other)
    return bool(other.state), torch.rand(1).item() == expected


@proves("L10.1", "a training that was saved and resumed in another process is the unbroken one, to the bit")
def resume(answer: Answer) -> None:
    """Adam and dropout."""
    seed = int(answer.draw.integers(1, 1000))
    answer.give("state.pt", answer.call(saved, seed))
    step, loaded, end = answer.call(resumed, seed)
    ran = "5 steps, save, a new process, load, 5 more, against 10 steps"
    model, optimizer = training(seed)
    go_on(model, optimizer, seed, range(5))
    if any(loaded[name].tobytes() != value.tobytes() for name, value in state_of(model).items()):
        raise Wrong("weights", ran=ran, expected="the weights of step 5 after load", got="others")
    if step != 5:
        raise Wrong("step", ran=ran, expected=5, got=step)
    has_state, same_random = answer.call(momenta_after, seed)
    if not has_state:
        raise Wrong("momenta", ran=ran, expected="the state of Adam after load", got="none")
    if not same_random:
        raise Wrong("random", ran=ran, expected="random numbers go on where they were", got="others")
    reference = unbroken(seed)
    wrong = [name for name in reference if end[name].tobytes() != reference[name].tobytes()]
    if wrong:
        raise Wrong("momenta", ran=ran, expected="the same bits", got=f"{wrong[0]} differs")


def failing(seed: int) -> tuple[bool, bytes]:
    """Over there: a second save that fails in the middle; whether the error came through, and the file."""
    model, optimizer = training(seed)
    learners("save")("state.pt", model, optimizer, 1)
    write = torch.save

    def half(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(f, str | Path):
            Path(f).write_bytes(b"half a file")
        else:
            f.write(b"half a file")
            f.flush()
        raise OSError("no space left on device")

    torch.save = half
    try:
        learners("save")("state.pt", model, optimizer, 2)
        failed = False
    except OSError:
        failed = True
    finally:
        torch.save = write
    return failed, Path("state.pt").read_bytes() if Path("state.pt").exists() else b""


@proves("L10.1", "a save that fails in the middle leaves the last complete file")
def whole_files(answer: Answer) -> None:
    """A disk that is full."""
    _, content = answer.call(failing, int(answer.draw.integers(1, 1000)))
    if not content or content == b"half a file":
        ran = "a save, and another one that fails while it writes"
        raise Wrong("torn", ran=ran, expected="the first file", got="half a file" if content else "no file")


# --- L10.2 --------------------------------------------------------------------------------------------------------


def all_parts(cases: Sequence[tuple[int, int, int, Sequence[int], Sequence[int]]]) -> list[list[list[list[int]]]]:
    """Over there: by case, step and rank (worlds one after the other)."""
    found = []
    for samples, batch, seed, worlds, steps in cases:
        of_case = []
        for step in steps:
            for world in worlds:
                parts = [learners("my_part")(step, samples, batch, seed, rank, world) for rank in range(world)]
                of_case.append([[int(index) for index in part] for part in parts])
        found.append(of_case)
    return found


@proves("L10.2", "batches are the same for any number of processes, and each epoch has every sample once")
def elastic(answer: Answer) -> None:
    """Two epochs, 1 to 7 processes."""
    draw = answer.draw
    worlds = [1, 2, 3, 7]
    cases = []
    for number in range(4):
        samples, batch = int(draw.integers(20, 120)), int(draw.integers(5, 19))
        if number == 0:  # a last batch of 2, and batches of 8, which parts of ceil(8 / 7) do not share out evenly
            samples, batch = 8 * int(draw.integers(3, 14)) + 2, 8
        cases.append((samples, batch, int(draw.integers(1000)), worlds, range(2 * -(-samples // batch))))
    for (samples, batch, _, _, steps), found in zip(cases, answer.call(all_parts, cases), strict=True):
        ran = f"{samples} samples, global batch {batch}, {', '.join(map(str, worlds))} processes, two epochs"
        epoch_steps = len(steps) // 2
        by_step = [found[number * len(worlds) : (number + 1) * len(worlds)] for number in range(len(steps))]
        alone = [each[0][0] for each in by_step]
        for step, each in enumerate(by_step):
            for world, parts in zip(worlds, each, strict=True):
                if [index for part in parts for index in part] != alone[step]:
                    together = sorted(index for part in parts for index in part) == sorted(alone[step])
                    message = "depends-on-world"
                    what = "them in another order" if together else "other samples"
                    got = f"{world} processes have {what} in step {step}"
                    raise Wrong(message, ran=ran, expected="the batch of one process", got=got)
                sizes = [len(part) for part in parts]
                if max(sizes) - min(sizes) > 1:
                    raise Wrong("unequal-parts", ran=ran, expected="sizes that differ by 1 at most", got=sizes)
        orders = [[index for rows in alone[k * epoch_steps : (k + 1) * epoch_steps] for index in rows] for k in (0, 1)]
        for order in orders:
            if sorted(order) != list(range(samples)):
                raise Wrong("lost-samples", ran=ran, expected=f"{samples} samples an epoch", got=len(set(order)))
        if orders[0] == orders[1]:
            raise Wrong("same-order", ran=ran, expected="another order in the second epoch", got="the same")
        if orders[0] == sorted(orders[0]):
            raise Wrong("not-random", ran=ran, expected="a random order", got=f"{orders[0][:5]} ...")


# --- L10.3 --------------------------------------------------------------------------------------------------------


def scaled(initial: float, interval: int, overflows: Sequence[Sequence[bool]]) -> list[tuple[bool, float]]:
    """Over there: decision and scale after each step."""
    scale = learners("LossScale")(initial, interval)
    found = []
    for step in overflows:
        taken = bool(scale.update(step[dist.get_rank()]))
        found.append((taken, float(scale.value)))
    return found


@proves("L10.3", "all processes take the same steps and have the same scale, for any pattern of overflows")
def loss_scale(answer: Answer) -> None:
    """Overflows on some of the processes."""
    draw = answer.draw
    for world in (2, 3):
        interval = int(draw.integers(2, 5))
        overflows = [[bool(draw.uniform() < 0.12) for _ in range(world)] for _ in range(40)]
        overflows[: interval - 1] = [[False] * world] * (interval - 1)
        overflows[interval - 1] = [rank == world - 1 for rank in range(world)]  # just before it would grow
        overflows[20 : 20 + 2 * interval] = [[False] * world] * (2 * interval)  # long enough to grow twice
        got = answer.ranks(scaled, world, 1024.0, interval, overflows, timeout_s=10)
        expected = _scales(interval, [any(step) for step in overflows])
        ran = f"40 steps on {world} processes, growth after {interval}"
        for step in range(40):
            said = [rank[step] for rank in got]
            if len(set(said)) > 1:
                raise Wrong("disagree", ran=ran, expected=expected[step], got=f"{said} after step {step + 1}")
            if said[0] != expected[step]:
                raise Wrong(_scale_message(interval, overflows, got[0]), ran=ran, expected=expected[step], got=said[0])


def _scales(
    interval: int, overflows: Sequence[bool], *, reset: bool = True, again: bool = True
) -> list[tuple[bool, float]]:
    value, good, found = 1024.0, 0, []
    for overflow in overflows:
        if overflow:
            value /= 2
            good = 0 if reset else good
        else:
            good += 1
            if good == interval:
                value *= 2
                good = 0 if again else good
        found.append((not overflow, value))
    return found


def _scale_message(interval: int, overflows: Sequence[Sequence[bool]], got: Sequence[tuple[bool, float]]) -> str:
    seen = [any(step) for step in overflows]
    if any(taken for (taken, _), overflow in zip(got, seen, strict=True) if overflow):
        return "overflow-taken"
    if list(got) == _scales(interval, seen, reset=False):
        return "not-in-a-row"
    return "grows-once" if list(got) == _scales(interval, seen, again=False) else "scale"


# --- L10.4 --------------------------------------------------------------------------------------------------------

SHAPES = ((40, 30), (30,), (30, 30), (30,), (30, 20), (20,), (7, 7), (7,))


def numbers(seed: int) -> list[nn.Parameter]:
    """Parameters, the same on all processes."""
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def gradients(seed: int, step: int) -> list[torch.Tensor]:
    """Averaged gradients of a step, the same on all processes."""
    generator = torch.Generator().manual_seed(1000 * seed + step)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def sharded(seed: int) -> tuple[list[np.ndarray], list[int]]:
    """Over there: weights after five steps, and for which parameters this process made an optimizer."""
    parameters = numbers(seed)
    kept: list[int] = []

    def make(part: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        kept.extend(next(i for i, p in enumerate(parameters) if p is each) for each in part)
        return torch.optim.Adam(list(part), lr=0.01)

    optimizer = learners("Sharded")(parameters, make)
    for step in range(5):
        for p, gradient in zip(parameters, gradients(seed, step), strict=True):
            p.grad = gradient.clone()
        optimizer.step()
    return [p.detach().numpy() for p in parameters], kept


@proves("L10.4", "weights are those of the whole optimizer, and state is shared out evenly")
def zero(answer: Answer) -> None:
    """Adam on eight tensors, two and three processes."""
    for world in (2, 3):
        seed = int(answer.draw.integers(1, 1000))
        got = answer.ranks(sharded, world, seed)
        ran = f"5 steps of Adam on {len(SHAPES)} tensors, {world} processes"
        sizes = [int(np.prod(shape)) for shape in SHAPES]
        loads = [sum(sizes[index] for index in kept) for _, kept in got]
        if sum(loads) > sum(sizes):
            raise Wrong("not-sharded", ran=ran, expected=f"{sum(sizes):,} elements in all", got=f"{loads} a process")
        expected_loads = _balanced(sizes, world)
        if max(loads) > max(expected_loads):
            raise Wrong("not-balanced", ran=ran, expected=f"{expected_loads} elements", got=loads)
        whole = numbers(seed)
        optimizer = torch.optim.Adam(whole, lr=0.01)
        for step in range(5):
            for p, gradient in zip(whole, gradients(seed, step), strict=True):
                p.grad = gradient.clone()
            optimizer.step()
        reference = [p.detach().numpy() for p in whole]
        start = [p.detach().numpy() for p in numbers(seed)]
        for rank, (weights, kept) in enumerate(got):
            off = [i for i in range(len(SHAPES)) if weights[i].tobytes() != reference[i].tobytes()]
            if off:
                untouched = all(np.array_equal(weights[i], start[i]) for i in off) and not set(off) & set(kept)
                got_text = f"rank {rank}: tensors {off} are {'still as they were' if untouched else 'others'}"
                raise Wrong("not-sent" if untouched else "unequal", ran=ran, expected="the same bits", got=got_text)


def _balanced(sizes: Sequence[int], world: int) -> list[int]:
    loads = [0] * world
    for size in sorted(sizes, reverse=True):
        loads[loads.index(min(loads))] += size
    return loads
