"""Names, attributes and functions whose values pass a collective."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses import framework_names as names
from paceline.check.analyses.script import Script
from paceline.syntax.module_index import Class, Function, dotted, last_name

NO_VALUE = frozenset(f"torch.distributed.{name}" for name in ("barrier", "monitored_barrier", "new_group"))
"""Collectives that carry no value."""
_SYNCHRONIZING = ("reduce", "gather", "broadcast", "bcast", "all_sum", "allsum", "sync", "across", "consensus")
_NOT_SYNCHRONIZING = frozenset(["reduce", "torch.cuda.synchronize", "gather", "no_sync", "synchronize", "index_reduce"])
"""Names that hold such a part and do something else: `functools.reduce`, `tensor.gather(1, index)`."""
MAX_DEPTH = 4


def may_synchronize(name: str) -> bool:
    """True if a function of this name likely makes a value equal on all ranks: `reduce_mean`, `gather_for_metrics`."""
    name = name.lower()
    return name not in _NOT_SYNCHRONIZING and any(part in name for part in _SYNCHRONIZING)


class SynchronizedNames:
    """Finds what passes a collective in place, and functions that reduce something.

    Args:
        script: the script.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._program = script.program
        self._calls: dict[Function, dict[str, list[ast.expr]]] = {}
        self._functions: dict[Function, bool] = {}

    def before(self, node: ast.Name | ast.Attribute) -> bool:
        """True if what a name holds passed a collective earlier in its function."""
        function = self._program.evaluator.home(node)
        text = dotted(node)
        for argument in self._arguments_of(function).get(text, ()):
            if argument is node or argument.lineno >= node.lineno:
                continue
            if isinstance(node, ast.Name) and isinstance(argument, ast.Name):
                mine = {binding for binding, _ in self._program.evaluator.bindings(node)}
                theirs = {binding for binding, _ in self._program.evaluator.bindings(argument)}
                if mine and theirs and not mine & theirs:
                    continue
            return True
        return False

    def member(self, cls: Class, name: str) -> bool:
        """True if an attribute of `self` passes a collective in any method."""
        return any(f"self.{name}" in self._arguments_of(method) for method in cls.methods.values())

    def function(self, function: Function, depth: int = 0) -> bool:
        """True if a function, or one that it calls, runs a collective that carries values."""
        known = self._functions.get(function)
        if known is not None:
            return known
        self._functions[function] = False
        found = any(self._synchronizes(call, depth) for call in function.calls)
        self._functions[function] = found
        return found

    def _synchronizes(self, call: ast.Call, depth: int) -> bool:
        called = set(self._program.callee_names(call))
        if called & set(names.COLLECTIVES):
            return not called & NO_VALUE
        callees = self._program.evaluator.callees(call)
        if callees:
            return depth < MAX_DEPTH and any(self.function(callee, depth + 1) for callee, _ in callees)
        return may_synchronize(last_name(call.func))

    def _arguments_of(self, function: Function) -> dict[str, list[ast.expr]]:
        """Names and attributes that collectives of a function are given, by their text."""
        found = self._calls.get(function)
        if found is None:
            found = self._calls[function] = {}
            for call in function.calls:
                if self._synchronizes(call, 0):
                    for argument in _tensors(call):
                        found.setdefault(dotted(argument), []).append(argument)
        return found


def _tensors(call: ast.Call) -> Iterator[ast.expr]:
    """Arguments of a collective, those in lists and behind `.data` and `.detach()` included; and its receiver."""
    stack: list[ast.expr] = [*call.args, *(each.value for each in call.keywords)]
    if isinstance(call.func, ast.Attribute):
        stack.append(call.func.value)
    while stack:
        at = stack.pop()
        if isinstance(at, ast.List | ast.Tuple):
            stack.extend(at.elts)
        elif isinstance(at, ast.Attribute) and at.attr == "data":
            stack.append(at.value)
        elif isinstance(at, ast.Name | ast.Attribute) and dotted(at):
            yield at
