"""Where the results of calls come from, for `local_values`."""

from __future__ import annotations

import ast
from typing import Protocol

from paceline.check.analyses import framework_names as names
from paceline.check.analyses import local_tables as tables
from paceline.check.analyses.rank_tests import RankKind
from paceline.check.analyses.script import Script
from paceline.check.analyses.synchronized_names import NO_VALUE, SynchronizedNames, may_synchronize
from paceline.check.analyses.value_spread import EQUAL, REDUCED, UNKNOWN, Cause, Origin, Spread, either, joined
from paceline.syntax.module_index import Function, dotted, last_name
from paceline.syntax.values import ClassValue, Context, FunctionValue, Instance, Named, Object, Value


class FollowsValues(Protocol):
    """Follows values; `paceline.check.analyses.local_values.LocalValues` does."""

    script: Script
    synchronized: SynchronizedNames

    def follow(self, node: ast.expr | None, context: Context | None, path: tuple[int, ...] = ()) -> Origin | None:
        """Where an expression comes from; None if it depends on itself."""

    def under_conditions(
        self, origin: Origin | None, function: Function, node: ast.AST, context: Context | None, use: ast.AST
    ) -> Origin | None:
        """Where a value comes from that is chosen by tests."""

    def batches(self, value: Value, iterable: ast.expr, context: Context | None) -> Origin | None:
        """Where elements come from."""


class CallOrigins:
    """Answers where results of calls come from.

    Args:
        values: follows arguments and returns.
    """

    def __init__(self, values: FollowsValues) -> None:
        self._values = values
        self._script = values.script
        self._evaluator = values.script.program.evaluator

    def origin(self, node: ast.Call, context: Context | None, path: tuple[int, ...]) -> Origin | None:
        """Where the result of a call comes from."""
        if self._script.ranks.kind(node, context) is not RankKind.NONE:
            return Origin(Spread.LOCAL, Cause.RANK, node)
        if may_synchronize(last_name(node.func)):
            return REDUCED
        values = self._script.program.values(node.func, context)
        functions = [each for each in values if isinstance(each, FunctionValue)]
        if functions:
            return either([self._script_function(each, node, context, path) for each in functions])
        called = {each.name for each in values if isinstance(each, Named)}
        if called:
            return self._named(called, node, context)
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func, context)
        if any(isinstance(each, Instance) for each in values):
            return self._object(node, context)
        if any(isinstance(each, ClassValue) for each in values):
            return UNKNOWN
        known = all(isinstance(each, Object | Instance) for each in values) and values
        if known or last_name(node.func) in tables.MODULES:
            return self._arguments(node, context)
        return UNKNOWN

    def _object(self, node: ast.Call, context: Context | None) -> Origin | None:
        """A call of an object of the script: of a module as local as its arguments, of others what they return."""
        callees = self._evaluator.callees(node, context)
        if not callees or any(self._values.synchronized.function(function) for function, _ in callees):
            return UNKNOWN
        found = []
        for function, inner in callees:
            bases = self._evaluator.external_bases(function.cls) if function.cls is not None else []
            is_module = any(each.startswith("torch.nn.") for each in bases)
            found.append(self._arguments(node, context) if is_module else self.returned(function, inner, ()))
        return either(found)

    def _script_function(
        self, callee: FunctionValue, node: ast.Call, context: Context | None, path: tuple[int, ...]
    ) -> Origin | None:
        inner = self._evaluator.context(callee.function, node, context, callee.receiver)
        found = self.returned(callee.function, inner, path)
        if found is not None and found.local and self._values.synchronized.function(callee.function):
            return UNKNOWN  # it may return what it reduced
        return found

    def returned(self, function: Function, context: Context | None, path: tuple[int, ...]) -> Origin | None:
        """Where the values come from that a function returns."""
        if isinstance(function.node, ast.Lambda):
            return self._values.follow(function.node.body, context, path)
        if function.yields:
            return UNKNOWN
        found = []
        for statement in function.returns:
            origin = self._values.follow(statement.value, context, path)
            found.append(self._values.under_conditions(origin, function, statement, context, function.node))
        return either(found) if found else EQUAL

    def _named(self, called: set[str], node: ast.Call, context: Context | None) -> Origin | None:
        if called & tables.CLOCKS:
            return Origin(Spread.LOCAL, Cause.CLOCK, node)
        if called & tables.FILES:
            return Origin(Spread.LOCAL, Cause.FILES, node)
        if called & {"builtins.len", "builtins.isinstance", "builtins.hasattr", "builtins.print"}:
            return EQUAL
        if called & {"builtins.next"}:
            return self._next(node, context)
        if called & set(names.CLIPS):
            return REDUCED
        if called & set(names.DISTRIBUTED_SAMPLERS):
            return Origin(Spread.LOCAL, Cause.DATA, node)
        if called & set(names.COLLECTIVES):
            return REDUCED if not called & NO_VALUE else EQUAL
        unreadable = (*tables.UNREADABLE, *tables.RANDOM, *names.DATA_LOADERS)
        if any(each.startswith(unreadable) for each in called):
            return UNKNOWN
        if called & tables.SHARDS:
            found = joined([self._values.follow(each, context) for each in node.args])
            return Origin(Spread.LOCAL, Cause.DATA, node) if found and found.cause is Cause.RANK else found
        return self._arguments(node, context) if all(each.startswith(tables.PURE) for each in called) else UNKNOWN

    def _next(self, node: ast.Call, context: Context | None) -> Origin | None:
        if not node.args:
            return UNKNOWN
        found = self._evaluator.iterated(node.args[0], context)
        origin = either([self._values.batches(each, node, context) for each in found])
        if (
            origin is not None
            and origin.spread is Spread.UNKNOWN
            and any(node in loop for loop in self._script.loops.training)
        ):
            return Origin(Spread.LOCAL, Cause.DATA, node)
        return origin

    def _method(self, node: ast.Call, func: ast.Attribute, context: Context | None) -> Origin | None:
        if func.attr in tables.SIZES:
            return EQUAL
        if func.attr in tables.FILE_METHODS and not isinstance(func.value, ast.Constant):
            return Origin(Spread.LOCAL, Cause.FILES, node)
        if func.attr == "compute":
            return UNKNOWN  # metrics of torchmetrics reduce in it
        if self._script.is_wrapped(func, context) or self._script.is_inner(func, context):
            return self._arguments(node, context)
        receiver = self._values.follow(func.value, context)
        if receiver is not None and receiver.spread in (Spread.LOCAL, Spread.REDUCED):
            return receiver if receiver.cause is not Cause.RANK else UNKNOWN
        if func.attr in tables.MODULES or (dotted(func).startswith("self.") and func.attr.endswith(tables.MODULES)):
            return self._arguments(node, context)
        values = self._script.program.values(func, context)
        if values and all(isinstance(each, Instance) for each in values):
            return self._object(node, context)
        if values and all(isinstance(each, Object) and each.name.startswith("torch.nn.") for each in values):
            return self._arguments(node, context)
        return receiver if receiver is not None and receiver.spread is Spread.EQUAL and not node.args else UNKNOWN

    def _arguments(self, node: ast.Call, context: Context | None) -> Origin | None:
        """The origin of a function without side effects: that of its arguments. A rank among them chooses a device."""
        found = [
            self._values.follow(each.value if isinstance(each, ast.Starred) else each, context) for each in node.args
        ]
        found += [
            self._values.follow(each.value, context) for each in node.keywords if each.arg not in ("device", "dtype")
        ]
        return joined([each for each in found if each is None or each.cause is not Cause.RANK])
