"""What a rank writes down, on one clock, and what it was asked to do."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from paceline.parallel.seat import StopRequest
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.records.schema import End, Measure, Step
from paceline.train.record import Recorder


def step(number: int, elapsed_s: float) -> Step:
    """Step `number` at a time of the run."""
    return Step(
        step=number,
        epoch=0,
        samples=number,
        count=1.0,
        loss=1.0,
        lr=0.1,
        elapsed_s=elapsed_s,
        data_s=0.0,
        forward_s=0.0,
        backward_s=0.0,
        update_s=0.0,
    )


def kinds(run: RunDir, rank: int = 0) -> list[str]:
    """Types of the events on disk."""
    return [event.__struct_config__.tag for event in EventStream(run.events(rank), superseded=True)]


def test_a_session_is_written_down_from_start_to_end(tmp_path: Path) -> None:
    """In order, with paths relative to the run directory."""
    run = RunDir(tmp_path)
    recorder = Recorder(run, 3, 4)
    recorder.start(2, 10, 5.0)
    recorder.step(step(11, recorder.elapsed_s()))
    recorder.evaluation(11, 1.5, 64, time.perf_counter() - 2.0, {"loss": Measure(value=0.5, count=3.0)})
    recorder.checkpoint(11, run.checkpoints / "step-00000011", time.perf_counter(), 77, "final")
    recorder.note("m", "warning")
    recorder.end(End(step=11, reason="finished", exit_code=0, elapsed_s=recorder.elapsed_s()))
    recorder.close()

    start, _, evaluation, checkpoint, note, end = EventStream(run.events(3))

    assert (start.session, start.step, start.world, start.pid) == (2, 10, 4, os.getpid())
    assert abs(start.time_unix_s - time.time()) < 60
    assert evaluation.duration_s == pytest.approx(2.0, abs=0.5)
    assert (checkpoint.path, checkpoint.size_bytes, checkpoint.reason) == ("checkpoints/step-00000011", 77, "final")
    assert (note.message, note.level) == ("m", "warning")
    assert 5.0 <= evaluation.elapsed_s <= checkpoint.elapsed_s <= end.elapsed_s < 60


def test_the_clock_goes_on_from_what_earlier_sessions_spent(tmp_path: Path) -> None:
    """Readings of perf_counter are turned into seconds of training."""
    recorder = Recorder(RunDir(tmp_path), 0, 1)
    before = time.perf_counter()

    recorder.start(2, 0, 100.0)

    assert recorder.elapsed_s(before + 7.0) == pytest.approx(107.0, abs=0.5)
    assert recorder.elapsed_s() >= 100.0
    recorder.close()


def test_steps_reach_the_disk_a_few_times_a_second_and_rare_events_at_once(tmp_path: Path) -> None:
    """A step costs no system call; a note, an evaluation and an end are never held back."""
    run = RunDir(tmp_path)
    recorder = Recorder(run, 0, 1)
    recorder.start(1, 0, 0.0)
    recorder.step(step(1, 0.01))
    waiting = kinds(run)
    recorder.step(step(2, 0.5))
    after_a_while = kinds(run)
    recorder.step(step(3, 0.51))
    recorder.note("now")

    assert waiting == ["start"]
    assert after_a_while == ["start", "step", "step"]
    assert kinds(run) == ["start", "step", "step", "step", "note"]
    recorder.close()


@pytest.mark.parametrize(
    ("sent", "wishes"),
    [([], (0, 0)), ([signal.SIGTERM], (1, 0)), ([signal.SIGINT], (0, 1)), ([signal.SIGINT, signal.SIGTERM], (1, 1))],
)
def test_signals_are_noted_and_end_nothing(sent: list[signal.Signals], wishes: tuple[int, int]) -> None:
    """What they mean is decided at a step on which all ranks agree."""
    old = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    stop = StopRequest()
    stop.install()
    try:
        for number in sent:
            os.kill(os.getpid(), number)
            time.sleep(0)
        found = stop.wishes()
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)

    assert found == wishes
