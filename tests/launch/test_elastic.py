"""A signal at an awkward moment is a stop, not a crash; a save signal reaches ranks that are not ready yet."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.rendezvous import dynamic_rendezvous

from paceline.launch.elastic import Job, run_job

ROOT = str(Path(__file__).parents[2])


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    """Makes a job of two ranks that only wait; they leave marks in `tmp_path`."""

    def make(**env: str) -> Job:
        path = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
        return Job(
            "tests.pool.idle_rank",
            2,
            tmp_path / "logs",
            env={"IDLE_FOLDER": str(tmp_path), "PYTHONPATH": path, **env},
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
    monitor = LocalElasticAgent._monitor_workers

    def interrupted(agent: LocalElasticAgent, group: object) -> object:
        with contextlib.suppress(Exception):
            if len(list(tmp_path.glob("ready-*"))) == 2:
                os.kill(os.getpid(), number)
        return monitor(agent, group)

    monkeypatch.setattr(LocalElasticAgent, "_monitor_workers", interrupted)
    began = time.monotonic()

    ended = run_job(job())

    assert ended.stopped_by is number
    assert time.monotonic() - began < 15


def test_the_launcher_does_not_read_torchs_source_once_its_ranks_run(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rendezvous names its methods by walking through all loaded modules, every 5 s and at its end: seconds of
    processor time, a minute on a busy machine, in which a stopped job does not end."""
    walks = []

    def walk(depth: int = 2) -> str:
        walks.append(len(list(tmp_path.glob("ready-*"))))
        return ""

    monkeypatch.setattr(dynamic_rendezvous, "get_method_name", walk)

    run_job(job(IDLE_FOR_S="6"))

    assert 2 not in walks


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
