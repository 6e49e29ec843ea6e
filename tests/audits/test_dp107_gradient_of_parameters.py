"""`torch.autograd.grad` of parameters is an error where the ranks part, and nothing by itself."""

from __future__ import annotations

from paceline.audits.dp107_gradient_of_parameters import GradientOfParameters
from paceline.records.observed_rank import GradientTaken
from tests.audits.observed_events import NAMES, at, fingerprint, found, job, states, step, without, wrapped

STEPS = (1, 2, 3)


def taking(rank, *, differ=NAMES, first=0):
    """Gradients taken from a step on."""
    yield wrapped()
    for number in STEPS:
        if number > first:
            yield GradientTaken(step=number - 1, parameters=3, place=at(19))
        yield step(number, backwards=0)
        yield from states(rank, [number], differ)


def test_gradients_that_ddp_does_not_see_are_an_error_where_the_ranks_part():
    """Named with their line."""
    (finding,) = found(GradientOfParameters, job(taking))

    assert (finding.severity, finding.faults, finding.step, finding.line) == ("error", ["F44"], 1, 19)
    assert "rank 1 holds different values" in finding.message


def test_three_ranks_give_one_finding():
    """Of three, two differ from rank 0."""
    (finding,) = found(GradientOfParameters, job(taking, world=3))

    assert "ranks 1 and 2" in finding.message


def test_gradients_that_the_script_averages_are_fine():
    """The ranks agree."""
    assert found(GradientOfParameters, job(lambda rank: taking(rank, differ=()))) == []


def test_a_difference_without_such_calls_has_another_cause():
    """So has one that came before them, or before the first step."""
    start = job(lambda rank: [*taking(rank), fingerprint(rank, 0, "start", NAMES)])
    assert found(GradientOfParameters, start) == []
    assert found(GradientOfParameters, job(lambda rank: taking(rank, first=9))) == []
    assert found(GradientOfParameters, job(lambda rank: taking(rank, first=2))) == []


def test_a_rank_that_wrote_nothing_gives_no_finding():
    """There is nothing to compare with."""
    assert found(GradientOfParameters, without(job(taking), 1)) == []
