"""Values that differ between ranks, and values that are equal on all of them.

A value is local if it comes from this rank's batches, shard of data, clock or file system, and passed no collective on
its way. Decisions on local values are the common root of hangs and of ranks that drift apart.

`LocalValues.origin` answers for an expression. It follows names, attributes of `self`, arguments, returns and branches:
a counter that is increased under a local condition is local. Answers lean towards `UNKNOWN`: a value that passes a
function which cannot be read is not called local.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from paceline.check.analyses import framework_names as names
from paceline.check.analyses import local_tables as tables
from paceline.check.analyses.call_origins import CallOrigins
from paceline.check.analyses.rank_tests import RankKind, Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.signal_handlers import set_by_signal
from paceline.check.analyses.synchronized_names import SynchronizedNames
from paceline.check.analyses.value_spread import EQUAL, REDUCED, UNKNOWN, Cause, Origin, Spread, either, joined
from paceline.syntax import call_arguments
from paceline.syntax.child_nodes import walk
from paceline.syntax.conditions import conditions
from paceline.syntax.module_index import Assigned, Class, Function, dotted, last_name
from paceline.syntax.reaching_definitions import Binding, Kind
from paceline.syntax.values import (
    Context,
    Elements,
    Instance,
    Named,
    Object,
    Part,
    Value,
)

_EMPTY = frozenset(
    ("list", "dict", "set", "defaultdict", "deque", "zeros", "empty", "OrderedDict", "ones", "zeros_like")
)
MAX_STEPS = 1500
"""Expressions that one question follows."""


class LocalValues:
    """Answers where values come from.

    Args:
        script: the script.
    """

    @staticmethod
    def of(script: Script) -> LocalValues:
        """Those of a script, shared by its rules."""
        return _of_script(script)

    def __init__(self, script: Script) -> None:
        self.script = script
        self.program = script.program
        self._evaluator = script.program.evaluator
        self.synchronized = SynchronizedNames(script)
        self._calls = CallOrigins(self)
        self._answers: dict[tuple[ast.AST, Context | None], Origin] = {}
        self._stores: dict[Function, dict[str, list[ast.expr]]] = {}
        self._memo: dict[tuple[object, ...], Origin] = {}
        self._active: set[tuple[object, ...]] = set()
        self._training = {id(loop.node) for loop in script.loops.training}
        self._losses = self._loss_expressions()

    def origin(self, node: ast.expr, context: Context | None = None) -> Origin:
        """Where an expression comes from."""
        key = (node, context)
        if key not in self._answers:
            self._memo, self._active = {}, set()
            self._answers[key] = self.follow(node, context) or EQUAL
        return self._answers[key]

    def _loss_expressions(self) -> set[ast.AST]:
        """Expressions that are bound to names on which `backward` is called: losses of this rank's batch."""
        found: set[ast.AST] = set()
        for loop in self.script.loops.training:
            for each in loop.backwards:
                call = each.node
                assert isinstance(call, ast.Call)
                parts = [*call.args, call.func.value] if isinstance(call.func, ast.Attribute) else call.args
                items = {at.value for part in parts for at in walk(part) if isinstance(at, ast.Subscript)}
                names_of = [at for part in parts for at in walk(part) if isinstance(at, ast.Name)]
                for name in (at for at in names_of if at not in items):
                    for binding, _ in self._evaluator.bindings(name):
                        if isinstance(binding.value, ast.Call) and "loss" in name.id.lower():
                            found.add(binding.value)
        return found

    # Expressions

    def follow(self, node: ast.expr | None, context: Context | None, path: tuple[int, ...] = ()) -> Origin | None:
        """Where an expression comes from; None if it depends on itself, which says nothing."""
        if node is None:
            return EQUAL
        key = (node, context, path)
        if key in self._memo:
            return self._memo[key]
        if key in self._active:
            return None
        if len(self._memo) > MAX_STEPS or len(self._active) > 80:
            return UNKNOWN
        self._active.add(key)
        try:
            found = self._evaluate(node, context, path)
        finally:
            self._active.discard(key)
        if node in self._losses and found is not None and found.spread in (Spread.UNKNOWN, Spread.EQUAL):
            found = Origin(Spread.LOCAL, Cause.DATA, node)
        if found is not None:
            self._memo[key] = found
        return found

    def _evaluate(self, node: ast.expr, context: Context | None, path: tuple[int, ...]) -> Origin | None:
        match node:
            case ast.Constant() | ast.Lambda():
                return EQUAL
            case ast.Tuple() | ast.List() if path and 0 <= path[0] < len(node.elts):
                return self.follow(node.elts[path[0]], context, path[1:])
            case ast.Name():
                return self._name(node, context, path)
            case ast.Attribute():
                return self._attribute(node, context)
            case ast.Call():
                return self._calls.origin(node, context, path)
            case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
                return UNKNOWN
            case ast.IfExp():
                test = self.follow(node.test, context)
                if test is not None and test.local:
                    return test
                return either([self.follow(node.body, context, path), self.follow(node.orelse, context, path)])
            case ast.Subscript():
                return self._subscript(node, context)
        return joined(
            [self.follow(each, context) for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
            + [self.follow(each.iter, context) for each in getattr(node, "generators", ())]
        )

    def _subscript(self, node: ast.Subscript, context: Context | None) -> Origin | None:
        if isinstance(node.value, ast.Attribute) and node.value.attr in tables.SHAPES:
            return EQUAL
        if self.script.ranks.kind(node, context) is not RankKind.NONE:
            return Origin(Spread.LOCAL, Cause.RANK, node)
        value = self.follow(node.value, context)
        if value is not None and value.spread is Spread.REDUCED:
            return value
        parts = [node.slice, *ast.iter_child_nodes(node.slice)]
        if any(self._is_rank(each, context) for each in parts if isinstance(each, ast.expr)):
            return Origin(Spread.LOCAL, Cause.DATA, node)
        return joined([value, self.follow(node.slice, context) if not isinstance(node.slice, ast.Slice) else EQUAL])

    def _is_rank(self, node: ast.expr, context: Context | None) -> bool:
        return any(
            isinstance(each, ast.expr) and self.script.ranks.kind(each, context) is not RankKind.NONE
            for each in walk(node)
            if isinstance(each, ast.Name | ast.Attribute | ast.Call)
        )

    # Names

    def _name(self, node: ast.Name, context: Context | None, path: tuple[int, ...]) -> Origin | None:
        if self.script.ranks.kind(node, context) is not RankKind.NONE:
            return Origin(Spread.LOCAL, Cause.RANK, node)
        function = self._evaluator.home(node)
        if self.synchronized.before(node):
            return REDUCED
        bindings = self._evaluator.bindings(node)
        if not bindings:
            return EQUAL
        several = len(bindings) > 1 or any(isinstance(each.node, ast.AugAssign) for each, _ in bindings)
        found = []
        for binding, at in bindings:
            inner = context if at is function else _context_of(at, context)
            origin = self._bound(binding, at, inner, path)
            made = _part(binding.value, binding.path)
            if isinstance(made, ast.List | ast.Dict | ast.Set | ast.Call):
                origin = joined([origin, *self._filled(binding.name, made, at, inner)])
            if several and binding.kind is Kind.VALUE:
                origin = self.under_conditions(origin, at, binding.node, inner, node)
            found.append(origin)
        return either(found)

    def _filled(
        self, name: str, made: ast.expr, function: Function, context: Context | None
    ) -> Iterator[Origin | None]:
        """Expressions that are put into a container later: `losses.append(loss)`, `losses[i] = loss`."""
        if isinstance(made, ast.Call) and last_name(made.func) not in _EMPTY:
            return
        for call in function.calls:
            func = call.func
            fills = isinstance(func, ast.Attribute) and func.attr in ("append", "extend", "add")
            if fills and call.args and dotted(func) == f"{name}.{last_name(func)}":
                yield self.follow(call.args[0], context)
        for value in self._stored_items(function).get(name, ()):
            yield self.follow(value, context)

    def _stored_items(self, function: Function) -> dict[str, list[ast.expr]]:
        """Values of `name[...] = value` in a function, by name."""
        if function not in self._stores:
            found = self._stores[function] = {}
            for node in walk(function.node):
                target = node.targets[0] if isinstance(node, ast.Assign) else None
                if isinstance(target, ast.Subscript) and self._evaluator.home(target) is function:
                    found.setdefault(dotted(target.value), []).append(node.value)  # type: ignore[attr-defined]
        return self._stores[function]

    def under_conditions(
        self, origin: Origin | None, function: Function, node: ast.AST, context: Context | None, use: ast.AST
    ) -> Origin | None:
        """A value that is chosen by a local test is local, unless the use stands under the same test."""
        if origin is not None and origin.spread in (Spread.LOCAL, Spread.REDUCED):
            return origin
        around_use = {each.test for each in conditions(function.module, use)}
        for condition in conditions(function.module, node):
            if condition.test in around_use or _ended_by(function, condition.test, node):
                continue
            if self.script.ranks.test(condition.test) is not Ranks.ALL:
                continue
            test = self.follow(condition.test, context)
            if test is not None and test.local and test.cause is not Cause.RANK:
                return test
        return origin

    def _bound(
        self, binding: Binding, function: Function, context: Context | None, path: tuple[int, ...]
    ) -> Origin | None:
        match binding.kind:
            case Kind.VALUE if binding.name in function.global_names and set_by_signal(self.script, function):
                return set_by_signal(self.script, function)
            case Kind.VALUE if binding.value is not None:
                return self.follow(binding.value, context, (*binding.path, *path))
            case Kind.ELEMENT if binding.value is not None:
                return self._element(binding, context)
            case Kind.PARAMETER:
                return self._parameter(function, binding.name, context, path)
            case Kind.IMPORT | Kind.DEFINITION:
                return EQUAL
        return UNKNOWN

    def _element(self, binding: Binding, context: Context | None) -> Origin | None:
        iterable, path = binding.value, binding.path
        assert iterable is not None
        if isinstance(iterable, ast.Call):
            callees = self.program.callee_names(iterable)
            if "builtins.enumerate" in callees and path[:1] == (0,):
                return EQUAL
            if "builtins.range" in callees or any("trange" in each for each in callees):
                arguments = [self.follow(each, context) for each in iterable.args]
                found = joined(arguments)
                if found is not None and found.cause is Cause.RANK:
                    return Origin(Spread.LOCAL, Cause.DATA, iterable)
                return found
        if path[:1] == (0,) and len(path) == 1 and self._counts(iterable):
            return EQUAL
        if id(binding.node) in self._training:
            return Origin(Spread.LOCAL, Cause.DATA, iterable)
        return either([self.batches(each, iterable, context) for each in self._evaluator.iterated(iterable, context)])

    def _counts(self, iterable: ast.expr, depth: int = 0) -> bool:
        """True if a loop gets numbers of batches: `progress = tqdm(enumerate(loader))`."""
        for at in walk(iterable):
            if isinstance(at, ast.Call) and last_name(at.func) in ("enumerate", "range", "log_every"):
                return True
            if isinstance(at, ast.Name) and depth < 3:
                for binding, _ in self._evaluator.bindings(at):
                    value = binding.value if binding.kind is Kind.VALUE else None
                    if value is not None and self._counts(value, depth + 1):
                        return True
        return False

    def batches(self, value: Value, iterable: ast.expr, context: Context | None) -> Origin | None:
        """Elements of what a loop goes over."""
        if isinstance(value, Elements):
            return joined([self.follow(each, value.context) for each in value.node.elts])
        if isinstance(value, Object):
            if value.name in names.DATA_LOADERS:
                return self._loader(value)
            if value.name.endswith(("setup_dataloaders", "prepare_data_loader")):
                return Origin(Spread.LOCAL, Cause.DATA, iterable)
            if not value.name.startswith(tables.RANDOM):
                return self.follow(value.call, value.context)
        if isinstance(value, Part) and isinstance(value.base, Object) and value.base.name.endswith(".prepare"):
            return Origin(Spread.LOCAL, Cause.DATA, iterable)
        return UNKNOWN

    def _loader(self, loader: Object) -> Origin | None:
        """Batches of a loader are local if its sampler or data set has the rank in it."""
        for name, position in (("sampler", 3), ("batch_sampler", 4), ("dataset", 0)):
            argument = self.program.argument(loader, name, position)
            for value in self._evaluator.all_of(argument.given):
                if isinstance(value, Object) and value.name in names.DISTRIBUTED_SAMPLERS:
                    return Origin(Spread.LOCAL, Cause.DATA, loader.call)
            for each in argument.given:
                found = self.follow(each.node, each.context)
                if found is not None and found.local and found.cause in (Cause.DATA, Cause.RANK):
                    return Origin(Spread.LOCAL, Cause.DATA, loader.call)
        return UNKNOWN

    def _parameter(
        self, function: Function, name: str, context: Context | None, path: tuple[int, ...]
    ) -> Origin | None:
        if context is not None and context.function is function and context.call is not None:
            return self._given(function, name, context, path)
        sites = self._evaluator.call_sites(function)
        if not sites or self._evaluator.escapes(function):
            return UNKNOWN
        found = []
        for _, call in sites:
            receiver = Instance(function.cls) if function.cls is not None else None
            inner = self._evaluator.context(function, call, None, receiver)
            found.append(self._given(function, name, inner, path) if inner is not None else UNKNOWN)
        return either(found)

    def _given(self, function: Function, name: str, context: Context, path: tuple[int, ...]) -> Origin | None:
        if function.positional[:1] == [name] and context.receiver is not None:
            return EQUAL
        argument = call_arguments.of_parameter(self._evaluator, function, name, context)
        if not argument.certain:
            starred = (
                [each.value for each in context.call.args if isinstance(each, ast.Starred)] if context.call else []
            )
            return either([self.follow(each, context.outer) for each in starred]) if starred else UNKNOWN
        found = [self.follow(each.node, each.context, path) for each in argument.given]
        if argument.absent or argument.may_be_absent:
            found.append(self.follow(function.default(name), None))
        return either(found)

    # Attributes

    def _attribute(self, node: ast.Attribute, context: Context | None) -> Origin | None:
        if node.attr in tables.SHAPES:
            return EQUAL
        if self.script.ranks.kind(node, context) is not RankKind.NONE:
            return Origin(Spread.LOCAL, Cause.RANK, node)
        if self.synchronized.before(node):
            return REDUCED
        found = []
        for base in self.program.values(node.value, context):
            if isinstance(base, Instance):
                found.append(self._member(base, node.attr))
            elif isinstance(base, Named):
                found.append(EQUAL)
        if found:
            return either(found)
        base_origin = self.follow(node.value, context)
        return base_origin if base_origin is None or base_origin.spread is not Spread.EQUAL else UNKNOWN

    def _member(self, base: Instance, name: str) -> Origin | None:
        found: list[Origin | None] = []
        for cls in self._evaluator.lineage(base.cls):
            if name in cls.methods:
                method = cls.methods[name]
                return self._calls.returned(method, self._evaluator.context(method, None, None, base), ())
            if self.synchronized.member(cls, name):
                return REDUCED
            found += [self._assigned(each, cls) for each in cls.attributes.get(name, ())]
        return either(found) if found else UNKNOWN

    def _assigned(self, assigned: Assigned, cls: Class) -> Origin | None:
        value = assigned.node.value if isinstance(assigned.node, ast.AugAssign) else assigned.value
        if value is None:
            return UNKNOWN
        function = self._evaluator.home(assigned.node)
        origin = set_by_signal(self.script, function) or self.follow(value, None, assigned.path)
        return self.under_conditions(origin, function, assigned.node, None, cls.node)


def _part(value: ast.expr | None, path: tuple[int, ...]) -> ast.expr | None:
    """The part of a tuple that is bound to a name; None of anything else with parts."""
    for index in path:
        if not isinstance(value, ast.Tuple) or not 0 <= index < len(value.elts):
            return None
        value = value.elts[index]
    return value


def _ended_by(function: Function, test: ast.expr, node: ast.AST) -> bool:
    """True if a test in front of a node ends its loop or function: where the node has run, the test did not hold."""
    branch = function.module.parents.get(test)
    if not isinstance(branch, ast.If) or any(at is branch for at in function.module.ancestors(node)):
        return False
    return not isinstance(node, ast.Return) and not isinstance(branch.body[-1], ast.Continue)


def _context_of(function: Function, context: Context | None) -> Context | None:
    at = context
    while at is not None and at.function is not function:
        at = at.outer
    return at


@lru_cache(maxsize=1)
def _of_script(script: Script) -> LocalValues:
    return LocalValues(script)
