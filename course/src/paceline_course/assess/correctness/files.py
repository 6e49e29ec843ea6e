"""A.runs: any number of processes, the files that belong there, a clean end."""

from __future__ import annotations

from typing import Any

from paceline.verify.oracle import State
from paceline_course.assess.box import Ran
from paceline_course.assess.correctness.runs import Failed, Trials
from paceline_course.checking import Wrong


def judge_runs(trials: Trials) -> dict[str, Any]:
    """Three processes, and one without torchrun."""
    evidence = {}
    for trial, alone in ((trials.drawn.first, False), (trials.drawn.alone, True)):
        try:
            ran = trials.run(trial, alone=alone)
        except Failed as failed:
            if alone and failed.message == "raised":
                failed.message = "not-alone"
            raise
        check_files(ran, trial.setting.epochs)
        still = [rank for rank, end in enumerate(ran.ends or []) if end.get("in_group")]
        if still:
            raise Wrong("group-left", ran=ran.command, expected="no process group at the end", got=f"ranks {still}")
        left = {rank: end["left"] for rank, end in enumerate(ran.ends or []) if end.get("left")}
        if left:
            got = ", ".join(f"{count} of rank {rank}" for rank, count in left.items())
            raise Wrong("process-left", ran=ran.command, expected="no process left behind", got=got)
        evidence[ran.command] = f"exit code 0 after {ran.seconds:.1f} s"
    return evidence


def check_files(ran: Ran, epochs: int) -> None:
    """A log with a line an epoch, and the weights of every epoch.

    Raises:
        Wrong: something is missing.
    """
    if not ran.log():
        raise Wrong("no-log", ran=ran.command, expected="log.csv with a line an epoch", got="no lines")
    for epoch in range(epochs):
        weights_of(ran, epoch)


def weights_of(ran: Ran, epoch: int) -> State:
    """The weights of an epoch.

    Raises:
        Wrong: there are none that fit.
    """
    expected = f"epoch-{epoch}.pt with the weights by their names"
    found = ran.weights(epoch)
    if isinstance(found, str):
        raise Wrong("no-weights", ran=ran.command, expected=expected, got=found)
    if all(name.startswith("module.") for name in found):
        raise Wrong("module-prefix", ran=ran.command, expected=expected, got=f"{next(iter(found))} ...")
    return found
