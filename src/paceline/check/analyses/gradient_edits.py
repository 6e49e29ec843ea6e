"""Places where a script changes gradients itself, between `backward` and `optimizer.step`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.script import Script
from paceline.syntax.child_nodes import walk

_IN_PLACE = frozenset(("div_", "mul_", "copy_", "add_", "sub_"))


def gradient_edits(script: Script) -> Iterator[tuple[ast.AST, ast.expr | None]]:
    """In-place changes of `p.grad`, each with the number that it multiplies or divides by, or copies."""
    for function in script.program.functions:
        for call in function.calls:
            func = call.func
            if isinstance(func, ast.Attribute) and func.attr in _IN_PLACE and is_gradient(func.value):
                yield call, call.args[0] if call.args else None
        if function.module.loads_by_name.get("grad") or function.module.stores_by_attribute.get("grad"):
            for node in walk(function.node):
                if isinstance(node, ast.Assign | ast.AugAssign) and script.function_of(node) is function:
                    yield from _assigned(node)


def _assigned(node: ast.Assign | ast.AugAssign) -> Iterator[tuple[ast.AST, ast.expr | None]]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if any(is_gradient(each) for each in targets) and not (
        isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    ):
        yield node, node.value


def is_gradient(node: ast.expr) -> bool:
    """`p.grad`, `p.grad.data`."""
    if isinstance(node, ast.Attribute) and node.attr == "data":
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr == "grad"


def edits_gradients(script: Script) -> bool:
    """True if the script scales or replaces gradients anywhere."""
    return next(gradient_edits(script), None) is not None
