"""Calls in which all ranks meet, and those of them that only some ranks reach."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from paceline.check.analyses import framework_names as names
from paceline.check.analyses.process_paths import of_several_processes
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.syntax.child_nodes import walk
from paceline.syntax.conditions import conditions
from paceline.syntax.module_index import Function, last_name
from paceline.syntax.values import ANY, Literal, Object

MAX_DEPTH = 5
_ACCELERATE = frozenset(("wait_for_everyone", "gather", "gather_for_metrics", "pad_across_processes", "save_state"))
_ONE_PROCESS = ("distributed", "is_initialized", "is_available", "world_size", "ddp", "multi", "parallel")
_NOT_MEETING = frozenset(("torch.distributed.new_group",))
_BUFFERS = (*names.BATCH_NORMS, names.SYNC_BATCH_NORM, "torch.nn.SyncBatchNorm")


@dataclass(frozen=True)
class MeetingPoint:
    """A call that all ranks must make.

    Attributes:
        what: for messages.
        certain: it hangs on any backend and for any model.
    """

    node: ast.Call
    function: Function
    what: str
    certain: bool = True


@dataclass(frozen=True)
class Alone:
    """A meeting point that some ranks reach without the others.

    Attributes:
        ranks: that reach it.
        at: the node of the call chain that stands under the test.
        test: None for a decorator or a context manager.
    """

    point: MeetingPoint
    ranks: Ranks
    at: ast.AST
    test: ast.expr | None


def meeting_points(script: Script) -> Iterator[MeetingPoint]:
    """Collectives of the default group, and other calls in which all ranks meet."""
    buffers = _has_buffers(script)
    for function in script.program.functions:
        for call in function.calls:
            found = _collective(script, call) or _other(script, call, buffers)
            if found is not None:
                yield MeetingPoint(call, function, *found)


def _collective(script: Script, call: ast.Call) -> tuple[str, bool] | None:
    for name in script.program.callee_names(call):
        if name in names.COLLECTIVES and name not in _NOT_MEETING and not of_own_group(script, call):
            return name.replace("torch.distributed.", "dist."), True
    return None


def of_own_group(script: Script, call: ast.Call) -> bool:
    """True if a collective may be one of a group of its own."""
    given = [each.value for each in call.keywords if each.arg in (None, "group", "process_group")]
    given += [each for each in call.args if "group" in ast.unparse(each).lower() or isinstance(each, ast.Starred)]
    return any(script.values(each) not in ({Literal(None)},) for each in given)


def _other(script: Script, call: ast.Call, buffers: bool) -> tuple[str, bool] | None:
    method = last_name(call.func)
    called = script.program.callee_names(call)
    if method in _ACCELERATE and any(each.startswith("accelerate.Accelerator.") for each in called):
        return f"accelerator.{method}", True
    if method == "consolidate_state_dict" and any("ZeroRedundancyOptimizer" in each for each in called):
        return "consolidate_state_dict", True
    if not isinstance(call.func, ast.Attribute | ast.Name):
        return None
    if method == "state_dict" and isinstance(call.func, ast.Attribute):
        values = script.values(call.func.value)
        if any(isinstance(each, Object) and each.name == names.FSDP[0] for each in values):
            return "state_dict of a model in FSDP", True
    if method == "compute" and any(each.startswith("torchmetrics.") for each in called):
        return "compute of a metric of torchmetrics", True
    if buffers and _synchronizes_statistics(script, call):
        return "the forward pass of a model with SyncBatchNorm in training mode", False
    if buffers and script.is_wrapped(call.func):
        return "the forward pass of a model in DDP with buffers", False
    return None


def _synchronizes_statistics(script: Script, call: ast.Call) -> bool:
    """True if a model with SyncBatchNorm runs in a script that never evaluates."""
    if not any(True for _ in script.calls(names.SYNC_BATCH_NORM)) or any(True for _ in script.method_calls("eval")):
        return False
    return script.is_inner(call.func) or script.is_wrapped(call.func)


def _has_buffers(script: Script) -> bool:
    """True if wrapped models certainly have buffers that DDP broadcasts."""
    for wrapper in script.wrappers:
        if script.literals(wrapper.site.node, "broadcast_buffers") == {False}:
            return False
    return bool(script.wrappers) and any(True for _ in script.calls(*_BUFFERS))


def alone(script: Script) -> Iterator[Alone]:
    """Meeting points that only some ranks reach, without a counterpart on the other ranks."""
    reached = _Reached(script)
    found = [each for point in meeting_points(script) for each in reached.under_tests(point)]
    unmatched = [each for each in found if not reached.has_counterpart(each)]
    for each in unmatched:
        opposite = [
            other
            for other in unmatched
            if other.ranks is not each.ranks and last_name(other.point.node.func) == last_name(each.point.node.func)
        ]
        if not opposite:  # else: one half of a pair in another function
            yield each


class _Reached:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.evaluator = script.program.evaluator
        self.meets = cache(self._meets)

    def under_tests(self, point: MeetingPoint) -> Iterator[Alone]:
        """Tests of the rank on the ways to a meeting point."""
        yield from self._up(point, point.node, point.function, 0, {point.function})

    def _up(
        self, point: MeetingPoint, node: ast.AST, function: Function, depth: int, seen: set[Function]
    ) -> Iterator[Alone]:
        if function.name in ("__enter__", "__exit__") or "first" in function.name or function.yields:
            return
        ranks, test = self.script.ranks.own(node)
        if test is not None and not _certain(self.script, test):
            return
        if ranks is Ranks.ALL and not _waits_in_turn(function, node):
            ranks = self.script.ranks.within(function, node, None)
        if ranks in (Ranks.ZERO, Ranks.OTHERS, Ranks.LOCAL_ZERO) or (ranks is Ranks.SOME and _one_rank(test)):
            yield Alone(point, ranks, node, test)
            return
        if ranks is not Ranks.ALL or depth >= MAX_DEPTH or _asks_arguments(self.script, function, node):
            return
        for caller, call in self.evaluator.call_sites(function):
            if caller not in seen:
                yield from self._up(point, call, caller, depth + 1, seen | {caller})

    def has_counterpart(self, each: Alone) -> bool:
        """True if ranks on the other side of the test meet as well, in the same function or one around it."""
        function = self.evaluator.home(each.at)
        outer = function.parent.calls if function.parent is not None and function.parent.parent is not None else []
        for call in (*function.calls, *outer):
            if call is each.at:
                continue
            ranks, test = self.script.ranks.own(call)
            if ranks is Ranks.ALL or (ranks is each.ranks and test is each.test):
                continue
            if (ranks is not each.ranks or ranks is Ranks.SOME) and self.meets(call):
                return True
        return False

    def _meets(self, call: ast.Call) -> bool:
        """True if a call is a collective or leads to one, as far as reading shows; one that cannot be read may."""
        if _collective(self.script, call) or _other(self.script, call, True):
            return True
        function = self.evaluator.home(call)
        callees = self.evaluator.callees(call)
        for callee, _ in callees:
            for inner in self.script.loops.reached_calls(callee.node, callee):
                assert isinstance(inner.node, ast.Call)
                if _collective(self.script, inner.node) or _other(self.script, inner.node, True):
                    return True
        synchronizing = ("barrier", "sync", "broadcast", "gather", "wait", "reduce")
        unread = not callees and self.script.values(call.func) in (ANY, frozenset())
        return function is not None and unread and any(part in last_name(call.func).lower() for part in synchronizing)


def _certain(script: Script, test: ast.expr) -> bool:
    """Not `everywhere or rank == 0`, where a part of the test may let all ranks through."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        return all(
            script.ranks.test(each) is not Ranks.ALL or any(part in ast.unparse(each).lower() for part in _ONE_PROCESS)
            for each in test.values
        )
    return True


def _waits_in_turn(function: Function, node: ast.AST) -> bool:
    """True if a context manager around a node is named after rank 0, but may let the others through later."""
    for at in function.module.ancestors(node):
        if at is function.node:
            break
        if isinstance(at, ast.With | ast.AsyncWith):
            for item in at.items:
                expression = item.context_expr
                name = last_name(expression.func if isinstance(expression, ast.Call) else expression).lower()
                if not ("only" in name or name.startswith("on_")) and any(part in name for part in ("zero", "main")):
                    return True
    return False


def _asks_arguments(script: Script, function: Function, node: ast.AST) -> bool:
    """True if a node runs only for some arguments of its function, other than a test for a distributed run."""
    names = {each.arg for each in function.parameters} - {"self"}
    return any(
        isinstance(at, ast.Name) and at.id in names
        for condition in conditions(function.module, node)
        if not _asks_for_group(script, condition.test)
        for at in walk(condition.test)
    )


def _asks_for_group(script: Script, test: ast.expr) -> bool:
    """True if a test only asks for a distributed run: `args.distributed`, `local_rank != -1`."""
    match test:
        case ast.BoolOp():
            return all(_asks_for_group(script, each) for each in test.values)
        case ast.UnaryOp(op=ast.Not()):
            return _asks_for_group(script, test.operand)
    return script.ranks.test(test) is Ranks.ALL and of_several_processes(test) is not None


def _one_rank(test: ast.expr | None) -> bool:
    """`rank == 1`: a test that certainly holds on one rank."""
    return (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq | ast.NotEq)
        and isinstance(test.comparators[0], ast.Constant)
        and isinstance(test.comparators[0].value, int)
        and test.comparators[0].value >= 0
    )
