"""Answers of plan speed: rows that add up, efficiencies as defined, honest intervals, a record that says the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from paceline.plan.collectives import Link, Network, ring
from paceline.plan.network import Timed, fit_link
from paceline.plan.rows import timing_of
from paceline.plan.speed import Question, predict, predictor_of, processors_of
from paceline.plan.step_time import FAR, Setting
from paceline.records.plan_results import SpeedResult, read_plan, write_plan
from paceline.records.rundir import RunDir, read_info
from paceline.records.schema import Topology
from paceline.stats.goodput import efficiency
from tests.plan.runs import training
from tests.plan.test_step_time import NETWORK, true_model

TRUTH = replace(true_model(), size_bytes=4e6)


def result(
    tmp_path: Path, workers=(1, 2), scatter=0.0, steps=40, network=NETWORK, link=None, refits=4, **more
) -> SpeedResult:
    """From runs whose steps take what the model says, with an exponential scatter of single steps."""
    generator = np.random.default_rng(0)
    paths = []
    for k in workers:
        for b in (16, 64, 128):
            times = TRUTH.step_s(Setting(k, b)) * (1 + scatter * generator.exponential(size=steps))
            paths.append(training(tmp_path / f"{k}-{b}", workers=k, micro=b, times=times.tolist()))
    asked = {"task": "digits", "workers": (1, 4, 64), "batch": 256, "micro": 64, "at": 4} | more
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paceline.plan.refits.REFITS", refits)
        return predict([timing_of(path) for path in paths], network, Question(**asked), link=link)


def width(found: SpeedResult, workers: int) -> float:
    """Of the interval of weak scaling, relative to its value."""
    row = next(row for row in found.rows if (row.scaling, row.workers) == ("weak", workers))
    return (row.step_s.high - row.step_s.low) / row.step_s.value


def test_rows_are_the_models_predictions(tmp_path: Path) -> None:
    """Strong scaling shares one batch out, weak scaling gives each worker its own; parts add up to the step."""
    found = result(tmp_path)

    rows = {(row.scaling, row.workers): row for row in found.rows}
    assert rows.keys() == {(s, k) for s in ("strong", "weak") for k in (1, 4, 64)}
    for (scaling, workers), row in rows.items():
        setting = Setting(workers, 256 / workers if scaling == "strong" else 64)
        assert row.batch == pytest.approx(setting.batch)
        assert row.step_s.value == pytest.approx(TRUTH.step_s(setting), rel=0.05 if workers <= 4 else 0.15)
        assert row.step_s.low <= row.step_s.value <= row.step_s.high
        parts = msgspec.structs.asdict(row.parts)
        assert sum(parts.values()) == pytest.approx(row.step_s.value)
    strong, weak = rows["strong", 4], rows["weak", 4]
    assert strong.efficiency == pytest.approx(rows["strong", 1].step_s.value / (4 * strong.step_s.value))
    assert weak.efficiency == pytest.approx(weak.samples_per_s / (4 * rows["weak", 1].samples_per_s))
    assert rows["weak", 1].efficiency == 1


def test_a_batch_is_not_shared_out_among_more_workers_than_it_has_samples(tmp_path: Path) -> None:
    """Strong scaling then has no row and no point of its curve, and that is said; weak scaling has."""
    found = result(tmp_path, workers=(1, 2), batch=32)

    assert [row.workers for row in found.rows if row.scaling == "strong"] == [1, 4]
    assert max(row.workers for row in found.curve if row.scaling == "strong") == 32
    assert [row.workers for row in found.rows if row.scaling == "weak"] == [1, 4, 64]
    assert any("no row for 64 workers" in warning for warning in found.warnings)


def test_a_noise_scale_makes_efficiency_towards_a_target(tmp_path: Path) -> None:
    """A larger batch makes less of each sample; strong scaling keeps the batch, so it loses nothing there."""
    found = result(tmp_path, noise_scale=500.0)

    for row in found.rows:
        base = 256 if row.scaling == "strong" else 64
        assert row.target_efficiency == pytest.approx(row.efficiency * efficiency(500.0, base, row.batch))


def test_what_runs_of_one_worker_leave_open_is_in_the_interval(tmp_path: Path) -> None:
    """The sum over 64 workers, how it hides and how workers slow each other were only assumed: the interval is several
    times as wide as with runs of two workers, and holds the truth; at one worker nothing was assumed."""
    alone, both = result(tmp_path / "alone", workers=(1,), refits=60), result(tmp_path / "both", refits=60)

    row = next(row for row in alone.rows if (row.scaling, row.workers) == ("weak", 64))
    assert width(alone, 64) > max(0.4, 1.5 * width(both, 64))
    assert width(alone, 1) < 0.1
    assert row.step_s.low < TRUTH.step_s(Setting(64, 64)) < row.step_s.high


def test_what_a_probe_leaves_open_is_in_the_interval(tmp_path: Path) -> None:
    """All-reduces that scatter by 20 % say less of 64 workers than those that a ring's formula describes exactly."""
    generator = np.random.default_rng(0)
    sizes = [4096 * 8**power for power in range(5)]

    def probed(noise: float) -> SpeedResult:
        rows = [
            Timed(k, size, ring(k, size, NETWORK.link) * float(np.exp(noise * generator.standard_normal())))
            for k in (2, 3)
            for size in sizes
        ]
        link = fit_link(rows)
        return result(tmp_path / str(noise), network=Network(link.link), link=link, refits=60)

    exact, noisy = probed(0.0), probed(0.2)

    assert width(noisy, 64) > 1.2 * width(exact, 64)
    assert len({draw.latency_s for draw in noisy.draws}) == len(noisy.draws) > 1


def test_jitter_is_in_the_interval(tmp_path: Path) -> None:
    """Steps that scatter say little of the slowest of 64, whose time is from a tail; steps that do not say all."""
    even, uneven = result(tmp_path / "even"), result(tmp_path / "uneven", scatter=0.3, refits=20)

    waits = np.array([draw.waits[6] for draw in uneven.draws])
    assert np.std(waits) > 0.05 * np.mean(waits)
    assert {tuple(draw.waits) for draw in even.draws} == {(0.0,) * 17}


def test_a_record_predicts_what_the_plan_said(tmp_path: Path) -> None:
    """Read again, at each row: the same step to the last bit, jitter included, and the same interval."""
    made = result(tmp_path, scatter=0.1, processors=2.0)
    write_plan(RunDir(tmp_path / "plan"), made)

    found = read_plan(tmp_path / "plan")

    assert isinstance(found, SpeedResult)
    assert all(row.parts.jitter_s > 0 for row in made.rows if row.workers > 1)
    for row in made.rows:
        setting = Setting(row.workers, 256 / row.workers if row.scaling == "strong" else 64)
        again = predictor_of(found).step(setting)
        assert predictor_of(found).model.step_s(setting) == again.value == row.step_s.value
        assert (again.low, again.high) == (row.step_s.low, row.step_s.high)


def test_a_record_from_before_refits_were_kept_is_read(tmp_path: Path) -> None:
    """It predicts without jitter, and nothing is known of the ends of its intervals."""
    made = msgspec.to_builtins(result(tmp_path))
    for name in ("draws", "jitter", "processors"):
        del made[name]
    del made["coefficients"]["bound"]

    old = msgspec.convert(made, SpeedResult)

    found = predictor_of(old).step(Setting(4, 64))
    assert found.value == predictor_of(old).model.step_s(Setting(4, 64)) > 0
    assert (found.low, found.high) == (0.0, float("inf"))


def test_mending_the_network_gains_where_the_network_is_what_holds_a_step_up(tmp_path: Path) -> None:
    """The largest gain first; no network at all gains more than one twice as fast."""
    found = result(tmp_path)
    gains = {one.what: one.gain for one in found.mending}

    assert [one.gain for one in found.mending] == sorted((one.gain for one in found.mending), reverse=True)
    assert gains["no network at all"] > gains["a network twice as fast"] > 0
    assert gains["no jitter between workers"] == 0


def test_gradients_that_travel_in_16_bits_are_not_halved_again(tmp_path: Path) -> None:
    """That change is offered to other runs only."""
    wide, narrow = result(tmp_path / "wide"), result(tmp_path / "narrow", compressed=True)

    offered = {one.what for one in wide.mending} - {one.what for one in narrow.mending}
    assert offered == {"gradients in 16 bits (--compress bf16)"}


def test_workers_beyond_the_cores_take_turns(tmp_path: Path) -> None:
    """It is what slows them, cores of their own would mend it, and that no run has shown it is said."""
    found = result(tmp_path, processors=2.0)

    row = next(row for row in found.rows if (row.scaling, row.workers) == ("weak", 64))
    assert row.bottleneck == "sharing"
    assert found.mending[0].what == "cores and memory of its own for each worker"
    (said,) = [warning for warning in found.warnings if "take turns" in warning]
    assert said.startswith("4, 64 workers take turns on one machine, whose cores compute 2 at once")
    assert said.endswith("is assumed")


def test_cores_are_those_of_the_runs_where_processors_compute(tmp_path: Path) -> None:
    """Cores over threads of a worker; on a GPU, and where cores were not recorded, nobody takes turns."""
    info = read_info(training(tmp_path / "run", times=[0.1] * 20))
    where = Topology(
        world=2,
        nodes=1,
        backend="gloo",
        device="cpu",
        device_name="a CPU",
        threads_per_rank=4,
        hostname="here",
        cores=16,
    )

    def found(**changes):
        return processors_of(msgspec.structs.replace(info, topology=msgspec.structs.replace(where, **changes)))

    assert found() == 4.0
    assert found(device="cuda") is found(cores=None) is found(threads_per_rank=None) is None


def test_what_only_the_formula_says_is_warned_of(tmp_path: Path) -> None:
    """More than 16 times the workers that were measured; and one number of workers hides how a sum overlaps."""
    found = result(tmp_path)
    assert any("64 workers are over 16 times the 2" in warning for warning in found.warnings)
    assert all((row.beyond > FAR) == (row.workers == 64) for row in found.rows)
    assert max(row.workers for row in found.curve) >= 4096

    alone = result(tmp_path / "alone", workers=(1,))
    assert any("same number of workers" in warning for warning in alone.warnings)


def test_jitter_of_more_workers_than_steps_show_is_warned_of(tmp_path: Path) -> None:
    """90 steps show 12 workers, and a tail is fitted for 64; 30 steps show 4 of them, and are too few for a tail."""
    many, few = result(tmp_path / "many"), result(tmp_path / "few", steps=20)

    assert any("slowest of up to 12 takes; for 64 workers" in w and "generalised Pareto" in w for w in many.warnings)
    assert any("30 steps" in w and "up to 4 takes; 64 workers wait longer" in w for w in few.warnings)


def test_held_out_runs_are_named_with_both_numbers(tmp_path: Path) -> None:
    """Those with the most workers and those with the largest batch; large numbers are written out."""
    found = result(tmp_path)

    assert {held.what for held in found.evidence.held_out} >= {
        "2 workers, 16 samples each",
        "1 worker, 128 samples each",
    }
    assert max(abs(held.error) for held in found.evidence.held_out) < 0.1
    assert str(Setting(2, 1_048_576)) == "2 workers, 1,048,576 samples each"


def test_what_lies_between_machines_is_as_it_was_given_beside_a_probe(tmp_path: Path) -> None:
    """The record keeps both, and says which is which."""
    network = Network(Link(1e-3, 200e6), per_node=2, outer=Link(2e-3, 100e6))
    link = fit_link([Timed(k, s, ring(k, s, network.link)) for k in (2, 3) for s in (4096, 1 << 22)])

    found = result(tmp_path, network=network, link=link)

    assert (found.network.source, found.network.per_node) == ("probe", 2)
    assert predictor_of(found).model.network.outer == network.outer
    assert any("between machines is as it was given" in note for note in found.evidence.notes)
