"""DDP does not broadcast buffers, so running statistics differ between ranks.

What it does:
    Looks for `broadcast_buffers=False` on a model with BatchNorm layers that nothing synchronizes.

Why is this bad:
    Each rank keeps the running mean and variance of its own shard. Ranks evaluate with different models, and the
    checkpoint holds the statistics of one shard.

Repair:
    Leave `broadcast_buffers` at its default, use SyncBatchNorm, or average the buffers before evaluating and saving.

Known problems:
    A script that evaluates and saves on rank 0 only gets one consistent model, of the statistics of that rank.

References:
    F59, F57. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.check.analyses.model_structure import structure, synchronizes_batch_norm, synchronizes_buffers
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation


class BuffersNotBroadcast(Rule):
    """BatchNorm with broadcast_buffers=False."""

    code, name, topic = "DP053", "buffers-not-broadcast", "buffers"
    faults = ("F59", "F57")
    severity = "warning"
    valid = {
        "no buffers": """
            dist.init_process_group("gloo")
            model = DDP(nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4)), broadcast_buffers=False)
        """,
        "SyncBatchNorm": """
            dist.init_process_group("nccl")
            model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4)).cuda()
            model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model), broadcast_buffers=False)
        """,
        "buffers are averaged by hand": """
            dist.init_process_group("gloo")
            model = DDP(nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4)), broadcast_buffers=False)

            def average_buffers():
                for buffer in model.buffers():
                    dist.all_reduce(buffer)

            average_buffers()
        """,
    }
    invalid = {
        "BatchNorm": """
            dist.init_process_group("gloo")
            model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4))
            model = DDP(model, broadcast_buffers=False)  # here
        """,
        "in a dictionary of options": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.norm = nn.BatchNorm1d(2)

                def forward(self, x):
                    return self.norm(x)

            dist.init_process_group("gloo")
            options = dict(broadcast_buffers=False)
            model = DDP(Net(), **options)  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers or synchronizes_batch_norm(script) or synchronizes_buffers(script):
            return
        for wrapper in script.wrappers:
            if script.literals(wrapper.site.node, "broadcast_buffers") != {False}:
                continue
            layers = structure(script, wrapper.inner).batch_norms()
            if layers:
                yield Violation(
                    wrapper.site.node,
                    "broadcast_buffers=False leaves each rank with its own running statistics "
                    f"(BatchNorm in line {layers[0].lineno})",
                    "remove broadcast_buffers=False, or average the buffers before evaluating and saving",
                )
