"""Gradient norms are put together from the files of all ranks, as far as all ranks have them."""

from __future__ import annotations

from pathlib import Path

from paceline.records.gradients import StepNorms, read_gradient_norms
from paceline.records.rundir import RunDir
from paceline.records.schema import GradientNorms
from tests.records.samples import start, step, write_lines


def norms(number: int, samples: list[int], squares: list[float | None], reduced: float | None = 0.5) -> GradientNorms:
    """Of one rank, in a batch of 8."""
    return GradientNorms(step=number, batch=8, samples=samples, squares=squares, reduced=reduced)


def written(root: Path, *ranks: list) -> RunDir:
    """A run directory with these events."""
    run = RunDir(root)
    for rank, events in enumerate(ranks):
        run.events(rank).parent.mkdir(exist_ok=True)
        write_lines(run.events(rank), *events)
    return run


def test_groups_of_all_ranks_stand_in_rank_order(tmp_path: Path) -> None:
    """A rank without samples adds no group; other events do not matter."""
    one = [start(0), step(1), norms(1, [2, 2], [1.0, 2.0]), step(2), norms(2, [4], [3.0], 0.7)]
    two = [start(0), norms(1, [4], [4.0]), norms(2, [4], [5.0], 0.7)]

    found = read_gradient_norms(written(tmp_path, one, two, [start(0), norms(1, [], []), norms(2, [], [], 0.7)]))

    assert found == [StepNorms(1, [2, 2, 4], [1.0, 2.0, 4.0], 0.5), StepNorms(2, [4, 4], [3.0, 5.0], 0.7)]


def test_steps_that_not_all_ranks_have_are_left_out(tmp_path: Path) -> None:
    """A rank that was killed had not handed its last lines over; a torn line is no line."""
    one = [start(0), norms(1, [4], [1.0]), norms(2, [4], [1.0])]
    two = [start(0), norms(1, [4], [1.0]), b'{"type":"gradients","step":2,"ba']

    assert [row.step for row in read_gradient_norms(written(tmp_path, one, two))] == [1]


def test_what_a_later_session_did_again_counts_once(tmp_path: Path) -> None:
    """Also when that session has fewer ranks: the files of the others end where it went on."""
    one = [start(0), norms(1, [4], [1.0]), norms(2, [4], [9.0]), start(1, session=2), norms(2, [8], [2.0])]
    two = [start(0), norms(1, [4], [1.0]), norms(2, [4], [9.0])]

    found = read_gradient_norms(written(tmp_path, one, two))

    assert found == [StepNorms(1, [4, 4], [1.0, 1.0], 0.5), StepNorms(2, [8], [2.0], 0.5)]


def test_norms_that_are_no_finite_number_are_left_out(tmp_path: Path) -> None:
    """A gradient that overflowed says nothing of noise."""
    events = [start(0), norms(1, [4, 4], [1.0, None]), norms(2, [4, 4], [1.0, 1.0], None), norms(3, [4, 4], [1.0, 1.0])]

    assert [row.step for row in read_gradient_norms(written(tmp_path, events))] == [3]


def test_a_run_without_norms_has_none(tmp_path: Path) -> None:
    """Nor has one without events."""
    assert read_gradient_norms(written(tmp_path, [start(0), step(1)])) == []
    assert read_gradient_norms(RunDir(tmp_path / "none")) == []
