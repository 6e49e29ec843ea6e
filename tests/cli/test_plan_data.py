"""`paceline plan data` as users call it: what it trains, what it leaves, how it goes on, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import call
from paceline.records.errors import Exit
from paceline.records.plan_results import DataResult, read_plan
from paceline.records.rundir import read_info
from tests.studies.stand_in import error_of

SIZES = (90, 180, 359, 719, 1437)  # of digits' 1,437 training samples
Calls = Callable[[], list[str]]


pytestmark = pytest.mark.usefixtures("here")


def plan_data(*arguments: str) -> int:
    """The exit code."""
    return call(["plan", "data", *arguments])


def result(path: str = "P") -> DataResult:
    """What was left."""
    found = read_plan(path)
    assert isinstance(found, DataResult)
    return found


def test_a_plan_trains_every_size_and_says_what_a_target_needs(
    calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cost first; then errors where they were measured and beyond, and samples with an interval; all of it left."""
    code = plan_data("digits", "--seeds", "2", "--target", "accuracy=0.82", "--run-dir", "P", "--workers", "1")

    shown, said = capsys.readouterr()
    assert code == 0, said
    assert "5 sizes from 90 to 1,437 samples, with 2 seeds" in said
    assert len(calls()) == 10
    assert all("--workers 1" in each for each in calls())
    left = result()
    assert [row.samples for row in left.rows] == [*SIZES, 2874, 5748, 11496]
    measured = [sum(error_of(size, seed) for seed in (0, 1)) / 2 for size in SIZES]
    assert [row.measured for row in left.rows[:5]] == pytest.approx(measured)
    assert left.forward_flop == 2 * (64 * 64 + 64 * 64 + 64 * 10)
    needed = left.needed[0].samples
    assert needed.low <= (3 / 0.12) ** (1 / 0.35) <= (needed.high or float("inf"))  # where the stand-in's curve is 0.18
    for part in ("digits", "1,437", "11,496", "held-out error", "P/report.html"):
        assert part in shown
    assert {path.name for path in Path("P").iterdir()} >= {"run.json", "result.json", "report.html", "runs"}
    info = read_info("P")
    assert (info.verb, info.facts["kind"], info.config["seeds"]) == ("plan", "data", 2)


def test_json_is_the_result_and_nothing_else(calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    """One object on stdout, nothing on stderr."""
    code = plan_data("digits", "--seeds", "1", "--format", "json", "--run-dir", "P")

    shown, said = capsys.readouterr()
    assert (code, said) == (0, "")
    assert json.loads(shown) == json.loads(Path("P/result.json").read_text())


def test_device_hours_and_cost_are_of_the_trainings_precision(calls: Calls) -> None:
    """3 x forward x samples x epochs, over peak x utilisation; the precision is named, since a peak belongs to one."""
    flags = ("--epochs", "10", "--peak", "2", "--utilisation", "0.25", "--price", "3", "--format", "json")

    assert plan_data("digits", "--seeds", "1", *flags, "--run-dir", "P") == 0

    row = result().rows[-1]
    flop = 3 * 17_664 * 11_496 * 10
    assert row.flop == pytest.approx(flop)
    assert row.device_hours == pytest.approx(flop / (2e12 * 0.25) / 3600)
    assert row.cost == pytest.approx(3 * row.device_hours)
    assert "in fp32" in result().device


def test_a_stopped_plan_goes_on_where_it_was(calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code and next command; the trainings that were done are not done again."""
    stopped = plan_data("digits", "--seeds", "1", "--lr", "88", "--run-dir", "P")
    said = capsys.readouterr().err

    codes = [plan_data("--resume", "P") for _ in range(5)]

    assert stopped == Exit.TERMINATED
    assert "next: paceline plan data --resume P" in said
    assert not any("Traceback" in each for each in capsys.readouterr())
    # The stand-in is stopped once at each size: each call finishes that one, and is stopped at the next.
    assert codes == [*[Exit.TERMINATED] * 4, 0]
    assert len(calls()) == 10
    assert len(result().points) == 5


def test_a_finished_plan_answers_another_question_without_training(calls: Calls) -> None:
    """A target, a device and another metric need no new training; what a training depends on is refused."""
    plan_data("digits", "--seeds", "1", "--run-dir", "P")
    before = len(calls())

    code = plan_data("--resume", "P", "--target", "loss=0.5", "--metric", "loss")
    refused = plan_data("--resume", "P", "--seeds", "2")

    assert (code, refused) == (0, Exit.USAGE)
    assert len(calls()) == before
    assert result().metric == "loss"
    assert result().rows[0].measured == pytest.approx(2 * error_of(90, 0))


@pytest.mark.parametrize(
    ("made", "asked", "metric"),
    [
        (("--target", "accuracy=0.9"), ("--metric", "loss"), "loss"),
        (("--metric", "loss"), ("--target", "accuracy=0.9"), "error"),
        (("--target", "loss=0.5", "--metric", "loss"), ("--target", "accuracy=0.9"), "error"),
    ],
)
def test_a_question_asked_anew_drops_the_half_of_an_older_one_that_disagrees(
    calls: Calls, made: tuple[str, ...], asked: tuple[str, ...], metric: str
) -> None:
    """A metric without a target drops the target, a target without a metric the metric; both of two are refused."""
    assert plan_data("digits", "--seeds", "1", *made, "--run-dir", "P") == 0

    assert plan_data("--resume", "P", *asked) == 0

    assert result().metric == metric
    assert len(result().needed) == ("--target" in asked)
    assert plan_data("--resume", "P", "--target", "accuracy=0.9", "--metric", "loss") == Exit.USAGE


def test_a_target_of_the_same_metric_outlives_a_metric_given_anew(calls: Calls) -> None:
    """They agree, so there is nothing to drop."""
    plan_data("digits", "--seeds", "1", "--target", "accuracy=0.9", "--run-dir", "P")

    assert plan_data("--resume", "P", "--metric", "accuracy") == 0

    assert [needed.error for needed in result().needed] == [pytest.approx(0.1)]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--holdout", "0"), "has --holdout 200, not --holdout 0"),
        (("--run-dir", "Q"), "name two directories"),
        (("linear",), "has TASK digits, not TASK linear"),
    ],
)
def test_a_plan_goes_on_only_as_what_it_was(
    flags: tuple[str, ...], message: str, calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one message; nothing is trained or made."""
    plan_data("digits", "--seeds", "1", "--holdout", "200", "--run-dir", "P")
    before = len(calls())

    code = plan_data("--resume", "P", *flags)

    assert code == Exit.USAGE
    assert message in capsys.readouterr().err
    assert len(calls()) == before
    assert not Path("Q").exists()


def test_diverged_trainings_are_counted_and_a_refused_one_ends_the_plan(
    calls: Calls, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3 when nothing is left; a refusal in the training's own words, and no traceback."""
    diverged = plan_data("digits", "--seeds", "1", "--lr", "99", "--run-dir", "P")
    first = capsys.readouterr().err
    refused = plan_data("digits", "--seeds", "1", "--lr", "66", "--run-dir", "Q")
    second = capsys.readouterr().err

    assert diverged == Exit.DIVERGED
    assert "no training has a result" in first
    assert refused == Exit.USAGE
    assert "the batch is wrong" in second
    assert "next: --more" in second


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no task was named"),
        (("digit",), "did you mean digits"),
        (("digits", "--fractions", "1/2,1"), "too few for a learning curve"),
        (("digits", "--metric", "f1"), "f1 is not measured by the task digits"),
        (("digits", "--train-flags", "--optimizer sgdx"), "--optimizer sgdx is unknown"),
        (("digits", "--train-flags", "--steps 5"), "cannot hold --steps"),
        (("digits", "--peak", "40"), "--utilisation"),
        (("--resume", "nowhere"), "not a run directory"),
    ],
)
def test_what_cannot_be_right_leaves_nothing_behind(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], calls: Calls
) -> None:
    """Exit code 2, one message, no directory, no training."""
    code = plan_data(*arguments)

    shown, said = capsys.readouterr()
    assert (code, shown) == (Exit.USAGE, "")
    assert message in said
    assert "next:" in said
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_a_run_is_not_written_over(calls: Calls, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither as the plan's own nor as one to resume when it is something else."""
    plan_data("digits", "--seeds", "1", "--run-dir", "P")
    capsys.readouterr()

    again = plan_data("digits", "--run-dir", "P")
    training = plan_data("--resume", "P/runs/samples-90-seed-0")

    assert (again, training) == (Exit.USAGE, Exit.USAGE)
    assert "already holds a run" in capsys.readouterr().err


def test_under_torchrun_it_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every rank would start all trainings."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")

    assert plan_data("digits") == Exit.USAGE
    assert "not under torchrun" in capsys.readouterr().err


@pytest.mark.slow
def test_real_trainings_are_equally_long_and_on_nested_parts_of_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    """digits, one epoch, at four sizes: run.json of each says samples, steps and warm-up; the errors are its own."""
    flags = ("--epochs", "1", "--seeds", "1", "--workers", "1", "--train-flags", "--warmup 0.5ep", "--format", "json")

    code = plan_data("digits", "--fractions", "1/8,1/4,1/2,1", *flags, "--run-dir", "P")

    shown, said = capsys.readouterr()
    assert (code, said) == (0, "")
    found: dict[str, Any] = json.loads(shown)
    assert [point["samples"] for point in found["points"]] == [180, 359, 719, 1437]
    infos = [read_info(point["run"]) for point in found["points"]]
    assert [info.task.train_samples for info in infos] == [180, 359, 719, 1437]
    assert {info.task.total_steps for info in infos} == {23}
    assert {info.facts["warmup_steps"] for info in infos} == {12}
    assert [point["steps"] for point in found["points"]] == [23] * 4
    assert [row["flop"] for row in found["rows"]][3] == 3 * 17_664 * 1437
    for point in found["points"]:
        correct = (1 - point["error"]) * infos[0].task.eval_samples
        assert correct == pytest.approx(round(correct), abs=1e-6)  # a share of the 360 samples that were evaluated
