"""What runs tell: times without the warm-up, when a target was met, and whether runs belong together."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from paceline.plan.rows import WARM_UP, reached_of, require_alike, require_one_training, timing_of
from paceline.records.errors import PacelineError
from paceline.records.observed import StepTiming
from paceline.records.rundir import RunDir, read_info, write_info
from paceline.records.schema import End, Start
from tests.plan.runs import step, training, write_events


def test_the_median_step_leaves_out_the_warm_up_and_short_batches(tmp_path: Path) -> None:
    """Ten slow steps at first, and a short batch that takes no time, do not count."""
    times = [9.0] * WARM_UP + [0.2, 0.1, 0.3] * 10
    path = training(tmp_path / "a", workers=2, micro=16, times=times)
    events = [Start(session=1, time_unix_s=0.0, world=2, step=0)]
    events += [step(n, 32 * n - 7 * (n > 30), 0.0, 1e-6 if n == 31 else t) for n, t in enumerate(times, start=1)]
    write_events(RunDir(path), events)

    found = timing_of(path)

    assert found.step_s == pytest.approx(0.2)
    assert found.setting.workers == 2
    assert found.setting.batch == 32
    assert (len(found.times), found.size_bytes) == (29, 4_000_000)
    assert 0 < found.spread < 0.6


def test_steps_that_an_observer_timed_are_read_as_the_trainers_are(tmp_path: Path) -> None:
    """Of a script under `paceline run`: whole batches only, where samples were seen; what was not timed is left out."""
    path = training(tmp_path / "run", workers=2, micro=32, verb="run", task=None)
    timings = [StepTiming(step=n, samples=64 * n, duration_s=9.0 if n <= WARM_UP else 0.02) for n in range(1, 30)]
    short = StepTiming(step=30, samples=64 * 29 + 5, duration_s=0.001, source="hooks")
    unseen = [StepTiming(step=31), StepTiming(duration_s=0.02), StepTiming(step=40, duration_s=0.02, sampled=True)]
    write_events(RunDir(path), [Start(session=1, time_unix_s=0.0, world=2, step=0), *timings, short, *unseen])

    timing = timing_of(path)

    assert (timing.step_s, len(timing.times)) == (0.02, 29 - WARM_UP + 2)


def test_each_session_warms_up_again(tmp_path: Path) -> None:
    """A resumed run's first steps are as slow as a new one's."""
    path = training(tmp_path / "a", micro=32)
    first = [step(n, 32 * n, 0.0, 0.1) for n in range(1, 31)]
    second = [step(n, 32 * n, 0.0, 9.0 if n <= 40 else 0.1) for n in range(31, 61)]
    again = Start(session=2, time_unix_s=0.0, world=1, step=30)
    write_events(RunDir(path), [Start(session=1, time_unix_s=0.0, world=1, step=0), *first, again, *second])

    found = timing_of(path)

    assert len(found.times) == 40
    assert np.allclose(found.times, 0.1)


def test_a_short_run_and_one_of_another_verb_are_refused(tmp_path: Path) -> None:
    """With the command that makes a fitting one."""
    short = training(tmp_path / "a", times=[0.1] * 15)
    other = training(tmp_path / "b", times=[0.1] * 50)
    write_info(RunDir(other), msgspec.structs.replace(read_info(other), verb="landscape"))

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


def test_an_evaluation_that_is_no_number_is_passed_over(tmp_path: Path) -> None:
    """The line is drawn from the one before it; without one the target is met where it is first seen."""
    path = training(tmp_path / "a", evaluations=[(10, 0.5), (20, math.nan), (30, 0.9)])
    other = training(tmp_path / "b", evaluations=[(10, math.nan), (20, 0.9)])

    assert reached_of(path, "accuracy", 0.7, rising=True).steps == pytest.approx(20)
    assert reached_of(other, "accuracy", 0.7, rising=True).steps == 20


def test_a_run_that_diverged_before_its_first_evaluation_missed_the_target(tmp_path: Path) -> None:
    """One that was merely stopped there says nothing, and is refused with what to do."""
    for name, reason in (("diverged", "diverged"), ("stopped", "interrupted")):
        path = training(tmp_path / name)
        start = Start(session=1, time_unix_s=0.0, world=1, step=0)
        write_events(RunDir(path), [start, End(step=3, reason=reason, exit_code=1, elapsed_s=1.0)])

    assert reached_of(tmp_path / "diverged", "accuracy", 0.9, rising=True).steps is None
    with pytest.raises(PacelineError, match="no evaluation of accuracy") as refused:
        reached_of(tmp_path / "stopped", "accuracy", 0.9, rising=True)
    assert "--resume" in str(refused.value.hint)


def test_runs_of_different_trainings_are_not_mixed(tmp_path: Path) -> None:
    """All that differs is named."""
    one, two = training(tmp_path / "a"), training(tmp_path / "b", precision="bf16", config={"compress": "bf16"})
    plain = training(tmp_path / "c", config={"compress": "none"})

    assert require_alike([one, one]).name == "digits"
    with pytest.raises(PacelineError, match="precision: bf16, fp32; --compress: bf16, none"):
        require_alike([plain, two])


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        *(("schedule", "constant", "cosine"), ("lr_rule", "none", "sqrt"), ("momentum", 0.0, 0.9)),
        *(("weight_decay", 0.0, 0.1), ("holdout", 0, 500), ("train_samples", None, 500), ("augment", "none", "crop")),
        *(("batch_norm", "local", "sync"), ("compress", "none", "bf16"), ("init_from", None, "runs/a")),
    ],
)
def test_runs_to_a_target_have_one_recipe(tmp_path: Path, name: str, one: object, other: object) -> None:
    """A setting that decides how many steps a target takes has to be the same."""
    runs = [training(tmp_path / str(value), config={name: value}) for value in (one, other)]

    with pytest.raises(PacelineError, match=f"--{name.replace('_', '-')}: "):
        require_one_training(runs)


def test_batch_rate_seed_and_length_may_differ(tmp_path: Path) -> None:
    """Those are what a plan of the batch is about; what a step takes may differ as well."""
    own = {"global_batch": 64, "lr": 0.1, "seed": 1, "epochs": 3, "target": "accuracy=0.9", "monitor": "none"}
    other = {"global_batch": 512, "lr": 0.4, "seed": 2, "epochs": 9, "target": None, "monitor": "sharpness"}
    runs = [training(tmp_path / str(settings["seed"]), config=settings) for settings in (own, other)]

    assert require_one_training(runs).name == "digits"
    with pytest.raises(PacelineError, match="--monitor: none, sharpness"):
        require_alike(runs)
