"""A run directory becomes columns: exactly, and in bounded memory."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from paceline.records.errors import PacelineError
from paceline.records.schema import End, Note
from paceline.report.run_record import load_run
from paceline.report.thin import Sample


def test_a_short_run_keeps_every_step(runs):
    """A run shorter than the limit is kept step by step, in order."""
    path = runs.plain()

    run = load_run(path)

    assert run.steps.step.tolist() == list(range(1, 21))
    assert run.steps.loss.tolist() == [2 / k for k in range(1, 21)]
    assert run.windows.stride == 1
    assert run.evaluations.value["accuracy"].tolist() == [0.85, 0.912]
    assert run.evaluations.count["accuracy"].tolist() == [1000, 1000]


def test_the_time_of_a_step_does_not_hold_the_evaluation_before_it(runs):
    """Step 11 follows an evaluation of 0.5 s and still took 0.1 s."""
    path = runs.plain()

    run = load_run(path)

    assert run.steps.duration_s == pytest.approx(np.full(20, 0.1))
    assert run.windows.samples_per_s == pytest.approx(np.full(20, 640.0))


def test_steps_done_again_after_a_resume_count_once(runs):
    """Of steps 7 to 10, lost in a kill and done again, only the second time counts; the loss of time is told."""
    events = [runs.start()]
    events += [runs.step(k, 0.1 * k, loss=1.0) for k in range(1, 7)]
    events.append(runs.checkpoint(6, 0.85))
    events += [runs.step(k, 0.25 + 0.1 * k, loss=50.0) for k in range(7, 11)]
    events.append(runs.start(session=2, step=6, elapsed_s=0.85))
    events += [runs.step(k, 0.25 + 0.2 * k, loss=2.0) for k in range(7, 13)]
    path = runs.write("resumed", events)

    run = load_run(path)

    assert run.totals.steps == 12
    assert run.repeated_steps == 4
    assert run.steps.loss.tolist() == [1.0] * 6 + [2.0] * 6
    assert len(run.sessions) == 2
    assert run.elapsed_s == pytest.approx(0.25 + 0.2 * 12)
    assert run.end is None


def test_a_session_that_was_killed_before_its_first_step_leaves_the_time_of_the_checkpoint(runs):
    """A resume that got nowhere counts the time up to its checkpoint, not what was superseded."""
    ended = End(step=3, reason="failed", exit_code=1, elapsed_s=9.5)
    events = [runs.start(), runs.step(1, 0.1), runs.checkpoint(1, 0.15), runs.step(2, 0.2), runs.step(3, 9.0), ended]
    path = runs.write("again", [*events, runs.start(session=2, step=1, elapsed_s=0.15)])

    run = load_run(path)

    assert run.elapsed_s == 0.15
    assert run.totals.steps == 1


def test_each_repetition_counts_from_where_its_session_had_come(runs):
    """Steps 3 and 4 were lost in the first kill, and step 3 once more in the second."""
    first = [runs.start(), *[runs.step(k, 0.1 * k) for k in range(1, 5)]]
    third, fourth = runs.step(3, 0.3), runs.step(4, 0.4)
    path = runs.write("thrice", [*first, runs.start(2, 2, 0.2), third, runs.start(3, 2, 0.2), third, fourth])

    run = load_run(path)

    assert run.repeated_steps == 3
    assert run.totals.steps == 4


def test_the_end_of_an_earlier_session_is_not_the_end_of_the_run(runs):
    """A run that was interrupted, resumed and killed has no recorded end."""
    ended = End(step=1, reason="interrupted", exit_code=130, elapsed_s=0.2)
    path = runs.write("killed", [runs.start(), runs.step(1, 0.1), ended, runs.start(2, 1, 0.2), runs.step(2, 0.3)])

    run = load_run(path)

    assert run.end is None


def test_a_torn_last_line_is_passed_over_and_told(runs):
    """What was written whole is read; the torn rest is a remark, not an error."""
    path = runs.write("torn", [runs.start(), runs.step(1, 0.1)], tail=b'{"type":"step","step":2,"ep')

    run = load_run(path)

    assert run.totals.steps == 1
    assert any("torn" in remark for remark in run.remarks)


def test_a_run_without_any_event_file_loads(runs):
    """A run that was killed at once has its settings and nothing else."""
    path = runs.write("nothing", [])
    (path / "events" / "rank-00000.jsonl").unlink()

    run = load_run(path)

    assert run.totals.steps == 0
    assert run.elapsed_s is None
    assert "before its first event" in run.remarks[0]


def test_a_directory_that_is_no_run_is_refused(tmp_path):
    """The message names the directory and says what it lacks."""
    with pytest.raises(PacelineError) as caught:
        load_run(tmp_path)

    assert str(tmp_path) in caught.value.what
    assert "run.json" in caught.value.why


def test_a_long_run_is_thinned_without_losing_totals_or_extremes(runs):
    """Of 10,007 steps at most 3 a window stay; sums, the spike, the dip, first and last step are exact."""
    losses = [1.0 + 0.001 * math.sin(k) for k in range(1, 10_008)]
    losses[4321] = 99.0
    losses[8765] = 0.001
    events = [runs.start()] + [runs.step(k, 0.1 * k, loss=loss) for k, loss in enumerate(losses, start=1)]
    path = runs.write("long", events)

    run = load_run(path, limit=100)

    assert 50 <= len(run.windows.step) <= 101
    assert len(run.steps.step) <= 3 * 101
    assert (run.steps.step[0], run.steps.step[-1]) == (1, 10_007)
    assert run.steps.loss.max() == 99.0
    assert run.steps.step[run.steps.loss.argmax()] == 4322
    assert run.steps.loss.min() == 0.001
    assert run.totals.steps == 10_007
    assert run.totals.samples == 64 * 10_007
    assert run.totals.data_s == pytest.approx(10_007 * 0.010)
    assert run.totals.backward_s == pytest.approx(10_007 * 0.030)
    assert (run.windows.loss * run.windows.count).sum() == pytest.approx(64 * math.fsum(losses))
    assert run.windows.samples_per_s == pytest.approx(np.full(len(run.windows.step), 640.0))


def test_memory_does_not_grow_with_the_file(runs):
    """A file of 25 MB is read within 4 MB."""
    path = runs.write("big", [runs.start()])
    line = (
        b'{"type":"step","step":%d,"epoch":0,"samples":%d,"count":64.0,"loss":1.2345678901234567,"lr":0.1,'
        b'"elapsed_s":%d.5,"data_s":0.0123456789,"forward_s":0.0123456789,"backward_s":0.0123456789,'
        b'"update_s":0.0123456789,"grad_norm":null,"a_later_field":"%s"}\n'
    )
    with (path / "events" / "rank-00000.jsonl").open("ab") as file:
        for k in range(1, 50_001):
            file.write(line % (k, 64 * k, k, b"x" * 250))
        size = file.tell()
    load_run(runs.plain())  # what is imported on first use is not the reader's

    tracemalloc.start()
    run = load_run(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert size > 25e6
    assert run.totals.steps == 50_000
    assert peak < 4e6


def test_a_long_list_of_notes_is_cut_and_told(runs):
    """A run that notes something at each step neither fills memory nor loses that fact."""
    path = runs.write("chatty", [runs.start(), *[Note(message=f"note {k}") for k in range(130)]])

    run = load_run(path)

    assert len(run.notes) == 100
    assert "30 further note(s) are not shown" in run.remarks


def test_a_sample_of_many_numbers_is_spread_evenly():
    """Above its limit a sample holds every second, fourth, ... number, from the first on."""
    sample = Sample(limit=8)

    for value in range(21):
        sample.add(value)

    assert list(sample.values()) == [0, 4, 8, 12, 16, 20]
    assert sample.seen == 21
