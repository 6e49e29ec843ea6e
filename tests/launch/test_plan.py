"""A plan of `paceline run` is data: making one changes, writes and starts nothing."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest

from paceline.launch.plan import RUN_DIR_VARIABLE, LaunchPlan, plan_launch
from paceline.records.errors import PacelineError

NOW = datetime.datetime(2026, 3, 1, 9, 30)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A script in the working directory, and none of the variables that a plan adds."""
    monkeypatch.chdir(tmp_path)
    for name in ("OMP_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.py").write_text("raise SystemExit('it ran')")
    return "train.py"


def plan(*argv: str) -> LaunchPlan:
    """At a fixed time."""
    return plan_launch(argv, NOW)


def test_a_plan_holds_what_would_be_started(script: str) -> None:
    """The worker's command, the number of workers, where they meet, and where the run is recorded."""
    found = plan("--nproc-per-node", "3", "--max-restarts", "2", script, "--lr", "0.1")

    assert found.arguments[-3:] == (script, "--lr", "0.1")
    assert (found.workers, found.nodes, found.world) == (3, (1, 1), 3)
    assert (found.config.nproc_per_node, found.config.max_restarts) == (3, 2)
    assert (found.name, found.run_dir) == ("train", Path("runs/2026-03-01_09-30-00_train"))
    assert found.log_dir == "runs/2026-03-01_09-30-00_train/logs"
    assert found.added_environment[RUN_DIR_VARIABLE] == str(Path.cwd() / found.run_dir)


@pytest.mark.parametrize("flags", [[], ["--no-tuning"], ["--run-dir", "here"]])
def test_planning_changes_neither_the_environment_nor_the_disk(script: str, flags: list[str]) -> None:
    """torchrun sets OMP_NUM_THREADS while it reads its flags; a plan only says so."""
    before, files = dict(os.environ), sorted(Path.cwd().rglob("*"))

    found = plan("--nproc-per-node", "2", *flags, script)

    assert dict(os.environ) == before
    assert sorted(Path.cwd().rglob("*")) == files
    assert found.added_environment["OMP_NUM_THREADS"] == "1"
    assert bool(found.settings) == ("--no-tuning" not in flags)


def test_each_setting_of_a_plan_has_its_reason(script: str) -> None:
    """And none is set that the user has set."""
    assert all(each.why for each in plan("--nproc-per-node", "2", script).settings)


def test_a_users_own_thread_count_is_left_alone(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by the plan's settings nor by torchrun's."""
    monkeypatch.setenv("OMP_NUM_THREADS", "5")

    found = plan("--nproc-per-node", "2", script)

    assert "OMP_NUM_THREADS" not in {each.name for each in found.settings}
    assert found.added_environment["OMP_NUM_THREADS"] == "5"


def test_a_plan_is_refused_where_a_run_is_recorded_already(script: str) -> None:
    """Nothing in that directory is touched."""
    Path("old").mkdir()
    Path("old/run.json").write_text("{}")

    with pytest.raises(PacelineError, match="holds a run already"):
        plan("--run-dir", "old", script)
