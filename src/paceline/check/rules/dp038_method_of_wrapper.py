"""A method or attribute of the model is asked of the wrapper.

What it does:
    Looks for attributes that the class of a wrapped model defines, read from the DDP object itself.

Why is this bad:
    DDP has no such attribute: "AttributeError: 'DistributedDataParallel' object has no attribute". The script runs on
    one device and fails as soon as the model is wrapped.

Repair:
    Read attributes and call methods of `ddp.module`. For a method that computes a training loss that is not enough:
    it must run within `forward` of the wrapper (DP035).

Known problems:
    Places that test for the wrapper (`hasattr`, `isinstance`) are left out.

References:
    F40. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.script import Script
from paceline.check.analyses.wrapped_models import tests_the_wrapper, wrapped_for_certain, wrapper_of
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import Module
from paceline.syntax.values import Instance, Object

_OF_DDP = frozenset(
    ["module", "no_sync", "join", "register_comm_hook", "forward", "device", "device_ids", "dim", "output_device",
     "find_unused_parameters", "require_backward_grad_sync", "reducer", "logger", "broadcast_buffers", "train", "eval",
     "parameters", "named_parameters", "state_dict", "load_state_dict", "to", "cuda", "cpu", "half", "float", "double",
     "bfloat16", "apply", "children", "modules", "named_children", "named_modules", "buffers", "named_buffers",
     "zero_grad", "requires_grad_", "training", "register_forward_hook", "register_forward_pre_hook", "type",
     "register_full_backward_hook", "register_backward_hook", "share_memory", "extra_repr", "add_module",
     "register_buffer", "register_parameter", "register_module", "get_parameter", "get_buffer", "get_submodule",
     "compile", "ipu", "xpu", "to_empty", "_get_name", "gather", "scatter", "process_group", "static_graph"]
)  # fmt: skip
"""What a DDP object has itself."""
_NET = """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body = nn.Linear(2, 1)

                def forward(self, x):
                    return self.body(x)

                def groups(self):
                    return [{"params": self.body.parameters()}]

            dist.init_process_group("gloo")
"""


class MethodOfWrapper(Rule):
    """Attributes that the wrapper does not have."""

    code, name, topic = "DP038", "method-of-wrapper", "wrapping"
    faults = ("F40",)
    severity = "error"
    valid = {
        "through .module": _NET
        + """
            model = DDP(Net())
            optimizer = torch.optim.SGD(model.module.groups(), lr=0.1)
            model.train()
        """,
        "before wrapping": _NET
        + """
            model = Net()
            optimizer = torch.optim.SGD(model.groups(), lr=0.1)
            model = DDP(model)
        """,
        "behind a test": _NET
        + """
            model = Net()
            if dist.get_world_size() > 1:
                model = DDP(model)
            groups = model.module.groups() if hasattr(model, "module") else model.groups()
        """,
        "one attribute before and after": _NET
        + """
            class Trainer:
                def __init__(self):
                    self.model = Net()
                    self.groups = self.model.groups()
                    self.model = DDP(self.model)

            Trainer()
        """,
    }
    invalid = {
        "a method": _NET
        + """
            model = DDP(Net())
            optimizer = torch.optim.SGD(model.groups(), lr=0.1)  # here
        """,
        "a layer": _NET
        + """
            net = Net()
            wrapped = DDP(net)
            print(wrapped.body.weight)  # here
        """,
        "in a method of a Trainer, wrapped if distributed": _NET
        + """
            class Trainer:
                def __init__(self, distributed):
                    self.model = Net()
                    if distributed:
                        self.model = DDP(self.model)

                def run(self):
                    return self.model.groups()  # here

            trainer = Trainer(True)
            trainer.run()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers:
            return
        wanted = _attributes(script)
        for module in script.program.imports.modules:
            for name in sorted(wanted):
                for node in _reads(module, name):
                    if self._is_missing(script, node):
                        yield Violation(
                            node,
                            f"{ast.unparse(node)} is read from the DDP object, which has no attribute {name}",
                            f"read it from the inner model: {ast.unparse(node.value)}.module.{name}",
                        )

    def _is_missing(self, script: Script, node: ast.Attribute) -> bool:
        wrappers = wrapper_of(script, node.value)
        if not wrappers or not wrapped_for_certain(script, node.value):
            return False
        if tests_the_wrapper(script, node) or _is_set_on_wrapper(script, node):
            return False
        return all(_has(script, wrapper, node.attr) for wrapper in wrappers)


def _attributes(script: Script) -> set[str]:
    """Attributes of wrapped models of the script that DDP does not have."""
    found: set[str] = set()
    for wrapper in script.wrappers:
        for value in wrapper.inner:
            if isinstance(value, Instance):
                for cls in script.program.evaluator.lineage(value.cls):
                    found |= {*cls.methods, *cls.attributes}
    return {each for each in found if each not in _OF_DDP and not each.startswith("__")}


def _reads(module: Module, name: str) -> list[ast.Attribute]:
    called = (call.func for call in module.calls_by_name.get(name, ()))
    return [each for each in (*module.loads_by_name.get(name, ()), *called) if isinstance(each, ast.Attribute)]


def _has(script: Script, wrapper: Object, name: str) -> bool:
    """True if the model within a wrapper has an attribute, for certain."""
    inner = script.unwrapped(script.program.argument_values(wrapper, "module", 0))
    models = [each for each in inner if not (isinstance(each, Object) and each.call is wrapper.call)]
    return bool(models) and all(
        isinstance(each, Instance)
        and any(name in cls.methods or name in cls.attributes for cls in script.program.evaluator.lineage(each.cls))
        for each in models
    )


def _is_set_on_wrapper(script: Script, node: ast.Attribute) -> bool:
    """True if the script gives the wrapper this attribute: `model.groups = ...`."""
    return any(
        wrapper_of(script, target.value)
        for module in script.program.imports.modules
        for target in module.stores_by_attribute.get(node.attr, ())
    )
