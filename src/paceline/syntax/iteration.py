"""Loops: what they iterate over, through `enumerate`, `zip`, progress bars and generators of the script."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.syntax.call_graph import CallGraph
from paceline.syntax.child_nodes import walk
from paceline.syntax.evaluates import Evaluates
from paceline.syntax.module_index import Function
from paceline.syntax.name_bindings import NameBindings
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import ANY, NONE, UNKNOWN, Context, Elements, Located, Named, Object, Part, Value, Values

SAME_ITEMS = frozenset(
    (
        "tqdm.tqdm", "tqdm.trange", "builtins.iter", "builtins.reversed", "builtins.list", "builtins.tuple",
        "builtins.sorted", "itertools.cycle", "itertools.islice", "itertools.chain", "rich.progress.track",
    )
)  # fmt: skip
"""Functions that give the items of their first argument."""


class Iteration:
    """Answers questions about the loops of one script.

    Args:
        evaluator: of the same script.
        names: likewise.
        graph: likewise.
    """

    def __init__(self, evaluator: Evaluates, names: NameBindings, graph: CallGraph) -> None:
        self._evaluator = evaluator
        self._names = names
        self._graph = graph

    def iterated(self, node: ast.expr, context: Context | None = None) -> Values:
        """Values that a loop iterates over: `loader` of `for i, batch in enumerate(tqdm(loader))`."""
        return self._iterated(node, context, 8)

    def _iterated(self, node: ast.expr, context: Context | None, depth: int) -> Values:
        """At most `depth` functions around the loader are looked through."""
        if isinstance(node, ast.Call) and node.args and depth:
            callees = {each.name for each in self._evaluator.values(node.func, context) if isinstance(each, Named)}
            if "builtins.zip" in callees:
                return frozenset(found for each in node.args for found in self._iterated(each, context, depth - 1))
            if any(_goes_over_first(name) for name in callees):
                return self._iterated(node.args[0], context, depth - 1)
        if depth and (yielded := self._yielded(node, context, depth)):
            return yielded
        found: set[Value] = set()
        for value in self._evaluator.values(node, context):
            if isinstance(value, Object) and _goes_over_first(value.name) and value.call.args and depth:
                found |= self._iterated(value.call.args[0], value.context, depth - 1)
            else:
                found.add(value)
        return frozenset(found)

    def _yielded(self, node: ast.expr, context: Context | None, depth: int) -> Values:
        """Iterables that a generator passes on: `loader` of `cycle(loader)` with `for batch in loader: yield batch`."""
        found: set[Value] = set()
        if isinstance(node, ast.Name):
            for binding, function in self._names.bindings(node):
                if binding.kind is Kind.VALUE and isinstance(binding.value, ast.Call) and not binding.path:
                    inner = context if context is not None and context.function is function else None
                    found |= self._yielded(binding.value, inner, depth - 1) if depth > 1 else NONE
        elif isinstance(node, ast.Call):
            for function, inner in self._graph.callees(node, context) if depth > 1 else ():
                for each in _handed_on(function) if function.yields else ():
                    found |= self._iterated(each, inner, depth - 1)
        return frozenset(found)

    def element(self, iterable: ast.expr, path: tuple[int, ...], context: Context | None) -> Values:
        """Values of a loop variable, or of a part of it."""
        if isinstance(iterable, ast.Call):
            callees = self._evaluator.values(iterable.func, context)
            if callees == {Named("builtins.enumerate")} and path and iterable.args:
                return ANY if path[0] == 0 else self.element(iterable.args[0], path[1:], context)
            if callees == {Named("builtins.zip")} and path and 0 <= path[0] < len(iterable.args):
                return self.element(iterable.args[path[0]], path[1:], context)
        found: set[Value] = set()
        for base in self.iterated(iterable, context):
            if isinstance(base, Elements):
                inner = self._evaluator.all_of(Located(each, base.context) for each in base.node.elts)
            else:
                inner = frozenset({Part(base, "[*]")}) if base != UNKNOWN else ANY
            found |= self._evaluator.follow(inner, path)
        return frozenset(found)


def _handed_on(function: Function) -> Iterator[ast.expr]:
    """Iterables whose elements a generator yields as they are."""
    for loop in function.loops:
        if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name):
            for at in walk(loop):
                if isinstance(at, ast.Yield) and isinstance(at.value, ast.Name) and at.value.id == loop.target.id:
                    yield loop.iter
        for at in loop.body:
            if isinstance(at, ast.Expr) and isinstance(at.value, ast.YieldFrom):
                yield at.value.value


def _goes_over_first(name: str) -> bool:
    return name in SAME_ITEMS or name == "builtins.enumerate" or "tqdm" in name
