"""Part C: what a step sends, who evaluates, and how long it takes beside our reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from paceline.observe.probes.group_collectives import GroupCollectives
from paceline_course.assess.accuracy import Trainings, gradient_bytes, judge_choice
from paceline_course.assess.box import Box
from paceline_course.assess.correctness.runs import ended
from paceline_course.assess.judged import Scored, share_between
from paceline_course.assess.rubric import Rubric, content_folder
from paceline_course.assess.submission import Configuration, freeze
from paceline_course.assess.submission_process import EVALUATE, Start
from paceline_course.checking import Wrong

_NO_DATA = ("barrier",)
_LARGEST_PART = 1.5
"""Of an even share, that a process may evaluate."""
SPEED_WORLD, SPEED_EPOCHS = 2, 3


def judge_traffic(trainings: Trainings, run: Configuration, seeds: tuple[int, int]) -> Scored:
    """C.traffic: collectives and bytes that rank 0 hands over, over the steps of one training."""
    judge_choice(run, trainings.rubric)
    numbers, task = trainings.rubric.efficiency, trainings.rubric.task
    ran = trainings.train(run, *seeds).ran
    if GroupCollectives.missing():
        raise Wrong("untold", ran=ran.command, expected="a torch that tells of its collectives", got="none are told")
    calls = [call for call in ran.ranks[0].calls if call.op not in _NO_DATA]
    steps = ran.epochs() * -(-task.samples // run.batch)
    if not calls:
        raise Wrong("no-traffic", ran=ran.command, expected="a collective a step", got="none on rank 0")
    a_step = len(calls) / steps
    sent = sum(call.bytes for call in calls) / steps / gradient_bytes()
    share_calls = share_between(a_step, numbers.calls_good, numbers.calls_bad)
    share_bytes = share_between(sent, numbers.bytes_good, numbers.bytes_bad)
    return Scored(
        share=(share_calls + share_bytes) / 2,
        message="much-traffic",
        ran=ran.command,
        expected=f"{numbers.calls_good:g} collectives a step, {numbers.bytes_good:g} times the bytes of the gradients",
        got=f"{a_step:.1f} collectives, {sent:.2f} times the bytes",
        evidence={
            "collectives a step": round(a_step, 2),
            "bytes a step, in gradients": round(sent, 3),
            "gradient bytes": gradient_bytes(),
            "operations": _counted([call.op for call in calls]),
        },
    )


def _counted(words: list[str]) -> dict[str, int]:
    return {word: words.count(word) for word in dict.fromkeys(words)}


def judge_evaluation(trainings: Trainings, run: Configuration, seeds: tuple[int, int]) -> dict[str, Any]:
    """C.evaluation: each evaluation sample read once an epoch, by one process, and each process a fair part."""
    judge_choice(run, trainings.rubric)
    samples = trainings.rubric.task.eval_samples
    ran = trainings.train(run, *seeds).ran
    epochs = ran.epochs()
    read = [seen.numbers(EVALUATE) for seen in ran.ranks]
    every = np.concatenate(read)
    # Numbers come from inside of the submission: one that is no sample's must not decide how much memory is asked for.
    known = every[(every >= 0) & (every < samples)]
    counts = np.bincount(known, minlength=samples)
    each = [len(numbers) / epochs for numbers in read]
    expected = f"{samples} samples an epoch, some {samples // run.workers} on each of {run.workers} processes"
    got = f"{', '.join(f'{count:g}' for count in each)} an epoch"
    fair = max(each) <= _LARGEST_PART * samples / run.workers
    if len(known) < len(every) or (counts != epochs).any() or not fair:
        raise Wrong("not-shared", ran=ran.command, expected=expected, got=got)
    return {"read by rank, each epoch": each}


def judge_speed(box: Box, rubric: Rubric, scratch: Path, patience: float = 1.0) -> Scored:
    """C.speed: the same training by the submission and by our reference, one after the other, several times.

    Args:
        box: of the submission.
        rubric: sizes and limits.
        scratch: a folder for the reference.
        patience: factor on the reference's time limit, which is that of the submission.
    """
    numbers, task = rubric.efficiency, rubric.task
    frozen = freeze(content_folder() / "solution", scratch / "reference")
    reference = Box(frozen, scratch / "reference-runs", rubric.limits, patience)
    flags = f"--samples {task.samples} --eval-samples {task.eval_samples} --data-seed 7"
    words = tuple(f"{flags} --epochs {SPEED_EPOCHS} --batch {task.least_batch}".split())
    start = Start(words, steps=False)
    ratios, seconds = [], []
    for number in range(numbers.speed_rounds):
        both = [box, reference] if number % 2 else [reference, box]
        took = {}
        for each in both:
            ran = ended(each.run(SPEED_WORLD, start, rubric.limits.training_s))
            took[each is box] = ran.seconds
            each.forget(ran)
        ratios.append(took[False] / took[True])
        seconds.append([round(took[False], 3), round(took[True], 3)])
    # What else the machine does only ever adds time, so the shortest of several says most about the program.
    ratio = min(one for one, _ in seconds) / min(two for _, two in seconds)
    return Scored(
        share=share_between(ratio, numbers.speed_good, numbers.speed_bad),
        message="slow",
        ran=f"torchrun --nproc-per-node {SPEED_WORLD} train.py {' '.join(words)}, {numbers.speed_rounds} times each",
        expected=f"{numbers.speed_good:g} of the reference's speed or more; no points at {numbers.speed_bad:g}",
        got=f"{ratio:.2f}, the shortest of each; single rounds {min(ratios):.2f} to {max(ratios):.2f}",
        evidence={"ratio": round(ratio, 3), "seconds of reference and submission": seconds},
    )
