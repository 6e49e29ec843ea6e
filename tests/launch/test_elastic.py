"""A signal at an awkward moment is a stop, not a crash."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.multiprocessing import SignalException

from paceline.launch import elastic
from paceline.launch.elastic import Job, run_job


class Agent:
    """In place of torch's: it ends as it is told."""

    fails: Any = None

    def __init__(self, *_: Any, **__: Any) -> None:
        self.grace_s = 1.0

    def run(self) -> None:
        """As torch's decorator does it when a signal comes while it reads the clock."""
        try:
            if Agent.fails is not None:
                raise Agent.fails
            began = 1.0
        finally:
            str(began)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """One that the stand-in runs."""
    monkeypatch.setattr(elastic, "_Agent", Agent)
    return Job("nothing", 1, tmp_path)


def test_a_signal_while_torch_reads_the_clock_is_a_stop(job: Job) -> None:
    """Its decorator turns it into an UnboundLocalError; the signal behind that is what counts."""
    Agent.fails = SignalException("stopped", sigval=signal.SIGINT)

    assert run_job(job).stopped_by is signal.SIGINT


def test_any_other_error_stays_one(job: Job) -> None:
    """An UnboundLocalError without a signal behind it is a mistake in somebody's code."""
    Agent.fails = ValueError("no")

    with pytest.raises(UnboundLocalError):
        run_job(job)
