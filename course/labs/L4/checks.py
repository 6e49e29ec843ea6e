"""Checks of lab 4: the learner's own gradient synchronisation, held to one process in float64."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.launch.pool import RankFailure
from paceline.learn.checking import Answer, Message, Traced, Wrong, learners, load_module, proves
from paceline.records.observed import Collective
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


def judge(case: Case, ranks: Sequence[Sequence[State]]) -> None:
    """Ranks against each other, and rank 0 against the oracle."""
    reference = oracle(case)
    ran = f"{STEPS} steps in float64, {case.model}, {case.world} ranks with {case.rows} samples a step"
    for rank, states in enumerate(ranks[1:], start=1):
        for step, (here, there) in enumerate(zip(ranks[0], states, strict=True)):
            for name in here:
                if here[name].tobytes() != there[name].tobytes():
                    raise Wrong(
                        _difference(case, step, name, ranks[0]),
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
    factor, message = first.factor, "unequal"
    if factor is not None and factor > 1.01:
        message = "summed"
    elif factor is not None and factor < 0.99:
        message = "divided-twice"
    elif not first.equal() and _begins_right(case, first.relative):
        message = "offset"
    got = f"{last.worst[0]} is off by {last.worst[1]:.1g}"
    if factor is not None and abs(factor - 1) > 0.01:
        got += f"; the first step is {factor:.3g} times as long as it should be"
    raise Wrong(message, ran=ran, expected=f"the weights of one process, within {TOLERANCE:g}", got=got)


def _begins_right(case: Case, relative: Mapping[str, float]) -> bool:
    """Whether the first parameter is right and the next one is not: what pieces from wrong places look like."""
    trained = [name for name, p in build(case, 0).named_parameters() if p.requires_grad]
    return relative[trained[0]] <= TOLERANCE < relative[trained[1]]


def _difference(case: Case, step: int, name: str, states: Sequence[State]) -> str:
    alone = build(case, 0)
    if step == 0:
        if name not in dict(alone.named_buffers()):
            return "start-differs"
        return "buffers-differ" if name in alone.state_dict() else "buffers-not-saved"
    x, y = case.data()
    rows = case.span(0, 0)
    loss = loss_of(alone, (x[rows], y[rows]))
    (loss.sum / loss.count).backward()
    with torch.no_grad():
        for p in alone.parameters():
            if p.grad is not None:
                p -= RATE * p.grad
    return "not-reduced" if compare(states[1], state_of(alone)).equal() else "ranks-differ"


def explained(failure: RankFailure, answer: Answer, ran: str, causes: Mapping[str, str]) -> Exception:
    """What a rank raised: a message whose words stand in it, or the failure itself."""
    said = " ".join(failure.message.split())
    message = next((each for words, each in causes.items() if words in said), None)
    if message is None:
        return failure
    lines = re.findall(rf'/{re.escape(answer.path.name)}", line (\d+)', failure.traceback)
    where = f"{answer.path.name}:{lines[-1]}" if lines else ""
    return Wrong(message, ran=ran, expected="no error", got=said, where=where)


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


# --- L4.3: buckets during backward ------------------------------------------------------------------------------------

LATE_S, MOMENT_S = 6.0, 0.3
"""How long rank 1 waits for rank 0's backward, which only a wrong answer makes it do; and for its finish, which a right
answer does not reach meanwhile."""


@dataclass(frozen=True)
class Shape:
    """A chain of weights, and how they are used.

    Attributes:
        what: for the learner.
        sizes: elements of each weight, in the order of `parameters()`. They differ, so bytes tell which are sent.
        fit: elements that a bucket may have.
        uses: for each of two ranks, the weights in the order of the forward.
        frozen: weights that are not trained.
        double: in float64 and not in float32.
        alone: in the second step, rank 1 begins backward only when rank 0 is through with its own.
    """

    what: str
    sizes: tuple[int, ...]
    fit: int
    uses: tuple[tuple[int, ...], tuple[int, ...]]
    frozen: tuple[int, ...] = ()
    double: bool = True
    alone: bool = False

    @property
    def ran(self) -> str:
        """What is run, in words."""
        sizes = ", ".join(str(size * self.each) for size in self.sizes)
        return f"two steps; {self.what}; parameters of {sizes} bytes; bucket_bytes = {self.fit * self.each}"

    @property
    def each(self) -> int:
        """Bytes of an element."""
        return 8 if self.double else 4

    def buckets(self, *, forward: bool = False, strict: bool = False, frozen: bool = False) -> list[list[int]]:
        """The weights of each bucket; with a mistake, if wanted."""
        found: list[list[int]] = []
        size = 0
        order = range(len(self.sizes)) if forward else reversed(range(len(self.sizes)))
        for index in order:
            if index in self.frozen and not frozen:
                continue
            size += self.sizes[index]
            if not found or size > self.fit or (strict and size == self.fit):
                found.append([])
                size = self.sizes[index]
            found[-1].append(index)
        return found

    def bytes_of(self, buckets: Sequence[Sequence[int]], leave_out: Sequence[int] = ()) -> list[int]:
        """Bytes of each."""
        return [sum(self.sizes[i] for i in each if i not in leave_out) * self.each for each in buckets]


@dataclass(frozen=True)
class Step:
    """One step on one rank, on the tracer's clock.

    Attributes:
        began_s, over_s, done_s: when backward began, when it was over, and when finish was.
        hooks: (weight, when its gradient was there), in order; before the learner's hook.
        local: the gradients of this rank alone.
        left: the gradients after finish.
    """

    began_s: float
    over_s: float
    done_s: float
    hooks: list[tuple[int, float]]
    local: dict[int, Any]
    left: list[Any]


@dataclass(frozen=True)
class Watched:
    """Some steps on one rank.

    Attributes:
        steps: all of them.
        waited: rank 0's backward did not end while rank 1 had not begun; None where that was not tried.
        hurried: rank 0's finish did.
        in_place: some all_reduce was not asynchronous.
    """

    steps: list[Step]
    waited: bool | None
    hurried: bool | None
    in_place: bool


def watch(shape: Shape) -> Watched:
    """Over there: two steps of the learner's Buckets."""
    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    asked = _watch_all_reduce()
    torch.manual_seed(len(shape.sizes))
    model = models.Chain(shape.sizes, shape.frozen).to(torch.float64 if shape.double else torch.float32)
    hooks: list[tuple[int, float]] = []
    local: dict[int, Any] = {}

    def note(index: int, p: Tensor) -> None:
        local[index] = p.grad.detach().clone().numpy()
        hooks.append((index, time.monotonic()))

    for index, p in enumerate(model.parameters()):
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(partial(note, index))
    buckets = learners("Buckets")(model, shape.fit * shape.each)
    steps: list[Step] = []
    waited = hurried = None
    for number in range(2):
        model.zero_grad()
        hooks.clear()
        local.clear()
        x = torch.randn((), generator=torch.Generator().manual_seed(10 * number + rank), dtype=torch.float64)
        result = model(x.to(next(model.parameters()).dtype), shape.uses[rank])
        alone = shape.alone and number == 1
        if alone and rank == 1:
            waited = not _comes(store, "over", LATE_S)
            hurried = _comes(store, "done", MOMENT_S)
        began_s = time.monotonic()
        result.backward()
        over_s = time.monotonic()
        if alone and rank == 0:
            store.set("over", "yes")
        buckets.finish()
        if alone and rank == 0:
            store.set("done", "yes")
        left = [None if p.grad is None else p.grad.detach().clone().numpy() for p in model.parameters()]
        steps.append(Step(began_s, over_s, time.monotonic(), list(hooks), dict(local), left))
    dist.barrier()  # what nobody waited for is complete before a rank leaves
    return Watched(steps, waited, hurried, not all(asked))


def _watch_all_reduce() -> list[bool]:
    asked: list[bool] = []
    reduce = dist.all_reduce

    def watched(*args: Any, **kwargs: Any) -> Any:
        asked.append(bool(kwargs.get("async_op", args[3] if len(args) > 3 else False)))
        return reduce(*args, **kwargs)

    dist.all_reduce = watched
    return asked


def _comes(store: Any, key: str, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if store.check([key]):
            return True
        time.sleep(0.005)
    return False


def judge_buckets(answer: Answer, shape: Shape) -> None:
    """What is in each message, when it is sent, who waits, and what comes out, in this order."""
    unused = any(set(used) | set(shape.frozen) < set(range(len(shape.sizes))) for used in shape.uses)
    causes = {
        "non-empty list of Tensors": "empty-bucket",
        "'NoneType' object has no attribute 'wait'": "never-sent" if unused else "unsent",
    }
    if unused:
        causes["NoneType"] = "none-in-bucket"
    try:
        traced = answer.traced(watch, 2, shape, timeout_s=15)
    except RankFailure as failure:
        raise explained(failure, answer, shape.ran, causes) from failure
    for number in range(2):
        for rank, each in enumerate(traced):
            _judge_sent(shape, number, rank, each)
    if traced[1].result.waited:
        raise Wrong(
            "blocking" if traced[0].result.in_place else "waits-in-hook",
            ran=f"{shape.ran}; rank 1 begins backward later",
            expected="rank 0's backward does not wait for rank 1",
            got="it waits",
        )
    if traced[1].result.hurried:
        raise Wrong(
            "no-wait",
            ran=f"{shape.ran}; rank 1 begins backward later",
            expected="rank 0's finish waits until rank 1 has sent its part",
            got="it returns before",
        )
    for number in range(2):
        _judge_means(shape, number, [each.result.steps[number] for each in traced])


def _judge_sent(shape: Shape, number: int, rank: int, traced: Traced) -> None:
    step: Step = traced.result.steps[number]
    sent = [call for call in traced.calls if call.op == "all_reduce" and step.began_s <= call.issued_s <= step.done_s]
    place = f"in step {number + 1} on rank {rank}"
    message = _wrong_bytes(shape, rank, [call.bytes for call in sent])
    if message:
        # What was right in the first step and is not in the second one was not made ready.
        raise Wrong(
            "not-reset" if number else message,
            ran=shape.ran,
            expected=_listed(shape.bytes_of(shape.buckets())),
            got=f"{_listed([call.bytes for call in sent])} {place}",
        )
    message, said = _wrong_time(shape, step, sent)
    if message:
        raise Wrong(
            "not-reset" if number else message,
            ran=shape.ran,
            expected="each bucket is sent by the hook that completes it, or by that of a bucket before it",
            got=f"{said} {place}",
        )


def _listed(sizes: Sequence[int]) -> str:
    if not sizes:
        return "no all-reduce"
    return f"{len(sizes)} all-reduce{'s' if len(sizes) > 1 else ''} of {', '.join(str(size) for size in sizes)} bytes"


def _wrong_bytes(shape: Shape, rank: int, got: list[int]) -> str:
    right = shape.bytes_of(shape.buckets())
    if got == right:
        return ""
    forward = shape.bytes_of(shape.buckets(forward=True))
    unused = [index for index in range(len(shape.sizes)) if index not in shape.uses[rank]]
    known = {
        "forward-order": [forward, forward[::-1]],
        "exact-fit": [shape.bytes_of(shape.buckets(strict=True))],
        "frozen-in-bucket": [shape.bytes_of(shape.buckets(frozen=True))],
        "left-out": [shape.bytes_of(shape.buckets(), leave_out=unused)],
    }
    message = next((name for name, sizes in known.items() if got in sizes), "")
    if message:
        return message
    if 0 in got:
        return "empty-bucket"
    if sorted(got) == sorted(right):
        return "out-of-order"
    if sum(got) != sum(right):
        if sum(got) > sum(right):
            return "more-bytes"
        return "never-sent" if set(unused) - set(shape.frozen) else "unsent"
    if len(got) == len(right):
        return "wrong-buckets"
    return "too-few-buckets" if len(got) < len(right) else "too-many-buckets"


def _wrong_time(shape: Shape, step: Step, sent: Sequence[Collective]) -> tuple[str, str]:
    """Before the hook of each gradient, those buckets are sent that are complete with the ones before it."""
    buckets = shape.buckets()
    there: set[int] = set()
    for index, at_s in step.hooks:
        due = next((i for i, bucket in enumerate(buckets) if not there.issuperset(bucket)), len(buckets))
        issued = sum(call.issued_s < at_s for call in sent)
        if issued != due:
            said = f"sent: {issued}, due: {due}, after {len(there)} gradients of {len(step.hooks)}"
            return ("no-overlap" if issued < due else "sent-early"), said
        there.add(index)
    return "", ""


def _judge_means(shape: Shape, number: int, ranks: Sequence[Step]) -> None:
    for index in range(len(shape.sizes)):
        parts = [step.local[index] for step in ranks if index in step.local]
        if not parts:
            continue
        mean = np.sum(parts, axis=0) / len(ranks)
        for rank, step in enumerate(ranks):
            got, message = step.left[index], ""
            if got is None or (index not in step.local and not np.any(got)):
                message, got = "left-none", "None" if got is None else "zeros"
            elif not np.allclose(got, mean, rtol=1e-4, atol=1e-7):
                summed = np.allclose(got, mean * len(ranks), rtol=1e-4, atol=1e-7)
                halved = np.allclose(got, mean / len(ranks), rtol=1e-4, atol=1e-7)
                message = "summed" if summed else "divided-twice" if halved else "wrong-mean"
                got = f"{got.ravel()[0]:.4g}, ..."
            if message:
                raise Wrong(
                    message,
                    ran=shape.ran,
                    expected=f"a mean of {mean.ravel()[0]:.4g}, ...",
                    got=f"{got} in parameter {index} on rank {rank}, step {number + 1}",
                )


@proves("L4.3", "buckets are as full as they may be, sent as soon as they are full, and waited for in finish")
def overlap(answer: Answer) -> None:
    """Three fit exactly into the first bucket; then some that are too large for any."""
    draw = answer.draw
    told_apart = False
    while not told_apart:  # each mistake that has a name leads to bytes of its own
        sizes = [int(size) for size in draw.permutation(np.arange(40, 80))[:9]]
        order = tuple(range(len(sizes)))
        usual = Shape(
            "all parameters are used, in order", tuple(sizes), sum(sizes[-3:]), (order, order), double=False, alone=True
        )
        forward = usual.bytes_of(usual.buckets(forward=True))
        ways = [usual.bytes_of(usual.buckets()), usual.bytes_of(usual.buckets(strict=True)), forward, forward[::-1]]
        told_apart = len({tuple(way) for way in ways}) == len(ways)
    judge_buckets(answer, usual)
    sizes = [int(size) for size in draw.permutation(np.arange(40, 60))[:7]]
    sizes[-1], sizes[3] = 150, 140
    judge_buckets(answer, Shape("two of them are larger than a bucket", tuple(sizes), 119, (order[:7], order[:7])))


@proves("L4.3", "buckets are sent in order, whatever the order of the gradients, and with parameters that lack one")
def ordered(answer: Answer) -> None:
    """Always two to a bucket."""
    draw = answer.draw

    def sizes(number: int) -> tuple[int, ...]:
        return tuple(int(size) for size in draw.permutation(np.arange(40, 60))[:number])

    # The second bucket is complete first, then the first one, and the third one last.
    done = [0, 0, 0]
    while not done[1] < done[0] < done[2]:
        order = [int(index) for index in draw.permutation(6)]
        done = [max(order.index(5 - 2 * number), order.index(4 - 2 * number)) for number in range(3)]
    use = tuple(reversed(order))
    judge_buckets(answer, Shape("used in another order than registered", sizes(6), 119, (use, use)))
    use = (0, 1, 2, 4, 5, 7, 8)
    judge_buckets(
        answer,
        Shape(
            "parameter 6, counted from 0, is frozen, and nobody uses parameter 3",
            sizes(9),
            119,
            (use, use),
            frozen=(6,),
        ),
    )
    use = (0, 1, 2, 3, 4, 5)
    judge_buckets(answer, Shape("only rank 0 uses parameter 3, counted from 0", sizes(6), 119, (use, (0, 1, 2, 4, 5))))


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
    """With buckets that hold two tensors or so. What frozen and unused parameters do, the chains have shown."""
    for case in cases(answer, ["two layers", "a weight used twice", "buffers"], [2, 3]):
        judge(case, answer.ranks(train_bucketed, case.world, case, int(answer.draw.integers(150, 400))))


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
