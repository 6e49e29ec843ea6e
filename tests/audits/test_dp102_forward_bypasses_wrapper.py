"""Backward passes that DDP did not prepare are an error where the ranks part, and nothing where they agree."""

from __future__ import annotations

import pytest

from paceline.audits.dp102_forward_bypasses_wrapper import ForwardBypassesWrapper
from paceline.records.observed_rank import GradientTaken
from tests.audits.observed_events import (
    NAMES,
    at,
    collective,
    fingerprint,
    found,
    job,
    optimizer,
    states,
    step,
    unwrapped,
    without,
    wrapped,
)

STEPS = (1, 2, 3, 5)


def bypassing(rank, *, place=None, differ=NAMES, since=1, **other):
    """A loop that goes round the wrapper from a step on."""
    yield wrapped()
    yield optimizer()
    for number in STEPS:
        yield unwrapped(number, forward_place=place, **other) if number >= since else step(number)
        yield from states(rank, [number], differ, since=since)


def test_training_round_the_wrapper_is_an_error_with_step_and_effect():
    """Where the file cannot be read, both faults are named."""
    (finding,) = found(ForwardBypassesWrapper, job(bypassing))

    assert (finding.severity, finding.faults, finding.step) == ("error", ["F37", "F38"], 1)
    assert "rank 1 holds different values of fc1.weight and 2 more after step 1" in finding.message
    assert finding.line == 21


@pytest.mark.parametrize(("line", "fault"), [("    out = ddp.module(x)\n", "F37"), ("    out = net(x)\n", "F38")])
def test_the_line_of_the_script_tells_the_two_faults_apart(tmp_path, line, fault):
    """It is read where the file is there."""
    script = tmp_path / "train.py"
    script.write_text(line)

    (finding,) = found(ForwardBypassesWrapper, job(lambda rank: bypassing(rank, place=at(1, str(script)))))

    assert finding.faults == [fault]
    assert (finding.path, finding.line) == (str(script), 1)


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (["net = self.accelerator.unwrap_model(model)", "", "out = net(**inputs)"], "F37"),
        (["self.net = ddp.module", "out = self.net.features(x)"], "F37"),
        (["ddp = DDP(net)", "state = ddp.module.state_dict()", "out = net(x)"], "F38"),
        (["if net == ddp.module:", "    out = net(x)"], "F38"),
    ],
)
def test_what_is_called_may_have_been_unwrapped_above(tmp_path, lines, fault):
    """Only an assignment to the name that is called counts."""
    script = tmp_path / "train.py"
    script.write_text("\n".join(lines))

    (finding,) = found(ForwardBypassesWrapper, job(lambda rank: bypassing(rank, place=at(len(lines), str(script)))))

    assert finding.faults == [fault]


def test_a_bypass_that_begins_later_is_the_cause_of_what_follows():
    """With three ranks."""
    (finding,) = found(ForwardBypassesWrapper, job(lambda rank: bypassing(rank, since=3), world=3))

    assert finding.step == 3
    assert "1/3 of the data" in finding.message


def test_the_second_of_two_wrapped_models_is_found():
    """Its tensors have its number before their names."""
    (finding,) = found(ForwardBypassesWrapper, job(lambda rank: bypassing(rank, differ=["1/fc1.weight"])))

    assert "1/fc1.weight" in finding.message


def test_a_difference_that_is_older_than_the_bypass_has_another_cause():
    """The bypass began at step 3."""

    def events(rank):
        yield wrapped()
        yield from states(rank, (1, 2, 3), NAMES)
        yield unwrapped(3)

    assert found(ForwardBypassesWrapper, job(events)) == []


def test_backward_passes_of_their_own_are_fine_while_the_ranks_agree():
    """A second loss after one forward pass, a gradient penalty, gradients that the script reduces itself."""
    assert found(ForwardBypassesWrapper, job(lambda rank: bypassing(rank, differ=()))) == []
    assert found(ForwardBypassesWrapper, job(lambda rank: bypassing(rank, differ=(), own_reductions=2))) == []


def test_a_second_network_without_wrapper_is_another_fault():
    """A discriminator that nobody wrapped differs; the wrapped generator agrees."""
    events = job(lambda rank: bypassing(rank, differ=["Discriminator/0.weight"]))

    assert found(ForwardBypassesWrapper, events) == []


def test_gradients_by_autograd_grad_are_another_fault():
    """MAML has backward passes of its own too."""
    events = job(lambda rank: [GradientTaken(step=1, parameters=3), *bypassing(rank)])
    later = job(lambda rank: [*bypassing(rank), GradientTaken(step=5, parameters=3)])

    assert found(ForwardBypassesWrapper, events) == []
    assert len(found(ForwardBypassesWrapper, later)) == 1


def test_without_a_wrapped_model_it_is_another_fault():
    """There is nothing to go round."""
    events = job(lambda rank: [optimizer(), unwrapped(1), *states(rank, STEPS, NAMES)])

    assert found(ForwardBypassesWrapper, events) == []


def test_a_plain_loop_is_no_finding():
    """Each backward pass follows a forward pass of the wrapper."""
    events = job(lambda rank: [wrapped(), optimizer(), *map(step, STEPS), *states(rank, STEPS)])

    assert found(ForwardBypassesWrapper, events) == []


def test_local_sgd_round_the_wrapper_is_left_alone():
    """Parameters are averaged later."""
    events = job(lambda rank: [*bypassing(rank), collective(on="parameters", step=4)])

    assert found(ForwardBypassesWrapper, events) == []


def unseen(rank, **other):
    """The same loop, without any fingerprint."""
    yield wrapped()
    yield optimizer(wrapped=other.pop("held", 3))
    for number in STEPS:
        yield unwrapped(number, **other)


def test_without_fingerprints_steps_that_reduce_nothing_are_a_warning():
    """They are probably wrong."""
    (finding,) = found(ForwardBypassesWrapper, job(unseen))

    assert finding.severity == "warning"


@pytest.mark.parametrize(
    "other",
    [
        {"own_reductions": 1},
        {"reductions": 4},
        {"held": 0},
        {"own_averages": 1},
        {"forwards": 1, "synchronized": [True]},
    ],
)
def test_without_fingerprints_any_sign_of_a_reduction_is_enough_to_be_silent(other):
    """By hand, by a library, of another model, an average of parameters, or a second loss."""
    assert found(ForwardBypassesWrapper, job(lambda rank: unseen(rank, **other))) == []


def test_without_fingerprints_one_step_is_not_enough():
    """Nor are steps whose gradients come from elsewhere."""
    once = [wrapped(), step(1), optimizer(), unwrapped(2), step(3)]
    taken = GradientTaken(step=0, parameters=3)

    assert found(ForwardBypassesWrapper, job(lambda rank: once)) == []
    assert found(ForwardBypassesWrapper, job(lambda rank: [taken, *unseen(rank)])) == []


def test_a_rank_that_wrote_nothing_gives_no_finding():
    """Nor do fingerprints of one rank only."""
    assert found(ForwardBypassesWrapper, without(job(bypassing), 1)) == []
    assert found(ForwardBypassesWrapper, without(job(unseen), 1)) == []
    assert (
        found(ForwardBypassesWrapper, job(lambda rank: [*unseen(rank), *[fingerprint(0, 5, "state")] * (rank == 0)]))
        == []
    )
