"""Requests for shorter types give float64, and half precision is noted."""

from __future__ import annotations

import torch
from torch import nn

from paceline.observe.parity.precision import InDouble


def test_casts_and_factories_give_float64() -> None:
    """`model.half()`, `x.float()` and `dtype=`."""
    asked: list[torch.dtype] = []
    with InDouble(asked.append):
        model = nn.Linear(2, 2).double().half()
        given = torch.zeros(3, 2, dtype=torch.float32)
        made = model(given.bfloat16()).float()

    assert {each.dtype for each in (model.weight, given, made)} == {torch.float64}
    assert set(asked) == {torch.float16, torch.bfloat16}


def test_integers_stay_integers() -> None:
    """Indices and counts."""
    with InDouble(lambda _: None):
        assert torch.zeros(2).long().dtype == torch.int64


def test_a_grad_scaler_keeps_its_scale_in_float32() -> None:
    """Its kernels take no other."""
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
    optimizer, scaler = torch.optim.SGD([weight], lr=0.5), torch.amp.GradScaler("cpu")
    with InDouble(lambda _: None):
        scaler.scale((weight * 2).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    assert weight.tolist() == [0, 0]
