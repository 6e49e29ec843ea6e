"""A.stop: one decision of all processes, by accuracy and by the clock."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline_course.assess.box import Ran
from paceline_course.assess.correctness.drawing import Trial
from paceline_course.assess.correctness.files import check_files
from paceline_course.assess.correctness.runs import Failed, Trials, ended
from paceline_course.assess.oracle import which_right
from paceline_course.assess.submission_process import TRAIN, Start
from paceline_course.checking import Wrong

_LIMIT_S, _JUMP_S, _SLOW_S = 600.0, 10_000.0, 0.02


def judge_stop(trials: Trials) -> dict[str, Any]:
    """First by the clock of one process, which jumps in the second epoch; then by an accuracy that is reached."""
    return by_clock(trials) | by_accuracy(trials)


def by_clock(trials: Trials) -> dict[str, Any]:
    """The last rank's clock jumps ahead in epoch 1, rank 1 is slow; all have to stop with epoch 1."""
    trial = trials.drawn.clocks
    setting = trial.setting
    late = trial.world - 1
    start = Start(
        (*setting.arguments(), "--seconds", f"{_LIMIT_S:g}"),
        jump=(late, int(setting.samples / trial.world * 1.3), _JUMP_S),
        slow=(1, _SLOW_S),
    )
    ran = trials.box.run(trial.world, start)
    told = f"{ran.command} (the clock of rank {late} jumps ahead in epoch 1; rank 1 is slow)"
    _ended(ran, told)
    _judge_epochs(ran, trial, told, 2, "stop-never-by-time")
    return {told: "2 epochs on all processes"}


def by_accuracy(trials: Trials) -> dict[str, Any]:
    """The accuracy is one that an epoch by itself, or a process by its own part, has before two epochs running do."""
    trial = _most_telling(trials)
    setting = trial.setting
    right = trials.truth(trial).right
    flag = _flag(right, setting.eval_samples)
    expected = _stops_after(right, flag * setting.eval_samples)
    ran = trials.box.run(trial.world, Start((*setting.arguments(), "--stop-at", f"{flag:.8f}")))
    told = ran.command
    _ended(ran, told)
    _judge_epochs(ran, trial, told, expected, "stop-late")
    return {told: f"{expected} epochs on all processes"}


def _most_telling(trials: Trials) -> Trial:
    """The first of the drawn trials in which no wrong decision comes to the right epoch, or what is nearest to that."""
    points = {}
    for trial in trials.drawn.stop:
        truth = trials.truth(trial)
        own = _parts_differ(trial, [which_right(trial.setting, state) for state in truth.states])
        if _deceiving(truth.right) and own:
            return trial
        points[trial] = 2 * own + bool(_deceiving(truth.right))
    return max(points, key=points.__getitem__)


def _parts_differ(trial: Trial, hits: list[NDArray[np.bool_]]) -> bool:
    """Whether a process that decides by its own part of the evaluation errs, be the part a block or every second."""
    samples = trial.setting.eval_samples
    flag = _flag([int(each.sum()) for each in hits], samples)
    expected = _stops_after([int(each.sum()) for each in hits], flag * samples)
    blocks = np.array_split(np.arange(samples), trial.world)
    turns = [np.arange(rank, samples, trial.world) for rank in range(trial.world)]
    return all(
        any(_stops_after([int(each[part].sum()) for each in hits], flag * len(part)) != expected for part in parts)
        for parts in (blocks, turns)
    )


def _flag(right: list[int], samples: int) -> float:
    """The accuracy to stop at: a little below what is reached, so that rounding of the flag decides nothing."""
    return (_deceiving(right) or _new_level(right)) / samples - 0.25 / samples


def _deceiving(right: list[int]) -> int:
    """Right answers that an epoch has by itself before two epochs running have them, not the last two; 0: none."""
    best = 0
    for epoch in range(1, len(right) - 1):
        running = min(right[epoch - 1], right[epoch])
        level = min(running, max(right[: epoch - 1], default=0))
        if level > best:
            return level
        best = max(best, running)
    return 0


def _new_level(right: list[int]) -> int:
    """Right answers that two epochs running have, from the third epoch on, and not the last two."""
    levels = [min(one, two) for one, two in pairwise(right[:-1])]
    return next((level for at, level in enumerate(levels) if at and level > max(levels[:at])), levels[0])


def _stops_after(right: list[int], least: float) -> int:
    """How many epochs are trained."""
    for epoch in range(1, len(right)):
        if min(right[epoch - 1], right[epoch]) >= least:
            return epoch + 1
    return len(right)


def _ended(ran: Ran, told: str) -> None:
    try:
        ended(ran)
    except Failed as failed:
        failed.ran = told
        if failed.message in ("hang", "left", "mismatch"):
            failed.message = "stop-hang"
        raise


def _judge_epochs(ran: Ran, trial: Trial, told: str, expected: int, late: str) -> None:
    """The number of epochs, by the files and on every rank.

    Raises:
        Wrong: more, fewer, or not equally many.
    """
    check_files(ran, 0)
    each = [round(len(seen.numbers(TRAIN)) * trial.world / trial.setting.samples) for seen in ran.ranks]
    epochs = ran.epochs()
    words = f"an end with epoch {expected - 1}, on all processes"
    if len(set(each)) > 1:
        raise Wrong("stop-own", ran=told, expected=words, got=f"epochs trained by rank: {each}")
    if epochs > expected:
        message = late if epochs == trial.setting.epochs else "stop-late"
        raise Wrong(message, ran=told, expected=words, got=f"{epochs} epochs")
    if each[0] > expected:
        got = f"{each[0]} epochs were trained, {epochs} saved"
        raise Wrong("stop-late", ran=told, expected=words, got=got)
    if epochs < expected:
        raise Wrong("stop-early", ran=told, expected=words, got=f"{epochs} epochs")
    if len(ran.log()) != epochs:
        raise Wrong("lines", ran=told, expected=f"{epochs} lines in log.csv", got=f"{len(ran.log())}")
