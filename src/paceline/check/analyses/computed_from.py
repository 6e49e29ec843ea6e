"""Expressions that a value is computed from, also through collectives: `Script.origins` stops at those."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.rank_shares import arguments_for
from paceline.check.analyses.script import Script
from paceline.syntax.reaching_definitions import Kind

MAX_EXPRESSIONS = 300


def computed_from(script: Script, node: ast.expr) -> Iterator[ast.expr]:
    """An expression, and what it is computed from: names, arguments of callers and of calls, and returns."""
    seen: set[ast.expr] = set()
    stack = [node]
    while stack and len(seen) < MAX_EXPRESSIONS:
        at = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        yield at
        stack.extend(_parts(script, at))


def _parts(script: Script, node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Name():
            for binding, function in script.program.evaluator.bindings(node):
                if binding.kind is Kind.PARAMETER:
                    yield from arguments_for(script, function, binding.name)
                elif binding.value is not None:
                    yield binding.value
            return
        case ast.Call():
            own = [each for each, _ in script.program.evaluator.callees(node)]
            for function in own:
                yield from (each.value for each in function.returns if each.value is not None)
            if own:
                return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.comprehension):
            yield child.iter
        elif isinstance(child, ast.keyword):
            yield child.value
