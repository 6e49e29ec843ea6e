"""A training with long pauses and no fault gives no alarm."""

from __future__ import annotations

import pytest

from no_false_alarm import QuietRun, measure, table


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_five_minutes_of_evaluations_checkpoints_and_uneven_steps_give_no_alarm() -> None:
    """Steps vary tenfold, and a checkpoint of one rank takes longer than the patience."""
    run = measure(minutes=5)

    assert run.quiet, run
    assert run.seconds >= 300
    assert run.steps > 200
    assert run.evaluations > 5
    assert run.checkpoints >= 4
    assert run.longest_pause_s > 10


def test_a_run_with_an_alarm_is_not_quiet() -> None:
    """Nor is one that failed; the table lists each alarm."""
    numbers = {"ranks": 2, "seconds": 60.0, "steps": 9, "evaluations": 1, "checkpoints": 1, "longest_pause_s": 9.0}
    quiet = QuietRun(exit_code=0, hangs=[], findings=[], **numbers)
    loud = QuietRun(exit_code=0, hangs=["hang: rank 1 is stopped"], findings=["DP122: same data"], **numbers)
    failed = QuietRun(exit_code=1, hangs=[], findings=[], **numbers)

    assert [each.quiet for each in (quiet, loud, failed)] == [True, False, False]
    assert table(loud)[-3:] == ["alarms         2", " " * 15 + "hang: rank 1 is stopped", " " * 15 + "DP122: same data"]
