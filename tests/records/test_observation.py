"""observation.json of a run directory."""

import pytest

from paceline.records.errors import PacelineError
from paceline.records.observation import ObservedRun, Unseen, WatchedRanks, read_observation, write_observation
from paceline.records.rundir import RunDir
from paceline.records.schema import Finding


@pytest.fixture
def run(tmp_path):
    """A run directory without anything in it."""
    return RunDir(tmp_path / "run")


def test_what_is_written_is_read(run):
    """Findings, what was watched, what was not seen."""
    finding = Finding(code="DP121", name="no-sampler", severity="error", message="m", advice="a", evidence={"n": 8})
    written = ObservedRun(
        exit_code=1,
        run="runs/a",
        ranks=WatchedRanks(observed=[0], world=2),
        steps=9,
        findings=[finding],
        watched={"data": ["8 samples"], "files": []},
        not_observed=[Unseen(what="rank 1", why="python -I", by_launcher=True), Unseen(what="files", why="none")],
    )

    write_observation(run, written)

    assert read_observation(run) == written


def test_a_run_without_the_file_has_no_observation(run):
    """As one of an earlier version."""
    assert read_observation(run) is None


@pytest.mark.parametrize("content", ["", "{", '{"steps": 1}', "[]"])
def test_a_damaged_file_is_refused_with_what_to_do(run, content):
    """The command that makes it again is named."""
    run.path.mkdir()
    run.observation.write_text(content)

    with pytest.raises(PacelineError) as raised:
        read_observation(run)

    assert raised.value.hint == f"paceline audit {run.path} makes it again"


def test_fields_of_a_later_version_are_passed_over(run):
    """The vocabulary is open."""
    run.path.mkdir()
    run.observation.write_text(
        '{"exit_code": 0, "run": "r", "ranks": {"observed": [], "world": 0, "new": 1}, "steps": 0, "later": []}'
    )

    assert read_observation(run).findings == []
