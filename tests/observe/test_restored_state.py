"""State that a script loads or converts, and whether a wrapper had it already."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR

from paceline.records.observed import Fingerprint
from paceline.records.observed_rank import ModelMoved, StateRestored
from tests.observe.watched import Watched, backward, line_of


def test_loaded_state_is_named_with_its_step(group: None, watched: Watched) -> None:
    """Of a model before and after it was wrapped, of its optimizer and its scheduler."""
    model = nn.Linear(4, 2)
    model.load_state_dict(model.state_dict())  # before
    wrapped = DistributedDataParallel(model)
    optimizer = SGD(wrapped.parameters(), 0.1)
    scheduler = StepLR(optimizer, 1)
    optimizer.step()
    wrapped.load_state_dict(wrapped.state_dict())
    optimizer.load_state_dict(optimizer.state_dict())
    scheduler.load_state_dict(scheduler.state_dict())

    seen = watched.of(StateRestored)
    assert [(each.what, each.name, each.step, each.after_wrap) for each in seen] == [
        ("model", "Linear", 0, False),
        ("model", "DistributedDataParallel", 1, True),
        ("optimizer", "SGD", 1, True),
        ("scheduler", "StepLR", 1, True),
    ]
    assert seen[0].place.line == line_of("before", __file__)


def test_state_that_was_loaded_after_the_last_step_is_not_the_state_of_that_step(watched: Watched) -> None:
    """As the best weights, loaded for a last evaluation on one rank."""
    model = nn.Linear(4, 2)
    optimizer = SGD(model.parameters(), 0.1)
    for _ in range(4):
        backward(model)
        optimizer.step()
    model.load_state_dict({name: torch.zeros_like(each) for name, each in model.state_dict().items()})
    watched.ends()

    assert [each.moment for each in watched.of(Fingerprint)].count("end") == 0


@pytest.mark.parametrize(("convert", "converted"), [(lambda m: m.half(), 2), (lambda m: m.double(), 2)])
def test_a_wrapped_model_that_is_converted_is_reported(group: None, watched: Watched, convert, converted: int) -> None:
    """DDP registered the parameters as they were."""
    model = nn.Linear(4, 2)
    wrapped = DistributedDataParallel(model)
    convert(wrapped)

    (seen,) = watched.of(ModelMoved)
    assert (seen.number, seen.replaced, seen.converted) == (0, 0, converted)


def test_parameters_that_are_replaced_are_counted(group: None, watched: Watched) -> None:
    """With the setting of torch under which conversions make new parameters."""
    model = nn.Linear(4, 2)
    wrapped = DistributedDataParallel(model)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        model.double()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)

    (seen,) = watched.of(ModelMoved)
    assert (seen.replaced, seen.converted) == (2, 2)
    assert wrapped.module is model


def test_conversions_that_change_nothing_or_another_model_are_not_reported(group: None, watched: Watched) -> None:
    """`.cpu()` on the processor, `.float()` of floats, and whatever happens before wrapping."""
    model = nn.Sequential(nn.Linear(4, 2), nn.LSTM(2, 2))
    model.double().float()
    wrapped = DistributedDataParallel(model)
    wrapped.cpu().float()
    nn.Linear(4, 2).half()

    assert watched.of(ModelMoved) == []
