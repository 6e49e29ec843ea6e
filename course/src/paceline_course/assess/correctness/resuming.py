"""A.resume: killed in the middle of an epoch, it goes on after the last complete one."""

from __future__ import annotations

from typing import Any

from paceline.verify.compare import compare
from paceline_course.assess.box import Ran
from paceline_course.assess.correctness.drawing import Trial
from paceline_course.assess.correctness.files import weights_of
from paceline_course.assess.correctness.numbers import read_log
from paceline_course.assess.correctness.runs import Failed, Trials, ended
from paceline_course.assess.submission_process import TRAIN, Start
from paceline_course.checking import Wrong

_KILLED_IN = 2
"""The epoch in whose middle it is killed; two are complete by then."""


def judge_resume(trials: Trials) -> dict[str, Any]:
    """With batch norms and momentum; all processes are killed when one has read two thirds of its part of epoch 2."""
    trial = trials.drawn.resume
    setting = trial.setting
    reads = int(setting.samples / trial.world * (_KILLED_IN + 0.66))
    start = Start(setting.arguments(), kill=(trial.world - 1, reads))
    killed = trials.box.run(trial.world, start)
    told = f"{killed.command}, killed in epoch {_KILLED_IN}, then --resume"
    if killed.ended:
        raise Wrong("kill-missed", ran=told, expected=f"a process that reads in epoch {_KILLED_IN}", got="an early end")
    _was_killed(killed, told, len(killed.ranks[trial.world - 1].numbers(TRAIN)) >= reads)
    resumed = trials.box.run(trial.world, Start((*setting.arguments(), "--resume")), again_in=killed.folder)
    try:
        ended(resumed)
    except Failed as failed:
        failed.ran = told
        if failed.message in ("raised", "exit", "died"):
            failed.message = "not-resumed"
        raise
    _judge_work(resumed, trial, told)
    _judge_weights(trials, resumed, trial, told)
    try:
        read_log(resumed, setting.epochs)
    except Wrong as wrong:
        raise Wrong("resume-log", ran=told, expected=wrong.expected, got=wrong.got) from wrong
    return {told: f"the weights of an undisturbed training after epoch {setting.epochs - 1}"}


def _was_killed(ran: Ran, told: str, due: bool) -> None:
    """By us, and by nothing else.

    Args:
        ran: the run.
        told: how it is called.
        due: the process had read so much that it was killed; others may have complained of that first.

    Raises:
        Failed: it failed by itself before.
    """
    if ran.failure is not None and (due or "SIGKILL" in ran.failure.message):
        return
    try:
        ended(ran)
    except Failed as failed:
        failed.ran = told
        raise


def _judge_work(ran: Ran, trial: Trial, told: str) -> None:
    """Two epochs are left, not four."""
    left = trial.setting.epochs - _KILLED_IN
    read = _epochs_read(ran, trial)
    if read > left + 0.5:
        raise Wrong("anew", ran=told, expected=f"{left} epochs after the kill", got=f"{read:.1f} epochs")


def _epochs_read(ran: Ran, trial: Trial) -> float:
    return sum(len(seen.numbers(TRAIN)) for seen in ran.ranks) / trial.setting.samples


def _judge_weights(trials: Trials, ran: Ran, trial: Trial, told: str) -> None:
    known = trials.truth(trial)
    for epoch in range(_KILLED_IN, trial.setting.epochs):
        try:
            weights = weights_of(ran, epoch)
        except Wrong as wrong:
            read = _epochs_read(ran, trial)
            if wrong.message == "no-weights" and read < trial.setting.epochs - _KILLED_IN - 0.5:
                wrong = Wrong("epoch-skipped", ran=told, expected=wrong.expected, got=f"{read:.1f} epochs were trained")
            raise wrong from None
        found = compare(weights, known.states[epoch])
        if not found.equal():
            name, off = found.worst
            raise Wrong(
                "resume-differs",
                ran=told,
                expected="the weights of an undisturbed training",
                got=f"after epoch {epoch}, {name} is off by {off:.1e}, relative",
            )
