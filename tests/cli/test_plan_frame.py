"""What the commands of `paceline plan` share: what may change when one is gone on with, and how long it still takes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.job import refuse_torchrun
from paceline.cli.main import call
from paceline.cli.parser import click_command
from paceline.cli.plan_frame import open_plan, progress_of_trainings, settled
from paceline.cli.plan_trends import run_trends
from paceline.cli.verbs import find
from paceline.plan.batch_config import BatchConfig
from paceline.plan.data_config import DataConfig
from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import RunDir, write_info
from paceline.records.schema import RunInfo
from paceline.train.config import TrainConfig

STORED = dataclasses.asdict(DataConfig("digits", holdout=5000, lr=0.1, workers="2"))


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A plan of data with those settings."""
    monkeypatch.chdir(tmp_path)
    open_plan("data", "digits", STORED, "P", None)
    return "P"


def test_what_is_not_said_anew_is_what_it_was(plan: str) -> None:
    """And what may change is what was given; saying again what was so is no change."""
    given = {"resume": plan, "workers": "1", "holdout": 5000, "run_dir": "./P"}

    settings = settled("data", DataConfig, given)

    assert dataclasses.asdict(settings) == {**STORED, "workers": "1", "resume": "P", "run_dir": "./P"}


@pytest.mark.parametrize(
    ("given", "had", "asked"),
    [
        ({"holdout": 0}, "--holdout 5000", "--holdout 0"),
        ({"epochs": 3}, "no --epochs", "--epochs 3"),
        ({"lr": 0.0}, "--lr 0.1", "--lr 0.0"),
        ({"task": "linear"}, "TASK digits", "TASK linear"),
    ],
)
def test_every_change_of_what_decides_the_result_is_refused(
    plan: str, given: dict[str, Any], had: str, asked: str
) -> None:
    """Zero and no among them, in the words in which it is typed."""
    with pytest.raises(PacelineError) as refused:
        settled("data", DataConfig, {"resume": plan, **given})

    assert refused.value.what == f"the plan to be resumed has {had}, not {asked}"
    assert refused.value.exit_code == Exit.USAGE


def test_arguments_and_switches_are_compared_as_well(tmp_path: Path) -> None:
    """A list of runs that is left out is what it was."""
    path = str(tmp_path / "B")
    open_plan("batch", "digits", dataclasses.asdict(BatchConfig(["a", "b"], confirm=True)), path, None)

    settings = settled("batch", BatchConfig, {"resume": path})

    assert settings.targets == ["a", "b"]
    with pytest.raises(PacelineError, match="has TARGETS a b, not TARGETS c"):
        settled("batch", BatchConfig, {"targets": ["c"], "resume": path})
    with pytest.raises(PacelineError, match="has --confirm, not --no-confirm"):
        settled("batch", BatchConfig, {"confirm": False, "resume": path})


def test_two_directories_are_refused(plan: str) -> None:
    """One to go on in and one to write to: neither is ignored."""
    with pytest.raises(PacelineError, match="--resume P and --run-dir Q name two directories"):
        settled("data", DataConfig, {"resume": plan, "run_dir": "Q"})


def test_another_kind_of_run_is_refused_before_its_settings_are_read(plan: str) -> None:
    """A training's settings are no plan's; and a plan of data is none of batch sizes."""
    config = dataclasses.asdict(TrainConfig(task="digits"))
    info = RunInfo(schema=1, verb="train", name="digits", command=[], started_at="", versions={}, config=config)
    write_info(RunDir("T"), info)

    for kind, path, made_by in (("data", "T", "paceline train"), ("batch", plan, "paceline plan data")):
        with pytest.raises(PacelineError, match="is no plan of this kind") as refused:
            settled(kind, DataConfig, {"resume": path, "seeds": 2})

        assert refused.value.why == f"it was made by: {made_by}"
        assert f"paceline plan {kind}" in refused.value.hint


@pytest.mark.parametrize("change", [{"colour": "red"}, {"seeds": "three"}])
def test_settings_of_another_version_are_refused_in_one_message(change: dict[str, Any]) -> None:
    """Unknown ones may have decided the result; values of another type cannot be used."""
    settings = {"task": "digits", "seeds": 2, "lr": 1}

    assert DataConfig.from_dict(settings) == DataConfig(task="digits", seeds=2, lr=1.0)
    assert BatchConfig.from_dict({"targets": ["a"]}) == BatchConfig(targets=["a"])
    with pytest.raises(PacelineError, match="cannot be read"):
        DataConfig.from_dict(settings | change)


def test_time_left_is_reckoned_from_what_this_call_has_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight of ten were done by an earlier call; one more took two minutes, so the last one takes two."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    with progress_of_trainings(10, "text") as tell:
        tell(8, 10, "i")
        now[0] += 120
        tell(9, 10, "j")
        now[0] += 120
        tell(10, 10, "")

    lines = capsys.readouterr().err.splitlines()[1:]
    assert lines == ["8 of 10 done: i", "9 of 10 done, about 2 min left: j", "10 of 10 done"]


def test_ranks_of_torchrun_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would start all jobs; one variable alone is somebody else's."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "0")
    refuse_torchrun("paceline plan data")
    monkeypatch.setenv("WORLD_SIZE", "2")

    with pytest.raises(PacelineError, match="paceline plan data starts its own workers") as refused:
        refuse_torchrun("paceline plan data")

    assert refused.value.exit_code == Exit.USAGE


def test_run_json_of_a_plan_says_what_it_is(plan: str) -> None:
    """Verb, kind and settings; a second plan does not take its place."""
    info = json.loads(Path(plan, "run.json").read_text())

    assert (info["verb"], info["facts"]["kind"], info["config"]["holdout"]) == ("plan", "data", 5000)
    with pytest.raises(PacelineError, match="already holds a run"):
        open_plan("data", "digits", STORED, plan, None)


def test_trends_leave_the_directory_that_their_help_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`runs/<date>_<time>_plan-trends-resnet-50`, where --run-dir is left out."""
    monkeypatch.chdir(tmp_path)
    options = click_command(find(["plan", "trends"])[1], run_trends).params
    (said,) = [option.help for option in options if option.name == "run_dir"]

    assert call(["plan", "trends", "--format", "json"]) == Exit.OK

    (made,) = Path("runs").iterdir()
    assert f"runs/<date>_<time>_{made.name.split('_', 2)[2]}." in said
