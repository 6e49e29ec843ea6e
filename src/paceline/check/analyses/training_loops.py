"""Loops that train and loops that evaluate, with everything that runs within them, functions included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from paceline.check.analyses.framework_names import OPTIMIZERS, SCHEDULERS
from paceline.syntax.conditions import Condition, conditions
from paceline.syntax.module_index import Function, last_name
from paceline.syntax.program import Program
from paceline.syntax.values import Instance, Values

MAX_DEPTH = 6
Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True)
class Reached:
    """A node that runs within another one.

    Attributes:
        path: calls that lead from the outer node to the function in which it stands, outermost first.
    """

    node: ast.AST
    function: Function
    path: tuple[ast.Call, ...] = ()


class TrainingLoop:
    """The innermost loop in which gradients are computed, and the loops around it.

    Attributes:
        node: the loop in whose rounds the optimizer steps; the one around the backward passes if none does.
        function: in which it stands.
        micro: the innermost loop around the backward passes, if that is another one: gradients are accumulated.
        backwards: backward passes within `node`.
        steps: steps of optimizers within `node`.
    """

    def __init__(self, loops: Loops, node: Loop, function: Function) -> None:
        self._loops = loops
        self.node = node
        self.function = function

    @cached_property
    def reached(self) -> list[Reached]:
        """Calls within it."""
        return list(self._loops.reached_calls(self.node, self.function))

    @cached_property
    def backwards(self) -> list[Reached]:
        """Backward passes."""
        return [each for each in self.reached if self._loops.is_backward(each.node)]

    @cached_property
    def steps(self) -> list[Reached]:
        """Steps of optimizers."""
        return [each for each in self.reached if self._loops.is_step(each.node)]

    @cached_property
    def iterated(self) -> Values:
        """Values that it iterates over; none for `while`."""
        if isinstance(self.node, ast.While):
            return frozenset()
        return self._loops.program.evaluator.iterated(self.node.iter)

    @cached_property
    def micro(self) -> Loop | None:
        """The innermost loop around a backward pass, where it is another one."""
        for each in self.backwards:
            module = each.function.module
            for at in module.ancestors(each.node):
                if at is self.node:
                    break
                if isinstance(at, Loop):
                    return at
                if at is each.function.node:
                    break
        return None

    def __contains__(self, node: ast.AST) -> bool:
        return any(each.node is node for each in self.reached) or self._loops.stands_in(node, self.node)


class Loops:
    """The loops of a script.

    Args:
        program: the script.
    """

    def __init__(self, program: Program) -> None:
        self.program = program

    @cached_property
    def training(self) -> list[TrainingLoop]:
        """Loops that train: each is the innermost one around the steps of an optimizer, or around backward passes."""
        found = []
        for function in self.program.functions:
            for node in function.loops:
                loop = TrainingLoop(self, node, function)
                if loop.backwards and (not self._inside_has(loop, loop.steps or loop.backwards)):
                    found.append(loop)
        return [
            each
            for each in found
            if each.steps
            or not any(other is not each and other.steps and each.node in _nodes(other) for other in found)
        ]

    def _inside_has(self, loop: TrainingLoop, wanted: list[Reached]) -> bool:
        """True if all of these stand in another loop within it, so that this one is no innermost one."""
        return all(self._inner_loop(loop, each) for each in wanted)

    def _inner_loop(self, loop: TrainingLoop, each: Reached) -> bool:
        node: ast.AST = each.node
        for at_function, start in self._frames(loop, each):
            for at in at_function.module.ancestors(start):
                if at is loop.node:
                    return False
                if isinstance(at, Loop):
                    return True
                if at is at_function.node:
                    break
        return self.stands_in(node, loop.node) is False

    def _frames(self, loop: TrainingLoop, each: Reached) -> Iterator[tuple[Function, ast.AST]]:
        yield each.function, each.node
        for call in reversed(each.path):
            yield self.program.evaluator.home(call), call

    def stands_in(self, node: ast.AST, outer: ast.AST) -> bool:
        """True if a node stands within another one in the source."""
        module = self.program.evaluator.home(node).module
        return any(at is outer for at in module.ancestors(node))

    def reached_calls(self, node: ast.AST, function: Function) -> Iterator[Reached]:
        """Calls that run within a node: those in it, and those of the functions that it calls.

        Args:
            node: a loop, a statement or a function.
            function: in which it stands.
        """
        yield from self._reached(node, function, (), {function} if node is function.node else set())

    def called(self, call: ast.Call) -> Iterator[Reached]:
        """A call, and the calls that run within the functions that it calls."""
        yield Reached(call, self.program.evaluator.home(call))
        for callee, _ in self.program.evaluator.callees(call):
            yield from self.reached_calls(callee.node, callee)

    def _reached(
        self, node: ast.AST, function: Function, path: tuple[ast.Call, ...], seen: set[Function]
    ) -> Iterator[Reached]:
        for call in function.calls:
            if node is function.node or self.stands_in(call, node):
                yield Reached(call, function, path)
                if len(path) >= MAX_DEPTH:
                    continue
                for callee, _ in self.program.evaluator.callees(call):
                    if callee not in seen and callee is not function:
                        seen.add(callee)
                        yield from self._reached(callee.node, callee, (*path, call), seen)

    def reached_conditions(self, each: Reached, outer: ast.AST) -> Iterator[Condition]:
        """Conditions between an outer node and what it reaches, innermost first, through the functions between."""
        for function, node in (
            (each.function, each.node),
            *((self.program.evaluator.home(c), c) for c in reversed(each.path)),
        ):
            for condition in conditions(function.module, node):
                if condition.test is getattr(outer, "test", None):
                    return
                if function.module is self.program.evaluator.home(outer).module and not self._within(
                    condition, outer, function
                ):
                    continue
                yield condition

    def _within(self, condition: Condition, outer: ast.AST, function: Function) -> bool:
        return self.stands_in(condition.test, outer) or function is not self.program.evaluator.home(outer)

    # What calls are

    def is_backward(self, node: ast.AST) -> bool:
        """`loss.backward()`, `accelerator.backward(loss)`, `torch.autograd.backward(...)`."""
        return (
            isinstance(node, ast.Call)
            and last_name(node.func) in ("backward", "manual_backward")
            and isinstance(node.func, ast.Attribute)
            and not self._of_script(node)
        )

    def is_step(self, node: ast.AST) -> bool:
        """`optimizer.step()` or `scaler.step(optimizer)`; not that of a scheduler or a profiler."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "step":
            return False
        names = self.program.callee_names(node)
        if any(name.startswith(SCHEDULERS) or "profiler" in name for name in names):
            return False
        if any(name.startswith(OPTIMIZERS) or "GradScaler" in name for name in names):
            return True
        text = ast.unparse(node.func.value).lower()
        return any(part in text for part in ("opt", "scaler", "sgd", "adam")) and "sched" not in text

    def _of_script(self, node: ast.Call) -> bool:
        """A method of a class of the script that has the name of one of torch."""
        assert isinstance(node.func, ast.Attribute)
        values = self.program.values(node.func.value)
        return bool(values) and all(
            isinstance(each, Instance)
            and any(node.func.attr in cls.methods for cls in self.program.evaluator.lineage(each.cls))
            for each in values
        )


def _nodes(loop: TrainingLoop) -> set[ast.AST]:
    return {at for each in loop.reached for at in each.function.module.ancestors(each.node) if isinstance(at, Loop)}
