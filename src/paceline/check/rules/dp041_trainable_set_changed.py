"""Parameters are frozen, unfrozen, added, replaced or tied after DDP has wrapped the model.

What it does:
    Looks for changes of a wrapped model behind `DDP(...)` without a new wrapper: `requires_grad`, new layers, layers
    appended to a list, tied weights.

Why is this bad:
    DDP registers the parameters that need gradients when it is made. Parameters that are unfrozen or added later are
    never reduced, so ranks drift apart; parameters that are frozen or replaced make the next iteration fail with
    "Expected to have finished reduction".

Repair:
    Change the model first and wrap it then, or wrap it again after each change: `model = DDP(model.module)`.

Known problems:
    Networks that are frozen and unfrozen in each step, as in GANs, are left out.

References:
    F43, F54. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.check.analyses.call_order import repeats_with_training, runs_again_after, runs_later
from paceline.check.analyses.gradients_by_hand import reduces_by_hand
from paceline.check.analyses.model_structure import is_layer, is_module, wrapped_structure
from paceline.check.analyses.script import Script
from paceline.check.analyses.trained_parameters import owners_of_parameter
from paceline.check.analyses.wrapped_models import inner_values, is_wrapper, of_wrapped
from paceline.check.rule import Rule, Violation
from paceline.syntax.values import Instance, Literal, Object, Part, Values

_ADDS = ("append", "insert", "extend", "add_module", "register_module", "register_parameter")
_LISTS = ("torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.ModuleDict", "torch.nn.ParameterList")
_NET = """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body, self.head = nn.Linear(2, 2), nn.Linear(2, 1)
                    self.more = nn.ModuleList()

                def forward(self, x):
                    return self.head(self.body(x))

            def train(model):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for x, y in DataLoader(Numbers(), sampler=DistributedSampler(Numbers())):
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()

            dist.init_process_group("gloo")
            net = Net()
"""


@dataclass(frozen=True)
class _Change:
    """A change of a model: the place, what is changed, and what it does."""

    node: ast.AST
    owners: tuple[Values, ...]
    kind: str


class TrainableSetChanged(Rule):
    """Changes of a model that DDP does not see."""

    code, name, topic = "DP041", "trainable-set-changed", "wrapping"
    faults = ("F43", "F54")
    severity = "error"
    valid = {
        "frozen before wrapping": _NET
        + """
            net.body.requires_grad_(False)
            model = DDP(net)
            train(model)
        """,
        "wrapped again": _NET
        + """
            net.body.requires_grad_(False)
            model = DDP(net)
            train(model)
            for p in model.module.body.parameters():
                p.requires_grad = True
            model = DDP(model.module)
            train(model)
        """,
        "a frozen copy": _NET
        + """
            model = DDP(net)
            average = copy.deepcopy(model.module).requires_grad_(False)
            train(model)
        """,
        "toggled in each step": _NET
        + """
            critic = DDP(net)
            for step in range(10):
                for p in critic.parameters():
                    p.requires_grad = False
                for p in critic.parameters():
                    p.requires_grad = True
                critic(torch.zeros(1, 2)).sum().backward()
        """,
        "an attribute without parameters": _NET
        + """
            model = DDP(net)
            model.module.epoch = 1
            train(model)
        """,
    }
    invalid = {
        "unfrozen between epochs": _NET
        + """
            for p in net.body.parameters():
                p.requires_grad = False
            model = DDP(net)
            for epoch in range(3):
                if epoch == 1:
                    for p in model.module.body.parameters():
                        p.requires_grad = True  # here
                train(model)
        """,
        "frozen after wrapping": _NET
        + """
            model = DDP(net)
            model.module.body.requires_grad_(False)  # here
            train(model)
        """,
        "a new head": _NET
        + """
            model = DDP(net)
            model.module.head = nn.Linear(2, 1)  # here
            train(model)
        """,
        "layers are appended": _NET
        + """
            model = DDP(net)
            for epoch in range(3):
                model.module.more.append(nn.Linear(2, 2))  # here
                train(model)
        """,
        "tied weights": _NET
        + """
            model = DDP(net)
            net.head.weight = net.body.weight  # here
            train(model)
        """,
        "replaced in the constructor of a trainer that trains in the same line": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.head = nn.Linear(2, 1)

                def forward(self, x):
                    return self.head(x)

            class Trainer:
                def __init__(self):
                    self.net = DDP(Net())
                    self.net.module.head = nn.Linear(2, 1)  # here
                    self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

                def fit(self, loader):
                    for x, y in loader:
                        F.mse_loss(self.net(x), y).backward()
                        self.optimizer.step()

            dist.init_process_group("gloo")
            data = Numbers()
            Trainer().fit(DataLoader(data, sampler=DistributedSampler(data)))
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not script.wrappers or reduces_by_hand(script):
            return
        parts = frozenset(wrapped_structure(script).made)
        changes = list(_changes(script))
        late = [each for each in changes if self._is_late(script, each, parts)]
        frozen_before = any(
            each.kind == "frozen" and each not in late and any(of_wrapped(script, v, parts) for v in each.owners)
            for each in changes
        )
        kinds = {each.kind for each in late}
        for each in late:
            if each.kind in ("frozen", "unfrozen") and {"frozen", "unfrozen"} <= kinds:
                continue
            if each.kind == "unfrozen" and not frozen_before:
                continue
            yield _violation(script, each)

    def _is_late(self, script: Script, change: _Change, parts: frozenset[ast.Call]) -> bool:
        """True if a wrapped model is changed behind its wrapper, which is not made again, and trains afterwards."""
        if not any(of_wrapped(script, each, parts) for each in change.owners):
            return False
        function = script.function_of(change.node)
        if function.cls is not None and function.name == "__init__" and is_module(script, function.cls):
            return False
        sites = [each.site.node for each in script.wrappers]
        if not any(runs_later(script, change.node, each) for each in sites):
            return False
        if any(runs_again_after(script, each, change.node) for each in sites):
            return False
        if repeats_with_training(script, change.node):
            return True
        return any(runs_again_after(script, loop.node, change.node) for loop in script.loops.training)


def _violation(script: Script, change: _Change) -> Violation:
    line = script.wrappers[0].site.node.lineno
    follows = {
        "unfrozen": "parameters are unfrozen after DDP has wrapped the model (line {}), and never reduced",
        "frozen": "parameters are frozen after DDP has wrapped the model (line {}): DDP waits for their gradients",
        "added": "parameters are added or replaced after DDP has wrapped the model (line {}), and never reduced",
        "tied": "weights are tied after DDP has wrapped the model (line {}), which still waits for both",
    }
    repeated = repeats_with_training(script, change.node)
    return Violation(
        change.node,
        follows[change.kind].format(line),
        "change the model before wrapping it, or wrap it again: DDP(model.module)",
        severity="warning" if change.kind == "frozen" else None,
        faults=("F43",) if repeated or change.kind not in ("frozen", "unfrozen") else ("F43", "F54"),
    )


def _changes(script: Script) -> Iterator[_Change]:
    for module in script.program.imports.modules:
        for target in module.stores_by_attribute.get("requires_grad", ()):
            statement = module.parents[target]
            if isinstance(statement, ast.Assign):
                yield from _toggled(script, statement, target.value, script.values(statement.value))
        for name, targets in module.stores_by_attribute.items():
            if name not in ("requires_grad", "data", "grad", "training"):
                for target in targets:
                    yield from _replaced(script, target, module.parents[target])
    for site in script.method_calls("requires_grad_"):
        flag = site.node.args[0] if site.node.args else None
        values = script.values(flag) if flag is not None else frozenset({Literal(True)})
        yield from _toggled(script, site.node, site.node.func.value, values)  # type: ignore[attr-defined]
    for site in script.method_calls(*_ADDS):
        yield from _appended(script, site.node)


def _toggled(script: Script, node: ast.AST, owner: ast.expr, values: Values) -> Iterator[_Change]:
    if values in ({Literal(True)}, {Literal(False)}):
        kind = "unfrozen" if values == {Literal(True)} else "frozen"
        yield _Change(node, tuple(owners_of_parameter(script, owner)), kind)


def _replaced(script: Script, target: ast.Attribute, statement: ast.AST) -> Iterator[_Change]:
    """`model.head = nn.Linear(...)`, `model.a.weight = model.b.weight`; not in the class of the model itself."""
    if not isinstance(statement, ast.Assign) or (isinstance(target.value, ast.Name) and target.value.id == "self"):
        return
    values = script.values(statement.value)
    if isinstance(statement.value, ast.Attribute) and target.attr in ("weight", "bias"):
        yield _Change(statement, (script.values(target.value),), "tied")
    elif values and all(is_layer(script, each) and not is_wrapper(each) for each in values):
        yield _Change(statement, (script.values(target.value),), "added")


def _appended(script: Script, call: ast.Call) -> Iterator[_Change]:
    assert isinstance(call.func, ast.Attribute)
    values = script.values(call.func.value)
    if call.func.attr in ("add_module", "register_module", "register_parameter"):
        yield _Change(call, (values,), "added")
        return
    for value in values:
        if (isinstance(value, Object) and value.name in _LISTS) or (
            isinstance(value, Part) and _is_list(script, value)
        ):
            yield _Change(call, (values,), "added")


def _is_list(script: Script, part: Part) -> bool:
    """True if `ddp.module.layers` is a list of modules."""
    return any(
        isinstance(each, Object) and each.name in _LISTS
        for inner in inner_values(script)
        if isinstance(inner, Instance)
        for each in script.program.evaluator.attribute(inner, part.name)
    )
