"""Checks of lab 8: exact values, reference steps in float64, sums over processes, and SciPy's own test."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from scipy import stats
from torch import nn

from paceline_course.checking import Answer, Message, Wrong, learners, load_module, proves

updates = load_module(Path(__file__).with_name("updates.py"), "paceline_course_L8_updates")

MESSAGES = {
    "per-worker": Message("the batch of one worker is taken for the global one", "per_worker * workers"),
    "workers-only": Message("only the workers count, not what each of them has", "the global batch over the base"),
    "swapped": Message("the two rules are exchanged", "which of them is the square root"),
    "accepted": Message("an unknown rule is accepted in silence", "a ValueError"),
    "rounded": Message("k is rounded down", "/ and not //: k may be 1.5, or below 1"),
    "returned": Message("the error is returned and not raised", "raise ValueError(...), without a return"),
    "rule": Message("a rate is another one", "the factor k"),
    "zero-first": Message("the first step has the rate from before it", "(step + 1) / warmup"),
    "one-step-short": Message(
        "the warm-up grows in warmup - 1 steps: its first step still has the rate from before it",
        "the first of warmup equal steps is already gone at step 0",
    ),
    "cosine": Message("the fall does not begin at the end of the warm-up", "which part of the rest is over"),
    "quarter": Message("it falls along a quarter of a cosine", "half of one: 0.5 * peak * (1 + cos(pi * part))"),
    "start": Message("the warm-up does not begin at start", "start + (1 - start) * ..."),
    "rising": Message("a rate of the warm-up is another one", "its first step and its last one, warmup - 1"),
    "falling": Message(
        "a rate after the warm-up is another one", "the rates at step warmup, half way to total, and at total"
    ),
    "averaged": Message("the velocity takes only a part of each gradient", "v = momentum * v + g"),
    "no-decay": Message("weight decay has no effect", "the decay is added to the gradient"),
    "changed-gradient": Message("p.grad is changed", "a new tensor for the gradient with decay"),
    "without-gradient": Message("a parameter without a gradient is moved", "p.grad is None: nothing to do"),
    "generator": Message(
        "it is right with a list of parameters, and not with net.parameters(), which can be gone through only once",
        "list(parameters), once, before anything else",
    ),
    "no-grad": Message(
        "the update is recorded for gradients, as if it were a part of the network",
        "torch.no_grad(), around all that step() does",
    ),
    "nothing-moves": Message(
        "no parameter has moved: p = p - ... makes a new tensor, and the network keeps the old one",
        "an operation in place, such as p.sub_(...)",
    ),
    "forgotten": Message(
        "step 1 is right, step 2 is off: each step begins at 0 again; v = ... makes a new tensor that is not kept",
        "what goes back into the list, or changes in place",
    ),
    "later-step": Message("step 1 is right, step 2 is off", "what is kept from one step to the next"),
    "fixed-rate": Message("a rate that is changed between steps has no effect", "self.lr, read in each step"),
    "rate-inside": Message(
        "the rate is inside of what is kept, so an old rate still acts after it was changed",
        "the rate belongs to the last line only, w = w - lr * ...",
    ),
    "later-rate": Message(
        "steps are right until the rate changes, and then off", "where lr stands, and when it is read"
    ),
    "optimizer": Message("a step is another one", "each formula, in its order"),
    "biases": Message("tensors of one dimension are treated as layers", "p.dim()"),
    "zero-norm": Message("a layer whose weights are zero does not take its step", "the ratio where a norm is zero"),
    "zero-gradient": Message(
        "a layer whose gradient is zero does not take its step", "the ratio where a norm is zero: there are two norms"
    ),
    "trust": Message("the ratio is another one", "norm of the weights over norm of the gradient"),
    "norm-of-sum": Message(
        "the ratio divides by the norm of the sum, g + decay * w",
        "the sum of two norms: that of g, and decay times that of w",
    ),
    "rate-behind": Message(
        "the rate stands outside of the velocity, so it acts on older gradients as well",
        "lr in the line of v: each gradient keeps the rate of its own step",
    ),
    "both-behind": Message(
        "rate and ratio stand outside of the velocity, so they act on older gradients as well",
        "both in the line of v: each gradient keeps those of its own step",
    ),
    "element-wise": Message("each number has a size of its own, as in Adam", "one number for a tensor"),
    "not-squared": Message("v collects the norm of the gradient and not its square", "norm squared, and then the root"),
    "first-step": Message("the size begins at a fraction of the first gradient", "v in the first step"),
    "decay-inside": Message("the decay is divided by the size as well", "what is added to what"),
    "averaged-sizes": Message("m takes only a part of each step", "m = b1 * m + (...), without (1 - b1)"),
    "order": Message("the weights move by the m of the step before", "v first, then m, and then w"),
    "mean-of-variances": Message("the variance lacks how far means lie apart", "sums of x and x², not variances"),
    "mean-of-means": Message("processes count the same, however many samples they have", "sums and counts"),
    "local": Message("these are the statistics of one process", "a collective"),
    "collectives": Message("more than one collective is used", "one tensor for all sums"),
    "n-1": Message("the variance divides by n - 1", "n, the number of all samples"),
    "own-count": Message(
        "the number of samples is that of one process, times the processes", "counts differ: sum them as well"
    ),
    "statistics": Message("mean or variance is another one", "the sums, and what they are divided by"),
    "frozen": Message("frozen parameters are in a group", "requires_grad"),
    "by-name": Message("parameters are sorted by name and not by shape", "norms have a weight of one dimension"),
    "twice": Message(
        "a parameter is listed twice, in one group or in both",
        "a weight that two layers share: model.parameters() names it once",
    ),
    "groups": Message("parameters are in the wrong group, or in none", "p.dim(), and every parameter once"),
    "mean": Message("it is the mean over the batch", "the sum over the batch"),
    "smoothing": Message("the smoothed part is too large", "s / K for each class"),
    "loss": Message("the loss is another one", "the target: 1 - s for the label, and s / K for each class"),
    "normal": Message("the interval is that of a normal distribution", "Student's distribution, with nu"),
    "spread": Message("the spread of single values is taken for that of a mean", "variances divided by n"),
    "population": Message("the variances divide by n", "divide by n - 1: statistics.variance does"),
    "pooled": Message("nu is n_a + n_b - 2, as if the variances were equal", "the formula of nu"),
    "one-sided": Message("it is the 95 % point, with 5 % left on each side", "the 97.5 % point: 2.5 % on each side"),
    "all-equal": Message(
        "all values of a list are equal, in a and in b: e is 0, and nu is 0 / 0", "that case, before nu is computed"
    ),
    "verdict": Message("a verdict without evidence", "where the interval lies, and not only its middle"),
    "direction": Message("the difference has the other sign", "b minus a"),
    "interval": Message("the interval is another one", "e, nu, and the point of the distribution"),
}


# --- L8.1 ---------------------------------------------------------------------------------------------------------


def rates(cases: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Over there; a ValueError is an answer, and what is no number comes back as its text."""
    found: list[Any] = []
    for case in cases:
        try:
            rate = learners("scaled_rate")(*case)
        except ValueError:
            found.append("ValueError")
            continue
        try:
            found.append(float(rate))
        except (TypeError, ValueError):
            error = isinstance(rate, BaseException) or rate is ValueError
            found.append("a returned ValueError" if error else repr(rate)[:80])
    return found


@proves("L8.1", "rates fit the global batch, and an unknown rule is refused")
def rules(answer: Answer) -> None:
    """Larger and smaller batches than the base, most of them no multiple of it."""
    draw = answer.draw
    cases: list[tuple[Any, ...]] = []
    for rule in ("none", "linear", "sqrt", "linear", "sqrt"):
        base, workers = (64, int(draw.choice([3, 5, 7]))) if len(cases) < 3 else (256, int(draw.integers(2, 9)))
        cases.append((rule, float(draw.uniform(0.01, 0.5)), base, 24, workers))
    cases.append(("linear", 0.1, int(draw.choice([32, 64])), 128, int(draw.integers(2, 9))))
    cases.append(("quadratic", 0.1, 64, 64, 2))
    found = answer.call(rates, cases)
    expected = [_rate(*case) for case in cases]
    if _near(found, expected):
        return
    mistakes = {
        "per-worker": [_rate(rule, rate, base, per, 1) for rule, rate, base, per, _ in cases],
        "workers-only": [_rate(rule, rate, 1, 1, workers) for rule, rate, _, _, workers in cases],
        "swapped": [_rate({"linear": "sqrt", "sqrt": "linear"}.get(rule, rule), *rest) for rule, *rest in cases],
        "rounded": [_rate(rule, rate, 1, per * workers // base, 1) for rule, rate, base, per, workers in cases],
        "returned": [*expected[:-1], "a returned ValueError"],
        "accepted": [*expected[:-1], found[-1] if found[-1] != "ValueError" else math.nan],
    }
    message = next((name for name, values in mistakes.items() if _near(found, values)), "rule")
    case, got, should = next(
        each for each in zip(cases, found, expected, strict=True) if not _near([each[1]], [each[2]])
    )
    rule, rate, base, per, workers = case
    ran = f"{rule}, {rate:.3f} at a batch of {base}, {workers} workers with {per} samples each"
    raise Wrong(message, ran=ran, expected=should, got=got)


def _rate(rule: str, rate: float, base: int, per_worker: int, workers: int) -> Any:
    k = per_worker * workers / base
    return {"none": rate, "linear": rate * k, "sqrt": rate * math.sqrt(k)}.get(rule, "ValueError")


def _near(found: Sequence[Any], expected: Sequence[Any], rtol: float = 1e-9) -> bool:
    def same(one: Any, other: Any) -> bool:
        if isinstance(one, str) or isinstance(other, str):
            return bool(one == other)
        return math.isclose(one, other, rel_tol=rtol, abs_tol=1e-15)

    return len(found) == len(expected) and all(same(a, b) for a, b in zip(found, expected, strict=True))


# --- L8.2 ---------------------------------------------------------------------------------------------------------


def scheduled(cases: Sequence[tuple[int, float, int, float]]) -> list[list[float]]:
    """Over there: the rate of every step."""
    return [
        [float(learners("rate_at")(step, total, peak, warmup, start)) for step in range(total)]
        for total, peak, warmup, start in cases
    ]


@proves("L8.2", "the rate is exact at every step, with and without a warm-up")
def schedule(answer: Answer) -> None:
    """Against the formula."""
    draw = answer.draw
    peaks = draw.uniform(0.05, 2, 4)
    cases = [(40, float(peaks[0]), 10, 0.0), (30, float(peaks[1]), 0, 0.0), (25, float(peaks[2]), 5, 0.25)]
    cases.append((int(draw.integers(20, 60)), float(peaks[3]), int(draw.integers(2, 12)), float(draw.uniform(0, 0.5))))
    found = answer.call(scheduled, cases)
    expected = [[_scheduled(step, *case) for step in range(case[0])] for case in cases]
    if all(_near(a, b, 1e-9) for a, b in zip(found, expected, strict=True)):
        return
    every = [(case, step) for case in cases for step in range(case[0])]
    got, should = ([rate for rates_ in both for rate in rates_] for both in (found, expected))
    off = [number for number in range(len(every)) if not _near([got[number]], [should[number]])]
    # The warm-up and the fall are judged apart: a learner may have got one of them right.
    warming = any(step < case[2] for case, step in (every[number] for number in off))
    part = [number for number, (case, step) in enumerate(every) if (step < case[2]) == warming]
    mistakes: dict[str, Callable[..., float]] = (
        {"zero-first": _late, "one-step-short": _short_of_one, "start": _from_zero}
        if warming
        else {"cosine": _from_the_beginning, "quarter": _quarter}
    )
    message = "rising" if warming else "falling"
    for name, of in mistakes.items():
        if _near([got[number] for number in part], [of(every[number][1], *every[number][0]) for number in part]):
            message = name
    worst = next(number for number in off if number in part)
    (total, peak, warmup, start), step = every[worst]
    ran = f"step {step} of {total}, peak {peak:.3f}, warm-up {warmup} from {start:.2f}"
    raise Wrong(message, ran=ran, expected=f"{should[worst]:.6f}", got=f"{got[worst]:.6f}")


def _scheduled(step: int, total: int, peak: float, warmup: int, start: float) -> float:
    if step < warmup:
        return peak * (start + (1 - start) * (step + 1) / warmup)
    return peak * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2


def _late(step: int, total: int, peak: float, warmup: int, start: float) -> float:
    del total
    return peak * (start + (1 - start) * step / warmup)


def _short_of_one(step: int, total: int, peak: float, warmup: int, start: float) -> float:
    del total
    return peak * (start + (1 - start) * step / (warmup - 1))


def _from_zero(step: int, total: int, peak: float, warmup: int, start: float) -> float:
    del start
    return _scheduled(step, total, peak, warmup, 0.0)


def _from_the_beginning(step: int, total: int, peak: float, warmup: int, start: float) -> float:
    del warmup, start
    return peak * (1 + math.cos(math.pi * step / total)) / 2


def _quarter(step: int, total: int, peak: float, warmup: int, start: float) -> float:
    del start
    return peak * math.cos(math.pi / 2 * (step - warmup) / (total - warmup))


# --- L8.6 ---------------------------------------------------------------------------------------------------------


def part_of(seed: int, rows: Sequence[int], rank: int) -> torch.Tensor:
    """A rank's samples of five channels, whose means differ between ranks."""
    generator = torch.Generator().manual_seed(100 * seed + rank)
    return torch.randn(rows[rank], 5, generator=generator, dtype=torch.float64) + rank


def statistics_of(seed: int, rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Over there."""
    mean, variance = learners("synchronised")(part_of(seed, rows, dist.get_rank()))
    return mean.numpy(), variance.numpy()


@proves("L8.6", "mean and variance are those of one process that has all samples, with one collective")
def synchronised(answer: Answer) -> None:
    """Parts of 7 and 3, and of 5, 0 and 4 samples."""
    for rows in ((7, 3), (5, 0, 4)):
        seed = int(answer.draw.integers(1, 1000))
        world = len(rows)
        traced = answer.traced(statistics_of, world, seed, rows)
        parts = [part_of(seed, rows, rank).numpy() for rank in range(world)]
        whole = np.concatenate(parts)
        expected = (whole.mean(axis=0), whole.var(axis=0))
        ran = f"{world} processes with {rows} samples of 5 channels"
        for rank, each in enumerate(traced):
            got = each.result
            if np.allclose(got[0], expected[0], rtol=1e-9) and np.allclose(got[1], expected[1], rtol=1e-9):
                continue
            message = _statistics_message(parts, expected, got, rank)
            shown = f"rank {rank}: mean {np.round(got[0][:2], 4)}, variance {np.round(got[1][:2], 4)} ..."
            wanted = f"mean {np.round(expected[0][:2], 4)}, variance {np.round(expected[1][:2], 4)} ..."
            raise Wrong(message, ran=ran, expected=wanted, got=shown)
        calls = len(traced[0].calls)
        if calls > 1:
            raise Wrong("collectives", ran=ran, expected="1 collective", got=calls)


def _statistics_message(parts: Sequence[np.ndarray], expected: tuple[Any, Any], got: tuple[Any, Any], rank: int) -> str:
    if len(parts[rank]) and np.allclose(got[0], parts[rank].mean(axis=0)):
        return "local"
    known = [part for part in parts if len(part)]
    whole = np.concatenate(parts)
    own = len(parts[rank]) * len(parts)
    if own and own != len(whole) and np.allclose(got[0], whole.sum(axis=0) / own):
        return "own-count"
    many = len(whole)
    unbiased = expected[1] * many / (many - 1), np.square(whole).sum(axis=0) / (many - 1) - np.square(got[0])
    if any(np.allclose(got[1], each) for each in unbiased):
        return "n-1"
    weighted = sum(len(part) * part.var(axis=0) for part in known) / sum(len(part) for part in known)
    if np.allclose(got[0], expected[0]) and np.allclose(got[1], weighted):
        return "mean-of-variances"
    means = sum(part.mean(axis=0) for part in known) / len(parts)
    return "mean-of-means" if np.allclose(got[0], means) else "statistics"


# --- L8.7 ---------------------------------------------------------------------------------------------------------


class Mixed(nn.Module):
    """Convolution, norms, an embedding, a frozen layer, a weight used twice, a parameter that is called scale."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.embedding = nn.Embedding(5, 4)
        self.output = nn.Linear(4, 5, bias=False)
        self.output.weight = self.embedding.weight
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(()))


def grouped() -> list[tuple[list[str], float]]:
    """Over there: names of each group's parameters, and its decay."""
    model = Mixed()
    names = {id(p): name for name, p in model.named_parameters()}
    groups = learners("decay_groups")(model, 0.1)
    return [([names[id(p)] for p in group["params"]], float(group["weight_decay"])) for group in groups]


@proves("L8.7", "every trained parameter is in exactly one group: matrices and filters decay, the rest does not")
def decay(answer: Answer) -> None:
    """A model with everything that is easily forgotten."""
    expected = {0.1: {"conv.weight", "embedding.weight"}, 0.0: {"conv.bias", "norm.weight", "norm.bias", "scale"}}
    found = answer.call(grouped)
    got = {value: sorted(names) for names, value in found}
    ran = "a model with a convolution, a norm, a shared embedding, a frozen layer and a number"
    every = [name for names, _ in found for name in names]
    if any(name.startswith("frozen") for name in every):
        raise Wrong("frozen", ran=ran, expected="no frozen parameter", got=[n for n in every if n.startswith("frozen")])
    if {value: set(names) for value, names in got.items()} != expected or len(every) != 6:
        by_name = "norm.weight" in got.get(0.1, []) and "norm.bias" not in got.get(0.1, [])
        message = "by-name" if by_name else "twice" if len(set(every)) < len(every) else "groups"
        wanted = {value: sorted(names) for value, names in expected.items()}
        raise Wrong(message, ran=ran, expected=wanted, got=got)


def smoothed(logits: np.ndarray, labels: np.ndarray, amounts: Sequence[float]) -> list[float]:
    """Over there."""
    given = torch.from_numpy(logits), torch.from_numpy(labels)
    return [float(learners("smoothed_loss")(*given, amount)) for amount in amounts]


@proves("L8.7", "the smoothed loss is torch's, summed over the batch")
def smoothing(answer: Answer) -> None:
    """0, 0.1 and something else."""
    draw = answer.draw
    logits, labels = draw.normal(size=(9, 6)) * 2, draw.integers(6, size=9)
    amounts = [0.0, 0.1, float(draw.uniform(0.2, 0.6))]
    got = answer.call(smoothed, logits, labels, amounts)
    given = torch.from_numpy(logits), torch.from_numpy(labels)
    expected = [
        float(nn.functional.cross_entropy(*given, reduction="sum", label_smoothing=amount)) for amount in amounts
    ]
    if not np.allclose(got, expected, rtol=1e-9):
        log = given[0].log_softmax(dim=1)
        right = float(-log.gather(1, given[1].unsqueeze(1)).sum())
        whole = [(1 - amount) * right - amount * float(log.sum()) for amount in amounts]
        message = "loss"
        if np.allclose(got, np.array(expected) / len(labels)):
            message = "mean"
        elif np.allclose(got, whole):
            message = "smoothing"
        raise Wrong(message, ran=f"9 samples, 6 classes, smoothing {amounts}", expected=expected, got=got)


# --- L8.8 ---------------------------------------------------------------------------------------------------------


def compared(cases: Sequence[tuple[list[float], list[float]]]) -> list[tuple[Any, ...]]:
    """Over there; a division by zero where no value differs comes back as its name, so that the values can be shown."""
    found: list[tuple[Any, ...]] = []
    for a, b in cases:
        try:
            found.append(tuple(learners("compare")(a, b)))
        except ZeroDivisionError:
            if len(set(a)) > 1 or len(set(b)) > 1:
                raise
            found.append(("ZeroDivisionError",))
    return found


@proves("L8.8", "differences and intervals are SciPy's, and verdicts follow from them")
def evidence(answer: Answer) -> None:
    """Few seeds, different spreads, equal values."""
    draw = answer.draw
    cases: list[tuple[list[float], list[float]]] = [([0.75, 0.75, 0.75], [0.75, 0.75])]
    cases += [_telling_values(draw, gap) for gap in (0.0, 0.003, 0.05, -0.05, 0.01)]
    # Clearly worse; and a difference of more than two standard errors that so few seeds do not prove.
    cases += [([0.80, 0.81, 0.80], [0.70, 0.71, 0.70]), ([0.80, 0.81, 0.80], [0.82, 0.81, 0.83])]
    for (a, b), got in zip(cases, answer.call(compared, cases), strict=True):
        difference = float(np.mean(b) - np.mean(a))
        low = high = difference
        if np.var(a) + np.var(b) > 0:
            interval = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
            low, high = float(interval.low), float(interval.high)
        verdict = "better" if low > 0 else "worse" if high < 0 else "no evidence"
        ran = f"a = {_short(a)}, b = {_short(b)}"
        expected = f"{difference:.5f}, {low:.5f} to {high:.5f}, {verdict}"
        if got == ("ZeroDivisionError",):
            raise Wrong("all-equal", ran=ran, expected=expected, got=got[0])
        shown = f"{float(got[0]):.5f}, {float(got[1]):.5f} to {float(got[2]):.5f}, {got[3]}"
        if not math.isclose(float(got[0]), difference, abs_tol=1e-9):
            flipped = math.isclose(float(got[0]), -difference, abs_tol=1e-9)
            raise Wrong("direction" if flipped else "interval", ran=ran, expected=expected, got=shown)
        if not np.allclose([float(got[1]), float(got[2])], [low, high], atol=1e-9):
            half = (float(got[2]) - float(got[1])) / 2
            message = "all-equal"
            if high > low:
                known = _halves(a, b)
                near = (name for name, each in known if math.isclose(half, each, rel_tol=1e-4))
                message = next(near, "interval")
            raise Wrong(message, ran=ran, expected=expected, got=shown)
        if got[3] != verdict:
            raise Wrong("verdict", ran=ran, expected=expected, got=shown)


def _telling_values(draw: np.random.Generator, gap: float) -> tuple[list[float], list[float]]:
    """Values for which every mistake gives another width than the right rule and than every other mistake."""
    while True:
        many = int(draw.integers(2, 6)), int(draw.integers(3, 8))
        spread = draw.uniform(0.002, 0.01, 2)
        a = (0.8 + spread[0] * draw.standard_normal(many[0])).tolist()
        b = (0.8 + gap + spread[1] * draw.standard_normal(many[1])).tolist()
        right = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
        widths = [("", float(right.high - right.low) / 2), *_halves(a, b)]
        if all(m == n or abs(math.log(x / y)) > 1e-3 for (m, x), (n, y) in itertools.combinations(widths, 2)):
            return a, b


def _halves(a: Sequence[float], b: Sequence[float]) -> list[tuple[str, float]]:
    """Half the interval's width, by each of the known mistakes."""

    def welch(va: float, vb: float, point: float = 0.975) -> float:
        nu = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
        return float(stats.t.ppf(point, nu)) * math.sqrt(va + vb)

    va, vb = float(np.var(a, ddof=1)), float(np.var(b, ddof=1))
    error, free = math.sqrt(va / len(a) + vb / len(b)), len(a) + len(b) - 2
    joint = math.sqrt(((len(a) - 1) * va + (len(b) - 1) * vb) / free * (1 / len(a) + 1 / len(b)))
    return [
        ("normal", float(stats.norm.ppf(0.975)) * error),
        ("spread", welch(va, vb)),
        ("population", welch(float(np.var(a)) / len(a), float(np.var(b)) / len(b))),
        ("pooled", float(stats.t.ppf(0.975, free)) * error),
        ("pooled", float(stats.t.ppf(0.975, free)) * joint),
        ("one-sided", welch(va / len(a), vb / len(b), 0.95)),
    ]


def _short(values: Sequence[float]) -> str:
    return "[" + ", ".join(f"{value:.4f}" for value in values) + "]"
