"""What runs tell: times without the warm-up, when a target was met, and whether runs belong together."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from paceline.plan.rows import WARM_UP, reached_of, require_alike, timing_of
from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir, read_info, write_info
from paceline.records.schema import Start
from tests.plan.runs import step, training, write_events


def test_the_median_step_leaves_out_the_warm_up_and_short_batches(tmp_path: Path) -> None:
    """Ten slow steps at first, and a short batch that takes no time, do not count."""
    times = [9.0] * WARM_UP + [0.2, 0.1, 0.3] * 10
    path = training(tmp_path / "a", workers=2, micro=16, times=times)
    events = [Start(session=1, time_unix_s=0.0, world=2, step=0)]
    events += [step(n, 32 * n - 7 * (n > 30), 0.0, 1e-6 if n == 31 else t) for n, t in enumerate(times, start=1)]
    write_events(RunDir(path), events)

    found = timing_of(path)

    assert found.observed.step_s == pytest.approx(0.2)
    assert found.observed.setting.workers == 2
    assert found.observed.setting.batch == 32
    assert found.observed.times is None
    assert (found.steps, found.size_bytes) == (29, 4_000_000)
    assert 0 < found.spread < 0.6


def test_each_session_warms_up_again(tmp_path: Path) -> None:
    """A resumed run's first steps are as slow as a new one's."""
    path = training(tmp_path / "a", micro=32)
    first = [step(n, 32 * n, 0.0, 0.1) for n in range(1, 31)]
    second = [step(n, 32 * n, 0.0, 9.0 if n <= 40 else 0.1) for n in range(31, 61)]
    again = Start(session=2, time_unix_s=0.0, world=1, step=30)
    write_events(RunDir(path), [Start(session=1, time_unix_s=0.0, world=1, step=0), *first, again, *second])

    found = timing_of(path)

    assert found.steps == 40
    assert np.allclose(found.observed.times, 0.1)


def test_a_short_run_and_one_of_another_verb_are_refused(tmp_path: Path) -> None:
    """With the command that makes a fitting one."""
    short = training(tmp_path / "a", times=[0.1] * 15)
    other = training(tmp_path / "b", times=[0.1] * 50)
    write_info(RunDir(other), msgspec.structs.replace(read_info(other), verb="run"))

    with pytest.raises(PacelineError, match="5 steps that can be timed") as refused:
        timing_of(short)
    with pytest.raises(PacelineError, match="no run of paceline train"):
        timing_of(other)

    assert "--steps" in str(refused.value.hint)


def test_a_target_is_met_between_two_evaluations(tmp_path: Path) -> None:
    """On the straight line between them; at the first evaluation where that is above already; or never."""
    path = training(tmp_path / "a", micro=10, evaluations=[(10, 0.5), (20, 0.7), (30, 0.9)])

    found = reached_of(path, "accuracy", 0.75, rising=True)

    assert (found.steps, found.samples) == (pytest.approx(22.5), pytest.approx(225))
    assert reached_of(path, "loss", 0.4, rising=False).steps == pytest.approx(15)
    assert reached_of(path, "accuracy", 0.4, rising=True).steps == 10
    assert reached_of(path, "accuracy", 0.95, rising=True).steps is None
    with pytest.raises(PacelineError, match="no evaluation of f1"):
        reached_of(path, "f1", 0.5, rising=True)


def test_runs_of_different_trainings_are_not_mixed(tmp_path: Path) -> None:
    """What differs is named."""
    one, two = training(tmp_path / "a"), training(tmp_path / "b", precision="bf16")

    assert require_alike([one, one]).name == "digits"
    with pytest.raises(PacelineError, match="precision: bf16, fp32"):
        require_alike([one, two])
