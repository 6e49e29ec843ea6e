"""Slices: the same numbers for every number of ranks, nothing computed twice, nothing left behind, little memory."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.curvature.fixed_loss import Value
from paceline.landscape.kept_parts import read_points
from paceline.landscape.measures import TAKE
from paceline.landscape.ranks import Ranks
from paceline.landscape.slices import coordinates, evaluate, grid
from paceline.pool.warm_ranks import run_ranks
from tests.landscape.problems import (
    Memory,
    Point,
    bounds_on_ranks,
    conv_net,
    image_task,
    quadratic,
    session,
    stopped_on_ranks,
    taken_on_ranks,
    wide_net,
)

H, AT = [3.0, 1.0, 0.5], [1.0, -2.0, 0.5]


@pytest.mark.parametrize(("points", "span"), [(2, 1.0), (5, 0.3), (25, 1.0), (24, 2.0)])
def test_coordinates_are_symmetric_to_the_bit(points: int, span: float) -> None:
    """From -span to span; an odd number has exactly 0 in the middle."""
    line = coordinates(points, span)

    assert line.tolist() == (-line[::-1]).tolist()
    assert line[-1] == pytest.approx(span, rel=1e-15)
    assert (0.0 in line.tolist()) == (points % 2 == 1)


def test_a_surface_of_a_quadratic_is_that_quadratic(tmp_path: Path) -> None:
    """Every point to 1e-8 of the closed form along the two directions that were used, rows along the second."""
    made = session(quadratic(H, AT, 0.25), Point(AT), tmp_path, directions="raw", points=5, span=2.0)

    found = TAKE["surface"](made)

    one, two = np.load(tmp_path / "directions.npy")
    for i, b in enumerate(found.arrays["surface_y"]):
        for j, a in enumerate(found.arrays["surface_x"]):
            wanted = 0.25 + 0.5 * (np.array(H) * (a * one + b * two) ** 2).sum()
            assert found.arrays["surface_loss"][i, j] == pytest.approx(wanted, abs=1e-8)
    assert found.result.lowest == pytest.approx(0.25, abs=1e-12)
    assert found.arrays["surface_loss"][0, 1] != found.arrays["surface_loss"][1, 0]


@pytest.mark.slow
def test_the_number_of_ranks_does_not_change_a_number(tmp_path: Path) -> None:
    """Worlds of 1, 2 and 3 agree to 1e-10 in float64 on every array; points of slices to the bit."""
    names = ("surface", "line", "eigenvalues", "trace", "density")
    settings = {"points": 4, "top": 3, "probes": 46, "steps": 12}

    worlds = [run_ranks(taken_on_ranks, world, str(tmp_path / str(world)), names, settings) for world in (1, 2, 3)]

    reference = worlds[0][0]
    for ranks in worlds:
        for arrays in ranks:
            assert arrays.keys() == reference.keys()
            for name, array in arrays.items():
                assert np.allclose(array, reference[name], rtol=0, atol=1e-10 * np.abs(reference[name]).max()), name
                if name.startswith(("surface", "line")):
                    assert array.tobytes() == reference[name].tobytes(), name


def test_nor_does_it_change_a_bound(tmp_path: Path) -> None:
    """Keskar's and SAM's searches go the same way in worlds of 1 and 2, to 1e-10."""
    alone, pair = (run_ranks(bounds_on_ranks, world, str(tmp_path / str(world)), {}) for world in (1, 2))

    assert pair[0] == pytest.approx(alone[0], abs=1e-10)
    assert pair[0] == pair[1]
    assert all(value > 0 for value in alone[0])


def test_finished_points_are_not_evaluated_again(tmp_path: Path) -> None:
    """Not those in whole lines; a torn last line and the missing ones are, and the result is complete."""
    asked: list[int] = []

    def at(index: int) -> Value:
        asked.append(index)
        return Value(float(index), {"accuracy": index / 10})

    evaluate(Ranks(tmp_path), "line", 6, at)
    path = tmp_path / "line" / "rank-00000.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2]) + lines[2][:10])
    asked.clear()
    values = evaluate(Ranks(tmp_path), "line", 6, at)

    assert asked == [2, 3, 4, 5]
    assert values.loss.tolist() == [0, 1, 2, 3, 4, 5]
    assert values.metrics["accuracy"].tolist() == [0, 0.1, 0.2, 0.3, 0.4, 0.5]


def test_a_loss_that_is_no_number_is_a_gap_and_is_counted(tmp_path: Path) -> None:
    """Infinite and undefined values are NaN in the arrays and null in the file."""
    values = evaluate(Ranks(tmp_path), "line", 3, lambda i: Value([math.inf, 1.0, math.nan][i], {}))

    assert np.isnan(values.loss).tolist() == [True, False, True]
    records = [json.loads(line) for line in (tmp_path / "line" / "rank-00000.jsonl").read_text().splitlines()]
    assert [record["loss"] for record in records] == [None, 1.0, None]


def test_all_ranks_stop_when_one_is_told_to_and_go_on_later(tmp_path: Path) -> None:
    """Rank 0 stops after three points, rank 1 finishes its own; a resumed run evaluates the rest, whole."""
    settings = {"points": 4}

    ended = run_ranks(stopped_on_ranks, 2, str(tmp_path), settings)
    kept = read_points(tmp_path / "surface", print)
    resumed = run_ranks(taken_on_ranks, 1, str(tmp_path), ("surface",), settings)[0]
    fresh = run_ranks(taken_on_ranks, 1, str(tmp_path / "fresh"), ("surface",), settings)[0]

    assert ended == [("stopped", 143), ("stopped", 143)]
    assert len(kept) == 3 + 8
    assert resumed["surface_loss"].tobytes() == fresh["surface_loss"].tobytes()


MEASURES = [name for name in TAKE if name not in ("interpolation", "trajectory")]


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_leaves_no_trace(tmp_path: Path, name: str) -> None:
    """Weights, gradients, buffers, modes and random state are what they were."""
    model = conv_net().train()
    model[1].eval()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.5)
    pointers = [parameter.data_ptr() for parameter in model.parameters()]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    random_before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()

    TAKE[name](session(image_task(), model, tmp_path, points=3, top=1, probes=8, steps=5))

    assert [module.training for module in model] == [True, False, True, True, True]
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [parameter.data_ptr() for parameter in model.parameters()] == pointers
    assert all(bool((parameter.grad == 0.5).all()) for parameter in model.parameters())
    assert random.getstate() == random_before[0]
    assert np.random.get_state()[1].tolist() == random_before[1]
    assert torch.equal(torch.get_rng_state(), random_before[2])


def test_a_rank_holds_two_more_copies_of_the_weights_at_most(tmp_path: Path) -> None:
    """While points of a surface are evaluated, whatever the number of directions."""
    model = wide_net()
    size = 8 * sum(parameter.numel() for parameter in model.parameters())
    TAKE["line"](session(image_task(8), model, tmp_path, points=3))  # directions are made and kept

    with Memory() as memory:
        TAKE["surface"](session(image_task(8), model, tmp_path, points=3))

    assert 1.9 * size < memory.peak < 2.3 * size


def test_a_grid_counts_along_its_first_axis_first() -> None:
    """Point 0 is the lower left one, and its neighbour to the right is point 1."""
    points = grid(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0]))

    assert points.shape == (6, 2)
    assert points[[0, 1, 3]].tolist() == [[1.0, 10.0], [2.0, 10.0], [1.0, 20.0]]
