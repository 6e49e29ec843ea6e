"""A buffer follows the batches of its own rank.

What it does:
    Looks for buffers that `forward` updates from the batch without a collective, in a model that is wrapped in DDP:
    codebooks, running normalizers, queues, counts.

Why is this bad:
    DDP does not average buffers. Before each forward it overwrites them with those of rank 0: the updates of all other
    ranks are lost, and the state follows 1/N of the data.

Repair:
    All-reduce the statistics of the batch before they enter the buffer.

Known problems:
    Which values come from the batch is followed within a method; updates in functions elsewhere are not found.

References:
    F58. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.check.analyses.model_structure import wrapped_structure
from paceline.check.analyses.module_state import buffers, communicates, forward_methods, updates
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation

_END = """
            dist.init_process_group("gloo")
            model = DDP(Normalizer())
"""


class BufferUpdatedLocally(Rule):
    """Buffers with statistics of one shard."""

    code, name, topic = "DP052", "buffer-updated-locally", "buffers"
    faults = ("F58",)
    severity = "warning"
    valid = {
        "the statistics are reduced": """
            class Normalizer(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.register_buffer("mean", torch.zeros(2))

                def forward(self, x):
                    batch = x.mean(0)
                    dist.all_reduce(batch)
                    self.mean.lerp_(batch / dist.get_world_size(), 0.1)
                    return x - self.mean
        """
        + _END,
        "a counter of steps": """
            class Normalizer(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.register_buffer("steps", torch.zeros(1))

                def forward(self, x):
                    self.steps += 1
                    return x * self.steps
        """
        + _END,
        "a constant": """
            class Normalizer(nn.Module):
                def __init__(self, length=4):
                    super().__init__()
                    self.register_buffer("mask", torch.tril(torch.ones(length, length)))

                def forward(self, x):
                    return x @ self.mask[: x.size(1), : x.size(1)]
        """
        + _END,
    }
    invalid = {
        "a moving average": """
            class Normalizer(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.register_buffer("mean", torch.zeros(2))

                def forward(self, x):
                    if self.training:
                        self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()  # here
                    return x - self.mean
        """
        + _END,
        "in place, in a method that forward calls": """
            class Codes(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.register_buffer("counts", torch.zeros(8))

                @torch.no_grad()
                def update(self, index):
                    onehot = F.one_hot(index, 8).float()
                    self.counts.mul_(0.9).add_(onehot.sum(0), alpha=0.1)  # here

                def forward(self, x):
                    index = x.argmax(1)
                    self.update(index)
                    return x / self.counts[index]

            class Normalizer(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.codes = Codes()

                def forward(self, x):
                    return self.codes(x)
        """
        + _END,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers:
            return
        classes = wrapped_structure(script).classes
        for cls in sorted(classes, key=lambda each: each.node.lineno):
            names = buffers(script, cls)
            methods = forward_methods(script, cls)
            if not names or communicates(script, methods):
                continue
            found = [
                each for method in methods for each in updates(script, method) if each.name in names and each.from_data
            ]
            if found:
                first = min(found, key=lambda each: each.node.lineno)  # type: ignore[attr-defined]
                yield Violation(
                    first.node,
                    f"the buffer {first.name} of {cls.name} follows the batches of its own rank, and DDP overwrites it "
                    "with that of rank 0",
                    "all-reduce the statistics of the batch before they enter the buffer",
                )
