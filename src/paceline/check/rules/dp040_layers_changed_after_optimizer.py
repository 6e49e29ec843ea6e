"""A layer is replaced after the optimizer was made.

What it does:
    Looks for an optimizer that is given parameters of a model, and a layer of that model that is replaced afterwards,
    without a new optimizer or `add_param_group`.

Why is this bad:
    The optimizer holds the parameters of the old layer. The new one gets gradients and is never updated.

Repair:
    Build the model completely, then wrap it, then make the optimizer.

Known problems:
    The order is read where one function shows both, or the calls that lead to them.

References:
    F42. https://docs.pytorch.org/docs/stable/optim.html#constructing-it
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.call_order import runs_again_after
from paceline.check.analyses.model_structure import is_layer, is_module
from paceline.check.analyses.script import Script
from paceline.check.analyses.trained_parameters import optimizers, parameter_owners
from paceline.check.analyses.wrapped_models import inner_values, is_wrapper
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import dotted
from paceline.syntax.values import Instance, Object, Value

_NET = """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body, self.head = nn.Linear(2, 2), nn.Linear(2, 1)

                def forward(self, x):
                    return self.head(self.body(x))

            dist.init_process_group("gloo")
            model = Net()
"""


class LayersChangedAfterOptimizer(Rule):
    """Layers that no optimizer knows."""

    code, name, topic = "DP040", "layers-changed-after-optimizer", "wrapping"
    faults = ("F42",)
    severity = "error"
    valid = {
        "replaced before": _NET
        + """
            model.head = nn.Linear(2, 3)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model = DDP(model)
        """,
        "given to the optimizer afterwards": _NET
        + """
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model.head = nn.Linear(2, 3)
            optimizer.add_param_group({"params": model.head.parameters()})
            model = DDP(model)
        """,
        "the optimizer before the wrapper": _NET
        + """
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model = DDP(model)
        """,
        "a second optimizer": _NET
        + """
            def fit(model):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                optimizer.step()

            fit(model)
            model.head = nn.Linear(2, 3)
            fit(model)
        """,
    }
    invalid = {
        "replaced afterwards": _NET
        + """
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model.head = nn.Linear(2, 3)  # here
            model = DDP(model)
        """,
        "groups from a function": _NET
        + """
            def groups(model):
                return [{"params": model.body.parameters()}, {"params": model.head.parameters(), "lr": 1.0}]

            def main():
                net = Net()
                optimizer = torch.optim.SGD(groups(net), lr=0.1)
                net.head = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 3))  # here
                return DDP(net)

            main()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        sites = optimizers(script)
        if not sites:
            return
        for module in script.program.imports.modules:
            for name, targets in module.stores_by_attribute.items():
                for target in targets:
                    statement = module.parents[target]
                    if not isinstance(statement, ast.Assign) or _in_own_constructor(script, target):
                        continue
                    owners = {each for each in script.values(target.value) if _owner(script, each)}
                    if not owners or not _makes_layers(script, statement.value):
                        continue
                    for site in sites:
                        if self._misses(script, site.node, statement, owners):
                            yield Violation(
                                statement,
                                f"{ast.unparse(target)} is replaced after the optimizer (line {site.node.lineno}) was "
                                f"made, which never updates the new {name}",
                                "make the optimizer after all layers are in place",
                            )
                            break

    def _misses(self, script: Script, site: ast.Call, statement: ast.Assign, owners: set[Value]) -> bool:
        """True if an optimizer holds parameters of the owner, and none is made or extended afterwards."""
        if not runs_again_after(script, statement, site):
            return False
        later = [each.node for each in optimizers(script)] + [
            each.node for each in script.method_calls("add_param_group")
        ]
        if any(runs_again_after(script, each, statement) for each in later):
            return False
        inner = inner_values(script)
        for given in script.argument(site, "params", 0).given:
            for values in parameter_owners(script, given.node, given.context):
                held = {each for each in values if isinstance(each, Instance | Object)}
                if held & owners or (any(map(is_wrapper, held)) and owners <= inner and owners):
                    return True
                if any(_is_part(script, owner, each) for owner in owners for each in held):
                    return True
        return False


def _is_part(script: Script, owner: Value, part: Value) -> bool:
    """True if a module is an attribute of another one."""
    if not isinstance(owner, Instance):
        return False
    return any(part in script.program.evaluator.attribute(owner, name) for name in owner.cls.attributes)


def _in_own_constructor(script: Script, target: ast.Attribute) -> bool:
    """True if a class sets its own attribute in `__init__`."""
    function = script.function_of(target)
    return function.cls is not None and function.name == "__init__" and dotted(target.value) == function.positional[0]


def _makes_layers(script: Script, node: ast.expr) -> bool:
    values = script.values(node)
    return bool(values) and all(is_layer(script, each) for each in values)


def _owner(script: Script, value: Value) -> bool:
    """True if a value is a model whose layer can be replaced."""
    if isinstance(value, Instance):
        return is_module(script, value.cls)
    return isinstance(value, Object) and not is_wrapper(value)
