"""What a rank writes down, on one clock, and what it was asked to do."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from paceline.checkpoint import manifest
from paceline.parallel.rank_context import StopRequest
from paceline.records.errors import Exit, PacelineError
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.records.schema import End, Measure, Step
from paceline.train import worker
from paceline.train.recorder import Recorder


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
    recorder.write(step(11, recorder.elapsed_s()))
    recorder.evaluation(11, 1.5, 64, time.perf_counter() - 2.0, {"loss": Measure(value=0.5, count=3.0)})
    recorder.checkpoint(11, run.checkpoints / "step-00000011", time.perf_counter(), 77, "final")
    recorder.note("m", "warning")
    recorder.write(End(step=11, reason="finished", exit_code=0, elapsed_s=recorder.elapsed_s()))
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


def test_every_event_is_on_disk_as_soon_as_it_is_told(tmp_path: Path) -> None:
    """Nothing waits for the next step, which may take minutes or never end."""
    run = RunDir(tmp_path)
    recorder = Recorder(run, 0, 1)
    recorder.start(1, 0, 0.0)
    recorder.write(step(1, 0.01))
    recorder.write(step(2, 0.011))

    assert kinds(run) == ["start", "step", "step"]
    recorder.close()


class Died(BaseException):
    """Not an Exception: as KeyboardInterrupt and SystemExit are not."""


@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA error: out of\nmemory"), SystemExit(3), KeyboardInterrupt(), Died()]
)
def test_whatever_ends_the_loop_the_end_is_recorded_as_failed(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what was raised, in one line; the exception goes on to the launcher."""
    run = RunDir(tmp_path)
    job = job_of(run)
    monkeypatch.setattr(worker, "train", raising(error))

    with pytest.raises(type(error)):
        worker.finish(job, None)

    _, end = EventStream(run.events())
    assert (end.reason, end.exit_code, end.step) == ("failed", 1, 4)
    assert end.message.startswith(type(error).__name__)
    assert "\n" not in end.message


@pytest.mark.parametrize(
    ("saved", "words"), [([], "there is no checkpoint yet"), ([3], "the checkpoint of step 3 is whole")]
)
def test_a_diverged_run_says_what_stands(
    saved: list[int], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is asked: at step 1 there is nothing to go back to."""
    run = RunDir(tmp_path)
    for number in saved:
        manifest.write(run.checkpoints, number, 1, "t", {"model.safetensors": b"weights"})
    diverged = PacelineError("the loss is nan", hint="a smaller --lr", exit_code=Exit.DIVERGED)
    monkeypatch.setattr(worker, "train", raising(diverged))

    with pytest.raises(PacelineError) as caught:
        worker.finish(job_of(run), None)

    assert caught.value.hint == f"a smaller --lr; {words}"


def raising(error: BaseException):
    """In place of the loop."""

    def train(job: object) -> None:
        raise error

    return train


def job_of(run: RunDir) -> SimpleNamespace:
    """As much of a job as its frame looks at."""
    recorder = Recorder(run, 0, 1)
    recorder.start(1, 0, 0.0)
    return SimpleNamespace(
        recorder=recorder,
        progress=SimpleNamespace(step=4, target_step=None),
        timetable=SimpleNamespace(schedule=SimpleNamespace(total_steps=9)),
        stop=SimpleNamespace(install=lambda save: None),
    )


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


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_save_signal_asks_for_one_checkpoint_however_often_it_comes(number: signal.Signals) -> None:
    """Asking is over once the wish was taken along by a step; the next signal is a new one."""
    old = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)}
    stop = StopRequest()
    stop.install(number)
    try:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        time.sleep(0)
        taken = [stop.take_save(), stop.take_save()]
        os.kill(os.getpid(), number)
        time.sleep(0)
        taken.append(stop.take_save())
    finally:
        for each, handler in old.items():
            signal.signal(each, handler)

    assert taken == [1.0, 0.0, 1.0]
    assert stop.wishes() == (0.0, 0.0)
