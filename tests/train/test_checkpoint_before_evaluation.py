"""The checkpoint of a step comes before its evaluation: what fails there costs no training, and is made up for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.pool.warm_ranks import run_ranks
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.records.schema import Checkpoint, Evaluation, Note
from paceline.train import loop
from tests.distributed.jobs import small_task_with_norm, trained

FLAGS: dict[str, Any] = {
    "task": "small",
    "global_batch": 30,
    "steps": 12,
    "lr": 0.02,
    "optimizer": "sgd",
    "schedule": "constant",
    "precision": "fp64",
    "eval_every": "4",
    "checkpoint_every": "4",
    "keep": 9,
}


def attempt(base: str, flags: dict[str, Any], fails_at: int = 0, resumed: bool = False) -> Any:
    """How a training ends whose evaluation number `fails_at` fails; runs on a rank."""
    evaluate, count = loop.evaluate, 0

    def failing(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == fails_at:
            raise ZeroDivisionError("a metric of the task")
        return evaluate(*arguments)

    loop.evaluate = failing
    more = {"resume": base} if resumed else {}
    try:
        return trained(FLAGS | flags | more, small_task_with_norm(90), base)
    except ZeroDivisionError:
        return None


def evaluations(base: Path) -> list[tuple[int, dict[str, float]]]:
    """Of the record, in order."""
    found = [event for event in EventStream(RunDir(base).events(0)) if isinstance(event, Evaluation)]
    return [(event.step, {name: measure.value for name, measure in event.metrics.items()}) for event in found]


@pytest.mark.parametrize("more", [{}, {"target": "loss=9", "patience": 2}, {"average": "ema", "eval_every": "6"}])
@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_failing_evaluation_costs_no_step_and_the_resumed_run_makes_up_for_it(
    fails_at: int, more: dict[str, Any], tmp_path: Path
) -> None:
    """Two ranks with a batch norm: bits, evaluations and the end are those of an undisturbed run."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    reference = run_ranks(attempt, 2, str(whole), more)

    failed = run_ranks(attempt, 2, str(cut), more, fails_at)
    kept = sorted(path.name for path in (cut / "checkpoints").iterdir())
    again = run_ranks(attempt, 2, str(cut), more, 0, True)

    assert failed == [None, None]
    if "average" not in more:
        assert kept[-1] == f"step-{4 * fails_at:08d}"
    for one, other in zip(reference, again, strict=True):
        assert (one["outcome"], one["step"]) == (other["outcome"], other["step"])
        for name in ("parameters", "buffers", "averaged"):
            assert all(np.array_equal(a, b) for a, b in zip(one[name], other[name], strict=True))
    assert evaluations(whole) == evaluations(cut)


def test_a_run_that_is_over_is_not_evaluated_in_the_record_again(tmp_path: Path) -> None:
    """Its last checkpoint stands before its last evaluation, which the record has."""
    run_ranks(attempt, 1, str(tmp_path), {})
    before = evaluations(tmp_path)

    [found] = run_ranks(attempt, 1, str(tmp_path), {}, 0, True)

    assert found["outcome"] == "finished"
    assert evaluations(tmp_path) == before
    notes = [event.message for event in EventStream(RunDir(tmp_path).events(0)) if isinstance(event, Note)]
    assert "this run had already reached its end: nothing was left to do" in notes


def test_each_checkpoint_is_written_before_the_evaluation_of_its_step(tmp_path: Path) -> None:
    """Also the first and the last one."""
    run_ranks(attempt, 1, str(tmp_path), {})

    events = [e for e in EventStream(RunDir(tmp_path).events(0)) if isinstance(e, Checkpoint | Evaluation)]
    kinds = [(type(event), event.step) for event in events]

    assert kinds == [(kind, step) for step in (4, 8, 12) for kind in (Checkpoint, Evaluation)]
