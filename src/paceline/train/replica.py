"""The objective in DistributedDataParallel, as this trainer needs it."""

from __future__ import annotations

import inspect
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from paceline.parallel.rank_context import RankContext
from paceline.train.objective import Objective

BUCKET_MB = 25
"""DDP's own; given in so many words it is the size of the first bucket as well."""


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
