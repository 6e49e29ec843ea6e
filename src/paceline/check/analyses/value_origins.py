"""Expressions that a name stands for, followed through assignments, arguments, attributes of `self` and returns.

`Script.values` says what an expression evaluates to. Rules that look at how it is written (a set, a comprehension, the
calls that a loss is computed by) ask here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import NO_GRADIENTS
from paceline.check.analyses.script import Script
from paceline.syntax import call_arguments
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Assigned, Function, last_name
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import Context, Instance, Literal, Located

MAX_EXPRESSIONS = 400
"""Expressions that one question follows; beyond that the answer is incomplete."""
DETACHING = frozenset(["detach", "item", "tolist", "numpy", "argmax", "size", "detach_", "new_zeros", "new_ones"])
"""Methods of tensors whose results have no gradient."""
Indices = tuple[int, ...]
Step = tuple[ast.AST, Context | None, Indices]
"""An expression, the context in which it is looked at, and indices to the part of it that is meant."""


def origins(script: Script, node: ast.AST | None, context: Context | None = None) -> list[Located]:
    """Expressions behind names: displays, comprehensions, constants and calls of other packages.

    Args:
        script: the script.
        node: an expression; None gives nothing.
        context: the call for which the function around it is looked at.
    """
    walk = _Walk(script)
    return [] if node is None else list(walk.behind(node, context, ()))


def calls_behind(script: Script, node: ast.AST, context: Context | None = None) -> list[Located]:
    """Calls through which the gradient of a loss flows, the functions of the script that compute it included.

    Calls without gradients are left out: those under `torch.no_grad()`, and everything in front of `.detach()`.
    """
    walk = _Walk(script)
    return [each for each in walk.computed(node, context, ()) if isinstance(each.node, ast.Call)]


def without_gradients(script: Script, node: ast.AST) -> bool:
    """True if a node runs under `torch.no_grad()` or `torch.inference_mode()`, as far as its own function shows."""
    function = script.function_of(node)
    if any(_stops_gradients(script, each) for each in function.decorators):
        return True
    for at in function.module.ancestors(node):
        if at is function.node:
            break
        if isinstance(at, ast.With) and any(_stops_gradients(script, item.context_expr) for item in at.items):
            return True
    return False


def _stops_gradients(script: Script, node: ast.expr) -> bool:
    called = isinstance(node, ast.Call)
    names = script.program.callee_names(node) if isinstance(node, ast.Call) else []
    if not called:
        names = [getattr(each, "name", "") for each in script.values(node)]
    if not any(name in NO_GRADIENTS for name in names):
        return False
    if isinstance(node, ast.Call) and last_name(node.func) == "set_grad_enabled":
        return bool(node.args) and script.values(node.args[0]) == {Literal(False)}
    return True


class _Walk:
    """One walk from an expression to where it comes from."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.evaluator = script.program.evaluator
        self.seen: set[tuple[ast.AST, Context | None, Indices]] = set()

    def _enter(self, node: ast.AST, context: Context | None, path: Indices) -> bool:
        key = (node, context, path)
        if key in self.seen or len(self.seen) > MAX_EXPRESSIONS:
            return False
        self.seen.add(key)
        return True

    # What a name stands for

    def behind(self, node: ast.AST, context: Context | None, path: Indices) -> Iterator[Located]:
        """Expressions behind names."""
        stack: list[Step] = [(node, context, path)]
        while stack:
            at, where, rest = stack.pop()
            if not self._enter(at, where, rest):
                continue
            found = list(self.one_step(at, where, rest))
            stack += reversed(found)
            if not found and isinstance(at, ast.expr):
                yield Located(at, where)

    def one_step(self, node: ast.AST, context: Context | None, path: Indices) -> Iterator[Step]:
        """Expressions that this one is, or may be, another name of."""
        match node:
            case ast.Name():
                yield from self._name(node, context, path)
            case ast.Attribute():
                yield from self._attribute(node, context, path)
            case ast.IfExp():
                yield node.body, context, path
                yield node.orelse, context, path
            case ast.BoolOp():
                yield from ((each, context, path) for each in node.values)
            case ast.NamedExpr() | ast.Await() | ast.Starred():
                yield node.value, context, path
            case ast.Tuple() | ast.List() if path and 0 <= path[0] < len(node.elts):
                yield node.elts[path[0]], context, path[1:]
            case ast.Call():
                for function, inner in self.evaluator.callees(node, context):
                    if function.cls is None or last_name(node.func) == function.name:
                        yield from ((each, inner, path) for each in _returned(function))

    def _name(
        self, node: ast.Name, context: Context | None, path: Indices
    ) -> Iterator[tuple[ast.AST, Context | None, Indices]]:
        own = self.script.function_of(node)
        for binding, function in self.evaluator.bindings(node):
            at = context if function is own else _context_of(function, context)
            if binding.kind is Kind.VALUE and binding.value is not None:
                yield binding.value, at, (*binding.path, *path)
            elif binding.kind is Kind.PARAMETER:
                for each in self._given(function, binding.name, at):
                    yield each.node, each.context, path

    def _given(self, function: Function, name: str, context: Context | None) -> Iterator[Located]:
        contexts = [context]
        if context is None or context.function is not function:
            contexts = [
                self.evaluator.context(function, call, None, Instance(function.cls) if function.cls else None)
                for _, call in self.evaluator.call_sites(function)
            ]
        for each in contexts:
            if each is not None and each.call is not None:
                yield from call_arguments.of_parameter(self.evaluator, function, name, each).given

    def _attribute(
        self, node: ast.Attribute, context: Context | None, path: Indices
    ) -> Iterator[tuple[ast.AST, Context | None, Indices]]:
        for base in self.script.values(node.value, context):
            if isinstance(base, Instance):
                for assigned in self._assigned(base, node.attr):
                    if assigned.value is not None:
                        yield assigned.value, self._constructor(assigned, base), (*assigned.path, *path)

    def _constructor(self, assigned: Assigned, base: Instance) -> Context | None:
        method = self.script.function_of(assigned.node)
        if method.name != "__init__" or base.call is None:
            return None
        return self.evaluator.context(method, base.call, base.context, base)

    def _assigned(self, base: Instance, name: str) -> Iterator[Assigned]:
        for cls in self.evaluator.lineage(base.cls):
            yield from cls.attributes.get(name, ())

    # What computes a value

    def computed(self, node: ast.AST, context: Context | None, path: Indices) -> Iterator[Located]:
        """Calls, and everything that they compute with."""
        stack: list[Step] = [(node, context, path)]
        while stack:
            at, where, rest = stack.pop()
            if not self._enter(at, where, rest):
                continue
            if isinstance(at, ast.Call):
                if last_name(at.func) not in DETACHING and not without_gradients(self.script, at):
                    yield Located(at, where)
                    stack += reversed(list(self._inputs(at, where, rest)))
            elif not (isinstance(at, ast.Attribute) and at.attr in ("data", "shape", "grad", "dtype", "device")):
                stack += reversed(self._parts(at, where, rest))

    def _parts(self, node: ast.AST, context: Context | None, path: Indices) -> list[Step]:
        """Expressions from which one that is no call is computed."""
        steps = list(self.one_step(node, context, path))
        if isinstance(node, ast.Name):
            steps += [(each, context, ()) for each in (*self._collected(node), *self._elements(node))]
        return steps or [(each, context, ()) for each in ast.iter_child_nodes(node)]

    def _inputs(self, node: ast.Call, context: Context | None, path: Indices) -> Iterator[Step]:
        """Inputs of a call: its object, its arguments, and what a function of the script returns."""
        for function, inner in self.evaluator.callees(node, context):
            if function.name == "__init__" or function.yields:
                continue
            if not any(_stops_gradients(self.script, each) for each in function.decorators):
                yield from ((each, inner, path) for each in _returned(function))
        if isinstance(node.func, ast.Attribute):
            yield node.func.value, context, ()
        yield from ((each, context, ()) for each in (*node.args, *(keyword.value for keyword in node.keywords)))

    def _elements(self, node: ast.Name) -> Iterator[ast.expr]:
        for binding, _ in self.evaluator.bindings(node):
            if binding.kind is Kind.ELEMENT and binding.value is not None:
                yield binding.value

    def _collected(self, node: ast.Name) -> Iterator[ast.expr]:
        """Expressions that are put into a container under its name: `losses.append(loss)`, `losses["a"] = loss`."""
        function = self.script.function_of(node)
        for method in ("append", "extend", "update", "insert"):
            for call in function.module.calls_by_name.get(method, ()):
                receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
                if isinstance(receiver, ast.Name) and receiver.id == node.id and call in function.calls:
                    yield from call.args
        for binding, _ in self.evaluator.bindings(node):
            if isinstance(binding.value, ast.Dict | ast.List) or (
                isinstance(binding.value, ast.Call) and last_name(binding.value.func) in ("dict", "list", "defaultdict")
            ):
                yield from items_set(function, node.id)


def items_set(function: Function, name: str) -> Iterator[ast.expr]:
    """Values that are set under `name[...]` in a function."""
    for at in walk(function.node):
        if isinstance(at, ast.Assign | ast.AugAssign):
            targets = at.targets if isinstance(at, ast.Assign) else [at.target]
            for target in targets:
                if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id == name:
                    yield at.value


def _returned(function: Function) -> list[ast.expr]:
    if isinstance(function.node, ast.Lambda):
        return [function.node.body]
    return [each.value for each in function.returns if each.value is not None]


def _context_of(function: Function, context: Context | None) -> Context | None:
    at = context
    while at is not None and at.function is not function:
        at = at.outer
    return at
