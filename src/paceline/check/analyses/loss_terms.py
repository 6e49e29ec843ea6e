"""The terms of a loss that reaches `backward`, and the factors between them and the gradient.

`loss = (a.mean() + 0.1 * b.sum()) / steps; loss.backward()` has the terms `a.mean()` with the factor `/ steps`, and
`b.sum()` with `* 0.1` and `/ steps`. Names, arguments, returns of the script's functions and forward passes of wrapped
models are followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.check.analyses import framework_names as names
from paceline.check.analyses.local_values import LocalValues
from paceline.check.analyses.script import Script
from paceline.check.analyses.training_loops import Reached, TrainingLoop
from paceline.check.analyses.world_size import is_world_size
from paceline.syntax import call_arguments
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function, dotted
from paceline.syntax.reaching_definitions import Binding, Kind
from paceline.syntax.values import (
    ClassValue,
    Context,
    FunctionValue,
    Instance,
    Literal,
    Named,
    Object,
    Parameter,
    Value,
)

MAX_TERMS = 60
MAX_EXPRESSIONS = 300
_TRANSPARENT = frozenset(
    ("float", "to", "squeeze", "clone", "contiguous", "double", "half", "view", "reshape", "cuda", "cpu", "type_as",
     "bfloat16", "unsqueeze", "requires_grad_")
)  # fmt: skip


@dataclass(frozen=True)
class Factor:
    """A multiplication or a division of a term.

    Attributes:
        divides: it is a division.
    """

    node: ast.expr
    context: Context | None
    divides: bool


@dataclass(frozen=True)
class Term:
    """A term of a loss.

    Attributes:
        node: the expression that is not followed further, such as a call of a loss function.
        backward: the call that starts the backward pass.
    """

    node: ast.expr
    context: Context | None
    factors: tuple[Factor, ...]
    backward: ast.Call


def losses(script: Script) -> Iterator[tuple[TrainingLoop, Reached, list[Term]]]:
    """Backward passes of the training loops with the terms of their losses."""
    for loop in script.loops.training:
        for each in loop.backwards:
            assert isinstance(each.node, ast.Call)
            yield loop, each, list(terms(script, each.node))


def loss_of(script: Script, call: ast.Call) -> ast.expr | None:
    """The loss of `loss.backward()`, `accelerator.backward(loss)`; None if a gradient is given."""
    assert isinstance(call.func, ast.Attribute)
    receiver = call.func.value
    if not call.args:
        return receiver
    values = script.values(receiver)
    engine = any(isinstance(each, Named) or "Accelerator" in str(getattr(each, "name", "")) for each in values)
    text = dotted(receiver).lower()
    if (
        engine
        or any(part in text for part in ("accelerator", "fabric", "engine"))
        or text in ("self", "torch.autograd")
    ):
        return call.args[0]
    return None


def terms(script: Script, backward: ast.Call) -> Iterator[Term]:
    """Terms of the loss of a backward pass."""
    loss = loss_of(script, backward)
    if loss is not None:
        walk = _Walk(script, backward)
        yield from walk.terms(loss, None, (), ())


class _Walk:
    def __init__(self, script: Script, backward: ast.Call) -> None:
        self.script = script
        self.evaluator = script.program.evaluator
        self.backward = backward
        self.active: set[tuple[ast.expr, Context | None]] = set()
        self.found = 0

    def terms(
        self, node: ast.expr, context: Context | None, factors: tuple[Factor, ...], path: tuple[int, ...]
    ) -> Iterator[Term]:
        key = (node, context)
        if key in self.active or len(self.active) > 40 or self.found > MAX_TERMS:
            return
        self.active.add(key)
        try:
            yield from self._terms(node, context, factors, path)
        finally:
            self.active.discard(key)

    def _terms(
        self, node: ast.expr, context: Context | None, factors: tuple[Factor, ...], path: tuple[int, ...]
    ) -> Iterator[Term]:
        match node:
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                yield from self.terms(node.left, context, factors, path)
                yield from self.terms(node.right, context, factors, path)
                return
            case ast.BinOp(op=ast.Mult()):
                yield from self.terms(node.left, context, (*factors, Factor(node.right, context, False)), path)
                yield from self.terms(node.right, context, (*factors, Factor(node.left, context, False)), path)
                return
            case ast.BinOp(op=ast.Div()):
                yield from self.terms(node.left, context, (*factors, Factor(node.right, context, True)), path)
                return
            case ast.UnaryOp():
                yield from self.terms(node.operand, context, factors, path)
                return
            case ast.IfExp():
                yield from self.terms(node.body, context, factors, path)
                yield from self.terms(node.orelse, context, factors, path)
                return
            case ast.Tuple() | ast.List() if path and 0 <= path[0] < len(node.elts):
                yield from self.terms(node.elts[path[0]], context, factors, path[1:])
                return
            case ast.Name():
                yield from self._name(node, context, factors, path)
                return
            case ast.Attribute() if assigned := list(self._assigned(node, context)):
                for value, more in assigned:
                    yield from self.terms(value, None, factors, more + path)
                return
            case ast.Call() if (inner := self._inside(node, context)) is not None:
                for each, at, more in inner:
                    yield from self.terms(each, at, factors, more + path)
                return
        self.found += 1
        yield Term(node, context, factors, self.backward)

    def _name(
        self, node: ast.Name, context: Context | None, factors: tuple[Factor, ...], path: tuple[int, ...]
    ) -> Iterator[Term]:
        bindings = self.evaluator.bindings(node)
        own = self.script.function_of(node)
        changed = [each for each, _ in bindings if isinstance(each.node, ast.AugAssign) and each.value is not None]
        more = list(factors)
        for each in changed:
            assert isinstance(each.node, ast.AugAssign)
            assert each.value is not None
            if isinstance(each.node.op, ast.Mult | ast.Div):
                more.append(Factor(each.value, context, isinstance(each.node.op, ast.Div)))
            else:
                yield from self.terms(each.value, context, factors, ())
        for binding, at in bindings:
            if isinstance(binding.node, ast.AugAssign):
                continue
            for expression, inner in self._bound(binding, at, context if at is own else None):
                yield from self.terms(expression, inner, tuple(more), (*binding.path, *path))

    def _assigned(self, node: ast.Attribute, context: Context | None) -> Iterator[tuple[ast.expr, tuple[int, ...]]]:
        """Values that methods assign to `self.loss`."""
        for base in self.script.values(node.value, context):
            if isinstance(base, Instance):
                for each in base.cls.attributes.get(node.attr, ()):
                    if each.value is not None and not isinstance(each.value, ast.Constant):
                        yield each.value, each.path

    def _bound(
        self, binding: Binding, function: Function, context: Context | None
    ) -> Iterator[tuple[ast.expr, Context | None]]:
        if binding.kind is Kind.VALUE and binding.value is not None:
            yield binding.value, context
        elif binding.kind is Kind.PARAMETER:
            contexts = [context] if context is not None and context.function is function else []
            if not contexts:
                receiver = Instance(function.cls) if function.cls is not None else None
                for _, call in self.evaluator.call_sites(function):
                    if (inner := self.evaluator.context(function, call, None, receiver)) is not None:
                        contexts.append(inner)
            for inner in contexts:
                for each in call_arguments.of_parameter(self.evaluator, function, binding.name, inner).given:
                    yield each.node, each.context

    def _inside(
        self, node: ast.Call, context: Context | None
    ) -> list[tuple[ast.expr, Context | None, tuple[int, ...]]] | None:
        """Expressions whose value the call passes on; None if the call is a term itself."""
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in _TRANSPARENT:
                return [(node.func.value, context, ())]
            if node.func.attr == "scale" and node.args:
                return [(node.args[0], context, ())]
        found: list[tuple[ast.expr, Context | None, tuple[int, ...]]] = []
        for function, inner in self._functions(node, context):
            if function.yields:
                return None
            found += [(each.value, inner, ()) for each in function.returns if each.value is not None]
        return found or None

    def _functions(self, node: ast.Call, context: Context | None) -> Iterator[tuple[Function, Context | None]]:
        values = self.script.values(node.func, context)
        if any(isinstance(each, ClassValue) for each in values):
            return
        if any(isinstance(each, FunctionValue | Instance) for each in values):
            yield from self.evaluator.callees(node, context)
        for value in values:
            if isinstance(value, Object) and value.name in names.DDP:
                inner = self.script.unwrapped(self.script.program.argument_values(value, "module", 0))
                for model in inner:
                    yield from self._forward(model, node, context)

    def returned(
        self, node: ast.Call, context: Context | None, *, losses_too: bool, models_too: bool
    ) -> Iterator[tuple[ast.expr, Context | None]]:
        """Return values of functions of the script, and modules where they are to be followed."""
        instances = [each.cls for each in self.script.values(node.func, context) if isinstance(each, Instance)]
        models = {each.cls for wrapper in self.script.wrappers for each in wrapper.inner if isinstance(each, Instance)}
        if instances and not models_too and not (losses_too and models.isdisjoint(instances)):
            return
        functions = self._functions(node, context) if models_too else self.evaluator.callees(node, context)
        for function, called in functions:
            for each in function.returns:
                if each.value is not None:
                    yield each.value, called

    def _forward(
        self, model: Value, node: ast.Call, context: Context | None
    ) -> Iterator[tuple[Function, Context | None]]:
        if isinstance(model, Instance):
            for cls in self.evaluator.lineage(model.cls):
                if "forward" in cls.methods:
                    method = cls.methods["forward"]
                    yield method, self.evaluator.context(method, node, context, model)
                    return


# Questions about terms and factors


def scaled_by_world(script: Script, factors: tuple[Factor, ...], *, divides: bool) -> Factor | None:
    """The multiplication by, or division by, the number of ranks."""
    for each in factors:
        if each.divides is divides and any(
            isinstance(at, ast.expr) and is_world_size(script, at, each.context)
            for at in walk(each.node)
            if isinstance(at, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        ):
            return each
    return None


def reduction(script: Script, term: Term) -> str | None:
    """`mean`, `sum` or `none` of a call of a loss function or a reduction of a tensor; None if it cannot be read."""
    node = term.node
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("mean", "sum", "nanmean"):
        over = [*node.args, *(each for each in node.keywords if each.arg != "dtype")]
        whole = not over or any("torch.mean" in each or "torch.sum" in each for each in _named(script, node))
        return (node.func.attr.removeprefix("nan")) if whole and len(over) <= 1 else None
    for value in script.values(node.func, term.context):
        loss: ast.Call | Object | None = None
        position: int | None = None
        if isinstance(value, Object) and value.name.startswith("torch.nn.") and value.name.endswith("Loss"):
            loss = value
        elif isinstance(value, Named) and _is_functional_loss(value.name):
            loss = node
        if loss is None:
            continue
        found = script.argument(loss, "reduction", position)
        legacy = any(not script.argument(loss, each).absent for each in ("size_average", "reduce"))
        if legacy or not found.certain:
            return None
        literals = script.literals(loss, "reduction")
        if found.absent:
            return "batchmean" if "kl_div" in getattr(value, "name", "") else "mean"
        return str(next(iter(literals))) if literals and len(literals) == 1 else None
    return None


def _named(script: Script, node: ast.Call) -> list[str]:
    return script.program.callee_names(node)


def _is_functional_loss(name: str) -> bool:
    return name.startswith("torch.nn.functional.") and name.endswith(
        ("loss", "cross_entropy", "_with_logits", "kl_div")
    )


def reduced_tensor(node: ast.Call) -> ast.expr | None:
    """`x` of `x.sum()` and of `torch.sum(x)`."""
    if isinstance(node.func, ast.Attribute):
        if dotted(node.func).startswith("torch."):
            return node.args[0] if node.args else None
        return node.func.value
    return None


def behind(
    script: Script,
    node: ast.expr,
    context: Context | None = None,
    *,
    losses_too: bool = False,
    models_too: bool = False,
) -> Iterator[tuple[ast.expr, Context | None]]:
    """An expression and those that it is computed from, functions of the script included.

    Args:
        script: the script.
        node: the expression.
        context: in which it is looked at.
        losses_too: follow modules that are not wrapped: losses, as a rule.
        models_too: follow all modules, wrapped ones as well.
    """
    walk = _Walk(script, ast.Call(func=node, args=[], keywords=[]))
    stack: list[tuple[ast.expr, Context | None]] = [(node, context)]
    seen: set[tuple[ast.expr, Context | None]] = set()
    while stack and len(seen) < MAX_EXPRESSIONS:
        at, inner = stack.pop()
        if (at, inner) in seen:
            continue
        seen.add((at, inner))
        yield at, inner
        if isinstance(at, ast.Name):
            own = script.function_of(at)
            for binding, function in script.program.evaluator.bindings(at):
                stack += walk._bound(binding, function, inner if function is own else None)
            continue
        if isinstance(at, ast.Call):
            stack += walk.returned(at, inner, losses_too=losses_too, models_too=models_too)
        stack += [(each, inner) for each in ast.iter_child_nodes(at) if isinstance(each, ast.expr)]
        stack += [(each.value, inner) for each in ast.iter_child_nodes(at) if isinstance(each, ast.keyword)]
        stack += [(each.iter, inner) for each in getattr(at, "generators", ())]


def is_local(script: Script, node: ast.expr, context: Context | None = None) -> bool:
    """True if an expression certainly comes from the batch of this rank."""
    return LocalValues.of(script).origin(node, context).local


def unresolved(script: Script, node: ast.expr, context: Context | None) -> bool:
    """True if an expression may be any number."""
    values = script.values(node, context)
    return (
        not values
        or any(not isinstance(each, Literal) for each in values)
        or any(isinstance(each, Parameter) for each in values)
    )
