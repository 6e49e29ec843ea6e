"""A module keeps state from its batches in plain attributes.

What it does:
    Looks for attributes of a wrapped model that are no buffers and no parameters, that `forward` changes from the batch
    and computes with: running values, lists, queues, memory banks.

Why is this bad:
    DDP synchronizes parameters and buffers only. Each rank computes with its own state; a checkpoint holds none of it.

Repair:
    Make it a buffer, and gather or reduce what enters it over all ranks.

Known problems:
    State for each rank can be intended, for example hidden states of the samples that the rank goes on with.

References:
    F63. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.model_structure import wrapped_structure
from paceline.check.analyses.module_state import Update, buffers, communicates, forward_methods, reads_outside, updates
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import Class, Function

_END = """
            dist.init_process_group("gloo")
            model = DDP(Net())
"""


class StateOutsideBuffers(Rule):
    """State of modules that nothing synchronizes."""

    code, name, topic = "DP056", "state-outside-buffers", "buffers"
    faults = ("F63",)
    severity = "info"
    valid = {
        "gathered before it is kept": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.scale = torch.ones(1)

                def forward(self, x):
                    largest = x.abs().max()
                    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
                    self.scale = 0.9 * self.scale + 0.1 * largest
                    return x / self.scale
        """
        + _END,
        "kept for a look at it": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body, self.outputs = nn.Linear(2, 1), []

                def forward(self, x):
                    x = self.body(x)
                    self.outputs.append(x.detach())
                    return x
        """
        + _END,
    }
    invalid = {
        "a running scale": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.scale = 1.0

                def forward(self, x):
                    if self.training:
                        self.scale = 0.9 * self.scale + 0.1 * x.abs().max().item()  # here
                    return x / self.scale
        """
        + _END,
        "a list of earlier batches": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body, self.bank = nn.Linear(2, 2), []

                def remember(self, keys):
                    self.bank.append(keys.detach())  # here

                def forward(self, x):
                    keys = self.body(x)
                    self.remember(keys)
                    return keys @ torch.cat(self.bank).T
        """
        + _END,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers:
            return
        classes = wrapped_structure(script).classes
        for cls in sorted(classes, key=lambda each: each.node.lineno):
            methods = forward_methods(script, cls)
            if not methods or communicates(script, methods):
                continue
            for name, changes in self._kept(script, cls, methods).items():
                if any(reads_outside(method, name, [each.node for each in changes]) for method in methods):
                    yield Violation(
                        changes[0].node,
                        f"{cls.name}.{name} follows the batches of its own rank and is no buffer, so ranks compute "
                        "with different values",
                        "make it a buffer, and reduce or gather what enters it",
                    )

    def _kept(self, script: Script, cls: Class, methods: list[Function]) -> dict[str, list[Update]]:
        tensors = buffers(script, cls)
        found: dict[str, list[Update]] = {}
        for method in methods:
            for each in updates(script, method):
                if each.name not in tensors and each.from_data and each.accumulates and not _is_module(cls, each.name):
                    found.setdefault(each.name, []).append(each)
        return found


def _is_module(cls: Class, name: str) -> bool:
    """True if an attribute is a layer or a parameter, or is not set in the constructor."""
    constructor = cls.methods.get("__init__")
    values = [
        each.value for each in cls.attributes.get(name, ()) if constructor and _stands_in(cls, each.node, constructor)
    ]
    if not values:
        return True
    return any(isinstance(each, ast.Call) and "nn." in ast.unparse(each.func) for each in values if each is not None)


def _stands_in(cls: Class, node: ast.AST, function: Function) -> bool:
    return cls.module.function_of(node) is function
