"""Training loops that accumulate gradients: when they step, and when they synchronize.

Conditions such as `(i + 1) % accumulate == 0 or i + 1 == len(loader)` are evaluated for every micro-step of short
pretended epochs, so that two conditions can be compared however they are written.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from paceline.check.analyses.rank_shares import arguments_for
from paceline.check.analyses.rank_tests import RankKind
from paceline.check.analyses.script import Script
from paceline.check.analyses.training_loops import Loop, Reached, TrainingLoop
from paceline.syntax.child_nodes import walk
from paceline.syntax.conditions import Condition, same_test
from paceline.syntax.module_index import Function, last_name
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import Literal

EPOCHS = ((2, 7), (3, 11), (4, 11))
"""Micro-steps in a window, and batches in an epoch, of the pretended epochs: the last window is not full."""


class NotReadableError(Exception):
    """An expression that cannot be evaluated."""


@dataclass(frozen=True)
class Accumulation:
    """A training loop with several backward passes for each step of the optimizer.

    Attributes:
        backward: the backward pass of a micro-step.
        step: the step of the optimizer.
        tests: conditions of the step that the backward pass does not have; none if the micro-steps are an inner loop.
        micro: the loop over micro-steps.
        window: number of micro-steps, as it is written.
    """

    loop: TrainingLoop
    backward: Reached
    step: Reached
    tests: tuple[Condition, ...]
    micro: Loop
    window: ast.expr


def accumulations(script: Script) -> Iterator[Accumulation]:
    """Training loops that accumulate gradients, one for each backward pass."""
    for loop in script.loops.training:
        if not loop.steps or not isinstance(loop.node, ast.For | ast.While):
            continue
        for backward in loop.backwards:
            found = _inner_loop(script, loop, backward) or _condition(script, loop, backward)
            if found is not None:
                yield found


def _inner_loop(script: Script, loop: TrainingLoop, backward: Reached) -> Accumulation | None:
    """`for micro_step in range(accumulate): ...backward()`, then a step."""
    micro = next((each for each in _loops_between(script, loop, backward)), None)
    if micro is None or not isinstance(micro, ast.For) or not _counts(script, micro.iter):
        return None
    if any(script.loops.stands_in(each.node, micro) for each in loop.steps):
        return None
    assert isinstance(micro.iter, ast.Call)
    window = micro.iter.args[-1] if len(micro.iter.args) < 3 else micro.iter.args[1]
    return Accumulation(loop, backward, loop.steps[0], (), micro, window)


def _loops_between(script: Script, loop: TrainingLoop, backward: Reached) -> Iterator[Loop]:
    for function, node in frames(script, backward):
        for at in function.module.ancestors(node):
            if at is loop.node:
                return
            if isinstance(at, ast.For | ast.AsyncFor | ast.While):
                yield at
            if at is function.node:
                break


def frames(script: Script, reached: Reached) -> Iterator[tuple[Function, ast.AST]]:
    """Functions between a node and the loop that reaches it, with the node or call in each, innermost first."""
    yield reached.function, reached.node
    for call in reversed(reached.path):
        yield script.function_of(call), call


def _counts(script: Script, iterable: ast.expr) -> bool:
    return isinstance(iterable, ast.Call) and "builtins.range" in script.program.callee_names(iterable)


def _condition(script: Script, loop: TrainingLoop, backward: Reached) -> Accumulation | None:
    """`if (i + 1) % accumulate == 0: optimizer.step()` behind a backward pass of each batch."""
    mine = set(script.loops.reached_conditions(backward, loop.node))
    tests: tuple[Condition, ...] | None = None
    for step in loop.steps:
        own = tuple(each for each in script.loops.reached_conditions(step, loop.node) if each not in mine)
        if not any(_modulo(script, each.test) is not None for each in own):
            return None  # this one steps after each backward pass
        tests = tests or own
    if tests is None:
        return None
    window = next(found for each in tests if (found := _modulo(script, each.test)) is not None)
    if window_size(script, window) in (0, 1) or not _clears_rarely(script, loop, tests):
        return None
    return Accumulation(loop, backward, loop.steps[0], tests, loop.node, window)


def _clears_rarely(script: Script, loop: TrainingLoop, tests: tuple[Condition, ...]) -> bool:
    """True if gradients live longer than a micro-step: `zero_grad` stands under the condition of the step."""
    wanted = {each.test for each in tests}
    for each in loop.reached:
        if isinstance(each.node, ast.Call) and last_name(each.node.func) == "zero_grad":
            found = {condition.test for condition in script.loops.reached_conditions(each, loop.node)}
            if not found & wanted and not any(_modulo(script, each) is not None for each in found):
                return False
    return True


def _modulo(script: Script, test: ast.expr, depth: int = 0) -> ast.expr | None:
    """The divisor in `i % accumulate == 0`, also behind a name."""
    for at in walk(test):
        if isinstance(at, ast.BinOp) and isinstance(at.op, ast.Mod) and not isinstance(at.left, ast.Constant):
            return at.right
    if depth < 3:
        for at in walk(test):
            if isinstance(at, ast.Name):
                for binding, function in script.program.evaluator.bindings(at):
                    given: list[ast.expr] = []
                    if binding.kind is Kind.PARAMETER:
                        given = arguments_for(script, function, binding.name, default=False)
                    elif binding.kind is Kind.VALUE and binding.value is not None and not binding.path:
                        given = [binding.value]
                    for each in given:
                        if (found := _modulo(script, each, depth + 1)) is not None:
                            return found
    return None


def window_size(script: Script, window: ast.expr) -> object:
    """The number of micro-steps if it is a constant; None otherwise."""
    values = script.values(window)
    literals = [each.value for each in values if isinstance(each, Literal)]
    return literals[0] if len(values) == len(literals) == 1 else None


# Conditions in pretended epochs


def steps_without(script: Script, accumulation: Accumulation, holds: Callable[[PretendedEpoch], bool]) -> int | None:
    """A micro-step after which the optimizer steps and for which `holds` is true, in every pretended epoch.

    None if there is none, or if a condition cannot be read.
    """
    found = None
    for window, batches in EPOCHS:
        size = window_size(script, accumulation.window)
        window = size if isinstance(size, int) and 1 < size < batches else window
        count = batches if accumulation.tests else window
        bad = None
        for index in range(count):
            epoch = PretendedEpoch(script, accumulation, index, window, batches)
            try:
                if epoch.steps() and holds(epoch):
                    bad = index
            except NotReadableError:
                return None
        if bad is None:
            return None
        found = bad
    return found


_BINARY: dict[type[ast.operator], Callable[[Any, Any], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


@dataclass
class PretendedEpoch:
    """One micro-step of a pretended epoch.

    Attributes:
        index: of the micro-step.
        window: micro-steps for each step of the optimizer.
        batches: in the epoch.
        used_index: an expression that was evaluated depends on the index.
    """

    script: Script
    accumulation: Accumulation
    index: int
    window: int
    batches: int
    used_index: bool = field(default=False)

    def steps(self) -> bool:
        """True if the optimizer steps after this micro-step."""
        if not self.accumulation.tests:
            return self.index == self.window - 1
        found = all(bool(self.value(each.test)) is each.holds for each in self.accumulation.tests)
        if not self.used_index:
            raise NotReadableError
        return found

    def value(self, node: ast.expr) -> object:
        """The value of an expression."""
        if same_test(node, self.accumulation.window):
            return self.window
        match node:
            case ast.Constant():
                return node.value
            case ast.BinOp() if type(node.op) in _BINARY:
                try:
                    return _BINARY[type(node.op)](self.value(node.left), self.value(node.right))
                except (TypeError, ZeroDivisionError):
                    raise NotReadableError from None
            case ast.BoolOp():
                values = [bool(self.value(each)) for each in node.values]
                return all(values) if isinstance(node.op, ast.And) else any(values)
            case ast.UnaryOp(op=ast.Not()):
                return not self.value(node.operand)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
                return -number
            case ast.Compare() if len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
                try:
                    return _COMPARISONS[type(node.ops[0])](self.value(node.left), self.value(node.comparators[0]))
                except TypeError:
                    raise NotReadableError from None
            case ast.IfExp():
                return self.value(node.body if self.value(node.test) else node.orelse)
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self._symbol(node)
            case ast.Call():
                return self._call(node)
        raise NotReadableError

    def _name(self, node: ast.Name) -> object:
        bindings = self.script.program.evaluator.bindings(node)
        if len(bindings) == 1:
            binding = bindings[0][0]
            if binding.kind is Kind.ELEMENT and binding.node is self.accumulation.micro and binding.value is not None:
                return self._index(binding.value, binding.path)
            if binding.kind is Kind.VALUE and binding.value is not None and not binding.path:
                literal = self.script.values(node)
                if not (len(literal) == 1 and isinstance(next(iter(literal)), Literal)):
                    try:
                        return self.value(binding.value)
                    except NotReadableError:
                        if self._mentions_loop(binding.value):
                            raise
        elif any(binding.kind is not Kind.PARAMETER for binding, _ in bindings) and len(bindings) > 1:
            raise NotReadableError
        return self._symbol(node)

    def _mentions_loop(self, node: ast.expr) -> bool:
        return any(
            isinstance(at, ast.Name)
            and any(each.kind is Kind.ELEMENT for each, _ in self.script.program.evaluator.bindings(at))
            for at in walk(node)
        )

    def _index(self, iterable: ast.expr, path: tuple[int, ...]) -> object:
        if not isinstance(iterable, ast.Call):
            raise NotReadableError
        names = self.script.program.callee_names(iterable)
        start: ast.expr | None = None
        if "builtins.enumerate" in names and path == (0,):
            start = (
                self.script.argument(iterable, "start", 1).given[0].node
                if (self.script.argument(iterable, "start", 1).given)
                else None
            )
        elif "builtins.range" in names and not path and len(iterable.args) < 3:
            start = iterable.args[0] if len(iterable.args) == 2 else None
        elif any("tqdm" in each for each in names) and iterable.args:
            return self._index(iterable.args[0], path)
        else:
            raise NotReadableError
        self.used_index = True
        first = self.value(start) if start is not None else 0
        return self.index + first if isinstance(first, int) else self.index

    def _symbol(self, node: ast.Name | ast.Attribute) -> object:
        """A number that the script does not show: the same one wherever the same name stands."""
        if self.script.ranks.kind(node) is not RankKind.NONE:
            return 1
        values = self.script.values(node)
        literals = [each.value for each in values if isinstance(each, Literal)]
        if len(values) == len(literals) == 1:
            return literals[0]
        name = last_name(node).lower()
        if any(part in name for part in ("acc", "micro", "every", "interval")):
            return self.window
        if name == "n" or any(part in name for part in ("len", "batches", "num_steps", "n_iter", "total", "per_epoch")):
            return self.batches
        if any(part in name for part in ("distributed", "ddp", "multi")):
            return True
        raise NotReadableError

    def _call(self, node: ast.Call) -> object:
        name = last_name(node.func)
        if name == "len":
            return self.batches
        if name in ("int", "bool") and len(node.args) == 1:
            return self.value(node.args[0])
        if name in ("min", "max") and node.args and not node.keywords:
            numbers = [self.value(each) for each in node.args]
            if all(isinstance(each, int) for each in numbers):
                return (min if name == "min" else max)(numbers)  # type: ignore[type-var]
        raise NotReadableError
