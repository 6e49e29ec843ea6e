"""Trainings one after the other: what is done stays, what was stopped goes on, what failed says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.records.errors import Exit, PacelineError
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir, write_info
from paceline.records.schema import RunInfo
from paceline.studies import trainings
from paceline.studies.trainings import Training, carry_out, ended

STAND_IN = Path(__file__).with_name("stand_in.py")
DRIVER = """
import sys
from pathlib import Path
from paceline.studies import trainings
trainings.PROGRAM = (sys.executable, sys.argv[1])
one = trainings.Training("one", ("--train-samples", "100", "--seed", "0", "--lr", "77"))
try:
    trainings.carry_out([one], Path(sys.argv[2]), "digits", tell=lambda done, total, what: None)
except KeyboardInterrupt as stop:
    sys.exit(f"stopped {list(stop.args)}")
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """With the stand-in for paceline; gives what it was called with."""
    log = tmp_path / "calls"
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    monkeypatch.setattr(trainings, "PROGRAM", (sys.executable, str(STAND_IN)))
    return lambda: log.read_text().splitlines() if log.exists() else []


def training(name: str, lr: str = "0.1", samples: int = 100) -> Training:
    """One that ends as `lr` says."""
    return Training(name, ("--train-samples", str(samples), "--seed", "0", "--lr", lr))


def silent(done: int, total: int, what: str) -> None:
    """Nobody looks."""


def test_trainings_are_carried_out_in_their_order_and_told_of(tmp_path: Path, calls: Callable[[], list[str]]) -> None:
    """Each with its flags, those of all, and a directory of its own; the last word is that all are done."""
    told: list[tuple[int, int, str]] = []
    both = [training("b"), training("a")]

    runs = carry_out(both, tmp_path / "runs", "digits", ("--workers", "2"), tell=lambda *each: told.append(each))

    assert list(runs) == ["b", "a"]
    assert calls()[0] == (
        f"train digits --train-samples 100 --seed 0 --lr 0.1 --run-dir {tmp_path}/runs/b --workers 2 --format json"
    )
    assert [ended(run) for run in runs.values()] == ["finished", "finished"]
    assert told == [(0, 2, "b"), (1, 2, "a"), (2, 2, "")]


def test_what_has_finished_is_not_trained_again(tmp_path: Path, calls: Callable[[], list[str]]) -> None:
    """Nor when how it is carried out has changed; a new training beside it is."""
    carry_out([training("a")], tmp_path, "digits", ("--workers", "1"), tell=silent)

    runs = carry_out([training("a"), training("b")], tmp_path, "digits", ("--workers", "2"), tell=silent)

    assert [" --run-dir " in call and call.split("--run-dir ")[1].split()[0][-1] for call in calls()] == ["a", "b"]
    assert list(runs) == ["a", "b"]


def test_another_training_of_the_same_name_is_refused(tmp_path: Path, calls: Callable[[], list[str]]) -> None:
    """It is neither taken for the one that was asked for, nor written over."""
    carry_out([training("a")], tmp_path, "digits", tell=silent)

    with pytest.raises(PacelineError, match="holds another training"):
        carry_out([training("a", lr="0.2")], tmp_path, "digits", tell=silent)

    assert len(calls()) == 1


def test_a_training_that_diverges_is_a_result(tmp_path: Path, calls: Callable[[], list[str]]) -> None:
    """The next one is trained, and it is not tried again."""
    both = [training("a", lr="99"), training("b")]

    for _ in range(2):
        runs = carry_out(both, tmp_path, "digits", tell=silent)

    assert [ended(run) for run in runs.values()] == ["diverged", "finished"]
    assert len(calls()) == 2


def test_a_refusal_comes_in_the_trainings_own_words(tmp_path: Path, calls: Callable[[], list[str]]) -> None:
    """What, why, next and exit code are those of the child; what was done before stays."""
    with pytest.raises(PacelineError) as failed:
        carry_out([training("a"), training("b", lr="66")], tmp_path, "digits", tell=silent)

    error = failed.value
    assert (error.what, error.why, error.hint) == (
        "the training b failed: the batch is wrong",
        "it is odd\nand long",
        "--more",
    )
    assert error.exit_code == Exit.USAGE
    assert ended(RunDir(tmp_path / "a")) == "finished"


def test_an_end_without_a_message_shows_what_was_said(tmp_path: Path, calls: Callable[[], list[str]]) -> None:
    """The end of stderr, the exit code, and where the logs are."""
    with pytest.raises(PacelineError, match="ended with exit code 7") as failed:
        carry_out([training("a", lr="55")], tmp_path, "digits", tell=silent)

    assert "Boom: no message" in failed.value.why
    assert "logs" in failed.value.hint
    assert failed.value.exit_code == Exit.FAILED


def test_a_training_that_somebody_else_stops_stops_all(tmp_path: Path, calls: Callable[[], list[str]]) -> None:
    """It has not failed; the second call goes on with it."""
    with pytest.raises(KeyboardInterrupt) as stopped:
        carry_out([training("a", lr="88"), training("b")], tmp_path, "digits", tell=silent)

    runs = carry_out([training("a", lr="88"), training("b")], tmp_path, "digits", tell=silent)

    assert stopped.value.args == (signal.SIGTERM,)
    assert [ended(run) for run in runs.values()] == ["finished", "finished"]
    assert [" --resume " in call for call in calls()] == [False, True, False]


@pytest.mark.parametrize(
    ("number", "whole_group", "heard", "words"),
    [
        (signal.SIGINT, True, signal.SIGINT, "stopped []"),
        (signal.SIGTERM, False, signal.SIGTERM, f"stopped [{int(signal.SIGTERM)}]"),
        (signal.SIGHUP, True, signal.SIGTERM, f"stopped [{int(signal.SIGHUP)}]"),
    ],
    ids=["ctrl-c", "sigterm", "closed terminal"],
)
def test_a_stop_reaches_the_training_once_and_the_plan_goes_on_later(
    number: signal.Signals,
    whole_group: bool,
    heard: signal.Signals,
    words: str,
    tmp_path: Path,
    calls: Callable[[], list[str]],
) -> None:
    """A terminal sends Ctrl-C to the whole group: heard twice, it would mean not to wait for the checkpoint."""
    command = [sys.executable, "-c", DRIVER, str(STAND_IN), str(tmp_path / "runs")]
    driver = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while "hangs" not in calls() and time.monotonic() < deadline:
        time.sleep(0.05)

    (os.killpg if whole_group else os.kill)(driver.pid, number)
    _, said = driver.communicate(timeout=60)

    assert said.strip() == words
    assert calls()[-1] == f"heard [{int(heard)}]"
    assert ended(RunDir(tmp_path / "runs" / "one")) == "interrupted"

    runs = carry_out([training("one", lr="77")], tmp_path / "runs", "digits", tell=silent)

    assert ended(runs["one"]) == "finished"
    assert calls()[-1] == f"train --resume {tmp_path}/runs/one --format json"


def test_a_run_that_goes_on_has_not_ended(tmp_path: Path, calls: Callable[[], list[str]]) -> None:
    """An end that a later start follows is not one; nor has a run without events."""
    run = carry_out([training("a")], tmp_path, "digits", tell=silent)["a"]
    first = run.events().read_bytes().splitlines(keepends=True)[0]
    info = RunInfo(schema=1, verb="train", name="b", command=[], started_at="", versions={}, config={})
    write_info(RunDir(tmp_path / "b"), info)

    with run.events().open("ab") as file:
        file.write(first)

    assert len(list(EventStream(run.events(), superseded=True))) == 4
    assert ended(run) is None
    assert ended(RunDir(tmp_path / "b")) is None
