"""`update_bn` recomputes the statistics of BatchNorm from one shard.

What it does:
    Looks for `torch.optim.swa_utils.update_bn` with a loader that a DistributedSampler shards.

Why is this bad:
    `update_bn` resets the running statistics and averages them over its loader. With a sharded loader every rank ends
    with the statistics of its own shard, and the checkpoint holds those of one rank.

Repair:
    All-reduce the running statistics afterwards, or give `update_bn` a loader over the whole data set on rank 0 and
    broadcast the buffers.

Known problems:
    SyncBatchNorm layers synchronize while they run; then nothing is reported.

References:
    F62. https://docs.pytorch.org/docs/stable/optim.html#torch.optim.swa_utils.update_bn
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.check.analyses.framework_names import DATA_LOADERS, DISTRIBUTED_SAMPLERS
from paceline.check.analyses.model_structure import synchronizes_batch_norm, synchronizes_buffers
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.values import Object, Value


class BatchNormPassOnShard(Rule):
    """update_bn on a sharded loader."""

    code, name, topic = "DP055", "batch-norm-pass-on-shard", "buffers"
    faults = ("F62",)
    severity = "warning"
    valid = {
        "the whole data set": """
            from torch.optim.swa_utils import AveragedModel, update_bn

            dist.init_process_group("gloo")
            averaged = AveragedModel(nn.BatchNorm1d(2))
            update_bn(DataLoader(Numbers(), batch_size=8), averaged)
        """,
        "buffers are averaged afterwards": """
            from torch.optim.swa_utils import AveragedModel, update_bn

            dist.init_process_group("gloo")
            averaged = AveragedModel(nn.BatchNorm1d(2))
            update_bn(DataLoader(Numbers(), sampler=DistributedSampler(Numbers())), averaged)
            for buffer in averaged.buffers():
                dist.all_reduce(buffer)
        """,
    }
    invalid = {
        "a sharded loader": """
            dist.init_process_group("gloo")
            loader = DataLoader(Numbers(), sampler=DistributedSampler(Numbers()))
            averaged = torch.optim.swa_utils.AveragedModel(nn.BatchNorm1d(2))
            torch.optim.swa_utils.update_bn(loader, averaged)  # here
        """,
        "in a class": """
            from torch.optim import swa_utils

            class Trainer:
                def __init__(self):
                    self.sampler = DistributedSampler(Numbers())
                    self.loader = DataLoader(Numbers(), sampler=self.sampler)
                    self.average = swa_utils.AveragedModel(nn.BatchNorm1d(2))

                def finish(self):
                    swa_utils.update_bn(self.loader, self.average)  # here

            dist.init_process_group("gloo")
            Trainer().finish()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if synchronizes_batch_norm(script) or synchronizes_buffers(script):
            return
        for site in script.calls("torch.optim.swa_utils.update_bn"):
            loaders = script.program.argument_values(site.node, "loader", 0)
            if loaders and all(_sharded(script, each) for each in loaders):
                yield Violation(
                    site.node,
                    "update_bn averages the statistics of BatchNorm over the shard of each rank alone",
                    "all-reduce the running statistics afterwards, or use a loader over the whole data set",
                )


def _sharded(script: Script, value: Value) -> bool:
    if not isinstance(value, Object) or value.name not in DATA_LOADERS:
        return False
    samplers = script.program.argument_values(value, "sampler", 3)
    return bool(samplers) and all(isinstance(each, Object) and each.name in DISTRIBUTED_SAMPLERS for each in samplers)
