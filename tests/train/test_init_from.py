"""`--init-from`: a training begins with the weights of another, and with nothing else of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.pool.warm_ranks import RankFailure, run_ranks
from tests.distributed.jobs import small_task, trained

COMMON: dict[str, Any] = {
    "task": "small",
    "global_batch": 30,
    "epochs": 2,
    "lr": 0.05,
    "momentum": 0.9,
    "schedule": "constant",
    "precision": "fp64",
    "checkpoint_every": "1000",
}


def one_after_the_other(folder: str) -> dict[str, Any]:
    """A training; another that stands still on its weights, by run and by checkpoint; a third that goes on."""
    task = small_task(203, norm=True)
    first = trained(COMMON, task, f"{folder}/first")
    still = COMMON | {"lr": 0.0, "weight_decay": 0.0, "steps": 1, "epochs": None, "seed": 5}
    (checkpoint,) = Path(f"{folder}/first/checkpoints").iterdir()
    stayed = [
        trained(still | {"init_from": str(path)}, task, f"{folder}/{number}")
        for number, path in enumerate((f"{folder}/first", checkpoint))
    ]
    fresh = trained(still, task, f"{folder}/fresh")
    return {"first": first, "stayed": stayed, "fresh": fresh}


@pytest.mark.parametrize("world", [1, 2])
def test_it_begins_with_the_weights_of_another_run(world: int, tmp_path: Path) -> None:
    """To the bit, given a run or one of its checkpoints; without it a seed gives other weights."""
    for found in run_ranks(one_after_the_other, world, str(tmp_path), timeout_s=120):
        for stayed in found["stayed"]:
            for mine, theirs in zip(stayed["parameters"], found["first"]["parameters"], strict=True):
                assert np.array_equal(mine, theirs)
            assert stayed["step"] == 1
        assert not np.array_equal(found["fresh"]["parameters"][0], found["first"]["parameters"][0])


def from_another_model(folder: str) -> None:
    """The checkpoint has one class less."""
    trained(COMMON | {"epochs": 1}, small_task(203, classes=4), f"{folder}/other")
    trained(COMMON | {"init_from": f"{folder}/other"}, small_task(203), f"{folder}/mine")


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """In one message, on every rank."""
    with pytest.raises(RankFailure, match="does not fit the model"):
        run_ranks(from_another_model, 2, str(tmp_path), timeout_s=120)
