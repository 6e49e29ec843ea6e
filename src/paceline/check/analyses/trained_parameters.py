"""Optimizers, and the modules whose parameters they are given."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from paceline.check.analyses import framework_names as names
from paceline.check.analyses.script import Script
from paceline.check.analyses.value_origins import origins
from paceline.syntax.module_index import last_name
from paceline.syntax.program import CallSite
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import UNKNOWN, Context, Values


def parameter_owners(script: Script, node: ast.AST | None, context: Context | None = None) -> Iterator[Values]:
    """Modules whose parameters an expression gives: an argument of an optimizer, of `autograd.grad`.

    Yields:
        For each part of the expression what owns it: modules, or `nn.Parameter` objects themselves; `{UNKNOWN}` for
        what reading does not show.
    """
    for each in origins(script, node, context):
        yield from _owners(script, each.node, each.context, 0)


def _owners(script: Script, node: ast.AST, context: Context | None, depth: int) -> Iterator[Values]:
    if depth > 8:
        yield frozenset({UNKNOWN})
        return
    match node:
        case ast.List() | ast.Tuple():
            for item in node.elts:
                yield from _nested(script, item, context, depth)
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "params":
                    yield from _nested(script, value, context, depth)
        case ast.BinOp(op=ast.Add()):
            yield from _nested(script, node.left, context, depth)
            yield from _nested(script, node.right, context, depth)
        case ast.ListComp() | ast.GeneratorExp():
            yield from _nested(script, node.generators[0].iter, context, depth)
        case ast.Call():
            yield from _called_owners(script, node, context, depth)
        case _:
            values = script.values(node, context)
            yield values if values else frozenset({UNKNOWN})


def _nested(script: Script, node: ast.AST, context: Context | None, depth: int) -> Iterator[Values]:
    for each in origins(script, node, context):
        yield from _owners(script, each.node, each.context, depth + 1)


def _called_owners(script: Script, node: ast.Call, context: Context | None, depth: int) -> Iterator[Values]:
    name = last_name(node.func)
    if name in ("parameters", "named_parameters") and isinstance(node.func, ast.Attribute):
        values = script.values(node.func.value, context)
        yield values if values else frozenset({UNKNOWN})
        return
    callees = script.program.callee_names(node)
    if callees == ["torch.nn.Parameter"]:
        yield script.values(node, context)
    elif set(callees) & {"itertools.chain", "builtins.list", "builtins.tuple", "builtins.iter", "builtins.dict"}:
        for given in (*node.args, *(each.value for each in node.keywords if each.arg == "params")):
            yield from _nested(script, given, context, depth)
    elif "builtins.filter" in callees and len(node.args) == 2:
        yield from _nested(script, node.args[1], context, depth)
    else:
        yield frozenset({UNKNOWN})


def owners_of_parameter(script: Script, node: ast.expr) -> list[Values]:
    """Modules whose parameters a name goes over: `p` of `for p in model.parameters()`, or the module itself."""
    if isinstance(node, ast.Name):
        found = []
        for binding, _ in script.program.evaluator.bindings(node):
            if binding.kind is Kind.ELEMENT and binding.value is not None:
                found += list(parameter_owners(script, binding.value))
        if found:
            return found
    return [script.values(node)]


@lru_cache(maxsize=4)
def optimizers(script: Script) -> tuple[CallSite, ...]:
    """Calls that make optimizers."""
    found = []
    for function in script.program.functions:
        for call in function.calls:
            for name in script.program.callee_names(call):
                last = name.rpartition(".")[2]
                known = name.startswith(names.OPTIMIZERS) and not name.startswith(names.SCHEDULERS)
                if known and last[:1].isupper() and (name.count(".") == 2 or "optimizers" in name):
                    found.append(CallSite(name, call, function))
    return tuple(found)
