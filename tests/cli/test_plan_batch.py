"""`paceline plan batch` where it trains: a task to a target, and branches of a run; a stand-in does the training."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Paceline

from paceline.cli.main import call
from paceline.records.errors import Exit
from paceline.records.plan_results import BatchResult, read_plan
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir, read_info
from paceline.records.schema import Evaluation
from tests.studies.parents import parent
from tests.studies.stand_in import loss_of_branch, steps_to_target

STAND_IN = Path(__file__).parents[1] / "studies" / "stand_in.py"
Calls = Callable[[], list[str]]
TASK = ("digits", "--target", "accuracy=0.9", "--train-workers", "1")
CONFIRM = ("run", "--confirm", "--train-workers", "1")


pytestmark = pytest.mark.usefixtures("here")


def plan_batch(*arguments: str) -> int:
    """The exit code."""
    return call(["plan", "batch", *arguments])


def result(path: str = "P") -> BatchResult:
    """What was left."""
    found = read_plan(path)
    assert isinstance(found, BatchResult)
    return found


def test_a_task_is_trained_at_three_batches_and_the_critical_one_is_found(
    calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sizes that digits' 1,437 samples bear; 64, where the stand-in takes twice the fewest steps and samples."""
    code = plan_batch(*TASK, "--run-dir", "P")

    shown, said = capsys.readouterr()
    assert code == 0, said
    left = result()
    assert [
        (point.batch, point.seed, point.steps) for point in sorted(left.points, key=lambda p: (p.batch, p.seed))
    ] == [(batch, seed, steps_to_target(batch, seed)) for batch in (16, 64, 256) for seed in (0, 1)]
    assert left.critical is not None
    assert left.critical.value == pytest.approx(64, rel=0.05)
    assert all("--workers 1" in each and "--schedule constant" in each for each in calls())
    assert {path.name for path in Path("P").iterdir()} >= {"run.json", "result.json", "report.html", "runs"}
    assert "digits" in shown
    assert read_info("P").facts["kind"] == "batch"


def test_a_stopped_sweep_goes_on_where_it_was(
    calls: Calls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code and next command; what was done is not done again, what was begun is resumed."""
    monkeypatch.setenv("STAND_IN_TROUBLE", "batch-64-seed-0=88")

    stopped = plan_batch(*TASK, "--seeds", "1", "--run-dir", "P")
    said = capsys.readouterr().err
    again = plan_batch("--resume", "P")

    assert (stopped, again) == (Exit.TERMINATED, 0)
    assert "next: paceline plan batch --resume P" in said
    assert [" --resume " in each for each in calls()] == [False, False, True, False]
    assert [point.batch for point in result().points] == [16, 64, 256]


def test_a_batch_at_which_a_training_diverged_is_no_evidence(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size is left out of the fit, and that is said."""
    monkeypatch.setenv("STAND_IN_TROUBLE", "batch-256-seed-0=99")

    code = plan_batch(*TASK, "--batches", "16,32,128,256", "--seeds", "1", "--run-dir", "P")

    left = result()
    assert code == 0
    assert [point.steps for point in left.points if point.batch == 256] == [None]
    assert left.critical is not None
    assert left.critical.value == pytest.approx(64, rel=0.05)
    assert any("256" in warning for warning in left.warnings)


def test_branches_settle_which_batch_the_runs_weights_bear(
    tmp_path: Path, calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    """128, where the stand-in's loss begins to grow: from one checkpoint, with equal samples, and no larger advice."""
    parent(tmp_path / "run")

    code = plan_batch(*CONFIRM, "--run-dir", "P")

    _, said = capsys.readouterr()
    assert code == 0, said
    left = result()
    # A fifth of 319,829 samples: for five sizes 6,396 a branch, too few for ten steps at 1,024; for four sizes 7,995.
    assert [(one.batch, one.seed) for one in left.branches] == [(b, s) for b in (64, 128, 256, 512) for s in (1, 2)]
    assert {one.samples for one in left.branches} == {15 * 512}
    assert [one.loss for one in left.branches] == [
        pytest.approx(loss_of_branch(one.batch, one.seed)) for one in left.branches
    ]
    assert left.recommendation is not None
    assert left.recommendation.batch <= 128
    assert any("1,024 were left out" in warning for warning in left.warnings)
    checkpoint = tmp_path / "run" / "checkpoints" / "step-00005000"
    assert len(calls()) == 8
    assert all(f"--init-from {checkpoint}" in each for each in calls())


def test_a_stopped_test_of_branches_goes_on_where_it_was(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the settings that it was made with."""
    parent(tmp_path / "run")
    monkeypatch.setenv("STAND_IN_TROUBLE", "branch-128-seed-1=88")

    stopped = plan_batch(*CONFIRM, "--batches", "128,256", "--seeds", "1", "--run-dir", "P")
    again = plan_batch("--resume", "P")

    assert (stopped, again) == (Exit.TERMINATED, 0)
    assert len(calls()) == 4
    assert [one.batch for one in result().branches] == [64, 128, 256]


def test_branches_that_diverged_do_not_hide_a_loss(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One at the smallest batch leaves the other to compare with; all of them leave nothing, with exit code 3."""
    parent(tmp_path / "run")
    monkeypatch.setenv("STAND_IN_TROUBLE", "branch-64-seed-1=99")
    some = plan_batch(*CONFIRM, "--batches", "128,256", "--run-dir", "P")
    capsys.readouterr()
    none = plan_batch(*CONFIRM, "--batches", "128", "--seeds", "1", "--run-dir", "Q")

    assert (some, none) == (0, Exit.DIVERGED)
    assert [one.loss is None for one in result().branches] == [True] + [False] * 5
    assert any("up to a batch of 128 " in note for note in result().evidence.notes)
    assert "every branch at a batch of 64 diverged" in capsys.readouterr().err


REFUSED = {
    "two sizes": (f"{' '.join(TASK)} --batches 64,256", "3 are needed"),
    "a batch beyond the data": (f"{' '.join(TASK)} --batches 64,256,1024", "a batch of 1,024 is more than one in 4"),
    "an unknown rule": (f"{' '.join(TASK)} --lr-rule square", "--lr-rule square is unknown"),
    "a rule of another optimizer": (f"{' '.join(TASK)} --lr-rule adam-sde", "does not hold for sgd"),
    "no length": (f"{' '.join(TASK)} --warmup long", "--warmup long is no length"),
    "no number": ("digits --target accuracy=0.9 --train-workers many", "--train-workers many"),
    "another metric": ("digits --target f1=0.9", "f1 is not measured"),
    "no plan of speed": (f"{' '.join(TASK)} --speed nowhere", "nowhere"),
    "a mistyped run": ("runs/typo", "runs/typo is neither a run directory nor a task"),
    "no checkpoint": ("bare --confirm", "bare has no complete checkpoint"),
    "no noise": ("quiet --confirm", "--accumulate 2"),
    "a short run": ("short --confirm", "too short for branches"),
    "a rule for branches": ("run --confirm --lr-rule linear", "--lr-rule would change nothing here"),
    "a large branch": ("run --confirm --batches 30000", "a batch of 30,000 is more than one in 4"),
    "sizes for no training": ("run --batches 64,128,256", "--batches would change nothing here"),
    "seeds for no training": ("run --seeds 5", "--seeds would change nothing here"),
}


def test_what_cannot_be_right_trains_nothing_and_leaves_nothing(
    tmp_path: Path, calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, one message, no directory: the corrected command is not in its own way."""
    parent(tmp_path / "run")
    parent(tmp_path / "bare", step=0)
    parent(tmp_path / "quiet", noise=None)
    parent(tmp_path / "short", step=20)
    before = sorted(path.name for path in tmp_path.iterdir())

    for name, (arguments, message) in REFUSED.items():
        code = plan_batch(*shlex.split(arguments), "--run-dir", "P")

        shown, said = capsys.readouterr()
        assert (name, code, shown) == (name, Exit.USAGE, "")
        assert message in said, (name, said)
        assert "next:" in said, name
        assert sorted(path.name for path in tmp_path.iterdir()) == before, name


def test_under_torchrun_nothing_is_trained(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trainings would join the group of the job; runs that are only read are no matter."""
    parent(tmp_path / "run")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")

    codes = [plan_batch(*TASK), plan_batch(*CONFIRM), plan_batch("run", "--run-dir", "P")]

    assert codes == [Exit.USAGE, Exit.USAGE, 0]
    assert capsys.readouterr().err.count("not under torchrun") == 2
    assert calls() == []


def test_a_test_of_branches_is_named_after_its_run(tmp_path: Path, calls: Calls) -> None:
    """Without --run-dir it stands below runs/."""
    parent(tmp_path / "run")

    code = plan_batch(*CONFIRM, "--batches", "128", "--seeds", "1")

    assert code == 0
    assert [path.name.partition("_plan-batch-")[2] for path in Path("runs").iterdir()] == ["run"]


@pytest.mark.slow
def test_real_branches_train_as_their_run_did(tmp_path: Path, paceline: Paceline) -> None:
    """digits, whose rate a rule made: rate and recipe of the run at its batch, equal samples, losses of their own."""
    recipe = ("--global-batch", "32", "--base-batch", "64", "--lr-rule", "sqrt", "--warmup-shape", "linear")
    length = ("--epochs", "12", "--train-samples", "1400", "--average", "ema", "--noise-every", "1")
    groups = ("--workers", "1", "--accumulate", "2")
    done = paceline("train", "digits", *groups, *recipe, *length, "--run-dir", "run")
    assert done.returncode == 0, done.stderr

    flags = ("--batches", "64", "--seeds", "1", "--train-workers", "1", "--format", "json", "--run-dir", "P")
    done = paceline("plan", "batch", "run", "--confirm", *flags)

    assert done.returncode == 0, done.stderr
    found, of_run = result(str(tmp_path / "P")), read_info(tmp_path / "run")
    assert [one.batch for one in found.branches] == [32, 64]
    infos = [read_info(tmp_path / one.run) for one in found.branches]
    assert infos[0].facts["lr"] == pytest.approx(of_run.facts["lr"]) == pytest.approx(0.05 * 0.5**0.5)
    assert infos[1].facts["lr"] > infos[0].facts["lr"]
    assert [info.config["average"] for info in infos] == ["none", "none"]
    assert [info.task.train_samples for info in infos] == [1400, 1400]
    for one in found.branches:
        last = [e for e in EventStream(RunDir(tmp_path / one.run).events()) if isinstance(e, Evaluation)][-1]
        assert last.samples == one.samples == 1400
        assert one.loss == last.metrics["loss"].value
    assert len({one.loss for one in found.branches}) == 2
