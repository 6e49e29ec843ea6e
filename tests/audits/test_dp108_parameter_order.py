"""DDP pairs parameters by position: ranks that register them in another order are an error."""

from __future__ import annotations

from paceline.audits.dp108_parameter_order import ParameterOrder
from tests.audits.observed_events import NAMES, found, job, without, wrapped


def shuffled(rank):
    """Rank 1 builds its modules in another order."""
    first, second, third = NAMES
    names = [second, first, third] if rank == 1 else list(NAMES)
    return [wrapped(order="other" if rank == 1 else "abc", first_names=names)]


def test_another_order_is_an_error_that_names_the_first_pair():
    """By position."""
    (finding,) = found(ParameterOrder, job(shuffled))

    assert (finding.severity, finding.faults, finding.rank, finding.line) == ("error", ["F46"], 1, 10)
    assert "parameter 0 is fc1.weight on rank 0 and fc1.bias on rank 1" in finding.message


def test_of_three_ranks_the_one_that_differs_is_named():
    """Rank 2 agrees with rank 0."""
    (finding,) = found(ParameterOrder, job(shuffled, world=3))

    assert "fc1.bias on rank 1)" in finding.message


def test_orders_that_differ_beyond_the_first_names_are_found_as_well():
    """Or in shapes and types."""
    (finding,) = found(ParameterOrder, job(lambda rank: [wrapped(order=str(rank))]))

    assert "rank 1 registered other names, shapes or types than rank 0" in finding.message


def test_of_several_models_the_first_is_named():
    """One finding per cause."""
    events = job(lambda rank: [wrapped(order=str(rank)), wrapped(1, model="Critic", order=str(rank))])

    (finding,) = found(ParameterOrder, events)

    assert "parameters of Net" in finding.message


def test_equal_orders_are_fine():
    """Also of two models that differ from each other."""
    assert found(ParameterOrder, job(lambda rank: [wrapped(), wrapped(1, order="second")])) == []


def test_models_of_smaller_groups_are_not_compared():
    """Stages of a pipeline differ."""
    assert found(ParameterOrder, job(lambda rank: [wrapped(size=2, order=str(rank // 2))], world=4)) == []


def test_a_rank_that_wrote_nothing_gives_no_finding():
    """It has not wrapped its model."""
    assert found(ParameterOrder, without(job(shuffled, world=3), 2)) == []
