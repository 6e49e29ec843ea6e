"""Digests of state: equal exactly for equal bits, and taken when the state of a step is complete."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from paceline.observe.probes.replica_state import random_digests
from paceline.observe.tensor_digest import tensor_digest
from paceline.records.observed import Fingerprint
from tests.observe.watched import Watched, backward, watching


def states(watched: Watched, moment: str = "state") -> dict[int, dict[str, str]]:
    """Digests by step."""
    return {each.step: each.digests for each in watched.of(Fingerprint) if each.moment == moment}


def train(change: Callable[[int, nn.Module], None] = lambda step, model: None) -> dict[int, dict[str, str]]:
    """Train for four steps, each followed by a change; gives the digests after those that have some."""
    with watching() as watched:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        optimizer = Adam(model.parameters(), 0.1)
        for step in (1, 2, 3, 4):
            optimizer.zero_grad()
            backward(model)
            optimizer.step()
            change(step, model)
        backward(model)
    return states(watched)


def test_equal_trainings_have_equal_digests_and_one_changed_bit_shows_in_its_tensor_alone() -> None:
    """The lowest bit of one weight is flipped after step 3; all of Adam's state stays equal until the next step."""

    def flip(step: int, model: nn.Module) -> None:
        if step == 3:
            model[1].weight.data.view(torch.int32)[1, 2] ^= 1

    expected, same, flipped = train(), train(), train(flip)

    assert list(expected) == [1, 2, 3]
    assert same == expected
    assert flipped[2] == expected[2]
    assert {name for name in expected[3] if flipped[3][name] != expected[3][name]} == {"parameter:Sequential/1.weight"}


def test_everything_that_ranks_should_have_in_common_has_a_digest(group: None, watched: Watched) -> None:
    """Parameters, buffers, optimizer state and random states by name; gradients as the optimizer takes them."""
    inner = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))
    model = DistributedDataParallel(inner)
    optimizer = SGD(model.parameters(), 0.1, momentum=0.9)
    backward(model)
    weight = inner[0].weight.detach().clone()
    gradient = inner[0].weight.grad.clone()
    optimizer.step()
    backward(model)

    start, gradients, state = watched.of(Fingerprint)
    parameters = [name for name, _ in inner.named_parameters()]
    buffers = [name for name, _ in inner.named_buffers()]
    assert (start.step, start.moment) == (0, "start")
    assert set(start.digests) == {f"parameter:{n}" for n in parameters} | {f"buffer:{n}" for n in buffers}
    assert start.digests["parameter:0.weight"] == tensor_digest(weight)
    assert (gradients.step, gradients.moment) == (1, "gradients")
    assert set(gradients.digests) == {f"gradient:{name}" for name in parameters}
    assert gradients.digests["gradient:0.weight"] == tensor_digest(gradient)
    assert (state.step, state.moment) == (1, "state")
    assert set(state.digests) == set(start.digests) | {f"optimizer:{n}:momentum_buffer" for n in parameters} | {
        "random:torch",
        "random:python",
        "random:numpy",
    }
    assert state.digests["parameter:0.weight"] == tensor_digest(inner[0].weight)


def test_loose_parameters_and_those_of_a_second_optimizer_have_names(watched: Watched) -> None:
    """A temperature beside the model, as in contrastive learning."""
    model, temperature = nn.Linear(4, 2), nn.Parameter(torch.ones(1))
    first, second = SGD(model.parameters(), 0.1), SGD([temperature], 0.1, momentum=0.5)
    (model(torch.ones(2, 4)) * temperature).sum().backward()
    first.step()
    second.step()
    backward(model)

    gradients = [each.digests for each in watched.of(Fingerprint) if each.moment == "gradients"]
    assert set(gradients[0]) == {"gradient:Linear/weight", "gradient:Linear/bias"}
    assert set(gradients[1]) == {"gradient:SGD#1/0"}
    (state,) = states(watched).values()
    assert "optimizer:1/SGD#1/0:momentum_buffer" in state


def test_state_is_taken_after_schedulers_and_averages_and_not_before(watched: Watched) -> None:
    """The next backward pass is the instant: the script changes weights once more after `optimizer.step()`."""
    model = nn.Linear(4, 2)
    optimizer = SGD(model.parameters(), 0.1)
    scheduler = StepLR(optimizer, 1, 0.5)
    backward(model)
    optimizer.step()
    scheduler.step()
    before = tensor_digest(model.weight)
    model.weight.data.lerp_(torch.zeros(2, 4), 0.5)
    after = tensor_digest(model.weight)
    assert states(watched) == {}
    backward(model)

    assert before != after
    assert states(watched)[1]["parameter:Linear/weight"] == after


def test_asking_a_loader_for_a_batch_is_an_instant_as_well(watched: Watched) -> None:
    """Augmentation on the main process may draw random numbers after it."""
    model = nn.Linear(4, 2)
    optimizer = SGD(model.parameters(), 0.1)
    seen = []
    for _ in DataLoader(TensorDataset(torch.ones(3, 4))):
        seen.append(list(states(watched)))
        optimizer.step()

    assert seen == [[], [1], [1, 2]]


def test_the_end_of_a_script_is_an_instant(watched: Watched) -> None:
    """Step 4 is none of the steps with digests; what the script ends with is compared all the same."""
    model = nn.Linear(4, 2)
    optimizer = SGD(model.parameters(), 0.1)
    for _ in range(4):
        optimizer.step()
        backward(model)
    watched.ends()

    assert states(watched, "end")[4]["parameter:Linear/weight"] == tensor_digest(model.weight)


def test_an_evaluation_begins_with_a_digest_of_the_weights(watched: Watched) -> None:
    """Whether ranks evaluate the same model: no optimizer state, no random state."""
    model = nn.Linear(4, 2)
    SGD(model.parameters(), 0.1).step()
    with torch.no_grad():
        list(DataLoader(TensorDataset(torch.ones(3, 4))))

    assert states(watched, "evaluation") == {
        1: {f"parameter:Linear/{name}": tensor_digest(each) for name, each in model.named_parameters()}
    }


def test_digests_of_random_states_change_with_each_generator_and_draw_nothing() -> None:
    """Each generator has its own digest; the same seed gives the same."""
    draws = {
        "random:torch": lambda: torch.rand(1),
        "random:python": random.random,
        "random:numpy": lambda: np.random.rand(),
    }

    def seed() -> None:
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)

    seed()
    expected = random_digests()
    assert random_digests() == expected
    for name, draw in draws.items():
        draw()
        changed = random_digests()
        assert {each for each in expected if changed[each] != expected[each]} == {name}
        seed()
        assert random_digests() == expected
