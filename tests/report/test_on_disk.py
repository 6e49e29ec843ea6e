"""A report looks at the disk as well as at the events: what stands, what is gone, and whether the run still lives."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paceline.cli.cards import propose
from paceline.records.rundir import RunDir, run_lock
from paceline.records.schema import End
from paceline.records.writer import EventWriter
from paceline.report.comparison import compare
from paceline.report.page.run_page import render_page
from paceline.report.run_record import load_run
from paceline.report.summary import newest_checkpoint, summarise


def events_of(path: Path) -> Path:
    """Rank 0's."""
    return RunDir(path).events()


@pytest.mark.parametrize("how", ["deleted", "damaged", "directory deleted"])
def test_whole_checkpoints_are_listed_whatever_became_of_the_events(runs, how: str) -> None:
    """Events are what happened, checkpoints are what one can go on from."""
    path = runs.plain(info=runs.info("digits"))
    if how == "damaged":
        events_of(path).write_bytes(b"\x00" * 4096)
    elif how == "deleted":
        events_of(path).unlink()
    else:
        shutil.rmtree(events_of(path).parent)

    run = load_run(path)
    summary = summarise(run)

    assert summary.where.checkpoint == str(path / "checkpoints" / "step-00000020")
    assert newest_checkpoint(summary).endswith("step-00000020 (7 bytes, 1 on disk)")
    assert f"paceline train digits --resume {path}" in [step.command for step in propose(summary, run.info)]
    assert "how it ended is not known" in summary.ended
    assert "step-00000020 (7 bytes, 1 on disk)" in render_page([run], [summary], compare([run], [summary]))


def test_checkpoints_that_are_gone_are_not_offered(runs) -> None:
    """The events say that one was written; it was deleted since, so there is nothing to resume from."""
    path = runs.write("stopped", [runs.start(), runs.step(1, 0.1), runs.checkpoint(1, 0.4)])
    shutil.rmtree(path / "checkpoints" / "step-00000001")

    run = load_run(path)
    summary = summarise(run)

    assert summary.where.checkpoint is None
    assert newest_checkpoint(summary) == "none on disk (1 written)"
    assert [step.command for step in propose(summary, run.info)] == [f"paceline report {path}"]


def test_a_checkpoint_whose_file_was_cut_is_named_and_an_older_one_is_offered(runs) -> None:
    """Sizes are compared with the manifest; contents only when a checkpoint is loaded."""
    path = runs.write("cut", [runs.start(), runs.checkpoint(1, 0.4), runs.checkpoint(2, 0.6)])
    (path / "checkpoints" / "step-00000002" / "model.safetensors").write_bytes(b"we")

    summary = summarise(load_run(path))

    assert summary.where.checkpoint == str(path / "checkpoints" / "step-00000001")
    assert any(
        "step-00000002 cannot be used: model.safetensors has 2 bytes instead of 7" in w for w in summary.warnings
    )


def test_the_report_names_the_rank_that_failed_by_itself(runs) -> None:
    """Rank 0 only lost its connection."""
    failed = {"step": 1, "reason": "failed", "exit_code": 1, "elapsed_s": 0.3}
    lost = End(message="RuntimeError: Connection closed by peer [127.0.0.1]:1", **failed)
    path = runs.write("failed", [runs.start(), runs.step(1, 0.1), lost])
    with EventWriter(RunDir(path).events(1)) as writer:
        writer.write(End(message="IndexError: label 7 is out of range", **failed))

    assert summarise(load_run(path)).ended == "Failed at step 1. Rank 1: IndexError: label 7 is out of range"


def test_a_run_without_an_end_was_killed_only_when_nobody_holds_its_lock(runs) -> None:
    """The lock is the kernel's: it is free as soon as its holder is dead, however it died."""
    path = runs.write("open", [runs.start(), runs.step(1, 0.1)])

    with run_lock(RunDir(path)):
        alive = summarise(load_run(path)).ended
    dead = summarise(load_run(path)).ended

    assert alive == "It is still running, after step 1."
    assert dead == "No end was recorded after step 1: it was killed."
