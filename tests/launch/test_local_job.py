"""A signal at an awkward moment is a stop, not a crash; a save signal reaches ranks that are not ready yet."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from paceline.launch.local_job import Job, run_job
from paceline.pool.processes import ServerGone, Session


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    """Makes a job of two ranks that only wait; they leave marks in `tmp_path`."""

    def make(**env: str) -> Job:
        return Job(
            "tests.pool.idle_rank:main",
            2,
            tmp_path / "logs",
            env={"IDLE_FOLDER": str(tmp_path), **env},
            grace_s=10.0,
            save_signal=signal.SIGUSR1,
        )

    return make


def when(there: Callable[[], bool], act: Callable[[], None]) -> None:
    """Do something in another thread as soon as a condition holds."""

    def wait() -> None:
        deadline = time.monotonic() + 60
        while not there() and time.monotonic() < deadline:
            time.sleep(0.01)
        act()

    threading.Thread(target=wait, daemon=True).start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_where_exceptions_are_swallowed_stops_the_job_all_the_same(
    number: signal.Signals, job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a destructor, a logging call, or torch's own `finally`: a handler that raises would be lost there."""
    wait, sent = Session.wait, []

    def interrupted(session: Session, seconds: float) -> None:
        with contextlib.suppress(Exception):
            if not sent and len(list(tmp_path.glob("ready-*"))) == 2:
                sent.append(number)
                os.kill(os.getpid(), number)
        wait(session, seconds)

    monkeypatch.setattr(Session, "wait", interrupted)
    began = time.monotonic()

    ended = run_job(job())

    assert ended.stopped_by is number
    assert time.monotonic() - began < 15


def test_handlers_of_the_caller_are_back_after_a_job(job: Callable[..., Job]) -> None:
    """Torch's own stay for ever, and raise in whatever runs later."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]

    ended = run_job(job(IDLE_FOR_S="0"))

    assert ended.stopped_by is None
    assert ended.failure is None
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_save_signal_that_comes_before_the_ranks_listen_is_not_lost_and_ends_nothing(
    job: Callable[..., Job], tmp_path: Path
) -> None:
    """It is passed on at once and stays pending in each rank until that takes it."""
    saved = lambda: len(list(tmp_path.glob("saved-*"))) == 2  # noqa: E731
    when(
        lambda: bool(list(tmp_path.glob("logs/*/attempt_0/1/stderr.log"))), lambda: os.kill(os.getpid(), signal.SIGUSR1)
    )
    when(saved, lambda: os.kill(os.getpid(), signal.SIGTERM))

    ended = run_job(job(IDLE_BEFORE_S="1.0"))

    assert saved()
    assert ended.stopped_by is signal.SIGTERM


def test_a_rank_that_fails_stops_the_others_and_the_record_says_which_was_which(job: Callable[..., Job]) -> None:
    """Exit codes as they are; the layout of logs is torchrun's."""
    ended = run_job(job(IDLE_FOR_S="0.2", IDLE_CODE_1="7", IDLE_CODE_0="0"))

    assert ended.stopped_by is None
    assert ended.failure is not None
    assert {each.rank: each.exit_code for each in ended.failure.ranks}[1] == 7
    assert ended.logs is not None
    assert sorted(str(path.relative_to(ended.logs)) for path in ended.logs.glob("*/*.log")) == [
        f"{rank}/{name}.log" for rank in range(2) for name in ("stderr", "stdout")
    ]


def test_a_killed_fork_server_ends_the_job_and_its_ranks(job: Callable[..., Job], tmp_path: Path) -> None:
    """As by the kernel, for memory: the ranks die with it, and the next job has another server."""
    when(lambda: len(list(tmp_path.glob("ready-*"))) == 2, kill_the_server)

    with pytest.raises(ServerGone, match="fork server of this command has ended"):
        run_job(job())

    assert run_job(job(IDLE_FOR_S="0")).failure is None


def kill_the_server() -> None:
    """That of this process."""
    (server,) = (each for each in psutil.Process().children() if "paceline.pool.fork_server" in each.cmdline())
    server.kill()
