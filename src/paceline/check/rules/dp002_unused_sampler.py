"""A DistributedSampler is made, and no loader is given it.

What it does:
    Looks for a DistributedSampler that nothing uses but `set_epoch`, while a loader of the same data set has no
    sampler.

Why is this bad:
    Only the loader that has the sampler is sharded. The loader without one reads the whole data set on every rank, and
    `sampler.set_epoch` makes the script look as if it were sharded.

Repair:
    `DataLoader(dataset, sampler=sampler)`, without `shuffle=True`.

Known problems:
    A sampler that is returned to callers in other files, stored in a container or handed to another package counts as
    used.

References:
    F03, F01. https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import DISTRIBUTED_SAMPLERS
from paceline.check.analyses.rank_shares import has_sampler
from paceline.check.analyses.script import Loader, Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function
from paceline.syntax.values import FunctionValue, Literal, Object, Values


class UnusedSampler(Rule):
    """Distributed samplers that no loader is given."""

    code, name, topic = "DP002", "unused-sampler", "data"
    faults = ("F03", "F01")
    severity = "error"
    valid = {
        "given to the loader": """
            dist.init_process_group("gloo")
            data = Numbers()
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
        """,
        "in a dictionary of arguments": """
            dist.init_process_group("gloo")
            data = Numbers()
            sampler = DistributedSampler(data)
            options = {"batch_size": 8, "sampler": sampler}
            loader = DataLoader(data, **options)
        """,
        "given by a function": """
            def loader_of(data, sampler=None):
                return DataLoader(data, batch_size=8, sampler=sampler)

            dist.init_process_group("gloo")
            data = Numbers()
            sampler = DistributedSampler(data)
            train, preview = loader_of(data, sampler), DataLoader(data, batch_size=1)
        """,
    }
    invalid = {
        "only its epoch is set": """
            dist.init_process_group("gloo")
            data = Numbers()
            sampler = DistributedSampler(data)  # here
            loader = DataLoader(data, batch_size=8, shuffle=True)
            for epoch in range(3):
                sampler.set_epoch(epoch)
        """,
        "a method builds both": """
            class Trainer:
                def __init__(self, data):
                    self.data = data
                    self.sampler = DistributedSampler(self.data)  # here
                    self.loader = DataLoader(self.data, batch_size=8, shuffle=True)

            dist.init_process_group("gloo")
            Trainer(Numbers())
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        pairs = {}
        for site in script.calls(*DISTRIBUTED_SAMPLERS):
            loader = _without_sampler(script, script.program.argument_values(site.node, "dataset", 0))
            if loader is not None:
                pairs[site.node] = loader
        if not pairs:
            return
        used = set(_used(script, set(pairs)))
        for node, loader in pairs.items():
            if node not in used:
                yield Violation(
                    node,
                    "no loader is given this DistributedSampler; the loader in line "
                    f"{loader.made.call.lineno} reads the whole data set on every rank",
                    "pass sampler= to the loader, and remove shuffle=True there",
                    evidence={"loader": loader.made.call.lineno},
                )


def _without_sampler(script: Script, data: Values) -> Loader | None:
    """The first loader of the same data set without a sampler."""
    for loader in script.loaders:
        given = script.program.argument_values(loader.made, "dataset", 0)
        if _same(given, data) and not has_sampler(script, loader):
            return loader
    return None


def _same(first: Values, second: Values) -> bool:
    """True if two sets hold the same object, whatever the context that it is looked at in."""

    def made(values: Values) -> set[object]:
        return {(type(each), getattr(each, "call", None) or each) for each in values if not isinstance(each, Literal)}

    return bool(made(first)) and made(first) == made(second)


def _used(script: Script, samplers: set[ast.Call]) -> Iterator[ast.Call]:
    """Samplers that go where they may be used."""
    for function in script.program.functions:
        for call in function.calls:
            if call in samplers or (isinstance(call.func, ast.Attribute) and call.func.attr == "set_epoch"):
                continue
            if _stays(script, call):
                continue
            for node in (*call.args, *(each.value for each in call.keywords)):
                yield from _in(script, node, samplers)
        for loop in script.all_loops:
            yield from _in(script, loop.iter, samplers)
        if not script.program.evaluator.call_sites(function):
            for statement in function.returns:
                yield from _in(script, statement.value, samplers)
    yield from _in_containers(script, samplers)


def _stays(script: Script, call: ast.Call) -> bool:
    """True if a call hands its arguments to functions of the script, whose own calls are looked at."""
    callees = script.values(call.func)
    return bool(callees) and all(isinstance(each, FunctionValue) for each in callees)


def _in(script: Script, node: ast.expr | None, samplers: set[ast.Call]) -> Iterator[ast.Call]:
    parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    for part in parts:
        for value in script.values(part.value if isinstance(part, ast.Starred) else part):
            if isinstance(value, Object) and value.call in samplers:
                yield value.call


def _in_containers(script: Script, samplers: set[ast.Call]) -> Iterator[ast.Call]:
    """Samplers in dictionaries, and under keys of containers."""
    seen: set[Function] = set()
    for call in samplers:
        function = script.function_of(call)
        if function in seen:
            continue
        seen.add(function)
        for node in walk(function.module.source.tree):
            if isinstance(node, ast.Dict):
                for value in node.values:
                    yield from _in(script, value, samplers)
            elif isinstance(node, ast.Assign) and any(isinstance(each, ast.Subscript) for each in node.targets):
                yield from _in(script, node.value, samplers)
