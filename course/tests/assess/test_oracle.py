"""The grader's truth is what the given train.py computes as one process."""

from __future__ import annotations

import csv
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.verify.compare import compare
from paceline_course.assess.box import read_weights
from paceline_course.assess.correctness.drawing import draw
from paceline_course.assess.kit import kit_folder
from paceline_course.assess.oracle import Setting, scores, truth


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("variant", ["plain", "tied", "frozen", "norm"])
def test_it_equals_the_given_program_for_every_variant(variant: str, tmp_path: Path) -> None:
    """Weights, buffers, losses and right answers, after both epochs; the program runs on its own."""
    setting = Setting(83, 41, 20, 2, variant, seed=5, data_seed=77, rate=0.1)
    known = truth(setting)
    words = [sys.executable, str(kit_folder() / "train.py"), *setting.arguments(), "--out", str(tmp_path)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={"OMP_NUM_THREADS": "1"})

    for epoch in range(2):
        state = read_weights(tmp_path / f"epoch-{epoch}.pt")
        assert not isinstance(state, str)
        assert compare(state, known.states[epoch]).equal(1e-13)
    with (tmp_path / "log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["right"]) for row in rows] == known.right
    assert all(math.isclose(float(row["loss"]), loss) for row, loss in zip(rows, known.losses, strict=True))
    assert int(rows[1]["steps"]) == 2 * setting.steps == 10


def test_weights_that_do_not_fit_are_refused_with_a_reason() -> None:
    """And never loaded in part."""
    with pytest.raises(ValueError, match="Missing key"):
        scores("plain", {"first.weight": np.zeros((48, 1, 9))}, 10, 1)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_drawn_is_uneven_in_every_way_that_the_task_names(seed: int) -> None:
    """A batch that the ranks cannot share evenly, last batches with one sample, and with fewer than ranks."""
    drawn = draw(seed)
    first, (tied, frozen, norm) = drawn.first, drawn.variants
    rest = [trial.setting.samples % trial.setting.batch for trial in (first, tied, frozen, norm, drawn.resume)]
    assert first.setting.batch % first.world
    assert rest[0] % first.world
    assert rest[1] == 1
    assert 0 < rest[2] < frozen.world
    assert rest[3] > 1  # one value would have no variance on one device either, but 64 of a signal do
    assert drawn.even.setting.samples % drawn.even.setting.batch == drawn.even.setting.batch % drawn.even.world == 0
    assert {trial.world for trial in (first, drawn.alone, *drawn.variants)} == {1, 2, 3, 4}
    assert draw(seed) == drawn


def test_gradings_differ_in_what_they_draw() -> None:
    """Nobody can prepare for the numbers."""
    assert len({draw(seed).first.setting for seed in range(20)}) == 20
