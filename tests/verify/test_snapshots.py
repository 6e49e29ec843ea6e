"""States as files: names, and what is left out."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from paceline.observe.model_registry import ModelRegistry
from paceline.observe.parity import snapshots


def trained() -> tuple[ModelRegistry, nn.Module, torch.optim.Optimizer]:
    """A model that Adam has trained for a step; its last parameter has no gradient."""
    models, model = ModelRegistry(), nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    optimizer = torch.optim.Adam(model.parameters())
    model[2].bias.requires_grad_(False)
    model(torch.randn(4, 2)).sum().backward()
    models.add_optimizer(optimizer)
    optimizer.step()
    return models, model, optimizer


def test_parameters_buffers_and_moments_have_names() -> None:
    """The same in every process that runs the script."""
    models, _, optimizer = trained()
    state = snapshots.model_state(models) | snapshots.optimizer_state(models)

    assert {"parameter:Sequential/0.weight", "buffer:Sequential/1.running_mean"} <= state.keys()
    assert "optimizer:0/Sequential/0.weight:exp_avg" in state
    assert "optimizer:0/Sequential/2.bias:exp_avg" not in state
    assert "gradient:Sequential/2.weight" in snapshots.gradients(models, optimizer)
    assert "gradient:Sequential/2.bias" not in snapshots.gradients(models, optimizer)


def test_parameters_that_no_module_holds_belong_to_their_optimizer() -> None:
    """As the weights of a loss that a script keeps as tensors."""
    models, loose = ModelRegistry(), torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([loose])
    models.add_optimizer(optimizer)

    assert list(snapshots.model_state(models)) == ["parameter:SGD/0"]


def test_every_module_of_the_process_is_in_the_start() -> None:
    """Those that are trained later as well: a teacher, a second network."""
    kept = [nn.Linear(11, 7), nn.Linear(11, 7)]
    names = [name for name in snapshots.all_models() if name.startswith("Linear [(7, 11), (7,)]")]

    assert len(kept) == len(names) / 2
    assert len(set(names)) == 4


def test_tensors_that_no_file_can_hold_are_left_out(tmp_path: Path) -> None:
    """Views are written whole, sparse tensors not at all."""
    base = torch.arange(6.0).reshape(2, 3)
    snapshots.write_tensors(tmp_path / "new" / "a.safetensors", {"view": base.T, "sparse": base.to_sparse()})
    written = load_file(tmp_path / "new" / "a.safetensors")

    assert list(written) == ["view"]
    assert torch.equal(written["view"], base.T)
