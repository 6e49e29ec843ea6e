"""Checks of lab 8: exact values, reference steps in float64, sums over processes, and SciPy's own test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from scipy import stats
from torch import nn

from paceline.learn.checking import Answer, Message, Wrong, learners, load_module, proves

updates = load_module(Path(__file__).with_name("updates.py"), "paceline_course_L8_updates")

MESSAGES = {
    "per-worker": Message("the batch of one worker is taken for the global one", "per_worker * workers"),
    "workers-only": Message("only the workers count, not what each of them has", "the global batch over the base"),
    "swapped": Message("the two rules are exchanged", "which of them is the square root"),
    "accepted": Message("an unknown rule is accepted in silence", "a ValueError"),
    "rule": Message("a rate is another one", "the factor k"),
    "zero-first": Message("the first step has the rate from before it", "(step + 1) / warmup"),
    "cosine": Message("the fall does not begin at the end of the warm-up", "which part of the rest is over"),
    "start": Message("the warm-up does not begin at start", "start + (1 - start) * ..."),
    "schedule": Message("a rate is another one", "both formulae, at their first and last steps"),
    "averaged": Message("the velocity takes only a part of each gradient", "v = momentum * v + g"),
    "no-decay": Message("weight decay has no effect", "the decay is added to the gradient"),
    "changed-gradient": Message("p.grad is changed", "a new tensor for the gradient with decay"),
    "optimizer": Message("a step is another one", "each formula, in its order"),
    "biases": Message("tensors of one dimension are treated as layers", "p.dim()"),
    "zero-norm": Message("a layer whose weights or gradient are zero gives no number", "the case of a zero norm"),
    "trust": Message("the trust is another one", "norm of the weights over norm of the gradient"),
    "rate-behind": Message("the rate stands behind the momentum", "what the velocity collects"),
    "element-wise": Message("each number has a size of its own, as in Adam", "one number for a tensor"),
    "first-step": Message("the size begins at a fraction of the first gradient", "v in the first step"),
    "decay-inside": Message("the decay is divided by the size as well", "what is added to what"),
    "mean-of-variances": Message("the variance lacks how far means lie apart", "sums of x and x², not variances"),
    "mean-of-means": Message("processes count the same, however many samples they have", "sums and counts"),
    "local": Message("these are the statistics of one process", "a collective"),
    "collectives": Message("more than one collective is used", "one tensor for all sums"),
    "statistics": Message("mean or variance is another one", "the sums, and what they are divided by"),
    "frozen": Message("frozen parameters are in a group", "requires_grad"),
    "by-name": Message("parameters are sorted by name and not by shape", "norms have a weight of one dimension"),
    "groups": Message("parameters are in the wrong group, in none, or in both", "p.dim(), and every parameter once"),
    "mean": Message("it is the mean over the batch", "the sum over the batch"),
    "smoothing": Message("the smoothed part is too large", "s / K for each class"),
    "loss": Message("the loss is another one", "the target: 1 - s for the label, and s / K for each class"),
    "normal": Message("the interval is that of a normal distribution", "Student's distribution, with nu"),
    "spread": Message("the spread of single values is taken for that of a mean", "variances divided by n"),
    "verdict": Message("a verdict without evidence", "where the interval lies, and not only its middle"),
    "direction": Message("the difference has the other sign", "b minus a"),
    "interval": Message("the interval is another one", "e, nu, and the point of the distribution"),
}


# --- L8.1 ---------------------------------------------------------------------------------------------------------


def rates(cases: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Over there; a ValueError is an answer."""
    found: list[Any] = []
    for case in cases:
        try:
            found.append(float(learners("scaled_rate")(*case)))
        except ValueError:
            found.append("ValueError")
    return found


@proves("L8.1", "rates fit the global batch, and an unknown rule is refused")
def rules(answer: Answer) -> None:
    """Larger and smaller batches than the base."""
    draw = answer.draw
    cases: list[tuple[Any, ...]] = []
    for rule in ("none", "linear", "sqrt", "linear", "sqrt"):
        base = int(draw.choice([32, 64, 256]))
        per_worker, workers = int(draw.choice([8, 24, 128])), int(draw.integers(2, 9))
        cases.append((rule, float(draw.uniform(0.01, 0.5)), base, per_worker, workers))
    cases.append(("quadratic", 0.1, 64, 64, 2))
    found = answer.call(rates, cases)
    expected = [_rate(*case) for case in cases]
    if _near(found, expected):
        return
    mistakes = {
        "per-worker": [_rate(rule, rate, base, per, 1) for rule, rate, base, per, _ in cases],
        "workers-only": [_rate(rule, rate, 1, 1, workers) for rule, rate, _, _, workers in cases],
        "swapped": [_rate({"linear": "sqrt", "sqrt": "linear"}.get(rule, rule), *rest) for rule, *rest in cases],
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
    cases.append((int(draw.integers(20, 60)), float(peaks[3]), int(draw.integers(1, 12)), float(draw.uniform(0, 0.5))))
    found = answer.call(scheduled, cases)
    expected = [[_scheduled(step, *case) for step in range(case[0])] for case in cases]
    if all(_near(a, b, 1e-9) for a, b in zip(found, expected, strict=True)):
        return
    mistakes: dict[str, Callable[..., float]] = {
        "zero-first": _late,
        "cosine": _from_the_beginning,
        "start": _from_zero,
    }
    wrong = {name: [[of(step, *case) for step in range(case[0])] for case in cases] for name, of in mistakes.items()}
    message = next(
        (name for name, all_ in wrong.items() if all(_near(a, b) for a, b in zip(found, all_, strict=True))), "schedule"
    )
    for case, got, should in zip(cases, found, expected, strict=True):
        for step, (one, other) in enumerate(zip(got, should, strict=True)):
            if not _near([one], [other]):
                total, peak, warmup, start = case
                ran = f"step {step} of {total}, peak {peak:.3f}, warm-up {warmup} from {start:.2f}"
                raise Wrong(message, ran=ran, expected=f"{other:.6f}", got=f"{one:.6f}")


def _scheduled(step: int, total: int, peak: float, warmup: int, start: float) -> float:
    if step < warmup:
        return peak * (start + (1 - start) * (step + 1) / warmup)
    return peak * (1 + math.cos(math.pi * (step - warmup) / (total - warmup))) / 2


def _late(step: int, total: int, peak: float, warmup: int, start: float) -> float:
    if step < warmup:
        return peak * (start + (1 - start) * step / warmup)
    return _scheduled(step, total, peak, warmup, start)


def _from_the_beginning(step: int, total: int, peak: float, warmup: int, start: float) -> float:
    if step < warmup:
        return _scheduled(step, total, peak, warmup, start)
    return peak * (1 + math.cos(math.pi * step / total)) / 2


def _from_zero(step: int, total: int, peak: float, warmup: int, start: float) -> float:
    del start
    return _scheduled(step, total, peak, warmup, 0.0)


# --- L8.3 to L8.5 -------------------------------------------------------------------------------------------------

SHAPES = ((4, 3, 3, 3), (4,), (6, 5), (6,))
STEPS = 5


def start_of(seed: int, *, zero: bool = False) -> list[np.ndarray]:
    """Weights; with `zero` the last matrix is zero."""
    generator = np.random.default_rng(seed)
    weights = [generator.standard_normal(shape) for shape in SHAPES]
    return [weight * 0 if zero and index == 2 else weight for index, weight in enumerate(weights)]


def gradients(seed: int, step: int, factor: float = 1.0) -> list[np.ndarray]:
    """Of a step; the first tensor's times `factor`."""
    generator = np.random.default_rng((seed, step))
    found = [generator.standard_normal(shape) for shape in SHAPES]
    return [found[0] * factor, *found[1:]]


def optimized(
    name: str, seed: int, options: dict[str, Any], factor: float = 1.0, *, zero: bool = False
) -> tuple[list[np.ndarray], bool]:
    """Over there: weights after five steps of the learner's optimizer, and whether gradients stayed what they were."""
    parameters = [nn.Parameter(torch.from_numpy(weight)) for weight in start_of(seed, zero=zero)]
    spare = nn.Parameter(torch.ones(3, 3, dtype=torch.float64))  # never has a gradient
    optimizer = learners(name)([*parameters, spare], **options)
    kept = True
    for step in range(STEPS):
        given = [torch.from_numpy(each) for each in gradients(seed, step, factor)]
        for p, gradient in zip(parameters, given, strict=True):
            p.grad = gradient.clone()
        optimizer.step()
        kept = kept and all(torch.equal(p.grad, each) for p, each in zip(parameters, given, strict=True))
    kept = kept and bool((spare == 1).all())
    return [p.detach().numpy() for p in parameters], kept


"""update(weights, gradients, state, step), in place; the state of each tensor is the update's own."""


def reference(seed: int, update: Callable[..., None], *, zero: bool = False) -> list[np.ndarray]:
    """Weights after five steps of a formula in NumPy."""
    weights = start_of(seed, zero=zero)
    state: list[Any] = [None] * len(weights)
    for step in range(STEPS):
        update(weights, gradients(seed, step), state, step)
    return weights


def same(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> bool:
    """Within 1e-9."""
    return all(np.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(ours, theirs, strict=True))


def judge_steps(
    answer: Answer, name: str, options: dict[str, Any], right: Callable[..., None], mistakes: dict[str, Any]
) -> None:
    """Five steps against the formula; a known mistake is named."""
    seed = int(answer.draw.integers(1, 10_000))
    got, kept = answer.call(optimized, name, seed, options)
    ran = f"{STEPS} steps on tensors of shape {', '.join(str(shape) for shape in SHAPES)} in float64"
    if not kept:
        raise Wrong("changed-gradient", ran=ran, expected="p.grad as it was", got="another")
    expected = reference(seed, right)
    if not same(got, expected):
        message = next((key for key, update in mistakes.items() if same(got, reference(seed, update))), "optimizer")
        off = next(index for index in range(len(SHAPES)) if not same([got[index]], [expected[index]]))
        worst = float(np.linalg.norm(got[off] - expected[off]) / np.linalg.norm(expected[off]))
        raise Wrong(message, ran=ran, expected="within 1e-9", got=f"the tensor {SHAPES[off]} is off by {worst:.1g}")


@proves("L8.3", "five steps agree with torch's SGD, and gradients stay what they are")
def momentum(answer: Answer) -> None:
    """The formula, which is torch's own."""
    lr, mu, decay = 0.05, 0.9, 0.1
    seed = 1
    parameters = [nn.Parameter(torch.from_numpy(weight)) for weight in start_of(seed)]
    torchs = torch.optim.SGD(parameters, lr=lr, momentum=mu, weight_decay=decay)
    for step in range(STEPS):
        for p, gradient in zip(parameters, gradients(seed, step), strict=True):
            p.grad = torch.from_numpy(gradient)
        torchs.step()
    assert same([p.detach().numpy() for p in parameters], reference(seed, updates.momentum_update(lr, mu, decay)))
    mistakes = {
        "averaged": updates.momentum_update(lr, mu, decay, part=1 - mu),
        "no-decay": updates.momentum_update(lr, mu, 0.0),
    }
    options = {"lr": lr, "momentum": mu, "decay": decay}
    judge_steps(answer, "Momentum", options, updates.momentum_update(lr, mu, decay), mistakes)


@proves("L8.4", "five steps agree with the formula")
def lars(answer: Answer) -> None:
    """Filters, matrices, biases."""
    numbers = (0.5, 0.9, 0.01, 0.02)
    options = dict(zip(("lr", "momentum", "decay", "trust"), numbers, strict=True))
    mistakes = {name: updates.lars_update(*numbers, mistake=name) for name in ("biases", "trust", "rate-behind")}
    judge_steps(answer, "LARS", options, updates.lars_update(*numbers), mistakes)


@proves("L8.4", "a gradient that is 1,000 times as long moves its layer as before, and zero weights are no trouble")
def lars_invariance(answer: Answer) -> None:
    """Without decay; and a matrix that is zero at first."""
    seed = int(answer.draw.integers(1, 10_000))
    options = {"lr": 0.5, "momentum": 0.9, "decay": 0.0, "trust": 0.02}
    (plain, _), (long, _) = (answer.call(optimized, "LARS", seed, options, factor) for factor in (1.0, 1000.0))
    if not same(plain[:1], long[:1]):
        raise Wrong("trust", ran="a gradient that is 1,000 times as long", expected="the same step", got="another")
    got = answer.call(zeroed, seed, options)
    expected = reference(seed, updates.lars_update(0.5, 0.9, 0.0, 0.02), zero=True)
    if not same(got, expected):
        shown = (
            "nan" if not all(np.isfinite(each).all() for each in got) else "no step" if not got[2].any() else "another"
        )
        raise Wrong("zero-norm", ran="a matrix of zeros", expected="a first step with trust 1", got=shown)


def zeroed(seed: int, options: dict[str, Any]) -> list[np.ndarray]:
    """Over there: as `optimized`, with a matrix of zeros."""
    return optimized("LARS", seed, options, zero=True)[0]


@proves("L8.5", "five steps agree with the formula")
def novograd(answer: Answer) -> None:
    """With decay."""
    lr, b1, b2, decay = 0.02, 0.9, 0.6, 0.05
    names = ("element-wise", "first-step", "decay-inside", "averaged")
    mistakes = {name: updates.novograd_update(lr, b1, b2, decay, mistake=name) for name in names}
    options = {"lr": lr, "betas": (b1, b2), "decay": decay}
    judge_steps(answer, "NovoGrad", options, updates.novograd_update(lr, b1, b2, decay), mistakes)


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
        message = "by-name" if "norm.weight" in got.get(0.1, []) else "groups"
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
    """Over there."""
    return [tuple(learners("compare")(a, b)) for a, b in cases]


@proves("L8.8", "differences and intervals are SciPy's, and verdicts follow from them")
def evidence(answer: Answer) -> None:
    """Few seeds, different spreads, equal values."""
    draw = answer.draw
    cases: list[tuple[list[float], list[float]]] = [([0.75, 0.75, 0.75], [0.75, 0.75])]
    for gap in (0.0, 0.003, 0.05, -0.05, 0.01):
        many = int(draw.integers(2, 6)), int(draw.integers(3, 8))
        spread = draw.uniform(0.002, 0.01, 2)
        a = (0.8 + spread[0] * draw.standard_normal(many[0])).tolist()
        b = (0.8 + gap + spread[1] * draw.standard_normal(many[1])).tolist()
        cases.append((a, b))
    for (a, b), got in zip(cases, answer.call(compared, cases), strict=True):
        difference = float(np.mean(b) - np.mean(a))
        low = high = difference
        if np.var(a) + np.var(b) > 0:
            interval = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
            low, high = float(interval.low), float(interval.high)
        verdict = "better" if low > 0 else "worse" if high < 0 else "no evidence"
        ran = f"a = {_short(a)}, b = {_short(b)}"
        expected = f"{difference:.5f}, {low:.5f} to {high:.5f}, {verdict}"
        shown = f"{float(got[0]):.5f}, {float(got[1]):.5f} to {float(got[2]):.5f}, {got[3]}"
        if not math.isclose(float(got[0]), difference, abs_tol=1e-9):
            flipped = math.isclose(float(got[0]), -difference, abs_tol=1e-9)
            raise Wrong("direction" if flipped else "interval", ran=ran, expected=expected, got=shown)
        if not np.allclose([float(got[1]), float(got[2])], [low, high], atol=1e-9):
            half, ours = (high - low) / 2, (float(got[2]) - float(got[1])) / 2
            error = math.sqrt(np.var(a, ddof=1) / len(a) + np.var(b, ddof=1) / len(b))
            message = "interval"
            if math.isclose(ours, 1.96 * error, rel_tol=1e-6):
                message = "normal"
            elif ours > half:
                message = "spread"
            raise Wrong(message, ran=ran, expected=expected, got=shown)
        if got[3] != verdict:
            raise Wrong("verdict", ran=ran, expected=expected, got=shown)


def _short(values: Sequence[float]) -> str:
    return "[" + ", ".join(f"{value:.4f}" for value in values) + "]"
