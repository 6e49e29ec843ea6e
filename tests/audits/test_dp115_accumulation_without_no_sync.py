"""Micro-steps that DDP reduces one by one are mentioned: the result is right, the reductions are wasted."""

from __future__ import annotations

import pytest

from paceline.audits.dp115_accumulation_without_no_sync import AccumulationWithoutNoSync
from tests.audits.observed_events import at, found, job, step, without


def accumulating(count=3, micro=4, **other):
    """Steps with several micro-steps."""
    return [step(number, **({"forwards": micro, "backwards": micro} | other)) for number in range(1, count + 1)]


def test_reductions_that_could_be_left_out_are_counted():
    """Three of four."""
    (finding,) = found(AccumulationWithoutNoSync, job(lambda rank: accumulating(), world=3))

    assert (finding.severity, finding.faults, finding.line) == ("info", ["F28", "F26"], 20)
    assert "3 of 4 reductions could be left out" in finding.message


@pytest.mark.parametrize(("text", "fault"), [("with ddp.no_sync():\n", "F26"), ("if True:\n", "F28")])
def test_no_sync_around_the_backward_pass_alone_is_told_apart_by_the_script(tmp_path, text, fault):
    """It has no effect there."""
    script = tmp_path / "train.py"
    script.write_text(f"loss = ddp(x)\n{text}    loss.backward()\n")

    (finding,) = found(AccumulationWithoutNoSync, job(lambda rank: accumulating(backward_place=at(3, str(script)))))

    assert finding.faults == [fault]


@pytest.mark.parametrize(
    "other",
    [
        {"micro": 1},
        {"count": 2},
        {"micro": 2, "synchronized": [False, True]},
        {"forwards": 1, "backwards": 4},
        {"forwards": 2, "backwards": 3},
    ],
    ids=["no accumulation", "too few steps", "within no_sync", "several losses of one pass", "and of two"],
)
def test_other_patterns_are_fine(other):
    """Nothing could be left out, or too little was seen."""
    assert found(AccumulationWithoutNoSync, job(lambda rank: accumulating(**other))) == []


def test_several_optimizers_share_passes_and_are_not_judged():
    """As in a GAN."""
    assert found(AccumulationWithoutNoSync, job(lambda rank: [*accumulating(), step(1, optimizer=1)])) == []


def test_a_rank_that_wrote_nothing_does_not_hide_it():
    """And one process alone has nothing to reduce."""
    assert len(found(AccumulationWithoutNoSync, without(job(lambda rank: accumulating()), 0))) == 1
    assert found(AccumulationWithoutNoSync, job(lambda rank: accumulating(), world=1)) == []
