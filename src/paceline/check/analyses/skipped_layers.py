"""Layers of a model that a forward pass does not use, or not always."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.check.analyses.model_structure import Structure, is_layer
from paceline.check.analyses.script import Script, Wrapper
from paceline.check.analyses.wrapped_models import wrapper_of
from paceline.syntax.child_nodes import walk
from paceline.syntax.conditions import Condition, conditions
from paceline.syntax.module_index import Class, Function, dotted, last_name
from paceline.syntax.values import Literal

_DYNAMIC = frozenset(
    ["getattr", "children", "modules", "named_children", "named_modules", "_modules", "vars", "setattr"]
)
_RANDOM = ("random", "rand", "bernoulli", "uniform", "choice", "randint")


@dataclass(frozen=True)
class SkippedLayer:
    """A layer, and why a forward pass may not use it.

    Attributes:
        node: the assignment that makes it.
        test: the condition under which it is used; None if it is never used.
    """

    cls: Class
    name: str
    node: ast.AST
    test: ast.expr | None


def layers(script: Script, cls: Class) -> dict[str, ast.AST]:
    """Attributes of a class that are layers with parameters, with the assignments in its constructor."""
    constructor = cls.methods.get("__init__")
    found: dict[str, ast.AST] = {}
    for name, assigned in cls.attributes.items():
        for each in assigned:
            values = script.values(each.value)
            made_here = constructor is not None and cls.module.function_of(each.node) is constructor
            if made_here and not each.path and values and all(is_layer(script, value) for value in values):
                found[name] = each.node
    return found


def unused(script: Script, made: Structure) -> Iterator[SkippedLayer]:
    """Layers that nothing reads after the constructor has made them."""
    for cls in _readable(script, made):
        if any("requires_grad" in ast.unparse(each.node) for each in cls.methods.values()):
            continue
        for name, node in layers(script, cls).items():
            reads = [
                at
                for module in script.program.imports.modules
                for at in (*module.loads_by_name.get(name, ()), *module.calls_by_name.get(name, ()))
            ]
            text = any(f'"{name}"' in module.source.text for module in script.program.imports.modules)
            if not reads and not text:
                yield SkippedLayer(cls, name, node, None)


def skipped(script: Script, made: Structure, wrapper: Wrapper) -> Iterator[SkippedLayer]:
    """Layers that `forward` uses only under a condition that changes from batch to batch."""
    for cls in _readable(script, made):
        forward = cls.methods.get("forward")
        if forward is None:
            continue
        for name, node in layers(script, cls).items():
            tests = _tests(forward, name)
            if not tests or any(not each for each in tests):
                continue
            varying = [each for each in tests[0] if _varies(script, forward, each.test, wrapper)]
            if varying and not _in_both_branches(varying[0], tests):
                yield SkippedLayer(cls, name, node, varying[0].test)


def all_used(script: Script, made: Structure) -> bool:
    """True if every layer certainly is used in every forward pass."""
    if not made.known or not made.parameters():
        return False
    for cls in made.classes:
        forward = cls.methods.get("forward")
        if forward is None or _is_dynamic(cls) or len(forward.returns) != 1:
            return False
        if any(_may_skip(at, forward) for at in walk(forward.node)):
            return False
        for name in layers(script, cls):
            if not _tests(forward, name):
                return False
        if any(last_name(call.func) in ("no_grad", "detach") for call in forward.calls):
            return False
    return True


def _may_skip(node: ast.AST, forward: Function) -> bool:
    """True if a node of `forward` may leave out a layer: a branch, a filter, one item of a list of layers."""
    if isinstance(node, ast.If | ast.IfExp | ast.Try | ast.While | ast.Match | ast.Break | ast.Continue):
        return True
    if isinstance(node, ast.comprehension):
        return bool(node.ifs)
    return isinstance(node, ast.Subscript) and dotted(node.value).startswith(f"{forward.positional[0]}.")


def _readable(script: Script, made: Structure) -> list[Class]:
    found = [each for each in made.classes if not _is_dynamic(each) and "forward" in each.methods]
    return sorted(found, key=lambda each: each.node.lineno)


def _is_dynamic(cls: Class) -> bool:
    """True if a class reaches its layers by other ways than their names."""
    return any(last_name(call.func) in _DYNAMIC for method in cls.methods.values() for call in method.calls) or any(
        isinstance(at, ast.Attribute) and at.attr in ("_modules", "__dict__") for at in walk(cls.node)
    )


def _tests(forward: Function, name: str) -> list[list[Condition]]:
    """Conditions of each use of a layer in a method."""
    if not forward.positional:
        return []
    text = f"{forward.positional[0]}.{name}"
    uses = [at for at in walk(forward.node) if isinstance(at, ast.Attribute) and at.attr == name and dotted(at) == text]
    return [list(conditions(forward.module, at)) for at in uses]


def _in_both_branches(condition: Condition, tests: list[list[Condition]]) -> bool:
    return any(
        each.test is condition.test and each.holds is not condition.holds for others in tests for each in others
    ) or any(all(each.test is not condition.test for each in others) for others in tests)


def _varies(script: Script, forward: Function, test: ast.expr, wrapper: Wrapper) -> bool:
    """True if a condition changes between batches: it draws, or rests on an argument of `forward`."""
    if isinstance(test, ast.Compare) and any(isinstance(op, ast.Is | ast.IsNot) for op in test.ops):
        return False
    for at in walk(test):
        if isinstance(at, ast.Call) and any(part in last_name(at.func) for part in _RANDOM):
            return True
        if isinstance(at, ast.Attribute) and at.attr in ("training", "shape", "ndim", "dim", "size", "dtype"):
            return False
        if isinstance(at, ast.Call) and last_name(at.func) in ("isinstance", "len", "size", "dim", "hasattr"):
            return False
    names = {at.id for at in walk(test) if isinstance(at, ast.Name)}
    return any(_is_given_differently(script, forward, name, wrapper) for name in names & {*forward.positional[1:]})


def _is_given_differently(script: Script, forward: Function, name: str, wrapper: Wrapper) -> bool:
    """True if calls of the wrapper give a parameter of `forward` that is no constant."""
    position = forward.positional.index(name) - 1
    for function in script.program.functions:
        for call in function.calls:
            if not any(each.call is wrapper.site.node for each in wrapper_of(script, call.func)):
                continue
            for given in script.argument(call, name, position).given:
                values = script.values(given.node, given.context)
                if not values or not all(isinstance(each, Literal) for each in values) or len(values) > 1:
                    return True
    return False
