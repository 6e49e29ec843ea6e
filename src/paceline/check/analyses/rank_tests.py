"""Which ranks run a piece of code: tests of the rank, in all the ways in which scripts write them."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable

from paceline.check.analyses import rank_names as names
from paceline.syntax.call_graph import SPAWN_INDEX
from paceline.syntax.conditions import Condition, conditions
from paceline.syntax.module_index import Function, dotted, last_name
from paceline.syntax.program import Program
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import (
    UNKNOWN,
    Context,
    FunctionValue,
    Instance,
    Literal,
    Named,
    Object,
    Parameter,
    Part,
    Value,
)


class Ranks(enum.Enum):
    """Ranks for which a test holds."""

    ALL = "all ranks"
    """Also: reading shows no dependence on the rank."""
    ZERO = "rank 0"
    LOCAL_ZERO = "the first rank of each node"
    OTHERS = "all ranks but 0"
    SOME = "some ranks"

    @property
    def opposite(self) -> Ranks:
        """Ranks for which the test does not hold."""
        return {Ranks.ZERO: Ranks.OTHERS, Ranks.OTHERS: Ranks.ZERO, Ranks.LOCAL_ZERO: Ranks.SOME}.get(self, self)


class RankKind(enum.Enum):
    """Numbers that tell ranks apart."""

    NONE = ""
    GLOBAL = "global"
    LOCAL = "local"
    """Index within the node."""
    NODE = "node"


class RankTests:
    """Answers which ranks run a node.

    Args:
        program: the script.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._kinds: dict[tuple[ast.AST, Context | None], RankKind] = {}
        self._memo: dict[tuple[ast.AST, Context | None], Ranks] = {}
        self._active: set[tuple[ast.AST, Context | None]] = set()
        self._guarding: set[Function] = set()

    # Numbers

    def kind(self, node: ast.AST, context: Context | None = None) -> RankKind:
        """True if an expression is the rank, and which one."""
        key = (node, context)
        if key not in self._kinds:
            self._kinds[key] = RankKind.NONE  # what a variable adds to itself: `index = index % size`
            self._kinds[key] = self._kind(node, context)
        return self._kinds[key]

    def _kind(self, node: ast.AST, context: Context | None) -> RankKind:
        if isinstance(node, ast.BinOp):
            left, right = self.kind(node.left, context), self.kind(node.right, context)
            if isinstance(node.op, ast.Mod) and left is RankKind.GLOBAL:
                return RankKind.LOCAL
            if RankKind.NODE in (left, right) and RankKind.LOCAL in (left, right):
                return RankKind.GLOBAL
            return RankKind.NONE
        if isinstance(node, ast.BinOp | ast.Compare | ast.Constant | ast.JoinedStr):
            return RankKind.NONE
        values = self._program.values(node, context)
        kinds = {self._kind_of(each) for each in values} - {RankKind.NONE}
        if len(kinds) == 1:
            return kinds.pop()
        if kinds:
            return RankKind.GLOBAL if RankKind.GLOBAL in kinds else RankKind.LOCAL
        for bound in self._bound(node):
            if isinstance(bound, ast.BinOp) and (found := self.kind(bound)) is not RankKind.NONE:
                return found
        if any(each == UNKNOWN or isinstance(each, Parameter | Part) for each in values):
            return _kind_by_name(last_name(node) if isinstance(node, ast.Name | ast.Attribute) else "")
        return RankKind.NONE

    def _kind_of(self, value: Value) -> RankKind:
        match value:
            case Object(name=name) if name in names.GLOBAL_CALLS:
                return RankKind.GLOBAL
            case Object(name=name) if name in names.LOCAL_CALLS:
                return RankKind.LOCAL
            case Object(name="os.environ.get" | "os.getenv"):
                keys = self._program.argument_values(value, "key", 0)
                return next(
                    (found for key in keys if isinstance(key, Literal) and (found := _variable(key.value))),
                    RankKind.NONE,
                )
            case Part(base=Named(name="os.environ"), name=name):
                return _variable(name[1:-1])
            case Part(name="process_index" | "global_rank"):
                return RankKind.GLOBAL
            case Part(name="local_process_index" | "local_rank"):
                return RankKind.LOCAL
        if value == SPAWN_INDEX:
            return RankKind.LOCAL
        return RankKind.NONE

    def _bound(self, node: ast.AST) -> Iterable[ast.expr]:
        """Expressions that a name is bound to."""
        if isinstance(node, ast.Name):
            for binding, _ in self._program.evaluator.bindings(node):
                if binding.kind is Kind.VALUE and binding.value is not None and not binding.path:
                    yield binding.value

    def depends(self, node: ast.AST) -> bool:
        """True if an expression has the rank in it, at any depth of names."""
        seen: set[ast.AST] = set()
        stack = [node]
        while stack:
            at = stack.pop()
            if at in seen or len(seen) > 200:
                continue
            seen.add(at)
            if isinstance(at, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
                if self.kind(at) is not RankKind.NONE:
                    return True
                stack.extend(self._bound(at))
            stack.extend(ast.iter_child_nodes(at))
        return False

    # Tests

    def test(self, node: ast.expr, context: Context | None = None) -> Ranks:
        """Ranks for which a test holds."""
        key = (node, context)
        if key in self._memo:
            return self._memo[key]
        if key in self._active:
            return Ranks.ALL
        self._active.add(key)
        try:
            found = self._test(node, context)
        finally:
            self._active.discard(key)
        self._memo[key] = found
        return found

    def _test(self, node: ast.expr, context: Context | None) -> Ranks:
        match node:
            case ast.UnaryOp(op=ast.Not()):
                return self.test(node.operand, context).opposite
            case ast.BoolOp():
                return self._bool(node, context)
            case ast.Compare() if len(node.ops) == 1:
                return self._compare(node, context)
            case ast.NamedExpr():
                return self.test(node.value, context)
            case ast.IfExp():
                return self._chosen(node, context)
            case ast.Call():
                return self._call(node, context)
            case ast.Name() | ast.Attribute():
                return self._flag(node, context)
        return Ranks.ALL

    def _bool(self, node: ast.BoolOp, context: Context | None) -> Ranks:
        parts = [self.test(each, context) for each in node.values]
        if isinstance(node.op, ast.And):
            for wanted in (Ranks.ZERO, Ranks.LOCAL_ZERO, Ranks.OTHERS, Ranks.SOME):
                if wanted in parts:
                    return wanted
            return Ranks.ALL
        told = [part for part in parts if part is not Ranks.ALL]
        if not told:
            return Ranks.ALL
        if set(told) <= {Ranks.ZERO}:
            return Ranks.ZERO
        if set(told) <= {Ranks.ZERO, Ranks.LOCAL_ZERO}:
            return Ranks.LOCAL_ZERO
        return told[0] if len(set(told)) == 1 else Ranks.SOME

    def _chosen(self, node: ast.IfExp, context: Context | None) -> Ranks:
        """`local_rank == 0 if local else rank == 0`."""
        flags = self._program.values(node.test, context)
        known = {bool(each.value) for each in flags if isinstance(each, Literal)}
        if len(known) == 1 and all(isinstance(each, Literal) for each in flags):
            return self.test(node.body if known == {True} else node.orelse, context)
        body, orelse = self.test(node.body, context), self.test(node.orelse, context)
        return body if body is orelse else Ranks.ALL

    def _compare(self, node: ast.Compare, context: Context | None) -> Ranks:
        left, right, op = node.left, node.comparators[0], node.ops[0]
        kind = self.kind(left, context)
        if kind is RankKind.NONE:
            kind, left, right = self.kind(right, context), right, left
            op = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}.get(type(op), type(op))()
        if kind is RankKind.NONE:
            return self._compared_flag(node, context)
        if kind is RankKind.NODE:
            return Ranks.SOME
        zero = Ranks.ZERO if kind is RankKind.GLOBAL else Ranks.LOCAL_ZERO
        values = self._program.values(right, context)
        numbers = [each.value for each in values if isinstance(each, Literal)]
        if isinstance(op, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List | ast.Set):
            items = {ast.unparse(each) for each in right.elts}
            inside = zero if items <= {"0", "-1", "None"} and "0" in items else Ranks.SOME
            return inside if isinstance(op, ast.In) else inside.opposite
        if numbers == [0] and len(values) == 1:
            match op:
                case ast.Eq() | ast.Is() | ast.LtE():
                    return zero
                case ast.NotEq() | ast.IsNot() | ast.Gt():
                    return zero.opposite
                case ast.GtE() | ast.Lt():  # `rank >= 0`: in a distributed run
                    return Ranks.ALL
        if numbers == [1] and isinstance(op, ast.Lt):
            return zero
        if numbers in ([-1], [None]):
            return Ranks.ALL
        return Ranks.SOME

    def _compared_flag(self, node: ast.Compare, context: Context | None) -> Ranks:
        """`is_main() == True`."""
        right = node.comparators[0]
        if isinstance(right, ast.Constant) and isinstance(right.value, bool):
            found = self.test(node.left, context)
            same = isinstance(node.ops[0], ast.Eq | ast.Is) == right.value
            return found if same else found.opposite
        return Ranks.ALL

    def _call(self, node: ast.Call, context: Context | None) -> Ranks:
        for callee in self._program.values(node.func, context):
            if isinstance(callee, FunctionValue):
                inner = self._program.evaluator.context(callee.function, node, context, callee.receiver)
                found = self._returned(callee.function, inner)
                if found is not Ranks.ALL:
                    return found
            elif isinstance(callee, Named | Part):
                found = _main_by_name(callee.name.rpartition(".")[2])
                if found is not Ranks.ALL:
                    return found
        if isinstance(node.func, ast.Name) and node.func.id == "bool" and node.args:
            return self.test(node.args[0], context)
        if self.kind(node, context) is not RankKind.NONE:  # `if dist.get_rank():`
            return Ranks.OTHERS
        unresolved = not any(isinstance(each, FunctionValue) for each in self._program.values(node.func, context))
        return _main_by_name(last_name(node.func)) if unresolved else Ranks.ALL

    def _returned(self, function: Function, context: Context | None) -> Ranks:
        """A function that tests the rank: `return rank == 0`, or `if not initialized: return True`."""
        tests = []
        if isinstance(function.node, ast.Lambda):
            tests.append(self.test(function.node.body, context))
        for statement in function.returns:
            value = statement.value
            if isinstance(value, ast.Constant) and isinstance(value.value, bool):
                within = self.within(function, statement, context)
                if within is not Ranks.ALL:
                    tests.append(within if value.value else within.opposite)
            elif value is not None:
                tests.append(self.test(value, context))
        told = {each for each in tests if each is not Ranks.ALL}
        return told.pop() if len(told) == 1 else (Ranks.SOME if told else Ranks.ALL)

    def _flag(self, node: ast.Name | ast.Attribute, context: Context | None) -> Ranks:
        if self.kind(node, context) is not RankKind.NONE:  # `if rank:`
            return Ranks.OTHERS
        tests: set[Ranks] = set()
        resolved = False
        if isinstance(node, ast.Name):
            for binding, function in self._program.evaluator.bindings(node):
                if binding.kind is Kind.VALUE and binding.value is not None and not binding.path:
                    resolved = True
                    tests.add(self.test(binding.value, None))
                elif binding.kind is Kind.PARAMETER:
                    found = self._given(function, node.id)
                    tests |= found
                    resolved = resolved or bool(found)
        else:
            for base in self._program.values(node.value, context):
                if isinstance(base, Instance):
                    found = self._member(base, node.attr)
                    tests |= found
                    resolved = resolved or bool(found)
            if not resolved and (text := dotted(node)):
                tests |= self._stored(node.attr, text)
        told = tests - {Ranks.ALL}
        if told:
            return told.pop() if len(told) == 1 else Ranks.SOME
        return _main_by_name(last_name(node)) if not resolved or not tests else Ranks.ALL

    def _given(self, function: Function, name: str) -> set[Ranks]:
        """Tests that callers give for a parameter."""
        found: set[Ranks] = set()
        for _, call in self._program.evaluator.call_sites(function):
            position = function.positional.index(name) if name in function.positional else None
            if position is not None and function.cls is not None:
                position -= 1
            for each in self._program.argument(call, name, position).given:
                found.add(self.test(each.node, each.context))
        return found

    def _member(self, base: Instance, name: str) -> set[Ranks]:
        found: set[Ranks] = set()
        evaluator = self._program.evaluator
        for cls in evaluator.lineage(base.cls):
            if name in cls.methods:
                method = cls.methods[name]
                return {self._returned(method, evaluator.context(method, None, None, base))}
            for assigned in cls.attributes.get(name, ()):
                if assigned.value is not None and not assigned.path:
                    found.add(self.test(assigned.value))
        return found

    def _stored(self, name: str, text: str) -> set[Ranks]:
        found: set[Ranks] = set()
        for module in self._program.imports.modules:
            for target in module.stores_by_attribute.get(name, ()):
                statement = module.parents[target]
                if isinstance(statement, ast.Assign) and dotted(target) == text:
                    found.add(self.test(statement.value))
        return found

    # Nodes

    def where(self, node: ast.AST) -> Ranks:
        """Ranks that run a node: tests around it, decorators of its function, and its callers if all are known."""
        function = self._program.evaluator.home(node)
        found = self.within(function, node, None)
        return found if found is not Ranks.ALL else self._callers(function)

    def own(self, node: ast.AST) -> tuple[Ranks, ast.expr | None]:
        """Ranks that run a node by the tests of its own function alone, and the test."""
        function = self._program.evaluator.home(node)
        for condition in conditions(function.module, node):
            found = self._holds(condition, None)
            if found is not Ranks.ALL:
                return found, condition.test
        return Ranks.ALL, None

    def _holds(self, condition: Condition, context: Context | None) -> Ranks:
        found = self.test(condition.test, context)
        if condition.holds:
            return found
        match condition.test:  # two steps of `opposite` lose which ranks they are: `if local_rank != 0: return`
            case ast.UnaryOp(op=ast.Not()):
                return self.test(condition.test.operand, context)
            case ast.Compare(ops=[ast.NotEq() | ast.IsNot()], left=left, comparators=others):
                return self.test(ast.Compare(left, [ast.Eq()], others), context)
        # The opposite of `rank == 0 and save`, where a part says nothing of ranks, holds on all of them.
        if isinstance(condition.test, ast.BoolOp) and not _only_ranks(self, condition.test, context):
            return Ranks.ALL
        return found.opposite

    def within(self, function: Function, node: ast.AST, context: Context | None) -> Ranks:
        """Ranks that run a node by the tests and decorators of its own function, for one call of it."""
        found = Ranks.ALL
        for condition in conditions(function.module, node):
            each = self._holds(condition, context)
            if each is Ranks.ZERO:
                return each
            if each is not Ranks.ALL and found is Ranks.ALL:
                found = each
        if found is not Ranks.ALL:
            return found
        for at in function.module.ancestors(node):
            if at is function.node:
                break
            if isinstance(at, ast.With) and any(_lets_one_through(item.context_expr) for item in at.items):
                return Ranks.ZERO
        return Ranks.ZERO if any(self._decorates(each) for each in function.decorators) else Ranks.ALL

    def _decorates(self, decorator: ast.expr) -> bool:
        """True if a decorator lets only rank 0 through: by its name, or by a test of the rank in the script."""
        if _lets_one_through(decorator):
            return True
        for value in self._program.values(decorator.func if isinstance(decorator, ast.Call) else decorator):
            if isinstance(value, FunctionValue):
                inner = [each for each in value.function.module.functions if each.parent is value.function]
                for wrapper in inner:
                    if any(self.within(wrapper, call, None) is Ranks.ZERO for call in wrapper.calls):
                        return True
        return False

    def _callers(self, function: Function) -> Ranks:
        if function in self._guarding or function.parent is None:
            return Ranks.ALL
        evaluator = self._program.evaluator
        sites = evaluator.call_sites(function)
        if not sites or evaluator.escapes(function):
            return Ranks.ALL
        self._guarding.add(function)
        try:
            found = {self.where(call) for _, call in sites}
        finally:
            self._guarding.discard(function)
        return found.pop() if len(found) == 1 else Ranks.ALL


def _only_ranks(tests: RankTests, node: ast.BoolOp, context: Context | None) -> bool:
    return all(tests.test(each, context) is not Ranks.ALL or _says_one_process(each) for each in node.values)


def _says_one_process(node: ast.expr) -> bool:
    """`args.distributed`, `world_size > 1`, `dist.is_initialized()`: tests of the job, equal on all ranks."""
    text = ast.unparse(node)
    return any(part in text for part in ("world_size", "is_initialized", "is_available", *names.ONE_PROCESS))


def _lets_one_through(node: ast.expr) -> bool:
    name = last_name(node.func if isinstance(node, ast.Call) else node).lower()
    return name in names.ONLY_ZERO or (any(part in name for part in names.GUARDS) and "first" not in name)


def _variable(name: object) -> RankKind:
    if name in names.GLOBAL_VARIABLES:
        return RankKind.GLOBAL
    if name in names.LOCAL_VARIABLES:
        return RankKind.LOCAL
    return RankKind.NODE if name in names.NODE_VARIABLES else RankKind.NONE


def _kind_by_name(name: str) -> RankKind:
    name = name.lower().lstrip("_")
    if name in names.GLOBAL_NAMES:
        return RankKind.GLOBAL
    if name in names.LOCAL_NAMES:
        return RankKind.LOCAL
    return RankKind.NODE if name in names.NODE_NAMES else RankKind.NONE


def _main_by_name(name: str) -> Ranks:
    name = name.lower().lstrip("_")
    if name in names.MAIN:
        return Ranks.ZERO
    return Ranks.LOCAL_ZERO if name in names.LOCAL_MAIN else Ranks.ALL
