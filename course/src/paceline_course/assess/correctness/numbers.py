"""A.numbers: log.csv says what all processes did, exactly; one process writes a file."""

from __future__ import annotations

import math
from typing import Any

from paceline_course.assess.box import Ran
from paceline_course.assess.correctness.drawing import Trial
from paceline_course.assess.correctness.files import weights_of
from paceline_course.assess.correctness.runs import Trials
from paceline_course.assess.oracle import count_right
from paceline_course.assess.submission_process import EVALUATE
from paceline_course.checking import Wrong

COLUMNS = ("epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds")
_LOSS_TOLERANCE = 1e-6


def judge_numbers(trials: Trials) -> dict[str, Any]:
    """The first run, with three processes, that with four, and that with batch norms."""
    evidence = {}
    for trial in (trials.drawn.first, *trials.drawn.variants[1:]):
        ran = trials.run(trial)
        _judge_writers(ran)
        rows = read_log(ran, trial.setting.epochs)
        for epoch, row in enumerate(rows):
            _judge_evaluation(ran, trial, epoch, row)
            _judge_training(trials, ran, trial, epoch, row)
        last = rows[-1]
        evidence[ran.command] = f"{int(last['right'])} of {int(last['counted'])} right, loss {last['loss']:.6f}"
    return evidence


def read_log(ran: Ran, epochs: int) -> list[dict[str, float]]:
    """The lines as numbers, one an epoch.

    Raises:
        Wrong: columns or lines are missing or too many, or something is no number.
    """
    rows = ran.log()
    if not rows:
        raise Wrong("no-log", ran=ran.command, expected="log.csv with a line an epoch", got="no lines")
    if missing := [name for name in COLUMNS if name not in rows[0]]:
        raise Wrong("columns", ran=ran.command, expected=", ".join(COLUMNS), got=f"no {', '.join(missing)}")
    found = []
    for number, row in enumerate(rows):
        try:
            found.append({name: float(row[name]) for name in COLUMNS})
        except (ValueError, TypeError):
            got = f"line {number + 2}: {', '.join(row.values())[:120]}"
            raise Wrong("lines", ran=ran.command, expected="numbers in every column", got=got) from None
    numbers = [row["epoch"] for row in found]
    if numbers != list(range(epochs)):
        raise Wrong("lines", ran=ran.command, expected=f"the epochs 0 to {epochs - 1}, each once", got=f"{numbers}")
    return found


def _judge_writers(ran: Ran) -> None:
    writers: dict[str, list[int]] = {}
    for rank, seen in enumerate(ran.ranks):
        for name in seen.writes:
            writers.setdefault(name, []).append(rank)
    for name, ranks in writers.items():
        if len(ranks) > 1:
            got = f"{name} by ranks {ranks}"
            raise Wrong("several-writers", ran=ran.command, expected="one writer a file", got=got)


def _judge_evaluation(ran: Ran, trial: Trial, epoch: int, row: dict[str, float]) -> None:
    setting = trial.setting
    state = weights_of(ran, epoch)
    try:
        right = count_right(setting, state)
    except ValueError as error:
        raise Wrong("other-names", ran=ran.command, expected="weights that fit", got=str(error)[:300]) from error
    expected = f"epoch {epoch}: {right} of {setting.eval_samples} right, counted again from epoch-{epoch}.pt"
    got = f"{row['right']:g} of {row['counted']:g}"
    counted = row["counted"]
    if counted != setting.eval_samples:
        parts = {len(seen.numbers(EVALUATE)) / setting.epochs for seen in ran.ranks}
        message = "dropped-evaluation" if counted < setting.eval_samples else "padded-evaluation"
        if trial.world > 1 and counted in parts and counted < setting.eval_samples * 0.9:
            message = "own-part"
        raise Wrong(message, ran=ran.command, expected=expected, got=got)
    if row["right"] != right:
        raise Wrong("wrong-right", ran=ran.command, expected=expected, got=got)


def _judge_training(trials: Trials, ran: Ran, trial: Trial, epoch: int, row: dict[str, float]) -> None:
    setting = trial.setting
    known = trials.truth(trial)
    expected = f"epoch {epoch}: loss {known.losses[epoch]:.9g}, the mean over {setting.samples} samples"
    if math.isnan(row["loss"]):
        raise Wrong("nan-loss", ran=ran.command, expected=expected, got="nan")
    if not math.isclose(row["loss"], known.losses[epoch], rel_tol=_LOSS_TOLERANCE):
        near = math.isclose(row["loss"], known.losses[epoch], rel_tol=0.25)
        message = "own-loss" if near and trial.world > 1 else "wrong-loss"
        raise Wrong(message, ran=ran.command, expected=expected, got=f"{row['loss']:.9g}")
    samples, steps = (epoch + 1) * setting.samples, (epoch + 1) * setting.steps
    if (row["samples"], row["steps"]) != (samples, steps):
        raise Wrong(
            "wrong-steps",
            ran=ran.command,
            expected=f"epoch {epoch}: {samples} samples and {steps} steps so far",
            got=f"{row['samples']:g} samples, {row['steps']:g} steps",
        )
    if not math.isclose(row["lr"], setting.rate, rel_tol=1e-9):
        raise Wrong(
            "wrong-steps", ran=ran.command, expected=f"the rate {setting.rate:g}", got=f"{row['lr']:g} in column lr"
        )
