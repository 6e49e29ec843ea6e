"""Small models are sent in one bucket where ranks share the cores of a machine."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from typing import Any

import pytest
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline.parallel.rank_context import RankContext, init_rank_context
from paceline.pool.warm_ranks import run_ranks
from paceline.tasks.task import Loss
from paceline.train.ddp_warmup import warm_up_ddp
from paceline.train.objective import Objective
from paceline.train.replica import replicate
from tests.train import ranks

MB = 2**18
"""float32 numbers in a megabyte."""


def small(context: RankContext) -> tuple[DistributedDataParallel, Objective]:
    """A network with 1.5 MB of gradients, of which the layers that are ready first make more than 1 MB."""
    model = nn.Sequential(nn.Linear(1, MB // 4, bias=False), nn.Linear(MB // 4, 5, bias=False))
    objective = Objective(model, lambda model, batch: Loss(model(batch).sum(), len(batch)), nullcontext)
    return replicate(objective, context), objective


def buckets() -> dict[str, Any]:
    """How gradients are sent, with the other ranks on this machine and elsewhere; runs on a rank."""
    context = init_rank_context(["test"])
    apart = dataclasses.replace(context, env=dataclasses.replace(context.env, local_world=1, nodes=context.env.world))
    found = {}
    for name, where in (("together", context), ("apart", apart)):
        replica, objective = small(where)
        for _ in range(2):  # the first builds the buckets, the second has their sizes written down
            warm_up_ddp(replica, objective, ranks.points(4, features=1)[0].float())
        found[name] = len(replica._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(","))
    return found


@pytest.mark.parametrize("world", [2])
def test_ranks_of_one_machine_send_small_models_in_one_bucket(world: int) -> None:
    """Ranks of several machines keep DDP's first bucket of 1 MB, whose sum overlaps with the backward."""
    assert run_ranks(buckets, world) == [{"together": 1, "apart": 2}] * world
