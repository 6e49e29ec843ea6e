"""Wrapped models: what is in a wrapper for certain, what bypasses it, what runs after wrapping."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from paceline.check import framework_names as names
from paceline.check.script import Script, Wrapper
from paceline.check.value_origins import origins
from paceline.syntax.conditions import conditions
from paceline.syntax.module_index import Function, dotted, last_name
from paceline.syntax.program import CallSite
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import (
    UNKNOWN,
    Context,
    Elements,
    FunctionValue,
    Instance,
    Mapping,
    Object,
    Parameter,
    Part,
    Value,
    Values,
)

PREPARE = ("accelerate.Accelerator.prepare", "accelerate.Accelerator.prepare_model", "lightning.Fabric.setup",
           "lightning.Fabric.setup_module")  # fmt: skip
"""Calls whose results are wrapped models, by frameworks that wrap."""
UNWRAP = ("accelerate.Accelerator.unwrap_model", "accelerate.utils.extract_model_from_parallel")
_REDUCES_GRADIENTS = re.compile(r"(average|reduce|sync|aggregate|mean).*grad|grad.*(average|reduce|sync|aggregate)")
_REDUCING = tuple(f"torch.distributed.{each}" for each in (
    "all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor", "all_gather",
    "all_gather_into_tensor", "gather",
))  # fmt: skip
_DEPTH = 4
Place = tuple[int, int]
"""Line and column."""


# What is wrapped


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
    """Whether an expression may be a wrapped model."""
    return script.is_wrapped(node, context) or any(is_prepared(each) for each in script.values(node, context))


@lru_cache(maxsize=4)
def inner_values(script: Script) -> frozenset[Value]:
    """Modules that were wrapped, under the names that they had before."""
    found: set[Value] = set()
    for wrapper in script.wrappers:
        found |= wrapper.inner
    return frozenset(each for each in found if isinstance(each, Object | Instance) and not is_wrapper(each))


def wrappers_are_known(script: Script) -> bool:
    """Whether reading shows what every wrapper holds."""
    return all(
        each.inner and not any(value == UNKNOWN or isinstance(value, Part | Parameter) for value in each.inner)
        for each in script.wrappers
    )


def unwraps(script: Script, node: ast.AST | None, context: Context | None = None) -> bool:
    """Whether an expression is the model within a wrapper whenever the model is wrapped.

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
    """Whether a function returns `.module` of its first parameter: `return model.module if ... else model`."""
    if not function.positional:
        return False
    first = (
        function.positional[1] if function.cls is not None and len(function.positional) > 1 else function.positional[0]
    )
    nodes = [each.value for each in function.returns if each.value is not None]
    nodes += [
        at.value
        for at in ast.walk(function.node)
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
    """Whether an expression is a DDP object in every distributed run.

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
    return all(_made_before(script, each.call, node) for each in wrapped)


def _is_parameter(script: Script, node: ast.Name) -> bool:
    return any(binding.kind is Kind.PARAMETER for binding, _ in script.program.evaluator.bindings(node))


def in_one_run(script: Script, node: ast.AST, other: ast.AST) -> bool:
    """Whether one function, or one class, certainly leads to both nodes: two tests of a file do not meet."""
    first, second = script.function_of(node), script.function_of(other)
    same_class = first.cls is not None and first.cls is second.cls
    return same_class or _shared_places(script, node, other) is not None


def _made_before(script: Script, wrapper: ast.Call, node: ast.AST) -> bool:
    """Whether a wrapper is made before a node runs: in the constructor of the same class, or in an earlier line."""
    makes, uses = script.function_of(wrapper), script.function_of(node)
    if makes is not uses and makes.cls is not None and makes.cls is uses.cls and makes.name == "__init__":
        return uses.name != "__init__"
    places = _shared_places(script, node, wrapper)
    return places is not None and max(places[0]) > min(places[1])


def tests_the_wrapper(script: Script, node: ast.AST) -> bool:
    """Whether a place is only reached after a test of what the model is: `hasattr(...)`, `isinstance(...)`."""
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


# Order


def runs_after(script: Script, node: ast.AST, site: CallSite | ast.AST) -> bool:
    """Whether a node runs behind a call, as far as one function shows both or the calls that lead to them.

    Unknown orders count as behind, and so do those of two methods of one class.
    """
    places = _shared_places(script, node, site.node if isinstance(site, CallSite) else site)
    return places is None or max(places[0]) >= min(places[1])


def runs_later(script: Script, node: ast.AST, other: ast.AST) -> bool:
    """Likewise, but for a later place than that from which the other node is reached."""
    places = _shared_places(script, node, other)
    return places is None or max(places[0]) > min(places[1])


def runs_again_after(script: Script, node: ast.AST, other: ast.AST) -> bool:
    """Whether a node certainly runs, maybe once more, when the other one is done."""
    places = _shared_places(script, node, other)
    return places is not None and max(places[0]) > max(places[1])


def _shared_places(script: Script, node: ast.AST, other: ast.AST) -> tuple[set[Place], set[Place]] | None:
    """Places in the innermost function from which both nodes are reached."""
    first, second = _positions(script, node), _positions(script, other)
    for function, places in first.items():
        if function in second:
            return places, second[function]
    return None


def _positions(script: Script, node: ast.AST) -> dict[Function, set[Place]]:
    """Places in each function from which a node is reached, its own function first."""
    found: dict[Function, set[Place]] = {}
    queue = [(node, 0)]
    while queue:
        at, depth = queue.pop(0)
        if depth > _DEPTH:
            continue
        function = script.function_of(at)
        places = found.setdefault(function, set())
        place = getattr(at, "lineno", 0), getattr(at, "col_offset", 0)
        if place in places:
            continue
        places.add(place)
        queue += [(call, depth + 1) for _, call in script.program.evaluator.call_sites(function)]
    return found


def runs_in_a_loop(script: Script, node: ast.AST) -> bool:
    """Whether a loop stands around a node, or around a call that leads to it."""
    return any(True for _ in _loops_around(script, node))


def repeats_with_training(script: Script, node: ast.AST) -> bool:
    """Whether a node runs between training steps: a loop around it, or around a call that leads to it, trains.

    Loops that wrap the model anew in each round, for example over folds, do not count.
    """
    return any(trains(script, each) and not _wraps_within(script, each) for each in _loops_around(script, node))


def _wraps_within(script: Script, loop: ast.AST) -> bool:
    sites = {each.site.node for each in script.wrappers}
    return any(each.node in sites for each in script.loops.reached_calls(loop, script.function_of(loop)))


def _loops_around(script: Script, node: ast.AST) -> Iterator[ast.AST]:
    queue = [(node, 0)]
    seen: set[Function] = set()
    while queue:
        at, depth = queue.pop(0)
        function = script.function_of(at)
        for outer in function.module.ancestors(at):
            if outer is function.node:
                break
            if isinstance(outer, ast.For | ast.AsyncFor | ast.While):
                yield outer
        if function not in seen and depth <= _DEPTH:
            seen.add(function)
            queue += [(call, depth + 1) for _, call in script.program.evaluator.call_sites(function)]


def trains(script: Script, outer: ast.AST) -> bool:
    """Whether a backward pass runs within a node."""
    reached = script.loops.reached_calls(outer, script.function_of(outer))
    return any(script.loops.is_backward(each.node) for each in reached)


def of_wrapped(script: Script, values: Values, parts: frozenset[ast.Call] = frozenset()) -> bool:
    """Whether values certainly are a wrapper, the model within one, or a part of it.

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


def owners_of_parameter(script: Script, node: ast.expr) -> list[Values]:
    """Modules whose parameters a name goes over: `p` of `for p in model.parameters()`, or the module itself."""
    if isinstance(node, ast.Name):
        found = []
        for binding, _ in script.program.evaluator.bindings(node):
            if binding.kind is Kind.ELEMENT and binding.value is not None:
                found += list(parameter_owners(script, binding.value))
        if found:
            return found
    return [script.values(node)]


# Gradients that are averaged by hand


@lru_cache(maxsize=4)
def reduces_by_hand(script: Script) -> bool:
    """Whether the script averages gradients or parameters itself."""
    if any(site.node.args and gives_gradients(script, site.node.args[0]) for site in script.calls(*_REDUCING)):
        return True
    return any(
        _REDUCES_GRADIENTS.search(last_name(call.func).lower())
        for function in script.program.functions
        for call in function.calls
    )


def synchronizes_parameters(script: Script) -> bool:
    """Whether the script sends parameters from one rank to the others."""
    broadcasts = script.calls("torch.distributed.broadcast", "torch.distributed._broadcast_coalesced")
    return any(site.node.args and gives_gradients(script, site.node.args[0]) for site in broadcasts)


_KEEPS_TENSORS = frozenset(
    ["cat", "stack", "list", "tuple", "zip", "chain", "enumerate", "parameters_to_vector", "flatten", "view", "reshape",
     "contiguous", "clone", "detach", "values", "items", "_flatten_dense_tensors", "filter", "map", "to", "div", "div_",
     "float", "ravel", "flatten_dense_tensors"]
)  # fmt: skip


def gives_gradients(script: Script, node: ast.expr) -> bool:
    """Whether an argument of a collective is made of gradients or parameters of a model."""
    queue: list[ast.AST] = [node]
    seen: set[ast.AST] = set()
    while queue and len(seen) < 120:
        at = queue.pop()
        if at in seen:
            continue
        seen.add(at)
        if isinstance(at, ast.Attribute) and at.attr in ("grad", "grads", "main_grad"):
            return True
        if isinstance(at, ast.Call):
            if last_name(at.func) in ("parameters", "named_parameters", "state_dict", "parameters_to_vector", "grad"):
                return True
            if last_name(at.func) not in _KEEPS_TENSORS:
                continue
        if isinstance(at, ast.Name):
            if "grad" in at.id.lower():
                return True
            queue += _bound_to(script, at)
        queue += ast.iter_child_nodes(at)
    return False


def _bound_to(script: Script, node: ast.Name) -> Iterator[ast.AST]:
    evaluator = script.program.evaluator
    for binding, function in evaluator.bindings(node):
        if binding.value is not None:
            yield binding.value
        elif binding.kind is Kind.PARAMETER:
            position = function.positional.index(binding.name) if binding.name in function.positional else None
            if position is not None and function.cls is not None:
                position -= 1
            for _, call in evaluator.call_sites(function):
                yield from (each.node for each in script.program.argument(call, binding.name, position).given)


# Parameters


def parameter_owners(script: Script, node: ast.AST | None, context: Context | None = None) -> Iterator[Values]:
    """Modules whose parameters an expression gives: an argument of an optimizer, of `autograd.grad`.

    Yields:
        For each part of the expression what owns it: modules, or `nn.Parameter` objects themselves; `{UNKNOWN}` for
        what reading does not show.
    """
    for each in origins(script, node, context):
        yield from _owners(script, each.node, each.context, 0)


def _owners(script: Script, node: ast.AST, context: Context | None, depth: int) -> Iterator[Values]:
    if depth > 8:
        yield frozenset({UNKNOWN})
        return
    match node:
        case ast.List() | ast.Tuple():
            for item in node.elts:
                yield from _nested(script, item, context, depth)
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "params":
                    yield from _nested(script, value, context, depth)
        case ast.BinOp(op=ast.Add()):
            yield from _nested(script, node.left, context, depth)
            yield from _nested(script, node.right, context, depth)
        case ast.ListComp() | ast.GeneratorExp():
            yield from _nested(script, node.generators[0].iter, context, depth)
        case ast.Call():
            yield from _called_owners(script, node, context, depth)
        case _:
            values = script.values(node, context)
            yield values if values else frozenset({UNKNOWN})


def _nested(script: Script, node: ast.AST, context: Context | None, depth: int) -> Iterator[Values]:
    for each in origins(script, node, context):
        yield from _owners(script, each.node, each.context, depth + 1)


def _called_owners(script: Script, node: ast.Call, context: Context | None, depth: int) -> Iterator[Values]:
    name = last_name(node.func)
    if name in ("parameters", "named_parameters") and isinstance(node.func, ast.Attribute):
        values = script.values(node.func.value, context)
        yield values if values else frozenset({UNKNOWN})
        return
    callees = script.program.callee_names(node)
    if callees == ["torch.nn.Parameter"]:
        yield script.values(node, context)
    elif set(callees) & {"itertools.chain", "builtins.list", "builtins.tuple", "builtins.iter", "builtins.dict"}:
        for given in (*node.args, *(each.value for each in node.keywords if each.arg == "params")):
            yield from _nested(script, given, context, depth)
    elif "builtins.filter" in callees and len(node.args) == 2:
        yield from _nested(script, node.args[1], context, depth)
    else:
        yield frozenset({UNKNOWN})


@lru_cache(maxsize=4)
def optimizers(script: Script) -> tuple[CallSite, ...]:
    """Calls that make optimizers."""
    found = []
    for function in script.program.functions:
        for call in function.calls:
            for name in script.program.callee_names(call):
                last = name.rpartition(".")[2]
                known = name.startswith(names.OPTIMIZERS) and not name.startswith(names.SCHEDULERS)
                if known and last[:1].isupper() and (name.count(".") == 2 or "optimizers" in name):
                    found.append(CallSite(name, call, function))
    return tuple(found)


def values_of(values: Values) -> list[Value]:
    """Without displays: what a set of values stands for."""
    return [each for each in values if not isinstance(each, Elements | Mapping)]


def wrapper_sites(script: Script, wrapper: Object) -> list[Wrapper]:
    """Wrappers that a DDP object was made by."""
    return [each for each in script.wrappers if each.site.node is wrapper.call]
