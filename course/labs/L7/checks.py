"""Checks of lab 7: closed forms, planted values, and one network in two parts held to one process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from paceline.tasks.task import Loss
from paceline.verify.compare import TOLERANCE, compare
from paceline.verify.oracle import Problem, State, state_of, train_alone
from paceline_course.checking import Answer, Message, Wrong, learners, proves

MESSAGES = {
    "speedup": Message("it is a speed-up, not an efficiency", "the rate of one worker, at each number of workers"),
    "base": Message("the base is taken for one worker", "the rate of one worker at the base"),
    "efficiency": Message("an efficiency is another one", "what each worker does, compared with the base"),
    "alpha": Message("the latency is off", "which error the fit makes small: the relative one"),
    "beta": Message("the time of a byte is off", "the second of the two numbers, in seconds a byte"),
    "swapped": Message("the two numbers are in the other order", "(alpha, beta)"),
    "bandwidth": Message("it is a bandwidth, not the time of a byte", "one over it"),
    "not-divided": Message("computing is not shared out over the workers", "compute_s / workers"),
    "ring": Message("the bytes of a ring are others", "2 (W - 1) / W of a tensor"),
    "step-time": Message("the time is another one", "the formula, term by term"),
    "wall": Message("another number of workers has a shorter step", "the smallest of all powers of two"),
    "no-queue": Message("buckets are sent at the same time", "a bucket waits until the link is free"),
    "not-overlapped": Message("nothing is sent before backward is over", "when each bucket is ready"),
    "last-bucket": Message("the last bucket has fewer layers", "how many are left"),
    "finish": Message("the time is another one", "what each bucket waits for"),
    "always-somebody": Message("somebody is always last, by chance", "how often the suspect was last"),
    "first-comes-last": Message("the process that comes first is not the slow one", "min and max"),
    "lost": Message("the time that it costs is another one", "compare with the last of the others, step by step"),
    "straggler": Message("the straggler is another one", "who comes last, and how often"),
    "first-stage": Message("the first part is not trained", "the gradient that comes back"),
    "unequal": Message("the weights are not those of one process", "the loss, and which gradients are there before"),
    "messages": Message("more is sent than two messages a step", "activations forward, their gradient back"),
}


# --- L7.1 ---------------------------------------------------------------------------------------------------------


def call_efficiency(cases: Sequence[dict[int, float]]) -> list[Any]:
    """Over there."""
    return [dict(learners("efficiency")(case)) for case in cases]


@proves("L7.1", "efficiencies are right, whatever the base is")
def efficiency(answer: Answer) -> None:
    """Tables from known efficiencies; the first base is 1, others are not."""
    draw = answer.draw
    cases, truth = [], []
    for base in (1, 2, int(draw.choice([3, 4, 8]))):
        known = {base * 2**k: float(draw.uniform(0.5, 1.0)) if k else 1.0 for k in range(4)}
        one = float(draw.uniform(100, 1000))
        cases.append({workers: value * one * workers for workers, value in known.items()})
        truth.append(known)
    found = answer.call(call_efficiency, cases)
    for case, right, got in zip(cases, truth, found, strict=True):
        if not _same(got, right):
            base = min(case)
            speedups = {workers: rate / case[base] for workers, rate in case.items()}
            as_one = {workers: rate / workers / case[base] for workers, rate in case.items()}
            message = "speedup" if _same(got, speedups) else "base" if _same(got, as_one) else "efficiency"
            raise Wrong(message, ran=f"rates {_round(case)}", expected=_round(right), got=_round(got))


def _same(got: Any, right: dict[int, float]) -> bool:
    return set(got) == set(right) and all(math.isclose(got[key], right[key], rel_tol=1e-6) for key in right)


def _round(table: dict[int, float]) -> dict[int, float]:
    return {key: round(float(value), 3) for key, value in table.items()}


# --- L7.2 ---------------------------------------------------------------------------------------------------------


def call_fit(cases: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[tuple[float, float]]:
    """Over there."""
    return [tuple(float(value) for value in learners("fit")(sizes, seconds)) for sizes, seconds in cases]


@proves("L7.2", "planted latency and bandwidth are found from noisy times")
def fit(answer: Answer) -> None:
    """Forty measurements from 1 kB to 64 MB with 5 % of noise, twenty times: medians within 20 %."""
    draw = answer.draw
    # Three links, since a wrong method may be right for one of them by chance.
    for _ in range(3):
        # So slow that a plain fit, which looks at the large messages, cannot know the latency.
        alpha, beta = float(draw.uniform(2e-5, 1e-4)), float(draw.uniform(5e-10, 1e-9))
        sizes = np.geomspace(1e3, 64e6, 40)
        cases = [(sizes, (alpha + beta * sizes) * (1 + 0.05 * draw.standard_normal(40))) for _ in range(20)]
        _judge_fit(np.array(answer.call(call_fit, cases)), alpha, beta)


def _judge_fit(found: np.ndarray, alpha: float, beta: float) -> None:
    ran = f"20 sets of 40 noisy times; planted {alpha * 1e6:.1f} microseconds and {beta * 1e9:.3f} ns a byte"
    got = f"medians {np.median(found[:, 0]) * 1e6:.1f} microseconds and {np.median(found[:, 1]) * 1e9:.3f} ns a byte"
    expected = "both within 20 %"

    def near(column: np.ndarray, value: float) -> bool:
        return bool(np.mean(np.abs(column / value - 1) < 0.2) >= 0.9)

    if near(found[:, 0], beta) and near(found[:, 1], alpha):
        raise Wrong("swapped", ran=ran, expected=expected, got=got)
    if near(found[:, 1], 1 / beta):
        raise Wrong("bandwidth", ran=ran, expected=expected, got=got)
    if not near(found[:, 1], beta):
        raise Wrong("beta", ran=ran, expected=expected, got=got)
    if not near(found[:, 0], alpha):
        raise Wrong("alpha", ran=ran, expected="both within 20 %, in 18 of 20 sets", got=got)


# --- L7.3 ---------------------------------------------------------------------------------------------------------


def call_step_time(cases: Sequence[tuple[Any, ...]]) -> list[float]:
    """Over there."""
    return [float(learners("step_time")(*case)) for case in cases]


def call_wall(cases: Sequence[tuple[Any, ...]]) -> list[int]:
    """Over there."""
    return [int(learners("wall")(*case)) for case in cases]


def ring(workers: int, compute_s: float, grad_bytes: float, alpha: float, beta: float) -> float:
    """The formula of the lab."""
    return compute_s / workers + 2 * (workers - 1) * (alpha + beta * grad_bytes / workers)


@proves("L7.3", "the time of a step is that of the formula")
def step_time(answer: Answer) -> None:
    """1 to 1,024 workers."""
    for case in _networks(answer, 12):
        workers = int(answer.draw.choice([1, 2, 3, 8, 100, 1024]))
        expected = ring(workers, *case)
        (got,) = answer.call(call_step_time, [(workers, *case)])
        if math.isclose(got, expected, rel_tol=1e-6):
            continue
        compute_s, grad_bytes, alpha, beta = case
        steps = 2 * (workers - 1)
        mistakes = {
            "not-divided": compute_s + steps * (alpha + beta * grad_bytes / workers),
            "ring": compute_s / workers + steps * (alpha + beta * grad_bytes),
        }
        message = next(
            (name for name, value in mistakes.items() if math.isclose(got, value, rel_tol=1e-6)), "step-time"
        )
        link = f"{alpha * 1e6:.0f} us, {1 / beta / 1e9:.1f} GB/s"
        ran = f"{workers} workers, {compute_s:.2f} s, {grad_bytes / 1e6:.0f} MB, {link}"
        raise Wrong(message, ran=ran, expected=f"{expected:.6f} s", got=f"{got:.6f} s")


@proves("L7.3", "the wall is the power of two with the shortest step")
def wall(answer: Answer) -> None:
    """Slow and fast networks; with one no second worker pays, with the other the largest number does."""
    cases = [*_networks(answer, 10), (0.05, 1e9, 1e-3, 1e-9), (100.0, 1e6, 1e-7, 1e-11)]
    for case, got in zip(cases, answer.call(call_wall, cases), strict=True):
        times = {2**k: ring(2**k, *case) for k in range(13)}
        expected = min(times, key=lambda workers: times[workers])
        if got != expected:
            compute_s, grad_bytes, alpha, _ = case
            ran = f"{compute_s:.2f} s of computing, {grad_bytes / 1e6:.0f} MB, {alpha * 1e6:.0f} us"
            raise Wrong("wall", ran=ran, expected=f"{expected} ({times[expected]:.4f} s)", got=got)


def _networks(answer: Answer, count: int) -> list[tuple[float, float, float, float]]:
    draw = answer.draw
    return [
        (
            float(draw.uniform(0.05, 5)),
            float(draw.uniform(1e6, 1e9)),
            float(draw.uniform(1e-6, 1e-3)),
            float(draw.uniform(1e-11, 1e-9)),
        )
        for _ in range(count)
    ]


# --- L7.4 ---------------------------------------------------------------------------------------------------------


def call_finish(cases: Sequence[tuple[Any, ...]]) -> list[float]:
    """Over there."""
    return [float(learners("finish_time")(*case)) for case in cases]


@proves("L7.4", "the last bucket is done when a simulation says so")
def finish(answer: Answer) -> None:
    """An event at a time."""
    draw = answer.draw
    cases = []
    for _ in range(40):
        layers = int(draw.integers(1, 40))
        cases.append(
            (
                layers,
                float(draw.uniform(0.5e-3, 5e-3)),
                float(draw.uniform(1e5, 1e7)),
                int(draw.integers(1, 12)),
                float(draw.uniform(1e-5, 5e-3)),
                float(draw.uniform(1e-11, 1e-9)),
            )
        )
    found = answer.call(call_finish, cases)
    expected = [_simulated(*case) for case in cases]
    for case, right, got in zip(cases, expected, found, strict=True):
        if not math.isclose(got, right, rel_tol=1e-6):
            mistakes = {"no-queue": _no_queue, "not-overlapped": _afterwards, "last-bucket": _full_last}
            explained = [name for name, of in mistakes.items() if np.allclose(found, [of(*each) for each in cases])]
            layers, layer_s, _, per_bucket, *_ = case
            ran = f"{layers} layers of {layer_s * 1e3:.1f} ms, {per_bucket} in a bucket"
            message = explained[0] if explained else "finish"
            raise Wrong(message, ran=ran, expected=f"{right * 1e3:.3f} ms", got=f"{got * 1e3:.3f} ms")


def _buckets(layers: int, per_bucket: int) -> list[tuple[int, int]]:
    """(layers done when it is full, layers in it)."""
    ends = [*range(per_bucket, layers, per_bucket), layers]
    return [(end, end - start) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _simulated(layers: int, layer_s: float, layer_bytes: float, per_bucket: int, alpha: float, beta: float) -> float:
    waiting = [(done * layer_s, alpha + beta * count * layer_bytes) for done, count in _buckets(layers, per_bucket)]
    now = 0.0
    while waiting:
        ready, takes = waiting.pop(0)
        now = ready + takes if ready > now else now + takes
    return now


def _no_queue(layers: int, layer_s: float, layer_bytes: float, per_bucket: int, alpha: float, beta: float) -> float:
    return max(done * layer_s + alpha + beta * count * layer_bytes for done, count in _buckets(layers, per_bucket))


def _afterwards(layers: int, layer_s: float, layer_bytes: float, per_bucket: int, alpha: float, beta: float) -> float:
    return layers * layer_s + len(_buckets(layers, per_bucket)) * alpha + beta * layers * layer_bytes


def _full_last(layers: int, layer_s: float, layer_bytes: float, per_bucket: int, alpha: float, beta: float) -> float:
    whole = len(_buckets(layers, per_bucket)) * per_bucket
    return _simulated(whole, layer_s, layer_bytes, per_bucket, alpha, beta)


# --- L7.5 ---------------------------------------------------------------------------------------------------------


def call_straggler(cases: Sequence[list[list[float]]]) -> list[Any]:
    """Over there."""
    return [learners("straggler")(case) for case in cases]


@proves("L7.5", "planted stragglers are found with what they cost, and none where there is none")
def straggler(answer: Answer) -> None:
    """Jitter of 2 ms; a straggler that is 10 ms late in most steps."""
    draw = answer.draw
    cases, slow = [], []
    for planted in (True, True, False, True, False):
        # Of three equally fast ones, one is last in 60 % of the steps by chance.
        ranks, steps = int(draw.integers(3 if planted else 4, 8)), 60
        times = np.cumsum(np.full(steps, 0.1))[:, None] + draw.uniform(0, 0.002, (steps, ranks))
        who = int(draw.integers(ranks))
        if planted:
            times[:, who] += np.where(draw.uniform(size=steps) < 0.9, 0.01 + draw.uniform(0, 0.003, steps), 0.0)
        cases.append(times.tolist())
        slow.append(who if planted else None)
    for late in (33, 37):
        # On both sides of the limit, and in the other steps each is as often last as every other.
        times = np.cumsum(np.full(60, 0.1))[:, None] + np.zeros((60, 4))
        times[np.arange(60), [1 if step < late else (0, 2, 3)[step % 3] for step in range(60)]] += 0.01
        cases.append(times.tolist())
        slow.append(1 if late == 37 else None)
    found = answer.call(call_straggler, cases)
    for case, who, got in zip(cases, slow, found, strict=True):
        last = [max(range(len(step)), key=step.__getitem__) for step in case]
        most = max(map(last.count, set(last)))
        ran = f"{len(case)} steps of {len(case[0])} processes, one of them last in {most}"
        if who is None:
            if got is not None:
                raise Wrong("always-somebody", ran=ran, expected=None, got=got)
            continue
        if got is None or int(got[0]) != who:
            first = [min(range(len(step)), key=step.__getitem__) for step in case]
            early = got is not None and int(got[0]) == max(set(first), key=first.count)
            # Without a slow one at the front, looking at the first finds nobody.
            message = "first-comes-last" if early or (got is None and _nobody_first(first)) else "straggler"
            raise Wrong(message, ran=ran, expected=f"rank {who}", got=got)
        others = [max(t for rank, t in enumerate(step) if rank != who) for step in case]
        lost = float(np.median([max(0.0, step[who] - other) for step, other in zip(case, others, strict=True)]))
        if not math.isclose(float(got[1]), lost, rel_tol=1e-6, abs_tol=1e-9):
            raise Wrong("lost", ran=ran, expected=f"{lost * 1e3:.3f} ms", got=f"{float(got[1]) * 1e3:.3f} ms")


def _nobody_first(first: Sequence[int]) -> bool:
    return max(first.count(rank) for rank in set(first)) < 0.6 * len(first)


# --- L7.6 ---------------------------------------------------------------------------------------------------------

STEPS, SAMPLES = 5, 12


def parts(seed: int) -> tuple[nn.Module, nn.Module]:
    """Both parts of a network, in float64."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh()).double(), nn.Linear(9, 4).double()


def batches(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All samples of all steps."""
    generator = torch.Generator().manual_seed(seed + 1)
    inputs = torch.randn(STEPS * SAMPLES, 6, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(4, (STEPS * SAMPLES,), generator=generator)


def split(seed: int) -> State:
    """Over there: the learner's step with this rank's part."""
    stage = parts(seed)[dist.get_rank()]
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.1, momentum=0.9)
    inputs, labels = batches(seed)
    for step in range(STEPS):
        rows = slice(step * SAMPLES, (step + 1) * SAMPLES)
        learners("split_step")(stage, optimizer, inputs[rows], labels[rows])
    return state_of(stage)


@proves("L7.6", "two parts train as one network in one process, with two messages a step")
def model_parallel(answer: Answer) -> None:
    """Against the oracle, in float64."""
    seed = int(answer.draw.integers(1, 1000))
    traced = answer.traced(split, 2, seed, timeout_s=10)
    inputs, labels = batches(seed)
    states = train_alone(
        Problem(
            model=lambda: nn.Sequential(*parts(seed)),
            loss=lambda model, batch: Loss(
                nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="sum"), len(batch[1])
            ),
            data=lambda rows: (inputs[list(rows)], labels[list(rows)]),
            optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        ),
        [range(step * SAMPLES, (step + 1) * SAMPLES) for step in range(STEPS)],
    )
    start, reference = states[0], states[-1]
    ran = f"{STEPS} steps of {SAMPLES} samples in float64, one part a rank"
    for rank, prefix in ((0, "0."), (1, "1.")):
        expected = {name.removeprefix(prefix): value for name, value in reference.items() if name.startswith(prefix)}
        found = compare(traced[rank].result, expected)
        if not found.equal():
            before = {name.removeprefix(prefix): value for name, value in start.items() if name.startswith(prefix)}
            message = "first-stage" if rank == 0 and compare(traced[0].result, before).equal() else "unequal"
            got = f"{found.worst[0]} of rank {rank} is off by {found.worst[1]:.1g}"
            raise Wrong(message, ran=ran, expected=f"within {TOLERANCE:g} of one process", got=got)
    sent = [sum(call.op == "send" for call in each.calls) for each in traced]
    others = sorted({call.op for each in traced for call in each.calls} - {"send", "recv"})
    if sent != [STEPS, STEPS] or others:
        raise Wrong("messages", ran=ran, expected=f"{STEPS} sends of each rank", got=f"{sent}, {others}")
