"""Made-up records of studies, as the harness writes them."""

from typing import Any

import msgspec
from bench.studies import minima

from paceline.records.landscape import Interpolation, Keskar, LandscapeResult, Line, Sam
from tests.report.landscapes import everything

MACHINE = {"cpu": "An Invented CPU", "usable_cores": 2, "git_commit": "0123456789abcdef", "source_changed": False}


def record(setting, seed, accuracies, steps_each=100, end="finished", load=None, **more):
    """An invented training: one evaluation every `steps_each` steps."""
    evaluations = [
        {
            "step": steps_each * k,
            "samples": 1000 * k,
            "elapsed_s": 2.0 * k,
            "metrics": {"accuracy": value, "loss": 1 - value},
        }
        for k, value in enumerate(accuracies, start=1)
    ]
    last = len(accuracies)
    training = {
        "end": end,
        "steps": steps_each * last,
        "samples": 1000 * last,
        "epochs": float(last),
        "elapsed_s": 2.0 * last,
        "train_loss": 0.25,
        "global_batch": 128,
        "train_samples": 60_000,
        "evaluations": evaluations,
    }
    return {
        "schema": 1,
        "setting": setting,
        "seed": seed,
        "kind": "train",
        "command": [],
        "started_at": "2026-01-02T03:04:05+00:00",
        "duration_s": 60.0,
        "versions": {"paceline": "0.0", "torch": "2.x"},
        "training": training | more,
        "machine": MACHINE | ({} if load is None else {"load_average_before": [load, 0.5, 0.5]}),
    }


def full(**changes: Any) -> LandscapeResult:
    """A measurement with every measure and every list filled; `changes` replace whole fields."""
    result, _ = everything()
    assert result.density is not None
    assert result.interpolation is not None
    found = {
        "line": Line(directions="random", points=[-1.0, 0.0, 1.0], loss=[1.0, 0.2, 1.0]),
        "density": msgspec.structs.replace(result.density, grid=[0.0, 1.0], density=[1.0, 0.1]),
        "interpolation": msgspec.structs.replace(result.interpolation, points=[0.0, 1.0], loss=[0.2, 0.3]),
    }
    return msgspec.structs.replace(result, **(found | changes))


def measured(setting, seed, kind, result):
    """A measurement's record, its result as `bench.studies.trial` writes it."""
    found = record(setting, seed, [0.1])
    del found["training"], found["versions"]
    return found | {"kind": kind, "result": msgspec.to_builtins(result)}


TREATMENT: dict[str, Any] = {"chunk": 200, "batch_norm": "each chunk by its own statistics"}


def sharpness(setting, seed, *, loss=0.1, eigen=(10.0, 4.0), trace=(100.0, 17.0), sam=(0.01, 0.002), keskar=3.0):
    """What is measured at one run: (plain, weighted) of each."""
    base = full(interpolation=None, curvature_loss=loss, **TREATMENT)
    assert base.eigenvalues is not None
    assert base.trace is not None
    result = msgspec.structs.replace(
        base,
        eigenvalues=msgspec.structs.replace(base.eigenvalues, values=[eigen[0], 1.0], weighted_values=[eigen[1]]),
        trace=msgspec.structs.replace(base.trace, value=trace[0], weighted_value=trace[1]),
        sam=Sam(rho=0.05, value=sam[0], starts=[sam[0]], adaptive_value=sam[1], adaptive_starts=[sam[1]]),
        keskar=Keskar(
            epsilon=1e-3, value=keskar, starts=[keskar], subspace_value=0.5, subspace_starts=[0.5], subspace_size=100
        ),
    )
    return measured(f"{setting}-sharpness", seed, "sharpness", result)


def joined(first, second, seed, barrier):
    """The line between two runs."""
    way = full().interpolation
    assert isinstance(way, Interpolation)
    way = msgspec.structs.replace(way, barrier=barrier)
    result = full(line=None, density=None, interpolation=way, **TREATMENT)
    return measured(f"{first}-to-{second}", seed, "interpolation", result)


SMALL, LARGE = minima.PAIRS[0]
THIRD = minima.PAIRS[1][1]


def minima_records(large_accuracy=0.915):
    """Two seeds of two settings; the third was not run.

    By the eigenvalue the large batch is sharper, by its weighted form flatter; by both traces, SAM and Keskar sharper;
    by adaptive SAM one seed says so and one the other.
    """
    found = []
    for seed in (0, 1):
        found += [
            record(SMALL, seed, [0.92 + 0.001 * seed]),
            record(LARGE, seed, [large_accuracy], steps_each=8),
            sharpness(SMALL, seed, loss=0.1, eigen=(10.0 + seed, 4.0 + seed)),
            sharpness(
                LARGE,
                seed,
                loss=0.2,
                eigen=(40.0 + seed, 2.0 + seed),
                trace=(150.0, 34.0),
                sam=(0.02, (0.003, 0.001)[seed]),
                keskar=6.0,
            ),
            joined(SMALL, LARGE, seed, 0.5 + seed),
        ]
    return found


def changed(one, path, value):
    """A measurement with one number of its result replaced."""
    *way, last = path
    inner = one["result"]
    for key in way:
        inner = inner[key]
    inner[last] = value
    return one
