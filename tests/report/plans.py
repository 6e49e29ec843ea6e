"""Written-down results of `paceline plan`: run directories with made-up but consistent numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from paceline.records.plan_results import (
    AnyPlan,
    BatchPoint,
    BatchResult,
    BatchRow,
    Branch,
    CurvePoint,
    DataResult,
    DataRow,
    Estimate,
    Evidence,
    HeldOut,
    Measured,
    Mending,
    Needed,
    NetworkFacts,
    NoisePoint,
    Recommendation,
    Record,
    SpeedResult,
    SpeedRow,
    StepParts,
    TrendsResult,
    estimate,
    write_plan,
)
from paceline.records.rundir import RunDir, write_info
from paceline.records.schema import RunInfo

KINDS = ("speed", "batch", "data", "trends")
SIZE = 1_700_000
LATENCY, BANDWIDTH = 40e-6, 1.2e9
WARNING = "256 workers are over 16 times the 4 that were measured: take it as the formula's word"
NOTE = "the network is that of this machine's workers among themselves, as a probe found it"


def evidence(held_out: list[HeldOut], confidence: float = 0.8) -> Evidence:
    """Of three runs."""
    return Evidence(runs=["runs/one", "runs/two", "runs/three"], held_out=held_out, confidence=confidence, notes=[NOTE])


def within(value: float, share: float = 0.08) -> Estimate:
    """A value with an interval of so much on either side."""
    return estimate(value, value * (1 - share), value * (1 + share))


# ---- speed: 0.2 ms a sample, 2 ms of rest, a ring of which a third does not hide, jitter by the logarithm of workers


def parts(workers: int, micro: float) -> StepParts:
    """Of a step."""
    ring = 2 * (workers - 1) * LATENCY + 2 * (workers - 1) / workers * SIZE / BANDWIDTH if workers > 1 else 0.0
    work = 2e-4 * micro
    return StepParts(
        work_s=work,
        floor_s=max(0.0, 4e-3 - work),
        network_s=0.4 * ring,
        jitter_s=0.05 * max(work, 4e-3) * math.log2(workers),
        rest_s=2e-3,
    )


def step_s(workers: int, micro: float) -> float:
    """A step."""
    one = parts(workers, micro)
    return one.work_s + one.floor_s + one.network_s + one.jitter_s + one.rest_s


def speed_row(scaling: str, workers: int, noise_scale: float | None = 4000.0) -> SpeedRow:
    """Strong scaling of 256 samples, weak scaling of 64 a worker; four workers were measured."""
    micro, alone = (256 / workers, 256.0) if scaling == "strong" else (64.0, 64.0)
    took, batch = step_s(workers, micro), workers * micro
    efficiency = batch / took / (workers * alone / step_s(1, alone))
    target = None if noise_scale is None else efficiency * (noise_scale + alone) / (noise_scale + batch)
    one = parts(workers, micro)
    others = {"floor": one.floor_s, "network": one.network_s, "jitter": one.jitter_s, "rest": one.rest_s}
    name = max(others, key=lambda key: others[key])
    return SpeedRow(
        scaling=scaling,
        workers=workers,
        batch=batch,
        step_s=within(took, 0.03 + 0.02 * math.log2(workers)),
        samples_per_s=batch / took,
        efficiency=efficiency,
        target_efficiency=target,
        parts=one,
        bottleneck=name if others[name] > 0.05 * took else "work",
        beyond=workers / 4,
    )


def speed(noise_scale: float | None = 4000.0) -> SpeedResult:
    """Six runs on 1, 2 and 4 workers, predictions up to 256."""
    settings = [(1, 64), (1, 128), (1, 256), (2, 64), (2, 128), (4, 64)]
    measured = [
        Measured(
            run=f"runs/speed-{workers}-{micro}",
            workers=workers,
            micro=micro,
            accumulation=1,
            step_s=step_s(workers, micro) * (1 + 0.02 * (-1) ** index),
            spread=0.04,
            fitted_s=step_s(workers, micro),
        )
        for index, (workers, micro) in enumerate(settings)
    ]
    at = step_s(8, 64)
    gains = {"a network twice as fast": 0.12, "no jitter between workers": 0.151, "no overhead of launching": 0.0}
    return SpeedResult(
        task="fashion-mnist",
        size_bytes=SIZE,
        noise_scale=noise_scale,
        network=NetworkFacts(
            source="probe",
            latency_s=LATENCY,
            bandwidth_bytes_per_s=BANDWIDTH,
            shared_bytes_per_s=2e9,
            per_node=None,
            tree=False,
            outer_latency_s=None,
            outer_bandwidth_bytes_per_s=None,
            worst_error=0.12,
            probed=[
                [ranks, size, 1.05 * (2 * (ranks - 1) * LATENCY + 2 * (ranks - 1) * size / min(ranks * BANDWIDTH, 2e9))]
                for ranks in (2.0, 4.0)
                for size in (1024.0, 65536.0, 1048576.0, 16777216.0)
            ],
        ),
        coefficients={"fixed": 0.0, "slope": 2e-4, "floor": 4e-3, "rest": 2e-3},
        measured=measured,
        rows=[speed_row(scaling, n, noise_scale) for scaling in ("strong", "weak") for n in (1, 4, 16, 64, 256)],
        curve=[speed_row(scaling, 2**n, noise_scale) for scaling in ("strong", "weak") for n in range(13)],
        mending=[Mending(what=what, step_s=at / (1 + gain), gain=gain) for what, gain in gains.items()],
        mending_workers=8,
        most_workers=4,
        warnings=[WARNING],
        evidence=evidence(
            [
                HeldOut(what="4 workers, 64 samples each", measured=0.0212, predicted=0.0227),
                HeldOut(what="1 worker, 256 samples each", measured=0.0541, predicted=0.0532),
            ]
        ),
    )


# ---- batch: S = 400 + 240,000 / B, so that the critical batch is 600

LEAST_STEPS, LEAST_SAMPLES = 400.0, 240_000.0
BATCHES = (64, 128, 256, 512, 1024, 2048)


def steps(batch: float) -> float:
    """To the target."""
    return LEAST_STEPS + LEAST_SAMPLES / batch


def batch_row(batch: int, workers: int, timed: bool = True) -> BatchRow:
    """Of the table; a step is that of `speed`."""
    took = step_s(workers, batch / workers)
    return BatchRow(
        batch=batch,
        workers=workers,
        steps=within(steps(batch)),
        samples=batch * steps(batch),
        samples_per_s=batch / took if timed else None,
        time_s=within(steps(batch) * took) if timed else None,
        system=batch / took / (workers * 64 / step_s(1, 64)) if timed else None,
        statistical=64 * steps(64) / (batch * steps(batch)),
    )


def batch(timed: bool = True) -> BatchResult:
    """Fifteen of sixteen runs met the target."""
    points = [
        BatchPoint(
            run=f"runs/batch-{size}-{seed}",
            batch=size,
            seed=seed,
            steps=steps(size) * (1 + 0.04 * (seed - 1)),
            samples=size * steps(size) * (1 + 0.04 * (seed - 1)),
        )
        for size in (64, 128, 256, 1024, 4096)
        for seed in (0, 1, 2)
    ]
    points.append(BatchPoint(run="runs/batch-16384-0", batch=16384, seed=0, steps=None, samples=None))
    noise = [
        NoisePoint(first=1, last=250, noise_scale=within(300, 0.3), exhausts_data=False),
        NoisePoint(first=251, last=500, noise_scale=within(900, 0.4), exhausts_data=False),
        NoisePoint(first=501, last=750, noise_scale=estimate(2100, 1200, math.inf), exhausts_data=False),
        NoisePoint(first=751, last=1000, noise_scale=estimate(math.inf, 40_000, math.inf), exhausts_data=True),
    ]
    return BatchResult(
        task="fashion-mnist",
        metric="accuracy",
        target=0.9,
        critical=estimate(600, 480, 790),
        least_steps=within(LEAST_STEPS),
        least_samples=within(LEAST_SAMPLES),
        worst_error=0.031,
        points=points,
        noise=noise,
        table=[batch_row(size, workers, timed) for size in BATCHES for workers in (1, 2, 4, 8)],
        recommendation=Recommendation(
            batch=512,
            workers=4,
            lr=0.28,
            rule="the progress of a step: linear below the critical batch, less above (Johnson et al. 2020)",
            warmup="2ep",
            command="paceline train fashion-mnist --global-batch 512 --workers 4 --lr 0.28 --warmup 2ep",
            because=["a sample still makes 60 % of the progress that it makes at a batch of 64"],
            unless=["there are more workers: the table ends here"],
        ),
        branches=[
            Branch(run=f"runs/branch-{size}-{seed}", batch=size, seed=seed, samples=25_600, loss=loss + 0.004 * seed)
            for size, loss in ((64, 0.31), (256, 0.312), (1024, 0.335))
            for seed in (0, 1)
        ]
        + [Branch(run="runs/branch-4096-0", batch=4096, seed=0, samples=25_600, loss=None)],
        warnings=["one run did not reach the target and is left out: the largest batch"],
        evidence=evidence([HeldOut(what="batch 4,096", measured=455.0, predicted=470.0)], 0.9),
    )


# ---- data: error = 0.05 + 2.4 samples^-0.4


def law(samples: float) -> float:
    """The curve."""
    return 0.05 + 2.4 * samples**-0.4


def data_row(samples: int, priced: bool = True) -> DataRow:
    """Of the table; 15,000 samples were measured."""
    beyond = samples / 15_000
    flop = 3.0 * 8.1e6 * samples * 10
    hours = flop / 2e11 / 3600
    return DataRow(
        samples=samples,
        error=within(law(samples), 0.03 + 0.04 * max(0.0, math.log2(beyond))),
        measured=law(samples) * 1.004 if beyond <= 1 else None,
        flop=flop,
        pfs_days=flop / 8.64e19,
        device_hours=hours if priced else None,
        cost=2.5 * hours if priced else None,
        beyond=beyond,
    )


def data(priced: bool = True) -> DataResult:
    """Four sizes with two seeds; one target within reach, one whose upper end is not, one below the floor."""
    sizes = (1875, 3750, 7500, 15_000)
    points = [
        CurvePoint(run=f"runs/data-{size}-{seed}", samples=size, seed=seed, error=law(size) * (1 + wiggle), steps=500)
        for size in sizes
        for seed, wiggle in ((0, 0.012), (1, -0.004))
    ]
    points.append(CurvePoint(run="runs/data-1875-2", samples=1875, seed=2, error=None, steps=500))
    cost = {"flop": within(1.2e13), "device_hours": within(18.0), "cost": within(45.0)}
    nothing = estimate(math.inf, math.inf, math.inf)
    return DataResult(
        task="fashion-mnist",
        metric="accuracy",
        scale=2.4,
        exponent=0.4,
        floor=0.05,
        noise=0.011,
        points=points,
        rows=[data_row(size, priced) for size in (*sizes, 30_000, 60_000, 240_000)],
        needed=[
            Needed(error=0.09, samples=estimate(27_900, 22_000, 39_000), **cost),
            Needed(error=0.07, samples=estimate(157_000, 61_000, math.inf), flop=None, device_hours=None, cost=None),
            Needed(error=0.04, samples=nothing, flop=nothing, device_hours=nothing, cost=nothing),
        ],
        forward_flop=8.1e6,
        device="a CPU core",
        warnings=["240,000 samples are over 4 times the 15,000 that were measured"],
        evidence=evidence([HeldOut(what="15,000 samples", measured=law(15_000) * 1.004, predicted=0.1044)], 0.9),
    )


# ---- trends


def trends() -> TrendsResult:
    """Eleven published records; those of one series have an efficiency."""
    singles = [
        ("He", 2016, "P100", 8, 1740.0, "75.3 %"),
        ("Goyal", 2017, "P100", 256, 60.0, "76.3 %"),
        ("Akiba", 2017, "P100", 1024, 15.0, "74.9 %"),
        ("Jia", 2018, "P40", 2048, 6.6, "75.8 %"),
        ("Mikami", 2018, "V100", 2176, 3.73, "75.03 %"),
        ("Fujitsu", 2019, "V100", 2048, 1.245, "75.08 %"),
    ]
    series = [(8, 13.466), (64, 2.664), (512, 0.509), (768, 0.369), (3584, 0.183)]
    records = [
        Record(
            who=who,
            year=year,
            hardware=hardware,
            devices=devices,
            minutes=minutes,
            accuracy=accuracy,
            source=f"{who} et al. {year}, table 1",
            efficiency=None,
            iteration_ms=None,
        )
        for who, year, hardware, devices, minutes, accuracy in singles
    ]
    records += [
        Record(
            who="MLPerf 3.0",
            year=2023,
            hardware="H100",
            devices=devices,
            minutes=minutes,
            accuracy="75.9 %",
            source="MLPerf training 3.0, closed division",
            efficiency=13.466 * 8 / (minutes * devices),
            iteration_ms=None,
        )
        for devices, minutes in series
    ]
    return TrendsResult(records=records, notes=["the series mixes system and statistical efficiency"])


def result(kind: str) -> AnyPlan:
    """Of a kind."""
    return {"speed": speed, "batch": batch, "data": data, "trends": trends}[kind]()


def info(kind: str, **changes: Any) -> RunInfo:
    """run.json; `changes` replace fields."""
    base: dict[str, Any] = {
        "schema": 1,
        "verb": "plan",
        "name": "fashion-mnist",
        "command": ["paceline", "plan", kind, "runs/one"],
        "started_at": "2026-03-01T09:30:00+00:00",
        "versions": {"paceline": "0.1.0"},
        "config": {},
        "facts": {"kind": kind},
    }
    return RunInfo(**(base | changes))


def write(path: Path, kind: str, own: AnyPlan | None = None, about: RunInfo | None = None) -> Path:
    """A finished plan's run directory."""
    run = RunDir(path)
    write_info(run, about or info(kind))
    write_plan(run, own if own is not None else result(kind))
    return run.path
