"""The expressions that a value is computed from: names, arguments of callers, attributes and returns are followed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.rank_tests import RankKind, Ranks, RankTests
from paceline.syntax import call_arguments
from paceline.syntax.call_graph import SPAWN_INDEX
from paceline.syntax.evaluation import Evaluator
from paceline.syntax.module_index import Function, dotted, last_name
from paceline.syntax.program import Program
from paceline.syntax.reaching_definitions import Binding, Kind
from paceline.syntax.values import Context, FunctionValue, Instance, Located, Parameter

MAX_ORIGINS = 400
"""Expressions that are followed for one question."""
_AGREE = ("broadcast", "all_gather", "all_reduce", "scatter")


class Origins:
    """Follows expressions to what they are computed from.

    Args:
        program: the script.
        ranks: tells the rank.
    """

    def __init__(self, program: Program, ranks: RankTests) -> None:
        self._program = program
        self._evaluator: Evaluator = program.evaluator
        self._ranks = ranks
        self._memo: dict[Located, tuple[Located, ...]] = {}
        self._agreed: dict[Function, set[str]] = {}

    def of(self, node: ast.expr, context: Context | None = None) -> tuple[Located, ...]:
        """The expression, and all that it is computed from, as far as the script shows it."""
        start = Located(node, context)
        if start not in self._memo:
            self._memo[start] = tuple(self._walk(start))
        return self._memo[start]

    def step(self, each: Located) -> Iterator[Located]:
        """The expressions that an expression is made of directly, or that a name is bound to."""
        yield from self._next(each)

    def rest_on_rank(self, node: ast.expr, context: Context | None = None) -> bool:
        """True if the value differs between ranks: it is computed from the rank, or bound on some ranks only."""
        return any(
            not self.agreed(each.node) and (self._is_rank(each) or self._bound_on_some(each))
            for each in self.of(node, context)
        )

    def agreed(self, node: ast.AST) -> bool:
        """True if a collective makes a variable the same on all ranks: `dist.broadcast_object_list(name)`."""
        if not isinstance(node, ast.Name):
            return False
        function = self._evaluator.home(node)
        if function not in self._agreed:
            self._agreed[function] = {
                each.id
                for call in function.calls
                if any(part in last_name(call.func) for part in _AGREE)
                for each in _names_given(call)
            }
        return node.id in self._agreed[function]

    def _is_rank(self, each: Located) -> bool:
        if not isinstance(each.node, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            return False
        if self._ranks.kind(each.node, each.context) is not RankKind.NONE:
            return True
        return SPAWN_INDEX in self._evaluator.values(each.node, each.context)

    def _bound_on_some(self, each: Located) -> bool:
        """True if a variable or an attribute gets a value on some ranks only."""
        bound: list[ast.AST] = []
        if isinstance(each.node, ast.Name):
            bound = [at.node for at, _ in self._evaluator.bindings(each.node) if at.kind is Kind.VALUE]
        elif isinstance(each.node, ast.Attribute):
            for base in self._evaluator.values(each.node.value, each.context):
                if isinstance(base, Instance):
                    lineage = self._evaluator.lineage(base.cls)
                    bound += [at.node for cls in lineage for at in cls.attributes.get(each.node.attr, ())]
            bound += [at.node for at in self._stored(each.node)]
        return any(self._ranks.own(node)[0] is not Ranks.ALL for node in bound)

    def unread(self, node: ast.expr, context: Context | None = None) -> bool:
        """True if a parameter without callers is among the origins."""
        return any(
            isinstance(each.node, ast.Name)
            and any(isinstance(value, Parameter) for value in self._evaluator.values(each.node, each.context))
            for each in self.of(node, context)
        )

    # The walk

    def _walk(self, start: Located) -> Iterator[Located]:
        seen: set[tuple[ast.AST, Context | None]] = set()
        stack = [start]
        while stack and len(seen) < MAX_ORIGINS:
            each = stack.pop()
            if (each.node, each.context) in seen:
                continue
            seen.add((each.node, each.context))
            yield each
            if not self.agreed(each.node):
                stack.extend(self._next(each))

    def _next(self, each: Located) -> Iterator[Located]:
        match each.node:
            case ast.Name():
                for binding, at in self._evaluator.bindings(each.node):
                    yield from self._of_binding(binding, at, self._context_of(at, each))
            case ast.Attribute():
                yield from self._of_attribute(each.node, each.context)
            case ast.Call():
                yield from self._of_call(each.node, each.context)
            case ast.Lambda():
                return
            case _:
                for child in ast.iter_child_nodes(each.node):
                    if isinstance(child, ast.expr):
                        yield Located(child, each.context)
                    elif isinstance(child, ast.comprehension):
                        yield Located(child.iter, each.context)

    def _context_of(self, function: Function, each: Located) -> Context | None:
        at = each.context
        while at is not None and at.function is not function:
            at = at.outer
        return at

    def _of_binding(self, binding: Binding, function: Function, context: Context | None) -> Iterator[Located]:
        if binding.kind is Kind.PARAMETER:
            yield from self._of_parameter(function, binding.name, context)
        elif binding.value is not None:
            yield Located(binding.value, context)

    def _of_parameter(self, function: Function, name: str, context: Context | None) -> Iterator[Located]:
        contexts = [context] if context is not None and context.call is not None else []
        if not contexts:
            receiver = Instance(function.cls) if function.cls is not None else None
            for _, call in self._evaluator.call_sites(function):
                if (made := self._evaluator.context(function, call, None, receiver)) is not None:
                    contexts.append(made)
        for each in contexts:
            found = call_arguments.of_parameter(self._evaluator, function, name, each)
            yield from found.given
            if found.absent and (default := function.default(name)) is not None:
                yield Located(default, None)

    def _of_attribute(self, node: ast.Attribute, context: Context | None) -> Iterator[Located]:
        evaluator = self._evaluator
        followed = False
        for base in evaluator.values(node.value, context):
            if not isinstance(base, Instance):
                continue
            for cls in evaluator.lineage(base.cls):
                if node.attr in cls.methods:
                    method = cls.methods[node.attr]
                    inner = evaluator.context(method, None, None, base)
                    yield from (Located(each.value, inner) for each in method.returns if each.value is not None)
                    followed = True
                for assigned in cls.attributes.get(node.attr, ()):
                    home = evaluator.home(assigned.node)
                    inner = None
                    if home.name == "__init__" and base.call is not None:
                        inner = evaluator.context(home, base.call, base.context, base)
                    if assigned.value is not None:
                        yield Located(assigned.value, inner)
                        followed = True
        if not followed:
            yield Located(node.value, context)
            yield from self._stored(node)

    def _stored(self, node: ast.Attribute) -> Iterator[Located]:
        """Values that are assigned to the same text: `args.output = ...`."""
        text = dotted(node)
        for module in self._program.imports.modules if text else ():
            for target in module.stores_by_attribute.get(node.attr, ()):
                statement = module.parents[target]
                if isinstance(statement, ast.Assign) and dotted(target) == text:
                    yield Located(statement.value, None)

    def _of_call(self, node: ast.Call, context: Context | None) -> Iterator[Located]:
        own = [each for each in self._evaluator.values(node.func, context) if isinstance(each, FunctionValue)]
        for callee in own:
            inner = self._evaluator.context(callee.function, node, context, callee.receiver)
            if isinstance(callee.function.node, ast.Lambda):
                yield Located(callee.function.node.body, inner)
            yield from (Located(each.value, inner) for each in callee.function.returns if each.value is not None)
        if own:
            return
        if isinstance(node.func, ast.Attribute):
            yield Located(node.func.value, context)
        for argument in (*node.args, *(each.value for each in node.keywords)):
            yield Located(argument, context)


def _names_given(call: ast.Call) -> Iterator[ast.Name]:
    """Variables that are arguments of a call, also as `[name]` and `name[0]`."""
    for argument in (*call.args, *(each.value for each in call.keywords)):
        parts = argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
        for part in parts:
            inner = part.value if isinstance(part, ast.Subscript) else part
            if isinstance(inner, ast.Name):
                yield inner
