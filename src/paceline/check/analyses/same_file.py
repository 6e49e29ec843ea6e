"""Compares the files that two expressions name: both are written out with the values of names and arguments."""

from __future__ import annotations

import ast

from paceline.check.analyses.script import Script
from paceline.syntax import call_arguments
from paceline.syntax.module_index import Assigned
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import Context, FunctionValue, Instance

MAX_DEPTH = 12
_SAME = ("str", "Path", "fspath", "abspath", "expanduser", "PurePath")


def written_out(script: Script, node: ast.expr, context: Context | None, depth: int = 0) -> str:
    """A path with the values of its names, as far as they are unique; equal texts are equal paths."""
    if depth > MAX_DEPTH:
        return ast.unparse(node)
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(
                written_out(script, each.value if isinstance(each, ast.FormattedValue) else each, context, depth + 1)
                for each in node.values
            )
        case ast.BinOp():
            left, right = (written_out(script, each, context, depth + 1) for each in (node.left, node.right))
            return left + ("/" if isinstance(node.op, ast.Div) else "" if isinstance(node.op, ast.Add) else "%") + right
        case ast.Name():
            return _of_name(script, node, context, depth)
        case ast.Attribute():
            return _of_attribute(script, node, context, depth)
        case ast.Call():
            return _of_call(script, node, context, depth)
    return ast.unparse(node)


def _of_name(script: Script, node: ast.Name, context: Context | None, depth: int) -> str:
    evaluator = script.program.evaluator
    bindings = evaluator.bindings(node)
    if len(bindings) != 1:
        return node.id
    binding, function = bindings[0]
    at = context
    while at is not None and at.function is not function:
        at = at.outer
    if binding.kind is Kind.PARAMETER and at is not None and at.call is not None:
        given = call_arguments.of_parameter(evaluator, function, node.id, at)
        if len(given.given) == 1 and given.certain:
            return written_out(script, given.given[0].node, given.given[0].context, depth + 1)
        default = function.default(node.id)
        if given.absent and default is not None:
            return written_out(script, default, None, depth + 1)
    if binding.kind is Kind.VALUE and binding.value is not None and not binding.path and not binding.entered:
        return written_out(script, binding.value, at, depth + 1)
    return f"{node.id}@{getattr(binding.node, 'lineno', 0)}"


def _of_attribute(script: Script, node: ast.Attribute, context: Context | None, depth: int) -> str:
    evaluator = script.program.evaluator
    for base in script.values(node.value, context):
        if isinstance(base, Instance):
            assigned = [each for cls in evaluator.lineage(base.cls) for each in cls.attributes.get(node.attr, ())]
            value = _assigned(assigned[0]) if len(assigned) == 1 else None
            if value is not None:
                home, inner = evaluator.home(assigned[0].node), None
                if home.name == "__init__" and base.call is not None:
                    inner = evaluator.context(home, base.call, base.context, base)
                return written_out(script, value, inner, depth + 1)
    return f"{written_out(script, node.value, context, depth + 1)}.{node.attr}"


def _assigned(assigned: Assigned) -> ast.expr | None:
    """The value of an attribute, also in `self.path, self.best = path, None`."""
    value = assigned.value
    for index in assigned.path:
        if not isinstance(value, ast.Tuple) or not 0 <= index < len(value.elts):
            return None
        value = value.elts[index]
    return value


def _of_call(script: Script, node: ast.Call, context: Context | None, depth: int) -> str:
    for callee in script.values(node.func, context):
        if isinstance(callee, FunctionValue) and len(callee.function.returns) == 1:
            value = callee.function.returns[0].value
            inner = script.program.evaluator.context(callee.function, node, context, callee.receiver)
            if value is not None:
                return written_out(script, value, inner, depth + 1)
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    parts = [written_out(script, each, context, depth + 1) for each in node.args]
    if name in ("join", "joinpath"):
        if name == "joinpath" and isinstance(node.func, ast.Attribute):
            parts.insert(0, written_out(script, node.func.value, context, depth + 1))
        return "/".join(parts)
    if name in _SAME and len(parts) == 1:
        return parts[0]
    return f"{ast.unparse(node.func)}({', '.join(parts)})"
