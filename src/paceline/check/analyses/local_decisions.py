"""Decisions that each rank takes by itself: exits of loops, skipped steps and branches with collectives."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.check.analyses import framework_names as names
from paceline.check.analyses.local_values import LocalValues
from paceline.check.analyses.meeting_points import of_own_group
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.training_loops import Loop
from paceline.check.analyses.value_spread import Cause, Origin
from paceline.syntax.child_nodes import walk
from paceline.syntax.conditions import conditions
from paceline.syntax.module_index import Function, last_name

_EXITS = frozenset({"sys.exit", "os._exit", "builtins.exit", "builtins.quit"})


@dataclass(frozen=True)
class LocalTest:
    """A test whose result may differ between ranks.

    Attributes:
        test: the expression.
        origin: of what it rests on.
        leaves: the statement that leaves the loop or function when the test holds.
    """

    test: ast.expr
    origin: Origin
    leaves: ast.AST


def local_origin(script: Script, test: ast.expr) -> Origin | None:
    """Where a test comes from, if ranks may decide it differently; None if not, or if that cannot be read.

    A test of the rank is local with the cause `RANK`, unless it holds on all ranks of a job (`rank != -1`).
    """
    found = LocalValues.of(script).origin(test)
    if not found.local:
        return None
    on_some_ranks = script.ranks.test(test) is not Ranks.ALL
    if found.cause is Cause.DATA or (found.cause is not Cause.RANK and not on_some_ranks):
        return found
    return Origin(found.spread, Cause.RANK, test) if on_some_ranks else None


def calls_behind_test(script: Script, test: ast.expr, depth: int = 2) -> Iterator[ast.Call]:
    """Calls in a test, and in the values of the names that it reads: a cheap look before `local_origin`."""
    for at in walk(test):
        if isinstance(at, ast.Call):
            yield at
        elif isinstance(at, ast.Name) and depth > 0:
            for binding, _ in script.program.evaluator.bindings(at):
                if binding.value is not None and not isinstance(binding.node, ast.For | ast.AsyncFor):
                    yield from calls_behind_test(script, binding.value, depth - 1)


def synchronizes(script: Script, node: ast.AST) -> bool:
    """True if ranks meet within a node: in a backward pass of a distributed model, or in a collective."""
    function = script.function_of(node)
    several = bool(script.wrappers) or bool(script.engines & {"fsdp", "accelerate", "fabric"})
    for each in script.loops.reached_calls(node, function):
        assert isinstance(each.node, ast.Call)
        if several and script.loops.is_backward(each.node):
            return True
        if any(name in names.COLLECTIVES for name in script.program.callee_names(each.node)):
            return True
    return False


def collective_within(script: Script, node: ast.AST) -> ast.Call | None:
    """The first call within a node in which all ranks meet, functions that it calls included."""
    function = script.function_of(node)
    for each in script.loops.reached_calls(node, function):
        call = each.node
        assert isinstance(call, ast.Call)
        called = script.program.callee_names(call)
        collective = any(name in names.COLLECTIVES and not name.endswith("new_group") for name in called)
        if collective and not of_own_group(script, call):
            return call
        if any(name.endswith("Accelerator.wait_for_everyone") for name in called):
            return call
    return None


def local_exits(script: Script) -> Iterator[tuple[Loop, LocalTest]]:
    """Ways to leave a loop in which ranks meet, that a rank takes by a local test."""
    for function in script.program.functions:
        for loop in function.loops:
            found = list(_exits(script, loop, function))
            if found and synchronizes(script, loop):
                yield from ((loop, each) for each in found)


def _exits(script: Script, loop: Loop, function: Function) -> Iterator[LocalTest]:
    if isinstance(loop, ast.While):
        origin = local_origin(script, loop.test)
        if origin is not None:
            yield LocalTest(loop.test, origin, loop)
    for node in _leaving(script, loop, function):
        for condition in conditions(function.module, node):
            if not _within(function, condition.test, loop) or condition.test is getattr(loop, "test", None):
                continue
            origin = local_origin(script, condition.test)
            if origin is not None:
                yield LocalTest(condition.test, origin, node)
                break


def _leaving(script: Script, loop: Loop, function: Function) -> Iterator[ast.AST]:
    """`break` of this loop, `return` and `sys.exit()` within it."""
    stack: list[tuple[ast.AST, bool]] = [(each, False) for each in loop.body]
    while stack:
        at, inner = stack.pop()
        if isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        leaves = isinstance(at, ast.Return) or (isinstance(at, ast.Break) and not inner)
        if leaves or (isinstance(at, ast.Call) and set(script.program.callee_names(at)) & _EXITS):
            yield at
        inner = inner or isinstance(at, ast.For | ast.AsyncFor | ast.While)
        stack.extend((each, inner) for each in ast.iter_child_nodes(at))


def _within(function: Function, node: ast.AST, outer: ast.AST) -> bool:
    return any(at is outer for at in function.module.ancestors(node))


def leaving_statement(script: Script, test: ast.expr) -> ast.stmt | None:
    """The `continue`, `return` or `break` at the end of the branch that a test opens."""
    parent = script.function_of(test).module.parents.get(test)
    if isinstance(parent, ast.If) and parent.test is test:
        last = parent.body[-1]
        if isinstance(last, ast.Continue | ast.Return | ast.Break):
            return last
    return None


def source_of(origin: Origin) -> str:
    """Code that makes a value local, for a message."""
    text = ast.unparse(origin.node) if origin.node is not None else "local values"
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_call_of(node: ast.AST, *methods: str) -> bool:
    """True if a node calls a method or function of one of these names."""
    return isinstance(node, ast.Call) and last_name(node.func) in methods
