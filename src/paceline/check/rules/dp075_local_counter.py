"""A value that only this rank has decides whether a collective runs.

What it does:
    Looks for branches on local values, such as `step % 100 == 0` of a counter that skips some batches, which hold a
    collective on one side only.

Why is this bad:
    Ranks disagree on the test: some run the collective, the others do not. They hang, or the collective meets another
    one of the same size, and both return garbage.

Repair:
    Count every batch on every rank, or all-reduce the value before the test.

Known problems:
    Counters that pass a function of another package are left out.

References:
    F91, F78, F80. https://github.com/Lightning-AI/pytorch-lightning/issues/19740
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.local_decisions import collective_within, local_origin, source_of
from paceline.check.analyses.script import Script
from paceline.check.analyses.value_spread import Cause
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk


class LocalCounter(Rule):
    """Collectives under a test of a local value."""

    code, name, topic = "DP075", "local-counter", "control flow"
    faults = ("F91", "F78", "F80")
    severity = "error"
    valid = {
        "a counter of all batches": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            step = 0
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                loss.backward()
                step += 1
                if step % 10 == 0:
                    dist.all_reduce(loss.detach())
        """,
        "a value that is reduced first": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                loss.backward()
                mean = loss.detach()
                dist.all_reduce(mean)
                if mean < 0.1:
                    dist.barrier()
        """,
    }
    invalid = {
        "a counter of small losses": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            step = 0
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                loss.backward()
                if loss.item() < 3.0:
                    step += 1
                if step % 10 == 0:  # here
                    dist.all_reduce(loss.detach())
        """,
        "a best score that is reported to all": """
            def report(value):
                dist.all_reduce(value)
                print(value)

            class Trainer:
                def __init__(self):
                    data = Numbers()
                    self.loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
                    self.model = DDP(nn.Linear(2, 1))
                    self.best = float("inf")

                def fit(self):
                    for x, y in self.loader:
                        loss = F.mse_loss(self.model(x), y)
                        loss.backward()
                        if loss.item() < self.best:  # here
                            self.best = loss.item()
                            report(loss.detach())

            dist.init_process_group("gloo")
            Trainer().fit()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        for function in script.program.functions:
            for node in walk(function.node) if function.calls else ():
                if not isinstance(node, ast.If) or script.function_of(node) is not function:
                    continue
                call = _on_one_side(script, node)
                if call is None:
                    continue
                origin = local_origin(script, node.test)
                if origin is not None and origin.cause is Cause.DATA:
                    counter = any(isinstance(at, ast.BinOp) and isinstance(at.op, ast.Mod) for at in walk(node.test))
                    yield Violation(
                        node.test,
                        f"ranks disagree on this test, which rests on {source_of(origin)}, and the branch holds the"
                        f" collective of line {call.lineno}",
                        "count every batch on every rank" if counter else "all-reduce the value before the test",
                        faults=("F91", "F80") if counter else ("F78", "F80"),
                    )


def _on_one_side(script: Script, node: ast.If) -> ast.Call | None:
    """A collective that one branch has and the other has not."""
    sides = [
        next((found for each in block if (found := collective_within(script, each)) is not None), None)
        for block in (node.body, node.orelse)
    ]
    return next((each for each in sides if each is not None), None) if None in sides else None
