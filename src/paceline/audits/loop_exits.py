"""The ways out of a training loop, read from the source of the script: by a clock, by another condition, by its data.

The records say that ranks left a loop at different steps. The source then tells a time budget from early stopping. It
is read only where the file still exists, and never executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.records.place import Place

_CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "now", "utcnow"}
_EXITS = {"exit", "_exit", "quit"}
_LEVELS = 3
"""Functions between the backward pass and the outermost loop that are looked at."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True)
class LoopExits:
    """Ways out of the loops around a line.

    Attributes:
        clock: the line of a condition on a clock; None if there is none.
        condition: the line of another condition; None if there is none.
        data: a loop ends with its data, whose number may differ between ranks.
    """

    clock: int | None
    condition: int | None
    data: bool


def loop_exits(place: Place | None) -> LoopExits | None:
    """Find the ways out of the loops around a line, in its function and in those that call it.

    Args:
        place: of the backward pass.

    Returns:
        None if the file cannot be read or has no loop around the line.
    """
    if place is None:
        return None
    try:
        if not Path(place.path).is_file():  # a named pipe would block
            return None
        tree = ast.parse(Path(place.path).read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None
    script = _Script(tree)
    loops = script.loops_around(place.line)
    if not loops:
        return None
    clocks: list[int] = []
    others: list[int] = []
    data = False
    for scope, loop in loops:
        for test in _conditions(loop):
            (clocks if script.reads_clock(test, scope) else others).append(test.lineno)
        data |= isinstance(loop, ast.For | ast.AsyncFor) and not _counts_to_constant(loop.iter)
    return LoopExits(clocks[0] if clocks else None, others[0] if others else None, data)


class _Script:
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._functions = [each for each in ast.walk(tree) if isinstance(each, _Function)]
        self._clock_functions = {
            each.name
            for each in self._functions
            if any(isinstance(one, ast.Return) and one.value and _calls(one.value, _CLOCKS) for one in _own(each))
        }

    def loops_around(self, line: int) -> list[tuple[ast.AST, _Loop]]:
        """The loops and the function, or module, that each is in; innermost function first."""
        found: list[tuple[ast.AST, _Loop]] = []
        lines = [line]
        seen: set[str] = set()
        for _ in range(_LEVELS):
            callers: list[int] = []
            for each in lines:
                scope = self._scope(each)
                loops = [one for one in _own(scope) if isinstance(one, _Loop) and _within(one, each)]
                found += [(scope, one) for one in loops if (scope, one) not in found]
                if isinstance(scope, _Function) and scope.name not in seen:
                    seen.add(scope.name)
                    calls = (one for one in ast.walk(self._tree) if isinstance(one, ast.Call))
                    callers += [one.lineno for one in calls if _name(one.func) == scope.name]
            lines = callers
        return found

    def reads_clock(self, test: ast.expr, scope: ast.AST) -> bool:
        """True if a condition depends on a clock: directly, by a variable, or by a function of the script."""
        if _calls(test, _CLOCKS | self._clock_functions):
            return True
        names = {each.id for each in ast.walk(test) if isinstance(each, ast.Name)}
        clocks = _CLOCKS | self._clock_functions
        timed = (each for each in _own(scope) if isinstance(each, ast.Assign) and _calls(each.value, clocks))
        targets = (one for each in timed for target in each.targets for one in ast.walk(target))
        return any(isinstance(one, ast.Name) and one.id in names for one in targets)

    def _scope(self, line: int) -> ast.AST:
        around = [each for each in self._functions if _within(each, line)]
        return max(around, key=lambda each: each.lineno, default=self._tree)


def _conditions(loop: _Loop) -> Iterator[ast.expr]:
    """The condition that ends the loop before its data end."""
    if isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant):
        yield loop.test
    yield from _leaving(loop.body, inner=False)


def _leaving(body: list[ast.stmt], *, inner: bool) -> Iterator[ast.expr]:
    for each in body:
        if isinstance(each, ast.If):
            if any(_leaves(one, inner=inner) for one in (*each.body, *each.orelse)):
                yield each.test
            yield from _leaving(each.body, inner=inner)
            yield from _leaving(each.orelse, inner=inner)
        elif isinstance(each, ast.With | ast.AsyncWith | ast.Try):
            yield from _leaving(each.body, inner=inner)
        elif isinstance(each, _Loop):  # its break ends only itself
            yield from _leaving(each.body, inner=True)


def _leaves(each: ast.stmt, *, inner: bool) -> bool:
    if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
        return _name(each.value.func) in _EXITS
    return isinstance(each, ast.Return) or (isinstance(each, ast.Break) and not inner)


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function or module without those of the functions in it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, (*_Function.__args__, ast.Lambda)):
            yield child
            yield from _own(child)


def _counts_to_constant(iterated: ast.expr) -> bool:
    """`range(60)`, `range(args.epochs)`, `itertools.count()`, but not `range(len(data))`."""
    if not isinstance(iterated, ast.Call) or _name(iterated.func) not in ("range", "trange", "count"):
        return False
    return not any(isinstance(one, ast.Call) for each in iterated.args for one in ast.walk(each))


def _calls(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(each, ast.Call) and _name(each.func) in names for each in ast.walk(node))


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _within(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)
