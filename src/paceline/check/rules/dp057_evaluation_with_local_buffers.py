"""Ranks evaluate their shards with running statistics that differ.

What it does:
    Looks for evaluation through `ddp.module` on every rank, of a model with BatchNorm layers that are not synchronized.

Why is this bad:
    DDP broadcasts the buffers of rank 0 at the start of each training forward. After the last batch of an epoch every
    rank has its own running mean and variance; a forward through `.module` uses them, so each shard is scored by
    another model than the one that is saved.

Repair:
    Broadcast the buffers from rank 0 before evaluating, evaluate through the wrapper, or use SyncBatchNorm.

Known problems:
    The difference is small when batches are large.

References:
    F57. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.call_order import trains
from paceline.check.analyses.model_structure import synchronizes_batch_norm, synchronizes_buffers, wrapped_structure
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.value_origins import without_gradients
from paceline.check.analyses.wrapped_models import unwraps
from paceline.check.rule import Rule, Violation

_NET = """
            dist.init_process_group("gloo")
            rank = dist.get_rank()
            loader = DataLoader(Numbers(), sampler=DistributedSampler(Numbers()))
            model = DDP(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

            def train():
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()

"""


class EvaluationWithLocalBuffers(Rule):
    """Sharded evaluation through the inner model."""

    code, name, topic = "DP057", "evaluation-with-local-buffers", "buffers"
    faults = ("F57",)
    severity = "info"
    valid = {
        "buffers are broadcast before": _NET
        + """
            @torch.no_grad()
            def evaluate():
                for buffer in model.buffers():
                    dist.broadcast(buffer, 0)
                for x, y in loader:
                    print(model.module(x))

            train()
            evaluate()
        """,
        "rank 0 evaluates alone": _NET
        + """
            train()
            if rank == 0:
                with torch.no_grad():
                    for x, y in loader:
                        print(model.module(x))
        """,
    }
    invalid = {
        "every rank, through .module": _NET
        + """
            @torch.no_grad()
            def evaluate():
                for x, y in loader:
                    print(model.module(x))  # here

            train()
            evaluate()
        """,
        "a name for the inner model": _NET
        + """
            net = model.module
            train()
            with torch.no_grad():
                for x, y in loader:
                    print(net(x))  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers or synchronizes_batch_norm(script) or synchronizes_buffers(script):
            return
        layers = wrapped_structure(script).batch_norms()
        if not layers or not script.loops.training:
            return
        for loop in script.all_loops:
            if script.where(loop) is not Ranks.ALL or trains(script, loop):
                continue
            for each in script.loops.reached_calls(loop, script.function_of(loop)):
                node = each.node
                if isinstance(node, ast.Call) and unwraps(script, node.func) and without_gradients(script, node):
                    yield Violation(
                        node,
                        f"every rank evaluates {ast.unparse(node.func)} with its own running statistics "
                        f"(BatchNorm in line {layers[0].lineno})",
                        "broadcast the buffers from rank 0 before evaluating, or evaluate through the wrapper",
                    )
                    break
