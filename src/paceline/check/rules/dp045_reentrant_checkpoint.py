"""Activation checkpointing runs in its reentrant form under DDP.

What it does:
    Looks for `torch.utils.checkpoint.checkpoint` with `use_reentrant=True`, or without the argument, in a script that
    wraps its model in DDP without `static_graph=True`. A layer that is checkpointed several times in one forward is a
    warning.

Why is this bad:
    The reentrant form runs a backward pass within the backward pass. DDP counts a gradient as ready after its first
    use, so a layer that is used twice is reduced too early: ranks drift apart, or DDP raises "marked as ready twice".

Repair:
    `checkpoint(layer, x, use_reentrant=False)`.

Fix safety:
    Safe: both forms compute the same gradients. The non-reentrant form also keeps gradients of inputs without
    `requires_grad`.

Known problems:
    A layer that is used once per forward works in both forms.

References:
    F47. https://docs.pytorch.org/docs/stable/checkpoint.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.script import Script
from paceline.check.edits import Edit, add_keyword, replace
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.program import CallSite

_CHECKPOINTS = ("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential")


class ReentrantCheckpoint(Rule):
    """Reentrant checkpointing in DDP."""

    code, name, topic = "DP045", "reentrant-checkpoint", "wrapping"
    faults = ("F47",)
    severity = "info"
    fixes = True
    valid = {
        "not reentrant": """
            from torch.utils.checkpoint import checkpoint

            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body = nn.Linear(2, 2)

                def forward(self, x):
                    return checkpoint(self.body, x, use_reentrant=False)

            dist.init_process_group("gloo")
            model = DDP(Net())
        """,
        "a static graph": """
            from torch.utils.checkpoint import checkpoint

            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body = nn.Linear(2, 2)

                def forward(self, x):
                    return checkpoint(self.body, x, use_reentrant=True)

            dist.init_process_group("gloo")
            model = DDP(Net(), static_graph=True)
        """,
    }
    invalid = {
        "a shared layer": """
            from torch.utils.checkpoint import checkpoint

            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body = nn.Linear(2, 2)

                def forward(self, x):
                    for _ in range(3):
                        x = checkpoint(self.body, x, use_reentrant=True)  # here
                    return x

            dist.init_process_group("gloo")
            model = DDP(Net())
        """,
        "the default": """
            import torch.utils.checkpoint

            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

                def forward(self, x):
                    for layer in self.layers:
                        x = torch.utils.checkpoint.checkpoint(layer, x)  # here
                    return x

            dist.init_process_group("gloo")
            model = DDP(Net())
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers or _static(script):
            return
        for site in script.calls(*_CHECKPOINTS):
            argument = script.argument(site.node, "use_reentrant")
            explicit = script.literals(site.node, "use_reentrant") == {True}
            if not (argument.absent or explicit):
                continue
            shared = _shared_layer(site)
            wording = "is" if explicit else "may be (it is the default in many versions)"
            yield Violation(
                site.node,
                f"{ast.unparse(site.node.func)} {wording} reentrant"
                + (f", and {shared} runs several times: DDP reduces its gradients too early" if shared else ""),
                "pass use_reentrant=False",
                severity="warning" if shared and explicit else None,
                edits=_repair(site),
            )


def _static(script: Script) -> bool:
    if any(True for _ in script.method_calls("_set_static_graph")):
        return True
    return any(not script.argument(each.site.node, "static_graph").absent for each in script.wrappers)


def _shared_layer(site: CallSite) -> str:
    """The layer that is checkpointed in every round of a loop, if it is the same one."""
    layer = site.node.args[0] if site.node.args else None
    if not isinstance(layer, ast.Attribute):
        return ""
    for at in site.module.ancestors(site.node):
        if at is site.function.node:
            break
        if isinstance(at, ast.For):
            bound = {each.id for each in walk(at.target) if isinstance(each, ast.Name)}
            used = {each.id for each in walk(layer) if isinstance(each, ast.Name)}
            return "" if bound & used else ast.unparse(layer)
    return ""


def _repair(site: CallSite) -> tuple[Edit, ...]:
    for keyword in site.node.keywords:
        if keyword.arg == "use_reentrant":
            return (replace(keyword.value, "False"),)
        if keyword.arg is None:
            return ()
    return (add_keyword(site.node, "use_reentrant=False", site.module.source.text),)
