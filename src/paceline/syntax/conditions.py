"""Conditions under which a node runs, as far as its own function shows them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.syntax.module_index import Function, Module, dotted, last_name

_ENDS = frozenset({"exit", "_exit", "abort", "quit"})


@dataclass(frozen=True)
class Condition:
    """A test, and what it has to be for the node to run."""

    test: ast.expr
    holds: bool


def conditions(module: Module, node: ast.AST) -> Iterator[Condition]:
    """Conditions on the way to a node, innermost first: branches around it, and earlier `if ...: return`.

    Conditions of a loop that the node stands in count as well. Those of the function's callers do not.
    """
    child: ast.AST = node
    for at in module.ancestors(node):
        match at:
            case ast.If():
                if child in at.body:
                    yield Condition(at.test, True)
                elif child in at.orelse:
                    yield Condition(at.test, False)
            case ast.IfExp():
                if child is at.body:
                    yield Condition(at.test, True)
                elif child is at.orelse:
                    yield Condition(at.test, False)
            case ast.While():
                if child in at.body:
                    yield Condition(at.test, True)
            case ast.BoolOp():
                holds = isinstance(at.op, ast.And)
                for value in at.values[: at.values.index(child) if child in at.values else 0]:
                    yield Condition(value, holds)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                for generator in at.generators:
                    for test in generator.ifs:
                        if test is not child:
                            yield Condition(test, True)
        if isinstance(child, ast.stmt):
            yield from _left_before(at, child)
        if isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return
        child = at


def _left_before(parent: ast.AST, child: ast.stmt) -> Iterator[Condition]:
    """Conditions of earlier statements of the same block that leave it."""
    for block in _blocks(parent):
        if child in block:
            for statement in block[: block.index(child)]:
                if isinstance(statement, ast.If):
                    if _leaves(statement.body):
                        yield Condition(statement.test, False)
                    elif statement.orelse and _leaves(statement.orelse):
                        yield Condition(statement.test, True)
                elif isinstance(statement, ast.Assert):
                    yield Condition(statement.test, True)


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block


def _leaves(block: Sequence[ast.stmt]) -> bool:
    """True if the block always leaves the block around it."""
    if not block:
        return False
    last = block[-1]
    if isinstance(last, ast.Return | ast.Raise | ast.Break | ast.Continue):
        return True
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return last_name(last.value.func) in _ENDS
    return isinstance(last, ast.If) and _leaves(last.body) and _leaves(last.orelse)


def asks_for_main(test: ast.expr) -> bool:
    """`__name__ == "__main__"`."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def alternatives(function: Function) -> list[tuple[ast.expr, list[Condition]]]:
    """Return values of a function, each with the conditions under which it does."""
    return [
        (statement.value, list(conditions(function.module, statement)))
        for statement in function.returns
        if statement.value is not None
    ]


def same_test(first: ast.expr, second: ast.expr) -> bool:
    """True if two tests are written alike."""
    return ast.dump(first) == ast.dump(second) or (bool(dotted(first)) and dotted(first) == dotted(second))
