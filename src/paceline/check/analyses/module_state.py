"""State that modules change while they compute: buffers, and attributes that are no tensors of the module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.check.analyses.framework_names import COLLECTIVES
from paceline.check.analyses.script import Script
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Class, Function, dotted, last_name
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import FunctionValue, Literal

_GROWS = frozenset(["append", "extend", "appendleft", "put", "update", "insert", "push"])


@dataclass(frozen=True)
class Update:
    """A change of an attribute within the forward pass.

    Attributes:
        name: of the attribute.
        node: the assignment or call.
        from_data: the new value is computed from the batch.
        accumulates: it is computed from the old value too.
    """

    name: str
    node: ast.AST
    from_data: bool
    accumulates: bool


def buffers(script: Script, cls: Class) -> set[str]:
    """Names of buffers that a class registers."""
    found: set[str] = set()
    for method in cls.methods.values():
        for call in method.calls:
            if last_name(call.func) == "register_buffer" and call.args:
                found |= {str(each.value) for each in script.values(call.args[0]) if isinstance(each, Literal)}
    return found


def forward_methods(script: Script, cls: Class) -> list[Function]:
    """`forward`, and methods of the class that it calls."""
    start = cls.methods.get("forward")
    found: list[Function] = []
    queue = [start] if start is not None else []
    while queue:
        method = queue.pop()
        if method in found:
            continue
        found.append(method)
        for call in method.calls:
            for value in script.values(call.func):
                if isinstance(value, FunctionValue) and value.function.cls is cls:
                    queue.append(value.function)
    return found


def communicates(script: Script, methods: list[Function]) -> bool:
    """True if methods use collectives, themselves or through functions of the script."""
    for method in methods:
        for each in script.loops.reached_calls(method.node, method):
            if not isinstance(each.node, ast.Call):
                continue
            if any(name in COLLECTIVES for name in script.program.callee_names(each.node)):
                return True
            if any(part in last_name(each.node.func).lower() for part in ("reduce", "gather", "broadcast", "sync")):
                return True
    return False


def updates(script: Script, method: Function) -> Iterator[Update]:
    """Changes of attributes of `self` in a method, in order of the source."""
    if not method.positional:
        return
    this = method.positional[0]
    for node in walk(method.node):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                name = _attribute(target, this)
                if name:
                    grows = isinstance(node, ast.AugAssign) or _reads(node.value, this, name)
                    yield Update(name, node, from_batch(script, node.value, method), grows)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = _attribute(node.func.value, this)
            method_name = node.func.attr
            if not name and isinstance(node.func.value, ast.Call):
                name = _receiver(node.func.value, this)
            in_place = method_name.endswith("_") and not method_name.startswith("_")
            if name and (in_place or method_name in _GROWS) and method_name != "requires_grad_":
                given = [*node.args, *(each.value for each in node.keywords)]
                from_data = any(from_batch(script, each, method) for each in given)
                yield Update(
                    name, node, from_data, method_name in _GROWS or method_name not in ("copy_", "fill_", "zero_")
                )


def _receiver(node: ast.Call, this: str) -> str:
    """`self.a` of `self.a.mul_(x).add_(y)`."""
    at: ast.expr = node
    while isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute):
        if not at.func.attr.endswith("_") and at.func.attr != "data":
            return ""
        at = at.func.value
    return _attribute(at, this)


def _attribute(node: ast.expr, this: str) -> str:
    """`a` of `self.a`, `self.a[...]` and `self.a.data`."""
    at = node
    while isinstance(at, ast.Subscript) or (isinstance(at, ast.Attribute) and at.attr == "data"):
        at = at.value
    text = dotted(at)
    return at.attr if isinstance(at, ast.Attribute) and text == f"{this}.{at.attr}" else ""


def _reads(node: ast.AST, this: str, name: str) -> bool:
    return any(isinstance(at, ast.Attribute) and dotted(at) == f"{this}.{name}" for at in walk(node))


def reads_outside(method: Function, name: str, updates_of_it: list[ast.AST]) -> bool:
    """True if a method reads an attribute elsewhere than where it changes it."""
    if not method.positional:
        return False
    this = method.positional[0]
    inside = {id(at) for each in updates_of_it for at in walk(each)}
    return any(
        isinstance(at, ast.Attribute)
        and isinstance(at.ctx, ast.Load)
        and dotted(at) == f"{this}.{name}"
        and id(at) not in inside
        for at in walk(method.node)
    )


def from_batch(script: Script, node: ast.AST, method: Function) -> bool:
    """True if an expression is computed from a parameter of the method other than `self`."""
    queue: list[ast.AST] = [node]
    seen: set[ast.AST] = set()
    while queue and len(seen) < 400:
        at = queue.pop()
        if at in seen:
            continue
        seen.add(at)
        if isinstance(at, ast.Attribute) and at.attr in ("shape", "device", "dtype", "training"):
            continue
        if isinstance(at, ast.Call) and last_name(at.func) in ("size", "len", "numel", "dim"):
            continue
        if isinstance(at, ast.Name) and isinstance(at.ctx, ast.Load):
            for binding, function in script.program.evaluator.bindings(at):
                if binding.kind is Kind.PARAMETER and function is method and binding.name != method.positional[0]:
                    return True
                if binding.value is not None and function is method:
                    queue.append(binding.value)
        queue += ast.iter_child_nodes(at)
    return False
