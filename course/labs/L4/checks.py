"""Checks of lab 4: the learner's own gradient synchronisation, held to one process in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.learn.checking import Answer, Message, Wrong, learners, load_module, proves
from paceline.tasks.task import Loss
from paceline.verify.compare import TOLERANCE, compare
from paceline.verify.oracle import Problem, State, state_of, train_alone

STEPS, RATE = 8, 0.05

models = load_module(Path(__file__).with_name("models.py"), "paceline_course_L4_models")

MESSAGES = {
    "start-differs": Message(
        "ranks begin with different weights: each drew its own", "synchronise: every parameter, from rank 0"
    ),
    "buffers-differ": Message("buffers were left as each rank had them", "synchronise: model.buffers() as well"),
    "ranks-differ": Message(
        "ranks no longer hold the same weights after a step", "which gradients are reduced, and on which ranks"
    ),
    "summed": Message("gradients are summed over ranks and not averaged", "the division by the number of ranks"),
    "divided-twice": Message("gradients are divided too often", "one division by the number of ranks, once a gradient"),
    "not-reduced": Message(
        "each rank keeps its own gradient, or all take rank 0's", "what happens to p.grad after the collective"
    ),
    "unequal": Message("the weights are not those of one process", "which gradients are reduced, and how often"),
    "many-collectives": Message(
        "more collectives are issued than one a step", "one flat tensor that holds all gradients, reduced once"
    ),
    "too-few-buckets": Message("everything goes into one bucket", "a new bucket when the next gradient does not fit"),
    "too-many-buckets": Message("buckets are smaller than they may be", "a bucket takes gradients until it is full"),
    "no-overlap": Message(
        "collectives begin only when backward is over",
        "the hook of a parameter starts its bucket as soon as it is full",
    ),
    "blocking": Message(
        "backward waits for each bucket: the next gradient is computed only when it is reduced", "async_op=True"
    ),
    "mean-of-means": Message(
        "each rank's mean counts the same, however many samples it has", "the number of samples of all ranks"
    ),
    "count-of-ranks": Message(
        "the loss is divided by the samples of all ranks, and then averaging divides by the ranks once more",
        "a factor that undoes the averaging",
    ),
    "synced-too-often": Message("gradients are synchronised in every micro-batch", "only the last one needs it"),
    "not-divided": Message("the micro-batches are added up and not averaged", "how often a loss is divided by k"),
    "not-accumulated": Message("only one of the micro-batches counts", "where gradients are set to zero"),
}


@dataclass(frozen=True)
class Case:
    """One training.

    Attributes:
        model: name in `models.MODELS`.
        seed: of weights and data.
        rows: samples of each rank in each step, the same in all steps.
        apart: ranks draw different weights at first, which the learner's `synchronise` has to make equal.
    """

    model: str
    seed: int
    rows: tuple[int, ...]
    apart: bool = True

    @property
    def world(self) -> int:
        """Ranks."""
        return len(self.rows)

    def data(self) -> tuple[Tensor, Tensor]:
        """All samples of all steps."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        samples = STEPS * sum(self.rows)
        shape = torch.randn(samples, models.FEATURES + 2, generator=generator, dtype=torch.float64)
        return shape[:, : models.FEATURES], shape[:, models.FEATURES :]

    def span(self, step: int, rank: int) -> slice:
        """The samples of a rank in a step."""
        start = step * sum(self.rows) + sum(self.rows[:rank])
        return slice(start, start + self.rows[rank])


def build(case: Case, rank: int) -> nn.Module:
    """The model of a rank; the oracle has rank 0's."""
    torch.manual_seed(case.seed + (1000 * rank if case.apart else 0))
    return models.MODELS[case.model]().double()


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
    """Sum of squared errors, and the number of samples."""
    return Loss((model(batch[0]) - batch[1]).square().sum(), len(batch[0]))


def oracle(case: Case) -> list[State]:
    """What one process computes on the same global batches."""
    x, y = case.data()
    each = sum(case.rows)
    problem = Problem(
        model=lambda: build(case, 0),
        loss=loss_of,
        data=lambda rows: (x[list(rows)], y[list(rows)]),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=RATE, momentum=0.9),
    )
    return train_alone(problem, [range(step * each, (step + 1) * each) for step in range(STEPS)])


def train(case: Case, step_of: Callable[[nn.Module, tuple[Tensor, Tensor]], None]) -> list[State]:
    """Over there: `step_of` computes and synchronises the gradients of one step; states as the oracle has them."""
    rank = dist.get_rank()
    model = build(case, rank)
    if case.apart:
        learners("synchronise")(model)
    states = [state_of(model)]
    x, y = case.data()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        rows = case.span(step, rank)
        step_of(model, (x[rows], y[rows]))
        optimizer.step()
        states.append(state_of(model))
    return states


def judge(case: Case, ranks: Sequence[Sequence[State]], *, summed: float | None = None) -> None:
    """Ranks against each other, and rank 0 against the oracle."""
    reference = oracle(case)
    ran = f"{STEPS} steps in float64, {case.model}, {case.world} ranks with {case.rows} samples a step"
    for rank, states in enumerate(ranks[1:], start=1):
        for step, (here, there) in enumerate(zip(ranks[0], states, strict=True)):
            for name in here:
                if here[name].tobytes() != there[name].tobytes():
                    raise Wrong(
                        _difference(case, step, name, ranks[0], reference),
                        ran=ran,
                        expected="the same bits on all ranks",
                        got=f"{name} differs between rank 0 and rank {rank} "
                        + ("before the first step" if step == 0 else f"after step {step}"),
                    )
    # The first step tells factors best: momentum mixes them afterwards.
    first = compare(ranks[0][1], reference[1], reference[0])
    last = compare(ranks[0][-1], reference[-1])
    if first.equal() and last.equal():
        return
    factor = summed if summed is not None else first.factor
    message = "unequal"
    if factor is not None and factor > 1.01:
        message = "summed"
    elif factor is not None and factor < 0.99:
        message = "divided-twice"
    got = f"{last.worst[0]} is off by {last.worst[1]:.1g}"
    if factor is not None and abs(factor - 1) > 0.01:
        got += f"; the first step is {factor:.3g} times as long as it should be"
    raise Wrong(message, ran=ran, expected=f"the weights of one process, within {TOLERANCE:g}", got=got)


def _difference(case: Case, step: int, name: str, states: Sequence[State], reference: Sequence[State]) -> str:
    if step == 0:
        buffers = dict(build(case, 0).named_buffers())
        return "buffers-differ" if name in buffers else "start-differs"
    x, y = case.data()
    alone = build(case, 0)
    rows = case.span(0, 0)
    loss = loss_of(alone, (x[rows], y[rows]))
    (loss.sum / loss.count).backward()
    with torch.no_grad():
        for p in alone.parameters():
            if p.grad is not None:
                p -= RATE * p.grad
    return "not-reduced" if compare(states[1], state_of(alone)).equal() else "ranks-differ"


def mean_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The mean over this rank's samples."""
    loss = loss_of(model, batch)
    return loss.sum / loss.count


def cases(answer: Answer, names: Sequence[str], worlds: Sequence[int]) -> list[Case]:
    """One case a model, with another number of ranks each, 4 samples a rank."""
    draw = answer.draw
    return [
        Case(name, int(draw.integers(1, 10_000)), (4,) * worlds[number % len(worlds)])
        for number, name in enumerate(names)
    ]


# --- L4.1 and L4.2: after backward -----------------------------------------------------------------------------------


def train_averaged(case: Case) -> list[State]:
    """Over there: backward, then the learner's average_gradients."""

    def step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
        mean_loss(model, batch).backward()
        learners("average_gradients")(model)

    return train(case, step)


@proves("L4.1", "two and three ranks train what one process trains, and hold the same bits")
def averaged(answer: Answer) -> None:
    """Plain, frozen, tied, unused, buffered."""
    for case in cases(answer, list(models.MODELS), [2, 3]):
        judge(case, answer.ranks(train_averaged, case.world, case))


def collectives_a_step(case: Case) -> int:
    """Over there: nothing but one backward and its synchronisation; the tracer counts."""
    model = build(case, dist.get_rank())
    x, y = case.data()
    rows = case.span(0, dist.get_rank())
    mean_loss(model, (x[rows], y[rows])).backward()
    learners("average_gradients")(model)
    return sum(p.numel() for p in model.parameters() if p.grad is not None) * 8


@proves("L4.2", "two and three ranks still train what one process trains")
def flat(answer: Answer) -> None:
    """As L4.1."""
    for case in cases(answer, list(models.MODELS), [3, 2]):
        judge(case, answer.ranks(train_averaged, case.world, case))


@proves("L4.2", "a step has exactly one collective, with as many bytes as the gradients")
def one_collective(answer: Answer) -> None:
    """Counted from outside, in the process group."""
    case = Case("a frozen layer", answer.seed % 1000, (4, 4))
    traced = answer.traced(collectives_a_step, 2, case)[0]
    ran = f"one step of a model with {traced.result} bytes of gradients"
    if len(traced.calls) != 1:
        ops = ", ".join(call.op for call in traced.calls[:6])
        got = f"{len(traced.calls)}: {ops}" if traced.calls else "none"
        raise Wrong("many-collectives" if traced.calls else "not-reduced", ran=ran, expected="1 collective", got=got)
    if traced.calls[0].bytes != traced.result:
        raise Wrong("unequal", ran=ran, expected=f"{traced.result} bytes", got=f"{traced.calls[0].bytes} bytes")


# --- L4.3: buckets during backward ------------------------------------------------------------------------------------


def train_bucketed(case: Case, bucket_bytes: int) -> list[State]:
    """Over there: the learner's Buckets, made once."""
    made: dict[int, Any] = {}

    def step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
        if id(model) not in made:
            made[id(model)] = learners("Buckets")(model, bucket_bytes)
        mean_loss(model, batch).backward()
        made[id(model)].finish()

    return train(case, step)


@proves("L4.3", "two and three ranks still train what one process trains")
def bucketed(answer: Answer) -> None:
    """With buckets that hold two tensors or so."""
    for case in cases(answer, list(models.MODELS), [2, 3]):
        judge(case, answer.ranks(train_bucketed, case.world, case, int(answer.draw.integers(150, 400))))


@dataclass(frozen=True)
class Backward:
    """One backward of a deep model.

    Attributes:
        over_s: when it was over, on the tracer's clock.
        sizes: bytes of each gradient.
    """

    over_s: float
    sizes: tuple[int, ...]


def one_backward(bucket_bytes: int, layers: int, width: int) -> Backward:
    """Over there: a model of equal layers that takes a while."""
    import time

    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    buckets = learners("Buckets")(model, bucket_bytes)
    model(torch.randn(64, width)).square().mean().backward()
    over_s = time.monotonic()
    buckets.finish()
    return Backward(over_s, tuple(p.numel() * 4 for p in model.parameters()))


@proves("L4.3", "buckets are as full as they may be, and are sent while backward goes on")
def overlap(answer: Answer) -> None:
    """Twelve layers of 1 MB, three of which fit into a bucket."""
    layers, width, fit = 12, 512, 3
    size = width * width * 4
    traced = answer.traced(one_backward, 2, fit * size + 100, layers, width)[0]
    sent = [call for call in traced.calls if call.op == "all_reduce"]
    ran = f"a backward through {layers} layers of {size:,} bytes with buckets of {fit * size + 100:,}"
    expected = f"{layers // fit} all-reduces of {fit * size:,} bytes"
    got = f"{len(sent)} of {', '.join(f'{call.bytes:,}' for call in sent[:5])} bytes"
    if sum(call.bytes for call in sent) != layers * size:
        raise Wrong("unequal", ran=ran, expected=f"{layers * size:,} bytes in all", got=got)
    if len(sent) < layers // fit:
        raise Wrong("too-few-buckets", ran=ran, expected=expected, got=got)
    if len(sent) > layers // fit:
        raise Wrong("too-many-buckets", ran=ran, expected=expected, got=got)
    early = [call for call in sent if call.by_backward and call.issued_s < traced.result.over_s]
    if len(early) < len(sent) - 1:
        raise Wrong(
            "no-overlap", ran=ran, expected="all but the last sent before backward is over", got=f"{len(early)}"
        )
    if answer.call(blocks, fit * size + 100, layers, width):
        raise Wrong("blocking", ran=ran, expected="all_reduce(..., async_op=True)", got="async_op is False")


def blocks(bucket_bytes: int, layers: int, width: int) -> bool:
    """Over there: whether a hook of the learner waits for its collective."""
    asked: list[bool] = []
    reduce = dist.all_reduce

    def watched(*args: Any, **kwargs: Any) -> Any:
        asked.append(bool(kwargs.get("async_op", args[3] if len(args) > 3 else False)))
        return reduce(*args, **kwargs)

    dist.all_reduce = watched
    one_backward(bucket_bytes, layers, width)
    return bool(asked) and not any(asked)


# --- L4.4: unequal batches --------------------------------------------------------------------------------------------


def train_weighted(case: Case) -> list[State]:
    """Over there: the learner's loss, then a plain average over ranks."""

    def step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
        loss = loss_of(model, batch)
        learners("loss_for_backward")(loss.sum, loss.count).backward()
        for p in model.parameters():
            if p.requires_grad:
                grad = torch.zeros_like(p) if p.grad is None else p.grad
                dist.all_reduce(grad)
                p.grad = grad / dist.get_world_size()

    return train(case, step)


@proves("L4.4", "ranks with 7, 3 or no samples give the mean over all samples")
def weighted(answer: Answer) -> None:
    """Equal parts as well: the rule has no special case."""
    draw = answer.draw
    for rows in ((7, 3), (4, 4), (5, 0, 2)):
        case = Case("two layers", int(draw.integers(1, 10_000)), rows, apart=False)
        ranks = answer.ranks(train_weighted, case.world, case, timeout_s=8)
        reference = oracle(case)
        first = compare(ranks[0][1], reference[1], reference[0])
        if first.equal() and compare(ranks[0][-1], reference[-1]).equal():
            continue
        ran = f"{case.world} ranks with {rows} samples"
        message, got = "unequal", f"{first.worst[0]} is off by {first.worst[1]:.1g} after one step"
        if first.factor is not None:
            message = "count-of-ranks" if first.factor < 1 else "summed"
            got = f"a first step that is {first.factor:.3g} times as long"
        elif _is_mean_of_means(case, ranks[0][1]):
            message = "mean-of-means"
        raise Wrong(message, ran=ran, expected="the step of one process with all samples", got=got)


def _is_mean_of_means(case: Case, state: State) -> bool:
    model, (x, y) = build(case, 0), case.data()
    for rank, rows in enumerate(case.rows):
        if rows:
            (mean_loss(model, (x[case.span(0, rank)], y[case.span(0, rank)])) / case.world).backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= RATE * (p.grad if p.grad is not None else 0)
    return compare(state, state_of(model)).equal()


# --- L4.5: accumulation -----------------------------------------------------------------------------------------------

MICRO = 3


def train_accumulated(case: Case) -> list[State]:
    """Over there: the learner's step over micro-batches, with torch's own DDP."""
    from torch.nn.parallel import DistributedDataParallel

    rank = dist.get_rank()
    model = build(case, 0)
    ddp = DistributedDataParallel(model)
    states = [state_of(model)]
    x, y = case.data()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    for step in range(STEPS):
        rows = case.span(step, rank)
        parts = list(zip(x[rows].chunk(MICRO), y[rows].chunk(MICRO), strict=True))
        learners("accumulated_step")(ddp, optimizer, parts, lambda m, part: mean_loss(m, part))
        states.append(state_of(model))
    return states


@proves("L4.5", "three micro-batches train what one batch trains, with one synchronisation a step")
def accumulated(answer: Answer) -> None:
    """Equal micro-batches; the collectives of all steps are counted."""
    case = Case("two layers", int(answer.draw.integers(1, 10_000)), (2 * MICRO,) * 2, apart=False)
    traced = answer.traced(train_accumulated, 2, case)
    ranks = [each.result for each in traced]
    reference = oracle(case)
    ran = f"{STEPS} steps of {MICRO} micro-batches, 2 ranks"
    reduced = sum(call.by_backward and call.op == "all_reduce" for call in traced[0].calls)
    for name in ranks[0][-1]:
        if ranks[0][-1][name].tobytes() != ranks[1][-1][name].tobytes():
            raise Wrong("ranks-differ", ran=ran, expected="the same bits on both ranks", got=f"{name} differs")
    first = compare(ranks[0][1], reference[1], reference[0])
    if not (first.equal() and compare(ranks[0][-1], reference[-1]).equal()):
        factor = first.factor
        message = "not-divided" if factor is not None and factor > 1 else "unequal"
        if message == "unequal" and _is_one_part(case, ranks[0][1]):
            message = "not-accumulated"
        got = f"a first step that is {factor:.3g} times as long" if factor else f"{first.worst[0]} is off"
        raise Wrong(message, ran=ran, expected="the step of one process with all samples", got=got)
    if reduced > STEPS:
        raise Wrong(
            "synced-too-often", ran=ran, expected=f"{STEPS} all-reduces by backward", got=f"{reduced} all-reduces"
        )


def _is_one_part(case: Case, state: State) -> bool:
    """Whether a step is that of one micro-batch of each rank, or a third of it."""
    x, y = case.data()
    start = build(case, 0)
    for part in range(MICRO):
        for scale in (1.0, 1.0 / MICRO):
            model = build(case, 0)
            model.load_state_dict(start.state_dict())
            for rank in range(case.world):
                rows = case.span(0, rank)
                batch = x[rows].chunk(MICRO)[part], y[rows].chunk(MICRO)[part]
                (mean_loss(model, batch) * scale / case.world).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= RATE * (p.grad if p.grad is not None else 0)
            if compare(state, state_of(model)).equal():
                return True
    return False
