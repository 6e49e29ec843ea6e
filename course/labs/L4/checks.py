"""Checks of lab 4: the learner's own gradient synchronisation, held to one process in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.pool.warm_ranks import RankFailure
from paceline.verify.compare import compare
from paceline.verify.oracle import State, state_of
from paceline_course.checking import Answer, Message, Wrong, learners, load_module, proves

models = load_module(Path(__file__).with_name("models.py"), "paceline_course_L4_models")
training = load_module(Path(__file__).with_name("training.py"), "paceline_course_L4_training")
Case = training.Case
build = training.build
loss_of = training.loss_of
oracle = training.oracle
train = training.train
judge = training.judge
explained = training.explained
mean_loss = training.mean_loss
cases = training.cases
STEPS = training.STEPS
RATE = training.RATE

MESSAGES = {
    "start-differs": Message(
        "ranks begin with different weights: each drew its own", "synchronise: every parameter, from rank 0"
    ),
    "buffers-differ": Message("buffers were left as each rank had them", "synchronise: model.buffers() as well"),
    "buffers-not-saved": Message(
        "a buffer that is not saved was left as each rank had it: state_dict() does not name it",
        "synchronise: go through model.parameters() and model.buffers()",
    ),
    "ranks-differ": Message(
        "ranks no longer hold the same weights after a step", "which gradients are reduced, and on which ranks"
    ),
    "summed": Message("gradients are summed over ranks and not averaged", "the division by the number of ranks"),
    "divided-twice": Message("gradients are divided too often", "one division by the number of ranks, once a gradient"),
    "not-reduced": Message(
        "each rank keeps its own gradient, or all take rank 0's", "what happens to p.grad after the collective"
    ),
    "unequal": Message(
        "the optimizer got something else than the mean of the ranks' gradients",
        "which gradients are reduced, how often, and what is written back",
    ),
    "none-gradient": Message(
        "p.grad is None: a frozen or unused parameter", "leave out the parameters whose p.grad is None"
    ),
    "filled": Message(
        "a parameter without a gradient was given one: weight decay and momentum would then move it",
        "where p.grad is None, it stays None",
    ),
    "many-collectives": Message(
        "more collectives are issued than one a step", "one flat tensor that holds all gradients, reduced once"
    ),
    "offset": Message(
        "gradients are read back from the wrong place of the flat tensor",
        "a piece begins where the one before it ended; what is not in the flat tensor moves nothing",
    ),
    "zeros-sent": Message(
        "zeros are sent for parameters that have no gradient",
        "only a p.grad that is not None goes into the flat tensor",
    ),
    "wrong-bytes": Message("the collective's tensor is not just all gradients", "what is joined to the flat tensor"),
    "too-few-buckets": Message(
        "buckets hold more than bucket_bytes",
        "bytes are p.numel() * p.element_size(); what does not fit any more begins a new bucket",
    ),
    "too-many-buckets": Message("buckets are smaller than they may be", "a bucket takes gradients until it is full"),
    "wrong-buckets": Message(
        "gradients are shared out to buckets in another way than the task says",
        "from the last parameter to the first; a bucket takes the next one if it then has at most bucket_bytes",
    ),
    "exact-fit": Message(
        "a parameter that fits exactly begins a new bucket", "at most bucket_bytes: > and not >= in the comparison"
    ),
    "forward-order": Message(
        "buckets are filled from the first parameter on, whose gradient comes last",
        "the order in which parameters go into buckets: reversed",
    ),
    "empty-bucket": Message(
        "there is an empty bucket before a parameter that is larger than bucket_bytes", "when a new bucket begins"
    ),
    "frozen-in-bucket": Message(
        "a frozen parameter has a place in a bucket: its gradient never comes",
        "only parameters with requires_grad go into buckets",
    ),
    "left-out": Message(
        "an unused parameter is left out of its bucket: on another rank it may have a gradient, and then sizes differ",
        "zeros in the place of a gradient that is None",
    ),
    "none-in-bucket": Message(
        "p.grad is None: an unused parameter in a bucket", "zeros in the place of a gradient that is None"
    ),
    "never-sent": Message(
        "a bucket was never sent: of an unused parameter no hook comes, and its bucket does not fill by itself",
        "finish: send the buckets that no hook has sent",
    ),
    "unsent": Message(
        "some gradients are never sent", "a bucket that is not sent by a hook, the last one too, is sent by finish"
    ),
    "more-bytes": Message("more is sent than each gradient once", "whether finish sends again what a hook has sent"),
    "out-of-order": Message(
        "buckets are sent in the order in which they fill, which another rank need not share",
        "send bucket i only after bucket i - 1, however early it is full",
    ),
    "sent-early": Message(
        "a bucket is sent before its own gradients are all there",
        "count what is missing for each bucket, as hooks come in any order; only in a "
        "register_post_accumulate_grad_hook p.grad is final",
    ),
    "no-overlap": Message(
        "a bucket that is full is not sent at once, but later in backward or after it",
        "the hook that fills a bucket sends it, and full ones that waited for it; does each hook know its own bucket?",
    ),
    "blocking": Message(
        "backward waits for each bucket: the next gradient is computed only when it is reduced", "async_op=True"
    ),
    "waits-in-hook": Message(
        "a hook waits for a handle, and backward with it", "handle.wait() belongs into finish, after backward"
    ),
    "no-wait": Message(
        "finish returns before all buckets are reduced: are the handles waited for?", "finish: handle.wait() of each"
    ),
    "not-reset": Message(
        "the first step is right and later ones are wrong: are the counters reset in finish?",
        "finish: what counts and collects has to be as it was before the first backward",
    ),
    "left-none": Message(
        "a rank without a gradient of its own does not get the mean of the others",
        "finish: where p.grad is None, the mean becomes p.grad",
    ),
    "wrong-mean": Message(
        "after finish, gradients are not the mean over ranks",
        "which part of the flat tensor goes into which p.grad, and that nothing touches it before handle.wait()",
    ),
    "mean-of-means": Message(
        "each rank's mean counts the same, however many samples it has", "the number of samples of all ranks"
    ),
    "count-of-ranks": Message(
        "the loss is divided by the samples of all ranks, and then averaging divides by the ranks once more",
        "a factor that undoes the averaging",
    ),
    "sum-of-samples": Message(
        "the sum over samples is not divided by how many there are", "the number of samples of all ranks"
    ),
    "wrong-factor": Message(
        "the loss is too large or too small by a factor", "what the average over ranks divides by, and what is left"
    ),
    "wrong-weights": Message(
        "samples of different ranks do not count the same", "the sum of all ranks by the count of all ranks"
    ),
    "rank-left-out": Message(
        "a rank without samples must still call the collective: the others wait for it",
        "a return, or an if, that comes before the all_reduce",
    ),
    "synced-too-often": Message(
        "gradients are synchronised in more than one micro-batch",
        "only the last one needs it; is the forward inside no_sync as well?",
    ),
    "forward-outside": Message(
        "no_sync comes too late: DDP decides in the forward whether backward synchronises",
        "the forward belongs inside no_sync",
    ),
    "never-synced": Message(
        "0 all-reduces: the last micro-batch is inside no_sync too", "which micro-batch is the last one"
    ),
    "not-the-last": Message(
        "another micro-batch than the last one is synchronised", "which micro-batch is outside no_sync"
    ),
    "not-divided": Message(
        "the micro-batches are added up and not averaged", "each loss is divided by the number of micro-batches"
    ),
    "wrong-share": Message(
        "every micro-batch counts the same, but too much or too little", "how often a loss is divided, and by what"
    ),
    "unevenly-divided": Message(
        "some micro-batches count more than others",
        "each loss is divided by the number of micro-batches, not only one of them",
    ),
    "not-accumulated": Message("only one of the micro-batches counts", "where gradients are set to zero"),
    "not-zeroed": Message(
        "the first step is right and later ones are wrong: gradients of the step before are still there",
        "optimizer.zero_grad() before the first micro-batch",
    ),
    "no-step": Message("the optimizer does not step each time", "optimizer.step() once, after the loop"),
    "many-steps": Message("the optimizer steps more than once", "optimizer.step() once, after the loop"),
}


# --- L4.1 and L4.2: after backward -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Averaged:
    """A training with the learner's average_gradients.

    Attributes:
        states: as the oracle has them.
        filled: parameters that had no gradient before average_gradients, and one after it.
    """

    states: list[State]
    filled: list[str]


def train_averaged(case: Case) -> Averaged:
    """Over there: backward, then the learner's average_gradients."""
    filled: list[str] = []

    def step(model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
        mean_loss(model, batch).backward()
        without = [(name, p) for name, p in model.named_parameters() if p.grad is None]
        learners("average_gradients")(model)
        filled.extend(name for name, p in without if p.grad is not None)

    return Averaged(train(case, step), filled)


def judge_averaged(answer: Answer, worlds: Sequence[int]) -> None:
    """Plain, frozen, tied, unused, buffered. The plain one comes first: what only others show has to do with them."""
    for case in cases(answer, list(models.MODELS), worlds):
        ran = f"{STEPS} steps, {case.model}, {case.world} ranks"
        causes = {}
        if case.model in models.NO_GRADIENT:
            causes = {"NoneType": "none-gradient", "is invalid for input of size": "offset"}
        try:
            ranks = answer.ranks(train_averaged, case.world, case)
        except RankFailure as failure:
            raise explained(failure, answer, ran, causes) from failure
        judge(case, [each.states for each in ranks])
        for each in ranks:
            if each.filled:
                raise Wrong("filled", ran=ran, expected="p.grad stays None", got=f"{each.filled[0]} has a gradient")


@proves("L4.1", "two and three ranks train what one process trains, and hold the same bits")
def averaged(answer: Answer) -> None:
    """All models."""
    judge_averaged(answer, [2, 3])


@dataclass(frozen=True)
class Bytes:
    """Of the gradients that there are before average_gradients, and of all parameters."""

    gradients: int
    parameters: int


def collectives_a_step(case: Case) -> Bytes:
    """Over there: nothing but one backward and its synchronisation; the tracer counts."""
    model = build(case, dist.get_rank())
    x, y = case.data()
    rows = case.span(0, dist.get_rank())
    mean_loss(model, (x[rows], y[rows])).backward()
    found = Bytes(
        gradients=sum(p.numel() for p in model.parameters() if p.grad is not None) * 8,
        parameters=sum(p.numel() for p in model.parameters()) * 8,
    )
    learners("average_gradients")(model)
    return found


@proves("L4.2", "two and three ranks still train what one process trains")
def flat(answer: Answer) -> None:
    """As L4.1."""
    judge_averaged(answer, [3, 2])


@proves("L4.2", "a step has exactly one collective, with as many bytes as the gradients")
def one_collective(answer: Answer) -> None:
    """Counted from outside, in the process group."""
    for model in models.NO_GRADIENT:
        traced = answer.traced(collectives_a_step, 2, Case(model, answer.seed % 1000, (4, 4)))[0]
        expected = traced.result.gradients
        ran = f"one step, {model}, {expected} bytes of gradients"
        if len(traced.calls) != 1:
            ops = ", ".join(call.op for call in traced.calls[:6])
            got = f"{len(traced.calls)}: {ops}" if traced.calls else "none"
            raise Wrong(
                "many-collectives" if traced.calls else "not-reduced", ran=ran, expected="1 collective", got=got
            )
        if traced.calls[0].bytes != expected:
            message = "zeros-sent" if traced.calls[0].bytes == traced.result.parameters else "wrong-bytes"
            raise Wrong(message, ran=ran, expected=f"{expected} bytes", got=f"{traced.calls[0].bytes} bytes")


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
        ran = f"{case.world} ranks with {rows} samples"
        try:
            ranks = answer.ranks(train_weighted, case.world, case, timeout_s=8)
        except RankFailure as failure:
            # Equal calls have passed, so a collective that finds another one is a rank that took no part.
            if 0 in rows and (not failure.traceback or "gloo" in failure.message):
                raise Wrong(
                    "rank-left-out", ran=ran, expected="the same collectives on every rank", got="others on one"
                ) from failure
            raise
        reference = oracle(case)
        first = compare(ranks[0][1], reference[1], reference[0])
        if first.equal() and compare(ranks[0][-1], reference[-1]).equal():
            continue
        message, got = "wrong-weights", f"{first.worst[0]} is off by {first.worst[1]:.1g} after one step"
        if first.factor is not None:
            factors = {"count-of-ranks": 1 / case.world, "sum-of-samples": sum(rows) / case.world}
            near = [name for name, factor in factors.items() if np.isclose(first.factor, factor)]
            message = near[0] if near else "wrong-factor"
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


@dataclass(frozen=True)
class Accumulated:
    """A training with the learner's accumulated_step.

    Attributes:
        states: as the oracle has them.
        suspended: how often no_sync was entered.
        stepped: steps of the optimizer.
    """

    states: list[State]
    suspended: int
    stepped: int


def train_accumulated(case: Case) -> Accumulated:
    """Over there: the learner's step over micro-batches, with torch's own DDP."""
    from torch.nn.parallel import DistributedDataParallel

    rank = dist.get_rank()
    model = build(case, 0)
    ddp = DistributedDataParallel(model)
    states = [state_of(model)]
    x, y = case.data()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    suspended, stepped = [], []
    no_sync = ddp.no_sync

    def watched() -> Any:
        suspended.append(1)
        return no_sync()

    ddp.no_sync = watched
    optimizer.register_step_post_hook(lambda *_: stepped.append(1))
    for step in range(STEPS):
        rows = case.span(step, rank)
        parts = list(zip(x[rows].chunk(MICRO), y[rows].chunk(MICRO), strict=True))
        learners("accumulated_step")(ddp, optimizer, parts, lambda m, part: mean_loss(m, part))
        states.append(state_of(model))
    return Accumulated(states, len(suspended), len(stepped))


@proves("L4.5", "three micro-batches train what one batch trains, with one synchronisation a step")
def accumulated(answer: Answer) -> None:
    """Equal micro-batches; the collectives of all steps are counted."""
    case = Case("two layers", int(answer.draw.integers(1, 10_000)), (2 * MICRO,) * 2, apart=False)
    traced = answer.traced(train_accumulated, 2, case)
    ranks = [each.result.states for each in traced]
    here: Accumulated = traced[0].result
    ran = f"{STEPS} steps of {MICRO} micro-batches, 2 ranks"
    reduced = sum(call.by_backward and call.op == "all_reduce" for call in traced[0].calls)
    counted = f"{reduced} all-reduces"
    if here.stepped != STEPS:
        message = "many-steps" if here.stepped > STEPS else "no-step"
        raise Wrong(message, ran=ran, expected=f"{STEPS} optimizer steps", got=str(here.stepped))
    for name in ranks[0][-1]:
        if ranks[0][-1][name].tobytes() != ranks[1][-1][name].tobytes():
            message = "ranks-differ"
            if here.suspended:
                message = "never-synced" if reduced == 0 else "not-the-last"
            raise Wrong(message, ran=ran, expected="the same bits on both ranks", got=f"{name} differs; {counted}")
    _judge_parts(case, ran, ranks[0])
    if reduced > STEPS:
        outside = here.suspended == STEPS * (MICRO - 1)
        raise Wrong(
            "forward-outside" if outside else "synced-too-often",
            ran=ran,
            expected=f"{STEPS} all-reduces by backward",
            got=f"{counted}; no_sync was entered {here.suspended} times",
        )


def _judge_parts(case: Case, ran: str, states: Sequence[State]) -> None:
    """The weights, and how much each micro-batch counts in a first step that is wrong."""
    reference = oracle(case)
    first, last = compare(states[1], reference[1], reference[0]), compare(states[-1], reference[-1])
    if first.equal() and last.equal():
        return
    expected, got = "the weights of one process with all samples", f"{last.worst[0]} is off by {last.worst[1]:.1g}"
    if first.equal():
        raise Wrong("not-zeroed", ran=ran, expected=expected, got=f"{got} after step {STEPS}, the first step is right")
    message, counts = "unequal", _counts(case, states)
    if counts is not None:
        expected = f"each micro-batch's mean counts 1/{MICRO}"
        got = f"they count {', '.join(f'{round(count, 3):g}' for count in counts)}; {got}"
        message = "unevenly-divided"
        if sum(abs(count) > 1e-3 for count in counts) == 1:
            message = "not-accumulated"
        elif np.allclose(counts, 1.0, atol=1e-3):
            message = "not-divided"
        elif np.ptp(counts) < 1e-3:
            message = "wrong-share"
    raise Wrong(message, ran=ran, expected=expected, got=got)


def _counts(case: Case, states: Sequence[State]) -> list[float] | None:
    """By what the gradient of each micro-batch is multiplied in the first step; None where no such numbers fit."""
    x, y = case.data()
    columns = []
    for part in range(MICRO):
        model = build(case, 0)
        for rank in range(case.world):
            rows = case.span(0, rank)
            (mean_loss(model, (x[rows].chunk(MICRO)[part], y[rows].chunk(MICRO)[part])) / case.world).backward()
        columns.append(np.concatenate([p.grad.numpy().ravel() for p in model.parameters() if p.grad is not None]))
    names = [name for name, _ in build(case, 0).named_parameters()]
    moved = np.concatenate([(states[0][name] - states[1][name]).ravel() for name in names]) / RATE
    counts, *_ = np.linalg.lstsq(np.stack(columns, axis=1), moved, rcond=None)
    left = np.linalg.norm(moved - np.stack(columns, axis=1) @ counts)
    return [float(count) for count in counts] if left <= 1e-6 * np.linalg.norm(moved) else None
