"""`static_graph=True` and `no_sync()` in one script.

What it does:
    Looks for a wrapper with `static_graph=True` (or `_set_static_graph()`) whose `no_sync()` is used.

Why is this bad:
    With a static graph DDP records the order of gradients in its first iteration. If that runs under `no_sync()`
    nothing is recorded: depending on the version it crashes, or gradients are never reduced again.

Repair:
    Do without `static_graph`, or reduce every micro-step.

Known problems:
    A first iteration outside of `no_sync()` works in current versions of torch.

References:
    F51. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.check.analyses.script import Script
from paceline.check.analyses.wrapped_models import wrapper_of
from paceline.check.rule import Rule, Violation


class StaticGraphWithNoSync(Rule):
    """A static graph that is accumulated without synchronization."""

    code, name, topic = "DP047", "static-graph-with-no-sync", "wrapping"
    faults = ("F51",)
    severity = "warning"
    valid = {
        "a static graph alone": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1), static_graph=True)
            model(torch.zeros(1, 2)).sum().backward()
        """,
        "accumulation alone": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1), static_graph=False)
            with model.no_sync():
                model(torch.zeros(1, 2)).sum().backward()
        """,
        "two wrappers": """
            dist.init_process_group("gloo")
            model, critic = DDP(nn.Linear(2, 1), static_graph=True), DDP(nn.Linear(2, 1))
            with critic.no_sync():
                critic(torch.zeros(1, 2)).sum().backward()
        """,
    }
    invalid = {
        "both": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1), static_graph=True)
            with model.no_sync():  # here
                model(torch.zeros(1, 2)).sum().backward()
        """,
        "a conditional context": """
            from contextlib import nullcontext

            class Trainer:
                def __init__(self):
                    self.model = DDP(nn.Linear(2, 1), static_graph=True)

                def step(self, x, last):
                    context = nullcontext() if last else self.model.no_sync()  # here
                    with context:
                        self.model(x).sum().backward()

            dist.init_process_group("gloo")
            Trainer().step(torch.zeros(1, 2), True)
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        static = [
            each.site.node for each in script.wrappers if script.literals(each.site.node, "static_graph") == {True}
        ]
        for site in script.method_calls("_set_static_graph"):
            static += [each.call for each in wrapper_of(script, site.node.func.value)]  # type: ignore[attr-defined]
        if not static:
            return
        for site in script.method_calls("no_sync"):
            wrappers = wrapper_of(script, site.node.func.value)  # type: ignore[attr-defined]
            if wrappers and all(each.call in static for each in wrappers):
                yield Violation(
                    site.node,
                    f"no_sync() of a wrapper with static_graph=True (line {wrappers[0].call.lineno}): gradients may "
                    "never be reduced",
                    "remove static_graph=True, or reduce the gradients of every micro-step",
                )
                return
