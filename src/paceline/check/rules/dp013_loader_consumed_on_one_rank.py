"""One rank takes a batch of a loader that all ranks train on.

What it does:
    Looks for `next(iter(loader))`, `next(batches)`, and for loops over a training loader, under a test of the rank.

Why is this bad:
    Starting an iterator draws from the global generator of torch. After that rank 0 has another random state than the
    others: a loader that shuffles without a DistributedSampler, dropout and every later draw differ between ranks. A
    stream that was started once has fewer batches left on rank 0, and ranks wait for each other at the end.

Repair:
    Take the batch on all ranks and show it on rank 0, or make a loader of its own for the preview.

Known problems:
    With a DistributedSampler the order of samples itself stays equal; this is reported as worth knowing.

References:
    F19. https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.rank_shares import distributed_samplers, samplers
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Loader, Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.values import Value, Values


class LoaderConsumedOnOneRank(Rule):
    """Training loaders that one rank starts alone."""

    code, name, topic = "DP013", "loader-consumed-on-one-rank", "data"
    faults = ("F19",)
    severity = "warning"
    valid = {
        "a batch on all ranks": """
            dist.init_process_group("gloo")
            loader = DataLoader(Numbers(), batch_size=8, shuffle=True)
            preview = next(iter(loader))
            if dist.get_rank() == 0:
                print(preview)
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
        """,
        "a loader of its own": """
            dist.init_process_group("gloo")
            loader = DataLoader(Numbers(), batch_size=8, shuffle=True)
            if dist.get_rank() == 0:
                print(next(iter(DataLoader(Numbers(), batch_size=8))))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
        """,
    }
    invalid = {
        "a preview on rank 0": """
            dist.init_process_group("gloo")
            loader = DataLoader(Numbers(), batch_size=8, shuffle=True)
            if dist.get_rank() == 0:
                print(next(iter(loader)))  # here
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
        """,
        "a batch of an iterator that is started once": """
            class Stream(IterableDataset):
                def __iter__(self):
                    return iter(range(dist.get_rank(), 1000, dist.get_world_size()))

            dist.init_process_group("gloo")
            batches = iter(DataLoader(Stream(), batch_size=8))
            if dist.get_rank() == 0:
                print(next(batches))  # here
            model = DDP(nn.Linear(2, 1))
            for step in range(100):
                model(next(batches).float()).mean().backward()
        """,
        "in a function": """
            def show(loader):
                images, _ = next(iter(loader))  # here
                print(images.mean())

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            if int(os.environ["RANK"]) == 0:
                show(loader)
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        for node, values in _starts(script):
            loader = next((each for each in script.loaders if each.made in values), None)
            if loader is None or script.where(node) not in (Ranks.ZERO, Ranks.LOCAL_ZERO, Ranks.OTHERS):
                continue
            if not any(script.where(loop.node) is Ranks.ALL for loop in script.trains_on(loader)):
                continue
            yield Violation(
                node,
                "one rank alone starts an iterator of the training loader, so its random state and its place in the "
                "data differ from those of the other ranks",
                "take the batch on all ranks, or make a loader of its own for it",
                severity="info" if _sharded(script, loader) else None,
            )


def _starts(script: Script) -> Iterator[tuple[ast.AST, Values]]:
    """Iterators that are made of loaders, with what they go over."""
    for site in script.calls("builtins.next"):
        if site.node.args:
            yield site.node, script.program.evaluator.iterated(site.node.args[0])
    training: set[Value] = {value for loop in script.loops.training for value in loop.iterated}
    trained = {id(loop.node) for loop in script.loops.training}
    for loop in script.all_loops:
        if id(loop) not in trained and (values := script.iterated(loop)) & training:
            yield loop, values


def _sharded(script: Script, loader: Loader) -> bool:
    return bool(distributed_samplers(samplers(script, loader)))
