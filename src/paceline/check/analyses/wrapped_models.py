"""Wrapped models: what is a wrapper for certain, what is the model within one, and what leads past it."""

from __future__ import annotations

import ast
from functools import lru_cache

from paceline.check.analyses import framework_names as names
from paceline.check.analyses.call_order import shared_places
from paceline.check.analyses.script import Script
from paceline.syntax.child_nodes import walk
from paceline.syntax.conditions import conditions
from paceline.syntax.module_index import Function, dotted
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import UNKNOWN, Context, FunctionValue, Instance, Object, Parameter, Part, Value, Values

PREPARE = ("accelerate.Accelerator.prepare", "accelerate.Accelerator.prepare_model", "lightning.Fabric.setup",
           "lightning.Fabric.setup_module")  # fmt: skip
"""Calls whose results are wrapped models, by frameworks that wrap."""
UNWRAP = ("accelerate.Accelerator.unwrap_model", "accelerate.utils.extract_model_from_parallel")
_DEPTH = 4


def is_wrapper(value: Value) -> bool:
    """A DDP object itself, or compiled; no copy of it, and no module within it."""
    if isinstance(value, Object):
        return value.name in names.DDP
    return False


def wrapper_of(script: Script, node: ast.AST | None, context: Context | None = None) -> list[Object]:
    """DDP objects that an expression may be, `torch.compile` left aside."""
    found: list[Object] = []
    for value in script.values(node, context):
        if isinstance(value, Object) and value.name == "torch.compile":
            given = script.program.argument_values(value, "model", 0)
            found += [each for each in given if isinstance(each, Object) and is_wrapper(each)]
        elif isinstance(value, Object) and is_wrapper(value):
            found.append(value)
    return found


def is_prepared(value: Value) -> bool:
    """A model that Accelerate or Fabric wraps."""
    at = value.base if isinstance(value, Part) and value.name.startswith("[") else value
    return isinstance(at, Object) and at.name in PREPARE


def may_be_wrapped(script: Script, node: ast.AST | None, context: Context | None = None) -> bool:
    """True if an expression may be a wrapped model."""
    return script.is_wrapped(node, context) or any(is_prepared(each) for each in script.values(node, context))


@lru_cache(maxsize=4)
def inner_values(script: Script) -> frozenset[Value]:
    """Modules that were wrapped, under the names that they had before."""
    found: set[Value] = set()
    for wrapper in script.wrappers:
        found |= wrapper.inner | wrapper.converted
    return frozenset(each for each in found if isinstance(each, Object | Instance) and not is_wrapper(each))


def wrappers_are_known(script: Script) -> bool:
    """True if reading shows what every wrapper holds."""
    return all(
        each.inner and not any(value == UNKNOWN or isinstance(value, Part | Parameter) for value in each.inner)
        for each in script.wrappers
    )


def unwraps(script: Script, node: ast.AST | None, context: Context | None = None) -> bool:
    """True if an expression is the model within a wrapper whenever the model is wrapped.

    `ddp.module`, `ddp.module if distributed else ddp`, `unwrap_model(ddp)`, and names for them.
    """
    return _unwraps(script, node, context, 0)


def _unwraps(script: Script, node: ast.AST | None, context: Context | None, depth: int) -> bool:
    if node is None or depth > _DEPTH:
        return False
    match node:
        case ast.Attribute(attr="module" | "_orig_mod"):
            return may_be_wrapped(script, node.value, context) or _unwraps(script, node.value, context, depth + 1)
        case ast.IfExp():
            return any(_unwraps(script, each, context, depth + 1) for each in (node.body, node.orelse))
        case ast.Name() | ast.Attribute():
            found = _assigned_to(script, node, context)
            return (
                bool(found)
                and any(_unwraps(script, each, at, depth + 1) for each, at in found)
                and all(_unwraps(script, each, at, depth + 1) or _is_inner(script, each, at) for each, at in found)
            )
        case ast.Call():
            return _unwrapping_call(script, node, context)
    return False


def _assigned_to(script: Script, node: ast.expr, context: Context | None) -> list[tuple[ast.expr, Context | None]]:
    """Expressions assigned to a name, one step behind it."""
    if isinstance(node, ast.Name):
        return [
            (binding.value, context)
            for binding, _ in script.program.evaluator.bindings(node)
            if binding.kind is Kind.VALUE and binding.value is not None and not binding.path
        ]
    found: list[tuple[ast.expr, Context | None]] = []
    if not isinstance(node, ast.Attribute):
        return found
    for base in script.values(node.value, context):
        if isinstance(base, Instance):
            for cls in script.program.evaluator.lineage(base.cls):
                found += [
                    (each.value, None) for each in cls.attributes.get(node.attr, ()) if each.value and not each.path
                ]
    return found


def _is_inner(script: Script, node: ast.expr, context: Context | None) -> bool:
    values = script.values(node, context)
    inner = inner_values(script)
    return bool(values) and all(each in inner for each in values)


def _unwrapping_call(script: Script, node: ast.Call, context: Context | None) -> bool:
    given = node.args[0] if node.args else None
    if given is None or not may_be_wrapped(script, given, context):
        return False
    for value in script.values(node.func, context):
        if isinstance(value, FunctionValue) and _unwrapping_function(value.function):
            return True
    return any(name in UNWRAP for name in script.program.callee_names(node))


def _unwrapping_function(function: Function) -> bool:
    """True if a function returns `.module` of its first parameter: `return model.module if ... else model`."""
    if not function.positional:
        return False
    first = (
        function.positional[1] if function.cls is not None and len(function.positional) > 1 else function.positional[0]
    )
    nodes = [each.value for each in function.returns if each.value is not None]
    nodes += [
        at.value
        for at in walk(function.node)
        if isinstance(at, ast.Assign) and any(isinstance(each, ast.Name) and each.id == first for each in at.targets)
    ]
    parts = [part for each in nodes for part in ((each.body, each.orelse) if isinstance(each, ast.IfExp) else (each,))]
    return any(
        isinstance(each, ast.Attribute) and each.attr == "module" and dotted(each.value) == first for each in parts
    )


def bypass_kind(script: Script, node: ast.AST, context: Context | None = None) -> str:
    """How an expression bypasses a wrapper: `module` for what unwraps it, `variable` for the variable that was wrapped.

    Returns:
        Empty if it does not, or if reading does not show it for certain.
    """
    if unwraps(script, node, context):
        return "module"
    values = script.values(node, context)
    if values and all(_part_of_inner(script, each) for each in values):
        return "module" if any(isinstance(each, Part) for each in values) else "variable"
    if values and all(_prepared_from(script, each) for each in values):
        return "variable"
    return ""


def _part_of_inner(script: Script, value: Value) -> bool:
    if isinstance(value, Part) and value.name == "module" and isinstance(value.base, Object):
        return is_wrapper(value.base)
    return value in inner_values(script)


def _prepared_from(script: Script, value: Value) -> bool:
    """A model that was given to `accelerator.prepare` (whose result is used under another name)."""
    if not isinstance(value, Instance) or not script.engines & {"accelerate", "fabric"}:
        return False
    return value in {
        each
        for site in script.method_calls("prepare", "prepare_model", "setup", "setup_module")
        if any(name in PREPARE for name in script.program.callee_names(site.node))
        for given in site.node.args
        for each in script.values(given)
    }


def wrapped_for_certain(script: Script, node: ast.expr, context: Context | None = None) -> bool:
    """True if an expression is a DDP object in every distributed run.

    `model` after `if distributed: model = DDP(model)` is, unless the place itself tests for the wrapper. An attribute
    or a parameter is if the wrapper certainly was made before.
    """
    values = script.values(node, context)
    wrapped = [each for each in values if isinstance(each, Object) and is_wrapper(each)]
    if not wrapped:
        return False
    inner: set[Value] = set()
    for wrapper in wrapped:
        inner |= script.unwrapped(script.program.argument_values(wrapper, "module", 0))
    if not all(is_wrapper(each) or each in inner for each in values):
        return False
    if isinstance(node, ast.Name) and not _is_parameter(script, node):
        return True
    if any(each.call is node for each in wrapped):
        return True
    return all(_made_before(script, each.call, node) for each in wrapped)


def _is_parameter(script: Script, node: ast.Name) -> bool:
    return any(binding.kind is Kind.PARAMETER for binding, _ in script.program.evaluator.bindings(node))


def _made_before(script: Script, wrapper: ast.Call, node: ast.AST) -> bool:
    """True if a wrapper is made before a node runs: in the constructor of the same class, or in an earlier line."""
    makes, uses = script.function_of(wrapper), script.function_of(node)
    if makes is uses:
        tests = {each.test: each.holds for each in conditions(makes.module, wrapper)}
        if any(tests.get(each.test, each.holds) is not each.holds for each in conditions(uses.module, node)):
            return False  # the other branch
    if makes is not uses and makes.cls is not None and makes.cls is uses.cls and makes.name == "__init__":
        return uses.name != "__init__"
    places = shared_places(script, node, wrapper)
    return places is not None and max(places[0]) > min(places[1])


def tests_the_wrapper(script: Script, node: ast.AST) -> bool:
    """True if a place is only reached after a test of what the model is: `hasattr(...)`, `isinstance(...)`."""
    module = script.function_of(node).module
    for condition in conditions(module, node):
        text = ast.unparse(condition.test)
        if any(part in text for part in ("hasattr", "isinstance", "module", "DDP", "parallel", "distributed", "fsdp")):
            return True
        if not condition.holds and any(part in text for part in ("ddp", "world_size", "multi", "gpu")):
            return True
        if condition.holds and ("not " in text or "== 1" in text or "<= 1" in text or "< 2" in text):
            return True
    return any(isinstance(at, ast.Try) and node not in at.handlers for at in module.ancestors(node))


def of_wrapped(script: Script, values: Values, parts: frozenset[ast.Call] = frozenset()) -> bool:
    """True if values certainly are a wrapper, the model within one, or a part of it.

    Args:
        script: the script.
        values: of an expression.
        parts: calls that make parts of wrapped models.
    """
    return bool(values) and all(_of_wrapped(script, each, parts) for each in values)


def _of_wrapped(script: Script, value: Value, parts: frozenset[ast.Call]) -> bool:
    while isinstance(value, Part):
        value = value.base
    if is_wrapper(value) or value in inner_values(script):
        return True
    return isinstance(value, Object | Instance) and value.call in parts
