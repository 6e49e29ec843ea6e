"""Training goes through the data in a fixed order, or predictions are collected in a random one.

What it does:
    Looks for training loaders whose DistributedSampler has `shuffle=False`, and for loops that collect predictions
    without their labels from a loader whose DistributedSampler shuffles, as it does by default.

Why is this bad:
    The order of samples is the same in all epochs, also with `set_epoch`. If the data set is sorted, for example by
    class, each batch holds few classes. Predictions in a random order do not belong to the samples in the same place of
    the data set. Often `shuffle=True` was removed from the loader, as it has to be, and the
    sampler's own shuffle was turned off with it.

Repair:
    `DistributedSampler(dataset, shuffle=True)`, which is the default, for training; `shuffle=False` for predictions.

Known problems:
    An order that is meant, as in a curriculum or in data shuffled beforehand, is right.

References:
    F05. https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.rank_shares import distributed_samplers, samplers
from paceline.check.analyses.script import Loader, Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk


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
        "one batch": """
            dist.init_process_group("gloo")
            data = Numbers()
            sampler = DistributedSampler(data, shuffle=False)
            model = DDP(nn.Linear(2, 1))
            for x, y in DataLoader(data, batch_size=len(sampler), sampler=sampler):
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
        "predictions in a random order": """
            dist.init_process_group("gloo")
            data, outputs = Numbers(), []
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))  # here
            model = DDP(nn.Linear(2, 1))
            with torch.no_grad():
                for x, _ in loader:
                    outputs.append(model(x))
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
            for sampler in fixed if fixed and not _whole(script, loader) and script.trains_on(loader) else ():
                if sampler.call not in reported:
                    reported.add(sampler.call)
                    yield Violation(
                        sampler.call,
                        "the sampler of the training loader does not shuffle, so all epochs have the same order",
                        "leave out shuffle=False, unless the order is meant",
                    )
            yield from self._predictions(script, loader, reported)

    def _predictions(self, script: Script, loader: Loader, reported: set[ast.Call]) -> Iterator[Violation]:
        """Predictions in the random order of the sampler."""
        shuffled = [
            each
            for each in distributed_samplers(samplers(script, loader))
            if script.argument(each, "shuffle", 3).absent and each.call not in reported
        ]
        if shuffled and not script.trains_on(loader) and any(map(_collects_alone, script.evaluates(loader))):
            reported.add(shuffled[0].call)
            yield Violation(
                shuffled[0].call,
                "the sampler shuffles by default, so the predictions that are collected here are in a random order",
                "pass shuffle=False, or collect the index of each sample as well",
            )


def _whole(script: Script, loader: Loader) -> bool:
    """True if a batch holds all samples: `batch_size=len(data)`."""
    sizes = script.argument(loader.made, "batch_size", 1).given
    return any(isinstance(each.node, ast.Call) and getattr(each.node.func, "id", "") == "len" for each in sizes)


def _collects_alone(loop: ast.For | ast.AsyncFor) -> bool:
    """True if a loop appends results, and uses the first part of its batches alone."""
    target = loop.target
    parts = [each.id for each in getattr(target, "elts", [target]) if isinstance(each, ast.Name)]
    read = {each.id for at in loop.body for each in walk(at) if isinstance(each, ast.Name)}
    appends = any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr == "append"
        for at in loop.body
        for each in walk(at)
    )
    return appends and isinstance(target, ast.Tuple) and len(parts) > 1 and not read & set(parts[1:])
