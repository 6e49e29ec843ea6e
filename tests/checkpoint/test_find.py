"""A checkpoint that is not found: the message says what is there instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.checkpoint import manifest
from paceline.checkpoint.find import find_checkpoint
from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir, write_info
from paceline.records.schema import RunInfo


def a_run(path: Path, verb: str = "train") -> Path:
    """A run directory without checkpoints."""
    info = RunInfo(schema=1, verb=verb, name="digits", command=[], started_at="", versions={}, config={})
    write_info(RunDir(path), info)
    return path


def put(run: Path, step: int) -> Path:
    """A complete checkpoint."""
    manifest.write(run / "checkpoints", step, 1, "digits", {"model.safetensors": b"weights"})
    return run / "checkpoints" / manifest.directory_name(step)


def refused(path: Path, step: int | None = None) -> PacelineError:
    """What is said."""
    with pytest.raises(PacelineError) as caught:
        find_checkpoint(path, step)
    return caught.value


def test_the_newest_complete_one_is_found_and_one_by_its_step(tmp_path: Path) -> None:
    """A newer one without a manifest is passed over."""
    run = a_run(tmp_path / "run")
    first, second, third = (put(run, step) for step in (10, 20, 30))
    (third / "manifest.json").unlink()

    assert find_checkpoint(run, None) == (20, second)
    assert find_checkpoint(run, 10) == (10, first)


@pytest.mark.parametrize("step", [None, 10])
def test_a_mistyped_path_is_not_taken_for_a_run_without_checkpoints(step: int | None, tmp_path: Path) -> None:
    """It does not exist, or is no run: resuming it would be no way to make one."""
    (tmp_path / "folder").mkdir()

    missing, folder = refused(tmp_path / "typo", step), refused(tmp_path / "folder", step)

    assert missing.what == f"{tmp_path}/typo is not a run directory"
    assert missing.why == "there is no such directory"
    assert folder.why == "it has no run.json"
    assert "--resume" not in missing.hint + folder.hint


def test_a_run_of_another_verb_has_no_checkpoints(tmp_path: Path) -> None:
    """It is named."""
    assert "is a run of paceline plan" in refused(a_run(tmp_path / "plan", "plan")).what


def test_damage_is_the_reason_why_none_is_complete(tmp_path: Path) -> None:
    """Of the newest; with none at all the way to make one stays."""
    run, empty = a_run(tmp_path / "run"), a_run(tmp_path / "empty")
    put(run, 10)
    (put(run, 20) / "model.safetensors").write_bytes(b"torn")
    (run / "checkpoints" / "step-00000010" / "manifest.json").unlink()

    damaged, none = refused(run), refused(empty)

    assert damaged.what == none.what.replace("empty", "run") == f"{run} has no complete checkpoint"
    assert damaged.why == "step-00000020: model.safetensors has 4 bytes instead of 7"
    assert none.hint == f"paceline train --resume {empty}"


def test_a_torn_checkpoint_that_was_named_itself_is_called_one(tmp_path: Path) -> None:
    """Not a run without run.json."""
    path = put(a_run(tmp_path / "run"), 10)
    (path / "manifest.json").unlink()

    error = refused(path)

    assert error.what == f"the checkpoint {path} cannot be used"
    assert "never finished" in error.why


def test_a_step_that_is_not_there_lists_those_that_are(tmp_path: Path) -> None:
    """In order."""
    run = a_run(tmp_path / "run")
    for step in (20, 10):
        put(run, step)

    assert refused(run, 15).hint == "it has: 10, 20"
