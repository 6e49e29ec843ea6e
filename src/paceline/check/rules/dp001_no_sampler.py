"""A training loader gives every rank the whole data set.

What it does:
    Looks for a training loop that goes over a DataLoader without a sampler, batch sampler or sharded data set, in a
    script that wraps its model in DDP or FSDP.

Why is this bad:
    DDP does not split data. Without a DistributedSampler each of N ranks reads every sample, so an epoch takes as long
    as on one device and means N epochs. Ranks with equal seeds even train on identical batches.

Repair:
    `DataLoader(dataset, sampler=DistributedSampler(dataset))`, and `sampler.set_epoch(epoch)` in each epoch.

Known problems:
    A data set that shards itself by the rank is right, and recognized if its class or the arguments that it is made
    with have the rank in them. Loaders that are handed to a function of another package are left out.

References:
    F01, F02. https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.framework_names import ITERABLE_DATASETS
from paceline.check.rank_tests import Ranks
from paceline.check.rule import Rule, Violation
from paceline.check.script import Loader, Script
from paceline.syntax.values import UNKNOWN, Instance, Literal, Object, Parameter


class NoSampler(Rule):
    """Training loaders without a sampler."""

    code, name, topic = "DP001", "no-sampler", "data"
    faults = ("F01", "F02")
    severity = "error"
    valid = {
        "a DistributedSampler": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "the data set is a slice of the rank": """
            dist.init_process_group("gloo")
            rank, world = dist.get_rank(), dist.get_world_size()
            data = torch.utils.data.Subset(Numbers(), range(rank, 1000, world))
            loader = DataLoader(data, batch_size=8, shuffle=True)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "one device": """
            loader = DataLoader(Numbers(), batch_size=8, shuffle=True)
            model = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
    }
    invalid = {
        "shuffle alone": """
            dist.init_process_group("gloo")
            loader = DataLoader(Numbers(), batch_size=8, shuffle=True)  # here
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "a loader that a function makes for training": """
            def loader_of(data, train):
                sampler = None if train else DistributedSampler(data, shuffle=False)
                return DataLoader(data, batch_size=8, shuffle=train)  # here

            def run(loader, model, optimizer):
                for step, (x, y) in enumerate(loader):
                    loss = F.mse_loss(model(x), y)
                    loss.backward()
                    optimizer.step()

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            run(loader_of(Numbers(), True), model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not (script.wrappers or "fsdp" in script.engines):
            return
        reported: set[ast.Call] = set()
        for loader in script.loaders:
            loops = [loop for loop in script.trains_on(loader) if script.where(loop.node) is Ranks.ALL]
            if loader.made.call in reported or not loops:
                continue
            if _has_sampler(script, loader) or _shards_itself(script, loader):
                continue
            reported.add(loader.made.call)
            yield Violation(
                loader.made.call,
                "the training loader has no sampler, so every rank reads the whole data set",
                "pass sampler=DistributedSampler(dataset) instead of shuffle=True, and call sampler.set_epoch(epoch)",
            )


def _has_sampler(script: Script, loader: Loader) -> bool:
    """Whether the loader has, or may have, a sampler other than None."""
    for values, argument in (script.sampler(loader), script.batch_sampler(loader)):
        if not argument.certain or (argument.given and values != {Literal(None)}):
            return True
    return False


def _shards_itself(script: Script, loader: Loader) -> bool:
    """Whether the data depend on the rank, or may do so where reading does not show them."""
    argument = script.argument(loader.made, "dataset", 0)
    if not argument.certain:
        return True
    for each in argument.given:
        if script.ranks.depends(each.node):
            return True
        for value in script.values(each.node, each.context):
            if value == UNKNOWN or isinstance(value, Parameter):
                return True
            if isinstance(value, Object) and script.ranks.depends(value.call):
                return True
            if isinstance(value, Instance):
                bases = script.program.evaluator.external_bases(value.cls)
                if any(base in ITERABLE_DATASETS for base in bases) or script.ranks.depends(value.cls.node):
                    return True  # DP008 is about data sets that are streams
                if value.call is not None and script.ranks.depends(value.call):
                    return True
    return False
