"""Training goes through the data in a fixed order.

What it does:
    Looks for training loaders whose DistributedSampler has `shuffle=False`.

Why is this bad:
    The order of samples is the same in all epochs, also with `set_epoch`. If the data set is sorted, for example by
    class, each batch holds few classes. Often `shuffle=True` was removed from the loader, as it has to be, and the
    sampler's own shuffle was turned off with it.

Repair:
    `DistributedSampler(dataset, shuffle=True)`, which is the default.

Known problems:
    An order that is meant, as in a curriculum or in data shuffled beforehand, is right.

References:
    F05. https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.rank_shares import distributed_samplers, samplers
from paceline.check.rule import Rule, Violation
from paceline.check.script import Script


class ShuffleLost(Rule):
    """Training samplers that do not shuffle."""

    code, name, topic = "DP012", "shuffle-lost", "data"
    faults = ("F05",)
    severity = "info"
    valid = {
        "the default": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
        """,
        "a loader for evaluation": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            model = DDP(nn.Linear(2, 1))
            with torch.no_grad():
                for x, y in loader:
                    F.mse_loss(model(x), y)
        """,
    }
    invalid = {
        "turned off": """
            dist.init_process_group("gloo")
            data = Numbers()
            sampler = DistributedSampler(data, shuffle=False)  # here
            loader = DataLoader(data, batch_size=8, sampler=sampler)
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
        """,
        "a helper for both loaders": """
            def loader_of(data, shuffle=False):
                sampler = DistributedSampler(data, shuffle=shuffle)  # here
                return DataLoader(data, batch_size=8, sampler=sampler)

            dist.init_process_group("gloo")
            train = loader_of(Numbers())
            model = DDP(nn.Linear(2, 1))
            for x, y in train:
                F.mse_loss(model(x), y).backward()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        reported: set[ast.Call] = set()
        for loader in script.loaders:
            fixed = [
                each
                for each in distributed_samplers(samplers(script, loader))
                if script.literals(each, "shuffle", 3) == {False}
            ]
            for sampler in fixed if fixed and script.trains_on(loader) else ():
                if sampler.call not in reported:
                    reported.add(sampler.call)
                    yield Violation(
                        sampler.call,
                        "the sampler of the training loader does not shuffle, so all epochs have the same order",
                        "leave out shuffle=False, unless the order is meant",
                    )
