"""Part B, and the trainings that parts C and D look at as well: the learner's configurations, trained by the grader."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.parallel.digest import digest
from paceline_course.assess.box import Box, Ran
from paceline_course.assess.correctness.runs import ended
from paceline_course.assess.grade import Curve
from paceline_course.assess.held import held, reached
from paceline_course.assess.judged import Scored, share_between
from paceline_course.assess.kit import EVAL_SEED, signals
from paceline_course.assess.oracle import right_answers
from paceline_course.assess.rubric import Rubric
from paceline_course.assess.submission import Configuration
from paceline_course.assess.submission_process import OTHER, TRAIN, Start
from paceline_course.checking import Wrong

_SAME = 1e-5
"""Largest relative difference of the last weights of two runs that are the same run."""


@dataclass(frozen=True)
class Trained:
    """One training of a configuration by the grader."""

    ran: Ran
    curve: Curve


class Trainings:
    """Trains configurations when they are first asked for.

    Args:
        box: of the submission.
        rubric: sizes and limits.
        judged_seed: added to the seed of the training data, it gives the samples that are judged; a program that does
            not know it cannot draw them. By default those on which the program evaluates itself, as its log has them.
    """

    def __init__(self, box: Box, rubric: Rubric, judged_seed: int | None = None) -> None:
        self.box, self.rubric = box, rubric
        own = judged_seed is None
        self._judged = (rubric.task.eval_samples if own else rubric.task.judged_samples, judged_seed or EVAL_SEED)
        self._trained: dict[tuple[str, int, int], Trained] = {}

    @property
    def curves(self) -> list[Curve]:
        """Of all trainings that came to their end."""
        return [trained.curve for trained in self._trained.values()]

    def train(self, run: Configuration, seed: int, data_seed: int) -> Trained:
        """The training with these seeds.

        Raises:
            Wrong: it did not come to its end, or its weights cannot be used.
        """
        key = (run.name, seed, data_seed)
        if key not in self._trained:
            self._trained[key] = self.once(run, seed, data_seed)
        return self._trained[key]

    def once(self, run: Configuration, seed: int, data_seed: int) -> Trained:
        """One more training with these seeds, whatever was trained before."""
        task = self.rubric.task
        arguments = {
            "config": "config.toml",
            "name": run.name,
            "samples": task.samples,
            "eval-samples": task.eval_samples,
            "data-seed": data_seed,
            "seed": seed,
        }
        words = tuple(word for key, value in arguments.items() for word in (f"--{key}", str(value)))
        ran = ended(self.box.run(run.workers, Start(words, steps=True), self.rubric.limits.training_s))
        _judge_start(ran, seed)
        return Trained(ran, self._curve(run, seed, data_seed, ran))

    def _curve(self, run: Configuration, seed: int, data_seed: int, ran: Ran) -> Curve:
        task = self.rubric.task
        epochs = ran.epochs()
        if not 1 <= epochs <= run.epochs:
            got = f"{epochs} epochs"
            raise Wrong("no-weights", ran=ran.command, expected=f"epoch-0.pt to epoch-{run.epochs - 1}.pt", got=got)
        read = sum(len(seen.numbers(TRAIN)) for seen in ran.ranks)
        strange = sum(len(seen.numbers(OTHER)) for seen in ran.ranks)
        if read != epochs * task.samples or strange:
            raise Wrong(
                "other-budget",
                ran=ran.command,
                expected=f"{epochs * task.samples:,} readings of training samples in {epochs} epochs, no other data",
                got=f"{read:,}, and {strange:,} of other data",
            )
        _judge_steps(ran, epochs * -(-task.samples // run.batch))
        accuracy = []
        judged, offset = self._judged
        for epoch in range(epochs):
            state = ran.weights(epoch)
            if isinstance(state, str):
                raise Wrong("no-weights", ran=ran.command, expected=f"epoch-{epoch}.pt", got=state)
            try:
                right = right_answers("plain", state, judged, data_seed + offset)
            except ValueError as error:
                got = str(error)[:300]
                raise Wrong("other-names", ran=ran.command, expected="the plain network's weights", got=got) from error
            accuracy.append(right / judged)
        return Curve(
            name=run.name,
            seed=seed,
            workers=run.workers,
            batch=run.batch,
            samples=[(epoch + 1) * task.samples for epoch in range(epochs)],
            accuracy=accuracy,
            seconds=round(ran.seconds, 2),
        )


def _judge_steps(ran: Ran, most: int) -> None:
    """No batch is used for more than one step, as far as optimizers of torch's family were seen.

    Raises:
        Wrong: there were more steps than batches.
    """
    made = [steps for end in ran.ends or [] if isinstance(steps := end.get("steps", 0), int)]
    if any(steps > most for steps in made):
        got = ", ".join(f"{steps:,}" for steps in made)
        raise Wrong("other-budget", ran=ran.command, expected=f"{most:,} steps, one a batch", got=got)


def _judge_start(ran: Ran, seed: int) -> None:
    """Where an optimizer of torch's family was seen: its first weights are those of the seed.

    Raises:
        Wrong: they are others.
    """
    expected = _first_weights(seed)
    for rank, end in enumerate(ran.ends or []):
        said = end.get("first")
        first = [text for text in said if isinstance(text, str)] if isinstance(said, list | tuple) else []
        # What a sharded or a flat optimizer holds has other shapes; only tensors of the network's sizes can be told.
        known = [text for text in first if text.partition(":")[0] in {each.partition(":")[0] for each in expected}]
        strangers = [text for text in known if text not in expected]
        if known and len(strangers) > len(known) / 2:
            raise Wrong(
                "other-start",
                ran=ran.command,
                expected=f"the weights of make_model('plain', {seed}) before the first step",
                got=f"others on rank {rank}",
            )


@cache
def _first_weights(seed: int) -> frozenset[str]:
    model = signals().make_model("plain", seed)
    return frozenset(f"{weight.numel()}:{digest([weight])[:16]}" for weight in model.parameters())


def judge_accuracy(trainings: Trainings, run: Configuration, seeds: list[tuple[int, int]]) -> Scored:
    """B.accuracy: the chosen configuration on fresh data.

    Args:
        trainings: of this grading.
        run: the chosen one.
        seeds: of weights and of data, for each training.
    """
    rubric = trainings.rubric
    judge_choice(run, rubric)
    target = rubric.accuracy.target
    levels = [held(_from_the_start(trainings.train(run, *pair), target)) for pair in seeds]
    good = sum(level >= target for level in levels)
    needed = rubric.accuracy.needed
    return Scored(
        share=min(1.0, good / needed),
        message="below",
        ran=f"{run.name}: batch {run.batch}, {run.workers} workers, {run.epochs} epochs, {len(seeds)} seeds",
        expected=f"{target} for two epochs running, in {needed} of {len(seeds)} trainings",
        got=", ".join(f"{level:.3f}" for level in levels),
        evidence={"target": target, "held": [round(level, 4) for level in levels]},
    )


def _from_the_start(trained: Trained, target: float) -> list[float]:
    """Accuracies of a training, of which the first epoch does not have the target yet.

    Raises:
        Wrong: it has: no training from the seed's weights is that quick.
    """
    accuracy = trained.curve.accuracy
    if accuracy[0] >= target:
        raise Wrong(
            "weights-from-elsewhere",
            ran=trained.ran.command,
            expected=f"less than {target} after one epoch from the first weights",
            got=f"{accuracy[0]:.3f}",
        )
    return accuracy


def judge_choice(run: Configuration, rubric: Rubric) -> None:
    """What is easy with a small batch or one process is no merit: the chosen configuration is one that the task wants.

    Raises:
        Wrong: it is not.
    """
    task = rubric.task
    got = f"batch {run.batch}, {run.workers} workers, {run.epochs} epochs"
    if run.batch < task.least_batch or run.workers < task.least_workers or run.epochs > task.most_epochs:
        expected = (
            f"a batch of {task.least_batch} or more, {task.least_workers} workers or more, "
            f"{task.most_epochs} epochs or fewer"
        )
        raise Wrong("not-large", ran=f"the chosen run {run.name}", expected=expected, got=got)


def judge_again(trainings: Trainings, run: Configuration, seeds: tuple[int, int]) -> dict[str, Any]:
    """B.again: the first training once more."""
    first = trainings.train(run, *seeds)
    again = trainings.once(run, *seeds)
    last = first.ran.epochs() - 1
    one, two = first.ran.weights(last), again.ran.weights(last)
    if isinstance(one, str) or isinstance(two, str):
        raise Wrong("no-weights", ran=again.ran.command, expected=f"epoch-{last}.pt", got=f"{two}"[:200])
    apart = max(_apart(one[name], two[name]) for name in one)
    if not np.isfinite(apart):
        raise Wrong("not-finite", ran=again.ran.command, expected=f"numbers in epoch-{last}.pt", got="nan or infinite")
    if apart > _SAME:
        raise Wrong(
            "not-again",
            ran=again.ran.command,
            expected=f"the same weights after epoch {last}, to {_SAME:g}",
            got=f"{apart:.1e} apart, relative",
        )
    return {"apart, relative": apart}


def _apart(one: NDArray[Any], two: NDArray[Any]) -> float:
    """Relative; infinite where a number is none, of which no comparison would tell."""
    first, second = one.astype(np.float64), two.astype(np.float64)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return float("inf")
    return float(np.linalg.norm(first - second) / max(1e-12, float(np.linalg.norm(first))))


def judge_samples(trainings: Trainings, run: Configuration, seeds: list[tuple[int, int]]) -> Scored:
    """C.samples: passes over the data until the target is held, in the median over the trainings of part B."""
    judge_choice(run, trainings.rubric)
    numbers, target = trainings.rubric.efficiency, trainings.rubric.accuracy.target
    passes = []
    for pair in seeds:
        at = reached(_from_the_start(trainings.train(run, *pair), target), target)
        passes.append(float("inf") if at is None else at + 1.0)
    median = float(np.median(passes))
    if not np.isfinite(median):
        raise Wrong("never", ran=run.name, expected=f"{target} for two epochs running", got="not reached")
    return Scored(
        share=share_between(median, numbers.samples_good, numbers.samples_bad),
        message="many-samples",
        ran=f"{run.name}, {len(seeds)} seeds",
        expected=f"{numbers.samples_good:g} passes over the data; no points from {numbers.samples_bad:g} on",
        got=f"{median:g} passes",
        evidence={"passes": [value if np.isfinite(value) else None for value in passes]},
    )


def gradient_bytes() -> int:
    """Of one step of the plain network in float32."""
    model = signals().make_model("plain", 0)
    return sum(weight.numel() * torch.finfo(torch.float32).bits // 8 for weight in model.parameters())
