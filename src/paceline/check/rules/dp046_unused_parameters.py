"""DDP waits for gradients of layers that a forward pass does not use.

What it does:
    Looks for layers of a wrapped model that nothing uses, for layers that `forward` uses only under a condition that
    changes between batches, and for `find_unused_parameters=True` where every layer is used.

Why is this bad:
    DDP reduces gradients in buckets and waits for all of them. If a parameter gets none, the next forward fails with
    "Expected to have finished reduction in the prior iteration". `find_unused_parameters=True` prevents that; where it
    is not needed it costs a walk over the graph in each iteration.

Repair:
    Remove layers that are not used, or pass `find_unused_parameters=True`; remove the argument where it is not needed.

Fix safety:
    Only `find_unused_parameters=True` is removed, where the call has it and every layer is used. It is safe: no
    gradient changes.

Known problems:
    Layers that are reached by other ways than their names are not judged.

References:
    F48, F50, F49. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.model_structure import structure
from paceline.check.analyses.script import Script, Wrapper
from paceline.check.analyses.skipped_layers import all_used, skipped, unused
from paceline.check.edits import Edit, remove_keyword
from paceline.check.rule import Rule, Violation

_NET = """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body, self.norm = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.LayerNorm(2)
                    self.head = nn.Linear(2, 1)

                def forward(self, x):
                    return self.head(self.norm(self.body(x)))

            dist.init_process_group("gloo")
"""
_BRANCH = """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body = nn.Linear(2, 2)
                    self.extra = nn.Linear(2, 2)

                def forward(self, x, deep=False):
                    x = self.body(x)
                    if deep:
                        x = self.extra(x)
                    return x

            dist.init_process_group("gloo")
"""


class UnusedParameters(Rule):
    """Parameters without gradients."""

    code, name, topic = "DP046", "unused-parameters", "wrapping"
    faults = ("F48", "F50", "F49")
    severity = "warning"
    fixes = True
    valid = {
        "every layer is used": _NET
        + """
            model = DDP(Net())
        """,
        "a branch, with the argument": _BRANCH
        + """
            model = DDP(Net(), find_unused_parameters=True)
            for step in range(10):
                model(torch.zeros(1, 2), step > 5).sum().backward()
        """,
        "a branch that is always taken": _BRANCH
        + """
            model = DDP(Net())
            model(torch.zeros(1, 2), deep=True).sum().backward()
        """,
    }
    invalid = {
        "the argument without need": _NET
        + """
            model = DDP(Net(), find_unused_parameters=True)  # here
        """,
        "a layer that nothing uses": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body = nn.Linear(2, 2)
                    self.leftover = nn.Linear(2, 2)  # here

                def forward(self, x):
                    return self.body(x)

            dist.init_process_group("gloo")
            model = DDP(Net())
        """,
        "a branch that changes": _BRANCH
        + """
            model = DDP(Net())  # here
            for step in range(10):
                model(torch.zeros(1, 2), deep=step > 5).sum().backward()
        """,
        "layers that are dropped at random": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body = nn.Linear(2, 2)
                    self.extra = nn.Linear(2, 2)

                def forward(self, x):
                    return self.extra(self.body(x)) if random.random() < 0.9 else self.body(x)

            dist.init_process_group("gloo")
            model = DDP(Net())  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        for wrapper in script.wrappers:
            yield from self._of(script, wrapper)

    def _of(self, script: Script, wrapper: Wrapper) -> Iterator[Violation]:
        call = wrapper.site.node
        made = structure(script, wrapper.inner)
        flag = script.argument(call, "find_unused_parameters")
        if not flag.absent:
            if script.literals(call, "find_unused_parameters") == {True} and all_used(script, made):
                yield Violation(
                    call,
                    "find_unused_parameters=True walks over the graph in every iteration, and forward uses all layers",
                    "remove find_unused_parameters=True",
                    severity="info",
                    faults=("F50",),
                    edits=_repair(call),
                )
            return
        if not script.argument(call, "static_graph").absent:
            return
        for each in unused(script, made):
            yield Violation(
                each.node,
                f"nothing uses {each.cls.name}.{each.name}: DDP waits for its gradients and fails in its next forward",
                "remove the layer, or pass find_unused_parameters=True to DDP",
                faults=("F48",),
            )
        for each in skipped(script, made, wrapper):
            assert each.test is not None
            yield Violation(
                call,
                f"forward of {each.cls.name} uses {each.name} only if {ast.unparse(each.test)}: without its gradients "
                "DDP fails in its next forward",
                "pass find_unused_parameters=True to DDP",
                faults=("F48", "F49"),
            )
            return


def _repair(call: ast.Call) -> tuple[Edit, ...]:
    if not any(each.arg == "find_unused_parameters" and isinstance(each.value, ast.Constant) for each in call.keywords):
        return ()
    edit = remove_keyword(call, "find_unused_parameters")
    return (edit,) if edit is not None else ()
