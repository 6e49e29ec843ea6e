"""Checks of exercise L4.3: buckets that are sent during backward."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.pool.warm_ranks import RankFailure
from paceline.records.observed import Collective
from paceline.verify.oracle import State
from paceline_course.checking import Answer, Traced, Wrong, learners, load_module, proves

models = load_module(Path(__file__).with_name("models.py"), "paceline_course_L4_models")
training = load_module(Path(__file__).with_name("training.py"), "paceline_course_L4_training")
Case = training.Case
train = training.train
judge = training.judge
explained = training.explained
mean_loss = training.mean_loss
cases = training.cases


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
        while True:  # no two pairs of equal bytes, so that bytes tell the order of buckets
            found = tuple(int(size) for size in draw.permutation(np.arange(40, 60))[:number])
            pairs = [sum(pair) for pair in zip(found[::2], found[1::2], strict=False)]
            if len(set(pairs)) == len(pairs):
                return found

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
