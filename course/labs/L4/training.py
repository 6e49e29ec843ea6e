"""What the checks of lab 4 train: cases, the same on one process, and who is to blame where they differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.pool.warm_ranks import RankFailure
from paceline.tasks.task import Loss
from paceline.verify.compare import TOLERANCE, compare
from paceline.verify.oracle import Problem, State, state_of, train_alone
from paceline_course.checking import Answer, Wrong, learners, load_module

STEPS, RATE = 8, 0.05

models = load_module(Path(__file__).with_name("models.py"), "paceline_course_L4_models")


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
