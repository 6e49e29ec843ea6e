"""Loops over epochs, and calls of `set_epoch` within them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.script import Loader, Script
from paceline.check.analyses.training_loops import TrainingLoop
from paceline.syntax.module_index import Function, targets_of
from paceline.syntax.program import CallSite
from paceline.syntax.values import UNKNOWN, Object, Parameter, Part, Value

Loop = ast.For | ast.AsyncFor | ast.While
_MAX_DEPTH = 5


def epoch_loops(script: Script, loop: TrainingLoop) -> list[Loop]:
    """Loops around a training loop, in its own function and in those that call it; innermost first."""
    return list(_around(script, loop.node, loop.function, _MAX_DEPTH, set()))


def _around(script: Script, node: ast.AST, function: Function, depth: int, seen: set[Function]) -> Iterator[Loop]:
    for at in function.module.ancestors(node):
        if at is function.node:
            break
        if isinstance(at, Loop) and not _runs_once(script, at):
            yield at
    if depth == 0 or function in seen or function.parent is None:
        return
    for caller, call in script.program.evaluator.call_sites(function):
        yield from _around(script, call, caller, depth - 1, seen | {function})


def _runs_once(script: Script, loop: Loop) -> bool:
    """`for _ in range(1)`."""
    if isinstance(loop, ast.While) or not isinstance(loop.iter, ast.Call):
        return False
    if "builtins.range" not in script.program.callee_names(loop.iter) or len(loop.iter.args) != 1:
        return False
    return isinstance(only := loop.iter.args[0], ast.Constant) and only.value in (0, 1)


def set_epoch_calls(script: Script) -> list[CallSite]:
    """Calls of `set_epoch`, in functions of the script."""
    return list(script.method_calls("set_epoch"))


def handed_on(script: Script) -> bool:
    """True if `set_epoch` is taken as a value, as by `getattr(x, "set_epoch")`, and reading does not show its call."""
    if any("set_epoch" in module.loads_by_name for module in script.program.imports.modules):
        return True
    return any(
        isinstance(each, ast.Constant) and each.value == "set_epoch"
        for site in script.calls("builtins.getattr")
        for each in site.node.args[1:2]
    )


def receivers(script: Script, site: CallSite) -> frozenset[Value]:
    """Objects whose epoch a call sets."""
    func = site.node.func
    return script.values(func.value) if isinstance(func, ast.Attribute) else frozenset()


def unclear(values: frozenset[Value]) -> bool:
    """True if reading does not show whose epoch is set."""
    return not values or any(_root(each) == UNKNOWN or isinstance(_root(each), Parameter) for each in values)


def _root(value: Value) -> Value:
    while isinstance(value, Part):
        value = value.base
    return value


def reaches_sampler(values: frozenset[Value], sampler: Object, loader: Loader) -> bool:
    """True if `set_epoch` on one of these values is that of a sampler, also as `loader.sampler`."""
    for value in values:
        root = _root(value)
        if isinstance(root, Object) and root.call in (sampler.call, loader.made.call):
            return True
    return False


def epoch_variable(loop: Loop) -> str:
    """The variable of `for epoch in range(...)`; empty if it is no simple one."""
    if isinstance(loop, ast.While) or not isinstance(loop.iter, ast.Call):
        return ""
    names = [each.id for each, path in targets_of(loop.target) if isinstance(each, ast.Name) and not path]
    called = getattr(loop.iter.func, "id", "")
    return names[0] if names and called in ("range", "trange") else ""
