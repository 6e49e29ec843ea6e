"""From flags to a request, before torch is loaded: which run is gone on with, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.train_request import settle_request
from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir, write_info
from paceline.records.schema import SCHEMA, RunInfo
from paceline.train.config import TrainConfig


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """A run of digits in the directory `out` of the present one."""
    monkeypatch.chdir(tmp_path)
    info = RunInfo(
        schema=SCHEMA,
        verb="train",
        name="digits",
        command=["paceline"],
        started_at="2026-01-01T00:00:00+00:00",
        versions={},
        config=dataclasses.asdict(TrainConfig("digits", epochs=3)),
    )
    write_info(RunDir("out"), info)
    return RunDir("out")


@pytest.mark.parametrize("spelling", ["out", "./out", "out/", "../{name}/out", "{absolute}"])
@pytest.mark.parametrize("resume", ["auto", "out", "./out/"])
def test_a_run_directory_may_be_spelled_in_any_way(run: RunDir, tmp_path: Path, spelling: str, resume: str) -> None:
    """The same command can be repeated until it is done."""
    path = spelling.format(name=tmp_path.name, absolute=run.path.absolute())

    config, found = settle_request({"task": "digits", "resume": resume, "run_dir": path})

    assert found.path.resolve() == run.path.resolve()
    assert config.epochs == 3


def test_two_directories_are_refused(run: RunDir) -> None:
    """Which one was meant cannot be told."""
    with pytest.raises(PacelineError, match="--resume out and --run-dir other name two directories"):
        settle_request({"task": "digits", "resume": str(run.path), "run_dir": "other"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"workers": "4", "global_batch": 64, "accumulate": 32}, "cannot be shared by 4 workers in 32 micro-batches"),
        ({"workers": "4", "global_batch": 64, "accumulate": -1}, "--accumulate -1 is out of range"),
        ({"base_batch": 32}, "--base-batch takes no part in this training"),
    ],
)
def test_what_can_be_known_to_be_wrong_is_refused_at_once(run: RunDir, given: dict[str, Any], words: str) -> None:
    """A new run is not begun; one that there is may be gone on with, whatever it was begun with."""
    with pytest.raises(PacelineError, match=words):
        settle_request({"task": "digits", **given})
