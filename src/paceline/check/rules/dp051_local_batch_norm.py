"""BatchNorm normalizes with the batch of its own rank.

What it does:
    Looks for BatchNorm layers in a model that is wrapped in DDP, in a script that never converts them to SyncBatchNorm.
    Scripts whose loaders all give at least 32 samples to each rank are left out.

Why is this bad:
    Each rank computes mean and variance over its part of the batch. With N ranks the layers see 1/N of the samples, so
    small batches train worse than on one device, and the result depends on the number of ranks.

Repair:
    `model = nn.SyncBatchNorm.convert_sync_batchnorm(model)` before DDP (CUDA only), or GroupNorm or LayerNorm.

Known problems:
    Large batches that an argument sets are not known. Models of other packages are not looked into.

References:
    F56. https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import BATCH_NORMS
from paceline.check.analyses.model_structure import synchronizes_batch_norm, wrapped_structure
from paceline.check.analyses.script import Script, Wrapper
from paceline.check.rule import Rule, Violation
from paceline.syntax.values import Instance, Object

LARGE_BATCH = 32
"""Samples for each rank from which on statistics are good enough."""


class LocalBatchNorm(Rule):
    """BatchNorm layers in DDP."""

    code, name, topic = "DP051", "local-batch-norm", "buffers"
    faults = ("F56",)
    severity = "info"
    valid = {
        "converted to SyncBatchNorm": """
            dist.init_process_group("nccl")
            model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).cuda()
            model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model))
        """,
        "another normalization": """
            dist.init_process_group("gloo")
            model = DDP(nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4), nn.Linear(4, 1)))
        """,
        "large batches": """
            dist.init_process_group("gloo")
            model = DDP(nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(Numbers(), batch_size=64, sampler=DistributedSampler(Numbers())):
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "in a model that is not wrapped": """
            dist.init_process_group("gloo")
            critic = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4))
            model = DDP(nn.Linear(2, 1))
        """,
    }
    invalid = {
        "in a Sequential": """
            dist.init_process_group("gloo")
            model = DDP(nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))  # here
        """,
        "in a block that a function builds": """
            def block(width):
                layers = [nn.Linear(2, width)]
                layers.append(nn.BatchNorm1d(width))  # here
                return nn.Sequential(*layers)

            class Net(nn.Module):
                def __init__(self, width):
                    super().__init__()
                    self.body = block(width)

                def forward(self, x):
                    return self.body(x)

            dist.init_process_group("gloo")
            net = Net(4)
            net = DDP(net)
        """,
        "the layer is an argument": """
            class Net(nn.Module):
                def __init__(self, norm_layer=nn.BatchNorm1d):
                    super().__init__()
                    self.body = nn.Linear(2, 4)
                    self.norm = norm_layer(4)  # here

                def forward(self, x):
                    return self.norm(self.body(x))

            dist.init_process_group("gloo")
            model = DDP(Net())
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers or synchronizes_batch_norm(script) or _has_large_batches(script):
            return
        layers = wrapped_structure(script).batch_norms()
        if not layers and not all(map(_is_shown, script.wrappers)):  # a registry of models
            layers = sorted((each.node for each in script.calls(*BATCH_NORMS)), key=lambda each: each.lineno)
        if layers:
            yield Violation(
                layers[0],
                f"{ast.unparse(layers[0].func)} normalizes with the samples of its own rank, 1/N of the global batch",
                "if batches of a rank are small: nn.SyncBatchNorm.convert_sync_batchnorm(model) before DDP (CUDA only)",
                evidence={"lines": sorted({each.lineno for each in layers})},
            )


def _has_large_batches(script: Script) -> bool:
    """True if every loader that trains gives each rank a large batch, as far as constants show it."""
    sizes = [script.literals(each.made, "batch_size", 1) for each in script.loaders if script.trains_on(each)]
    return bool(sizes) and all(
        each is not None and all(isinstance(size, int) and size >= LARGE_BATCH for size in each) for each in sizes
    )


def _is_shown(wrapper: Wrapper) -> bool:
    """True if reading shows what the wrapper holds, or that another package makes it."""
    return all(
        isinstance(each, Instance) or (isinstance(each, Object) and "?" not in each.name) for each in wrapper.inner
    )
