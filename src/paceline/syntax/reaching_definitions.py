"""Which bindings of a name can reach each use of it, within one function.

A walk over the statements in order. It keeps the bindings of each name, joins them after branches, and walks loops
until nothing is added. Code behind `return`, `raise`, `break` and `continue` in the same block does not run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from paceline.syntax.child_nodes import child_nodes, walk
from paceline.syntax.module_index import Function, targets_of

MAX_ROUNDS = 5
"""Rounds of a loop that are walked, if each of them brings further bindings."""


class Kind(Enum):
    """Ways to bind a name."""

    VALUE = "value"
    """`x = value`, and `with value as x`."""
    ELEMENT = "element"
    """`for x in value`."""
    IMPORT = "import"
    DEFINITION = "definition"
    PARAMETER = "parameter"
    OTHER = "other"
    """An exception, a pattern, a deletion, a star import."""


@dataclass(frozen=True)
class Binding:
    """One way in which a name gets a value.

    Attributes:
        node: the statement, definition or parameter.
        value: the expression that is bound, or iterated over.
        path: indices from `value` to the part that is bound; -1 for a starred part.
        entered: `value` is a context manager.
    """

    kind: Kind
    name: str
    node: ast.AST
    value: ast.expr | None = None
    path: tuple[int, ...] = ()
    entered: bool = False


Environment = dict[str, frozenset[Binding]]


class ReachingDefinitions:
    """Bindings in one function.

    Attributes:
        uses: for each name that is read in the function, the bindings of this function that reach it. Names that are
            bound nowhere in the function are missing.
        end: bindings at the end of the body, and at each `return`.
        local: names that the function binds.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.uses: dict[ast.Name, frozenset[Binding]] = {}
        self.local: set[str] = set()
        self._exits: list[Environment] = []
        self._breaks: list[list[Environment]] = []
        self._recorders: list[list[Binding]] = []
        environment: Environment | None = {}
        node = function.node
        if not isinstance(node, ast.Module):
            arguments = node.args
            extra = [each for each in (arguments.vararg, arguments.kwarg) if each is not None]
            for each in (*function.parameters, *extra):
                self._bind(environment, Binding(Kind.PARAMETER, each.arg, each))  # type: ignore[arg-type]
        if isinstance(node, ast.Lambda):
            self._read(node.body, environment)  # type: ignore[arg-type]
        else:
            environment = self._block(node.body, environment)
        self.end = _joined([*([environment] if environment is not None else []), *self._exits]) or {}

    def _bind(self, environment: Environment, binding: Binding) -> None:
        environment[binding.name] = frozenset({binding})
        self.local.add(binding.name)
        for recorder in self._recorders:
            recorder.append(binding)

    # Statements: each returns the bindings after it, or None where what follows does not run.

    def _block(self, statements: Sequence[ast.stmt], environment: Environment | None) -> Environment | None:
        for statement in statements:
            if environment is None:
                # Code that does not run still gets bindings, so that questions about it have answers.
                environment = None if not self._exits else dict(self._exits[-1])
                if environment is None:
                    return None
                self._statement(statement, environment)
                environment = None
                continue
            environment = self._statement(statement, environment)
        return environment

    def _statement(self, node: ast.stmt, environment: Environment) -> Environment | None:
        handler = _HANDLERS.get(type(node))
        if handler is not None:
            return handler(self, node, environment)
        self._read(node, environment)  # expressions, assert, delete, pass, global
        return environment

    def _assign(self, node: ast.Assign, environment: Environment) -> Environment:
        self._read(node.value, environment)
        for target in node.targets:
            self._bind_target(target, node, node.value, environment)
        return environment

    def _annotated(self, node: ast.AnnAssign, environment: Environment) -> Environment:
        if node.value is not None:
            self._read(node.value, environment)
            self._bind_target(node.target, node, node.value, environment)
        return environment

    def _augmented(self, node: ast.AugAssign, environment: Environment) -> Environment:
        self._read(node.value, environment)
        if isinstance(node.target, ast.Name):
            before = environment.get(node.target.id, frozenset())
            binding = Binding(Kind.VALUE, node.target.id, node, node.value)
            self._bind(environment, binding)
            environment[node.target.id] = before | {binding}
        else:
            self._read(node.target, environment)
        return environment

    def _bind_target(
        self,
        target: ast.expr,
        node: ast.AST,
        value: ast.expr,
        environment: Environment,
        kind: Kind = Kind.VALUE,
        *,
        entered: bool = False,
    ) -> None:
        for each, path in targets_of(target):
            if isinstance(each, ast.Name):
                self._bind(environment, Binding(kind, each.id, node, value, path, entered))
            else:
                self._read(each, environment)

    def _import(self, node: ast.Import | ast.ImportFrom, environment: Environment) -> Environment:
        for alias in node.names:
            name = alias.asname or (alias.name.partition(".")[0] if isinstance(node, ast.Import) else alias.name)
            self._bind(environment, Binding(Kind.IMPORT, name, node))
        return environment

    def _definition(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, environment: Environment
    ) -> Environment:
        for decorator in node.decorator_list:
            self._read(decorator, environment)
        if isinstance(node, ast.ClassDef):
            for base in (*node.bases, *(keyword.value for keyword in node.keywords)):
                self._read(base, environment)
            self._block(node.body, dict(environment))
        else:
            for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                self._read(default, environment)
        self._bind(environment, Binding(Kind.DEFINITION, node.name, node))
        return environment

    def _if(self, node: ast.If, environment: Environment) -> Environment | None:
        self._read(node.test, environment)
        then = self._block(node.body, dict(environment))
        other = self._block(node.orelse, dict(environment))
        return _joined([each for each in (then, other) if each is not None])

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, environment: Environment) -> Environment | None:
        self._breaks.append([])
        before = environment
        for _ in range(MAX_ROUNDS):
            start, inside = before, dict(before)
            if isinstance(node, ast.While):
                self._read(node.test, inside)
            else:
                self._read(node.iter, inside)
                self._bind_target(node.target, node, node.iter, inside, Kind.ELEMENT)
            after = self._block(node.body, inside)
            before = _joined([before, *([after] if after is not None else []), *self._breaks[-1]]) or before
            if before == start:
                break
        broken = self._breaks.pop()
        ended: Environment | None = dict(before)
        if node.orelse and ended is not None:
            ended = self._block(node.orelse, ended)
        return _joined([each for each in (ended, *broken) if each is not None])

    def _with(self, node: ast.With | ast.AsyncWith, environment: Environment) -> Environment | None:
        for item in node.items:
            self._read(item.context_expr, environment)
            if item.optional_vars is not None:
                self._bind_target(item.optional_vars, node, item.context_expr, environment, entered=True)
        return self._block(node.body, environment)

    def _try(self, node: ast.Try, environment: Environment) -> Environment | None:
        before = dict(environment)
        bound = self._recorded()
        body = self._block(node.body, dict(environment))
        raised = _with_bindings(before, bound)  # an exception may come after any of them
        ends = []
        for handler in node.handlers:
            inside = dict(raised)
            if handler.type is not None:
                self._read(handler.type, inside)
            if handler.name:
                self._bind(inside, Binding(Kind.OTHER, handler.name, handler))
            ends.append(self._block(handler.body, inside))
        ends.append(self._block(node.orelse, body) if body is not None else None)
        self._recorders.pop()
        after = _joined([each for each in ends if each is not None])
        if not node.finalbody:
            return after
        self._block(node.finalbody, _with_bindings(before, bound))  # also behind `return` and exceptions
        return self._block(node.finalbody, after) if after is not None else None

    def _recorded(self) -> list[Binding]:
        """A list to which every binding is added from now on."""
        self._recorders.append([])
        return self._recorders[-1]

    def _match(self, node: ast.Match, environment: Environment) -> Environment | None:
        self._read(node.subject, environment)
        ends = [dict(environment)]
        for case in node.cases:
            inside = dict(environment)
            for part in walk(case.pattern):
                name = getattr(part, "name", None)
                if isinstance(part, ast.MatchAs | ast.MatchStar) and name:
                    self._bind(inside, Binding(Kind.OTHER, name, part))
                elif isinstance(part, ast.expr):
                    self._read(part, inside)
            if case.guard is not None:
                self._read(case.guard, inside)
            end = self._block(case.body, inside)
            if end is not None:
                ends.append(end)
        return _joined(ends)

    def _leave(self, node: ast.Return | ast.Raise, environment: Environment) -> None:
        self._read(node, environment)
        self._exits.append(dict(environment))

    def _leave_loop(self, node: ast.Break | ast.Continue, environment: Environment) -> None:
        if self._breaks:
            self._breaks[-1].append(dict(environment))

    # Expressions

    def _read(self, node: ast.AST, environment: Environment) -> None:
        """Note what reaches each name within an expression, in its own function."""
        stack = [node]
        while stack:
            at = stack.pop()
            kind = at.__class__
            if kind is ast.Name:
                self._use(at, environment)  # type: ignore[arg-type]
            elif kind in _SCOPES:
                self._comprehension(at, environment)  # type: ignore[arg-type]
            elif isinstance(at, ast.NamedExpr):
                self._read(at.value, environment)
                self._bind(environment, Binding(Kind.VALUE, at.target.id, at, at.value))
            elif isinstance(at, ast.Lambda):
                stack.extend((*at.args.defaults, *filter(None, at.args.kw_defaults)))
            elif kind is not ast.Constant:
                inner = child_nodes(at)
                inner.reverse()
                stack += inner

    def _use(self, node: ast.Name, environment: Environment) -> None:
        found = environment.get(node.id)
        if found is not None and isinstance(node.ctx, ast.Load):
            known = self.uses.get(node)
            self.uses[node] = found if known is None else known | found

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, environment: Environment
    ) -> None:
        inside = dict(environment)
        local = set(self.local)
        for generator in node.generators:
            self._read(generator.iter, inside)
            self._bind_target(generator.target, node, generator.iter, inside, Kind.ELEMENT)
            for test in generator.ifs:
                self._read(test, inside)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self._read(part, inside)
        self.local = local


_SCOPES = frozenset({ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp})


def _joined(environments: Iterable[Environment]) -> Environment | None:
    """Bindings of all of them; None of none."""
    joined: Environment | None = None
    for each in environments:
        if joined is None:
            joined = dict(each)
        else:
            for name, bindings in each.items():
                known = joined.get(name)
                joined[name] = bindings if known is None else known | bindings
    return joined


def _with_bindings(environment: Environment, bindings: Iterable[Binding]) -> Environment:
    """An environment in which each of some bindings may have been made."""
    found = dict(environment)
    for each in bindings:
        found[each.name] = found.get(each.name, frozenset()) | {each}
    return found


_HANDLERS: dict[type[ast.stmt], Callable[..., Environment | None]] = {
    ast.Assign: ReachingDefinitions._assign,
    ast.AnnAssign: ReachingDefinitions._annotated,
    ast.AugAssign: ReachingDefinitions._augmented,
    ast.Import: ReachingDefinitions._import,
    ast.ImportFrom: ReachingDefinitions._import,
    ast.FunctionDef: ReachingDefinitions._definition,
    ast.AsyncFunctionDef: ReachingDefinitions._definition,
    ast.ClassDef: ReachingDefinitions._definition,
    ast.If: ReachingDefinitions._if,
    ast.For: ReachingDefinitions._loop,
    ast.AsyncFor: ReachingDefinitions._loop,
    ast.While: ReachingDefinitions._loop,
    ast.With: ReachingDefinitions._with,
    ast.AsyncWith: ReachingDefinitions._with,
    ast.Try: ReachingDefinitions._try,
    ast.TryStar: ReachingDefinitions._try,
    ast.Match: ReachingDefinitions._match,
    ast.Return: ReachingDefinitions._leave,
    ast.Raise: ReachingDefinitions._leave,
    ast.Break: ReachingDefinitions._leave_loop,
    ast.Continue: ReachingDefinitions._leave_loop,
}
