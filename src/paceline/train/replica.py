"""The objective in DistributedDataParallel, as this trainer needs it.

**Sparse gradients**, as of nn.Embedding(sparse=True), are summed over ranks as rows and values. For that DDP must know
the parameter before the first step, every rank must give it a sparse gradient in every step, and the backend must be
able to sum them: gloo is, NCCL is not. Wherever this is not so the gradient is made dense, which changes no number.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from paceline.parallel.rank_context import RankContext
from paceline.records.errors import PacelineError, choices
from paceline.tasks.task import Task
from paceline.train.batch_plan import Plan
from paceline.train.ddp_warmup import Probe, inspect_loss
from paceline.train.objective import Objective
from paceline.train.optim.table import OPTIMIZERS

BUCKET_MB = 25
"""DDP's own; given in so many words it is the size of the first bucket as well."""


def wrap(
    objective: Objective,
    task: Task,
    plan: Plan,
    context: RankContext,
    sample: Any,
    optimizer: tuple[str, torch.optim.Optimizer],
) -> tuple[DistributedDataParallel, list[str]]:
    """DDP around the objective, and notes on what a first forward has shown.

    Raises:
        PacelineError: the loss does not keep its contract, or the optimizer cannot take its sparse gradients.
    """
    counted = plan.usual_micro_batch if task.count == "samples" else None
    probe = inspect_loss(objective, sample, task.name, counted)
    settle_sparse(objective, probe, optimizer[1], optimizer[0])
    return replicate(objective, context), _remarks(probe, plan.world)


def _remarks(probe: Probe, world: int) -> list[str]:
    notes = []
    if probe.unreached:
        notes.append(
            f"the loss of the first batch does not reach {len(probe.unreached)} parameter(s), {probe.unreached[0]} "
            "first: a parameter that no sample of a step reaches stays as it is"
        )
    if probe.draws and world > 1:
        notes.append(
            "the model draws random numbers in training (dropout or the like), each worker its own: with another "
            "number of workers the run is as good as another seed"
        )
    if probe.unsaved:
        notes.append(
            f"the model changes its attribute {probe.unsaved[0]} in a forward, and no checkpoint holds that: a resumed "
            "run begins with it anew; register_buffer would keep it"
        )
    return notes


def replicate(objective: Objective, context: RankContext) -> DistributedDataParallel:
    """DDP around the objective; every rank calls this together.

    Buffers are not broadcast at every forward: they are merged before each evaluation, and each rank's own are in
    the checkpoint. Gradients are views of their buckets, which saves a copy. Static graph stays off: its first step
    must not be under no_sync (torch dies), and it gained nothing here. Nor does DDP look for unused parameters: the
    objective reaches all.

    DDP's first bucket holds 1 MB, so that its sum can begin early. Where ranks share the cores of one machine there is
    nothing idle that could do it meanwhile, and one bucket fewer is one message fewer.
    """
    # torch 2.14 gave the switch a new name and warns of the old one.
    renamed = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    settings: dict[str, Any] = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
    if context.device.type == "cpu" and context.env.world == context.env.local_world:
        settings["bucket_cap_mb"] = BUCKET_MB
    return DistributedDataParallel(
        objective,
        device_ids=[context.device.index] if context.device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        **settings,
    )


def settle_sparse(objective: Objective, probe: Probe, optimizer: torch.optim.Optimizer, name: str) -> None:
    """Decide for each parameter once, before DDP is made; every rank calls this together.

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
    summed = "gloo" in dist.get_backend() and objective.ledger.device.type == "cpu"
    kept = {own for own in wanted if summed and own in declared and own in trained}
    for layer in layers:
        layer.sparse = names[id(layer.weight)] in kept  # DDP reads it
    objective.expect_sparse(frozenset(trained[own] for own in kept))
    for own in {*probe.sparse} & trained.keys():
        if own not in kept:
            objective.trained[trained[own]].register_hook(Tensor.to_dense)
    for index in objective.sparse:
        objective.trained[index].register_hook(_to_sparse)


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
