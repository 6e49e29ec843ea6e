"""Where a script keeps DDP from synchronizing gradients: `no_sync()` and `require_backward_grad_sync`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.check.analyses.accumulation import Accumulation, NotReadableError, PretendedEpoch, frames
from paceline.check.analyses.script import Script
from paceline.syntax.conditions import Condition, conditions
from paceline.syntax.module_index import Function
from paceline.syntax.reaching_definitions import Kind

_FLAG = "require_backward_grad_sync"
_OFF = ("no_sync", "set_requires_gradient_sync", "no_backward_sync", "accumulate")
Conditions = tuple[Condition, ...]


@dataclass(frozen=True)
class SyncControl:
    """A place that decides whether a backward pass synchronizes.

    Attributes:
        node: the place.
        off: conditions that all hold in micro-steps whose backward pass does not synchronize.
    """

    node: ast.AST
    off: Conditions

    def is_off(self, epoch: PretendedEpoch) -> bool:
        """True if the backward pass of a micro-step does not synchronize."""
        epoch.used_index = False
        found = all(bool(epoch.value(each.test)) is each.holds for each in self.off)
        if not epoch.used_index:
            raise NotReadableError
        return found


def mentions_no_sync(script: Script) -> bool:
    """True if the script turns synchronization off anywhere."""
    return any(
        module.calls_by_name.get(name) or module.loads_by_name.get(name) or module.stores_by_attribute.get(_FLAG)
        for module in script.program.imports.modules
        for name in _OFF
    )


def controls(script: Script, accumulation: Accumulation) -> Iterator[SyncControl]:
    """Places that decide whether the backward pass of a micro-step synchronizes."""
    for function, node in frames(script, accumulation.backward):
        for at in function.module.ancestors(node):
            if isinstance(at, ast.With | ast.AsyncWith):
                yield from _of_with(script, accumulation, function, at)
            if at is function.node or at is accumulation.micro:
                break
    yield from _of_flag(script, accumulation)


def no_sync_blocks(script: Script) -> Iterator[tuple[Function, ast.With | ast.AsyncWith]]:
    """`with` statements that may turn synchronization off."""
    for function in script.program.functions:
        seen: set[ast.AST] = set()
        for call in function.calls:
            for at in function.module.ancestors(call):
                if at is function.node:
                    break
                if isinstance(at, ast.With | ast.AsyncWith) and at not in seen:
                    seen.add(at)
                    if any(True for item in at.items for _ in _entered(script, item.context_expr)):
                        yield function, at


def _of_with(
    script: Script, accumulation: Accumulation, function: Function, node: ast.With | ast.AsyncWith
) -> Iterator[SyncControl]:
    for item in node.items:
        for place, off in _entered(script, item.context_expr):
            around = tuple(
                each
                for each in conditions(function.module, node)
                if any(at is accumulation.micro for at in function.module.ancestors(each.test))
            )
            yield SyncControl(place, (*around, *off))


def _entered(script: Script, node: ast.expr) -> Iterator[tuple[ast.AST, Conditions]]:
    """The places in a context expression that turn synchronization off, with the conditions for it."""
    match node:
        case ast.Call(func=ast.Attribute(attr="no_sync")) | ast.Attribute(attr="no_sync"):
            yield node, ()
        case ast.Call(func=(ast.Name() | ast.IfExp()) as func, args=[]):
            yield from _entered(script, func)
        case ast.IfExp():
            for branch, wanted in ((node.body, True), (node.orelse, False)):
                for _, inner in _entered(script, branch):
                    yield node, (Condition(node.test, wanted), *inner)
        case ast.Name():
            bindings = script.program.evaluator.bindings(node)
            for binding, function in bindings:
                if binding.kind is Kind.VALUE and binding.value is not None and not binding.path:
                    own = list(conditions(function.module, binding.node))[:1] if len(bindings) > 1 else []
                    for place, inner in _entered(script, binding.value):
                        yield place, (*own, *inner)


def _of_flag(script: Script, accumulation: Accumulation) -> Iterator[SyncControl]:
    """`model.require_backward_grad_sync = micro_step == accumulate - 1`."""
    function = script.function_of(accumulation.micro)
    for target in function.module.stores_by_attribute.get(_FLAG, ()):
        statement = function.module.parents[target]
        if (
            isinstance(statement, ast.Assign)
            and not isinstance(statement.value, ast.Constant)
            and any(at is accumulation.micro for at in function.module.ancestors(statement))
        ):
            yield SyncControl(statement, (Condition(statement.value, False),))
