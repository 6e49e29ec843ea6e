"""Which parameters have sparse gradients, as of nn.Embedding(sparse=True), and which may keep them.

A sparse gradient is summed over ranks as rows and values. For that DDP must know the parameter before the first step,
every rank must give it a sparse gradient in every step, and the backend must be able to sum them: gloo is, NCCL is not.
Wherever this is not so the gradient is made dense, which changes no number.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.records.errors import PacelineError, choices
from paceline.train.objective import Objective
from paceline.train.optim.table import OPTIMIZERS
from paceline.train.settle import Probe


def settle_sparse(objective: Objective, probe: Probe, optimizer: torch.optim.Optimizer, name: str) -> None:
    """Decide for each parameter once, before DDP is made; every rank calls this together.

    Args:
        objective: what DDP will wrap.
        probe: of its model.
        optimizer: over the model's parameters.
        name: of the optimizer.

    Raises:
        PacelineError: the optimizer cannot take a sparse gradient that the model gives.
    """
    model = objective.model
    names = {id(parameter): own for own, parameter in model.named_parameters()}
    layers = [m for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag)) and m.sparse]
    declared = {names[id(layer.weight)] for layer in layers}
    wanted = [own for own in names.values() if own in declared | {*probe.sparse} and own not in probe.dense]
    trained = {names[id(parameter)]: index for index, parameter in enumerate(objective.trained)}
    _require_support(optimizer, name, {own: objective.trained[trained[own]] for own in wanted if own in trained})
    kept = {own for own in wanted if own in declared and own in trained and _sums_sparse(objective.ledger.device)}
    for layer in layers:
        layer.sparse = names[id(layer.weight)] in kept  # DDP reads it
    objective.expect_sparse(frozenset(trained[own] for own in kept))
    for own in {*probe.sparse} & trained.keys():
        if own not in kept:
            objective.trained[trained[own]].register_hook(Tensor.to_dense)
    for index in objective.sparse:
        objective.trained[index].register_hook(_to_sparse)


def _sums_sparse(device: torch.device) -> bool:
    return "gloo" in dist.get_backend() and device.type == "cpu"


def _to_sparse(gradient: Tensor) -> Tensor:
    """As rows, like those of an embedding."""
    return gradient if gradient.is_sparse else gradient.to_sparse(1)


def _require_support(optimizer: torch.optim.Optimizer, name: str, sparse: dict[str, Tensor]) -> None:
    able = [key for key, entry in OPTIMIZERS.items() if entry.sparse]
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    for own, parameter in sparse.items():
        if name not in able:
            raise PacelineError(
                f"the optimizer {name} does not take the sparse gradient of {own}",
                hint=f"build its layer with sparse=False, or use --optimizer {choices(able)}",
            )
        if decays[id(parameter)]:
            raise PacelineError(
                f"weight decay cannot be applied to the sparse gradient of {own}",
                why="it would move every row in each step, not only those that the batch used",
                hint="build its layer with sparse=False, or use --weight-decay 0",
            )
