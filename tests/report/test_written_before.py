"""Run directories that earlier versions wrote are read as they were.

`written/train` has two sessions, the second resumed from step 3, and `written/run` two attempts: both of November 2026,
before sessions said `resumed_from`.
"""

from __future__ import annotations

from pathlib import Path

from paceline.report.run_record import load_run
from paceline.report.summary import summarise

WRITTEN = Path(__file__).with_name("written")


def test_a_resumed_training_of_an_earlier_version_counts_each_step_once() -> None:
    """Its second session goes on from step 3 and did steps 4 to 6 again."""
    run = load_run(WRITTEN / "train")

    assert [session.step for session in run.sessions] == [0, 3]
    assert run.steps.step.tolist() == [1, 2, 3, 4, 5, 6]
    assert run.repeated_steps == 3
    assert [event.step for event in run.checkpoints] == [3, 6]
    assert run.evaluations.step.tolist() == [3, 6]
    assert (run.end.reason, run.end.exit_code, run.remarks) == ("finished", 0, [])
    assert summarise(run).ended == "Finished at step 6."


def test_a_job_of_an_earlier_version_shows_its_attempts() -> None:
    """With the first cause of each, and how it ended."""
    run = load_run(WRITTEN / "run")
    launch = summarise(run).launch

    assert [each.outcome for each in launch.attempts] == ["failed", "failed"]
    assert [each.cause.title for each in launch.attempts] == [
        "rank 1 failed first",
        "rank 0 lost another rank; the first cause is not known",
    ]
    assert dict(launch.attempts[0].cause.rows)["at"] == "/home/me/s.py:6"
    assert (launch.steps, launch.world, run.end.exit_code, run.remarks) == (None, 2, 1, [])
