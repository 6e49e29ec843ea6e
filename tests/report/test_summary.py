"""The numbers of one run, against values worked out by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from paceline.records.errors import PacelineError
from paceline.records.schema import End, Evaluation, Measure
from paceline.records.target import Target, parse_target
from paceline.report import words
from paceline.report.run_record import load_run
from paceline.report.summary import summarise
from paceline.stats.intervals import median_interval


def test_the_numbers_of_a_plain_run_are_those_worked_out_by_hand(runs):
    """20 steps of 64 samples and 0.1 s, two evaluations of 0.5 s, one checkpoint of 0.25 s."""
    run = load_run(runs.plain())

    summary = summarise(run)

    assert summary.status == "finished"
    assert summary.headline == "accuracy"
    assert summary.main.final.value == 0.912
    assert summary.main.final.count == 1000
    assert summary.metric("loss").best.value == pytest.approx(0.088)
    assert summary.steps == 20
    assert summary.samples == 1280
    assert summary.epochs == 2.0
    assert summary.elapsed_s == 3.25
    assert summary.train_loss == pytest.approx(0.1)
    assert summary.throughput.median == pytest.approx(640)
    assert summary.throughput.steps == 15
    assert summary.throughput_overall == pytest.approx(1280 / 3.25)
    assert summary.where.checkpoint.endswith("plain/checkpoints/step-00000020")


def test_phases_add_up_to_the_training_time(runs):
    """What no phase accounts for is `other`: 3.25 - 20 x 0.065 - 1.0 - 0.25 = 0.7 s."""
    run = load_run(runs.plain())

    phases = {phase.name: phase for phase in summarise(run).phases}

    seconds = {name: round(phase.seconds, 9) for name, phase in phases.items()}
    assert seconds == {
        "data": 0.2,
        "forward": 0.4,
        "backward + sync": 0.6,
        "update": 0.1,
        "evaluation": 1.0,
        "checkpoint": 0.25,
        "other": 0.7,
    }
    assert sum(phase.share for phase in phases.values()) == pytest.approx(1.0)
    assert phases["evaluation"].share == pytest.approx(1.0 / 3.25)


def test_throughput_leaves_the_first_steps_of_each_session_out(runs):
    """Slow first steps of two sessions do not touch the median nor its interval."""
    events = [runs.start()]
    at = 0.0
    for k in range(1, 21):
        if k == 11:
            events.append(runs.start(session=2, step=10, elapsed_s=at))
        at += 2.0 if k % 10 in (1, 2, 3, 4, 5) else 0.1
        events.append(runs.step(k, at))
    run = load_run(runs.write("slow-start", events))

    throughput = summarise(run).throughput

    assert throughput.steps == 10
    assert (throughput.low, throughput.median, throughput.high) == pytest.approx((640, 640, 640))


def test_best_and_final_differ_when_accuracy_fell(runs):
    """The best is the first evaluation with the highest value, the final one the last."""
    events = [runs.start(), runs.step(1, 0.1)]
    events += [runs.evaluation(k, k, accuracy) for k, accuracy in enumerate((0.8, 0.91, 0.91, 0.9), start=1)]
    run = load_run(runs.write("fell", events))

    accuracy = summarise(run).main

    assert accuracy.final.value == 0.9
    assert accuracy.best.value == 0.91
    assert accuracy.best.step == 2


def test_time_to_target_is_that_of_the_first_evaluation_that_met_it(runs):
    """0.90 was seen at step 20, after 3.0 s and 1,280 samples, and not yet at step 10."""
    run = load_run(runs.plain())

    target = summarise(run, Target(metric="accuracy", value=0.90)).target

    assert target.reached
    assert (target.first.step, target.first.elapsed_s, target.first.samples) == (20, 3.0, 1280)
    assert target.evaluated_before_step == 10
    assert target.asked_by == "--target"


def test_a_target_with_patience_is_held_when_evaluations_in_a_row_met_it(runs):
    """Met at the first evaluation, lost at the second, held for two in a row at the fourth."""
    info = runs.info(config={"target": "accuracy=0.90", "patience": 2})
    events = [runs.start(), runs.step(1, 0.1)]
    events += [runs.evaluation(k, k, accuracy) for k, accuracy in enumerate((0.9, 0.89, 0.91, 0.92), start=1)]
    run = load_run(runs.write("patient", events, info=info))

    target = summarise(run).target

    assert target.asked_by == "the run's own settings"
    assert target.first.step == 1
    assert target.held.step == 4


def test_a_target_of_a_loss_is_met_from_above(runs):
    """loss=0.1 is met by 0.088 and not by 0.15."""
    run = load_run(runs.plain())

    target = summarise(run, parse_target("loss=0.1")).target

    assert target.first.step == 20
    assert target.less_is_better


def test_a_target_that_was_not_met_is_not_the_same_as_one_that_was_not_looked_at(runs):
    """Evaluated and missed is False; never evaluated is None."""
    evaluated = load_run(runs.plain())
    blind = load_run(runs.write("blind", [runs.start(), runs.step(1, 0.1)]))

    missed = summarise(evaluated, parse_target("accuracy=0.99")).target
    unseen = summarise(blind, parse_target("accuracy=0.99")).target

    assert missed.reached is False
    assert unseen.reached is None


@pytest.mark.parametrize("text", ["accuracy", "accuracy=", "accuracy=high", "=0.9", "accuracy=nan"])
def test_a_target_in_another_form_is_refused(text):
    """The message repeats what was typed and shows the form."""
    with pytest.raises(PacelineError) as caught:
        parse_target(text)

    assert text in caught.value.what
    assert "accuracy=0.90" in caught.value.hint


def test_a_run_without_evaluations_has_no_metric(runs):
    """No accuracy is invented; what was observed is still there."""
    run = load_run(runs.write("blind", [runs.start(), *[runs.step(k, 0.1 * k) for k in range(1, 31)]]))

    summary = summarise(run)

    assert summary.main is None
    assert summary.metrics == []
    assert summary.throughput.median == pytest.approx(640)
    assert summary.status == "unknown"
    assert "killed, or still goes on" in summary.ended


def test_a_run_that_was_killed_at_once_has_nothing_but_its_settings(runs):
    """Everything that was not observed is None, also in JSON."""
    summary = summarise(load_run(runs.write("dead", [runs.start()])))

    decoded = msgspec.json.decode(msgspec.json.encode(summary))

    for name in ("steps", "samples", "epochs", "elapsed_s", "throughput", "throughput_overall", "train_loss"):
        assert decoded[name] is None
    assert decoded["phases"] == []
    assert decoded["first_line"].startswith("32 per rank × 1 accumulation × 2 ranks = global batch 64")


def test_a_run_of_few_steps_has_no_median(runs):
    """Below six steps after the warm-up there is no 95 % interval, so no throughput is claimed."""
    run = load_run(runs.write("short", [runs.start(), *[runs.step(k, 0.1 * k) for k in range(1, 11)]]))

    summary = summarise(run)

    assert summary.throughput is None
    assert summary.throughput_overall == pytest.approx(640)


def test_a_loss_that_is_not_finite_never_vanishes_in_silence(runs):
    """A step with a NaN loss is shown as a warning, and a diverged run says so."""
    events = [runs.start(), runs.step(1, 0.1), runs.step(2, 0.2, loss=float("nan"))]
    ended = End(step=2, reason="diverged", exit_code=3, elapsed_s=0.2, message="The loss is nan at step 2.")
    run = load_run(runs.write("nan", [*events, ended]))

    summary = summarise(run)

    assert summary.warnings
    assert summary.status == "diverged"
    assert summary.exit_code == 3
    assert "nan at step 2" in summary.ended


def test_an_evaluation_that_is_not_finite_is_final_but_never_best(runs):
    """The last evaluation counts as it is; the best is the best finite one."""
    lost = Evaluation(
        step=2,
        epoch=0.2,
        samples=128,
        elapsed_s=2.0,
        duration_s=0.5,
        metrics={"perplexity": Measure(value=9.0, count=10)},
    )
    run = load_run(runs.write("mixed", [runs.start(), runs.step(1, 0.1), runs.evaluation(1, 1.0, 0.5), lost]))

    summary = summarise(run)

    assert summary.metric("accuracy").final.step == 1
    assert summary.metric("perplexity").less_is_better
    assert summary.headline == "accuracy"


@pytest.mark.parametrize(("n", "low", "high"), [(6, 1, 6), (10, 2, 9), (20, 6, 15), (100, 40, 61)])
def test_the_interval_of_a_median_has_the_ranks_of_the_published_tables(n, low, high):
    """Order statistics of the 95 % interval as tabulated for the sign test."""
    values = np.arange(1.0, n + 1)[::-1]

    result = median_interval(values)

    assert result == ((n + 1) / 2, low, high)


def test_the_interval_of_a_median_holds_it_as_often_as_it_says():
    """Of 400 samples of 1,500 from a skewed distribution, 95 % of the intervals hold its median, give or take 3 %."""
    draw = np.random.default_rng(0)

    held = 0
    for _ in range(400):
        _, low, high = median_interval(draw.exponential(size=1500))
        held += low <= np.log(2) <= high

    assert 0.92 <= held / 400 <= 0.98


def test_five_values_have_no_interval():
    """Too little data is refused, not guessed from."""
    result = median_interval(np.arange(5.0))

    assert result is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00187, "1.87 ms"),
        (0.00994, "9.94 ms"),
        (0.00996, "0.010 s"),
        (0.0421, "0.042 s"),
        (7.314, "7.31 s"),
        (59.96, "1 min 00 s"),
        (187.2, "3 min 07 s"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations_read_well(seconds, text):
    """Units change where people change them, and rounding never gives 60 seconds."""
    result = words.duration(seconds)

    assert result == text


def test_an_uneven_batch_is_not_said_to_be_equal(runs):
    """22 per rank on 3 ranks is more than the global batch of 64, and the line says so."""
    info = runs.info()
    uneven = msgspec.structs.replace(
        info, batch=msgspec.structs.replace(info.batch, per_rank=22, world=3, global_batch=64)
    )

    line = words.first_line(uneven)

    assert "22 per rank × 1 accumulation × 3 ranks ≥ global batch 64" in line
