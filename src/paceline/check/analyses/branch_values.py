"""Values of an expression in one call of its function, without the branches that this call does not take.

`Script.values` is a union over all branches. A function that builds the loaders of training and evaluation decides by
its arguments: with `train=True`, `sampler = DistributedSampler(data) if not train else None` is None.
"""

from __future__ import annotations

import ast

from paceline.check.analyses.script import Script
from paceline.syntax.conditions import conditions
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import Argument, Context, Literal, Value, Values

_MAX_DEPTH = 6


def possible(script: Script, argument: Argument) -> Values:
    """Values of an argument that the branches of this call can give."""
    return frozenset(
        value for each in argument.given for value in possible_values(script, each.node, each.context, _MAX_DEPTH)
    )


def possible_values(script: Script, node: ast.expr, context: Context | None, depth: int = _MAX_DEPTH) -> Values:
    """Values of an expression that the branches of this call can give."""
    if context is None or depth == 0:
        return script.values(node, context)
    if isinstance(node, ast.IfExp):
        test = holds(script, node.test, context)
        parts = [node.body] * (test is not False) + [node.orelse] * (test is not True)
        return frozenset(value for each in parts for value in possible_values(script, each, context, depth - 1))
    if not isinstance(node, ast.Name):
        return script.values(node, context)
    found: set[Value] = set()
    for binding, function in script.program.evaluator.bindings(node):
        if binding.kind is not Kind.VALUE or binding.path or binding.value is None or function is not context.function:
            return script.values(node, context)
        tests = [(each, holds(script, each.test, context)) for each in conditions(function.module, binding.node)]
        if all(truth is None or truth is each.holds for each, truth in tests):
            found |= possible_values(script, binding.value, context, depth - 1)
    return frozenset(found)


def holds(script: Script, test: ast.expr, context: Context) -> bool | None:
    """True if a test holds in a call; None if reading does not show it."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            inner = holds(script, test.operand, context)
            return None if inner is None else not inner
        case ast.BoolOp():
            parts = [holds(script, each, context) for each in test.values]
            decisive = isinstance(test.op, ast.Or)
            if decisive in parts:
                return decisive
            return None if None in parts else not decisive
        case ast.Name() | ast.Attribute() | ast.Constant():
            values = script.values(test, context)
            truths = {bool(each.value) for each in values if isinstance(each, Literal)}
            known = len(truths) == 1 and all(isinstance(each, Literal) for each in values)
            return truths.pop() if known else None
        case ast.Compare(ops=[ast.Eq() | ast.NotEq() as op], comparators=[right]):
            first, second = script.values(test.left, context), script.values(right, context)
            if len(first) == len(second) == 1 and all(isinstance(each, Literal) for each in first | second):
                return (first == second) is isinstance(op, ast.Eq)
    return None
