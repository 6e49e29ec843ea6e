"""Training losses whose gradients bypass the wrapper that would average them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from paceline.check.analyses.call_order import runs_after
from paceline.check.analyses.framework_names import DDP, SYNC_BATCH_NORM
from paceline.check.analyses.gradients_by_hand import reduces_by_hand
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.training_loops import Reached, TrainingLoop
from paceline.check.analyses.value_origins import calls_behind
from paceline.check.analyses.wrapped_models import PREPARE, bypass_kind, may_be_wrapped, unwraps
from paceline.syntax.module_index import dotted
from paceline.syntax.values import Context, Located

_MAKES_MODELS = (*DDP, *PREPARE, SYNC_BATCH_NORM, "torch.compile", "copy.deepcopy", "builtins.isinstance",
                 "builtins.hasattr", "builtins.getattr", "builtins.len", "builtins.print")  # fmt: skip
"""Calls that are given a wrapper and run no forward of it."""
_NO_FORWARD = frozenset(
    ["parameters", "named_parameters", "buffers", "named_buffers", "state_dict", "modules", "children", "named_modules",
     "train", "eval", "zero_grad", "to", "cuda", "cpu", "requires_grad_", "get_parameter"]
)  # fmt: skip
"""Methods of modules that compute nothing."""


@dataclass(frozen=True)
class Bypass:
    """A forward pass that bypasses DDP, and whose result reaches a backward pass.

    Attributes:
        node: the call.
        kind: `module` if it goes through `.module` or an unwrapping function, `variable` if through the variable that
            was wrapped.
        base: the expression of the model within it.
        loop: in which the backward pass runs; None for a method that a Trainer calls.
    """

    node: ast.Call
    kind: str
    base: ast.expr
    loop: TrainingLoop | None


@lru_cache(maxsize=4)
def bypasses(script: Script) -> tuple[Bypass, ...]:
    """Forward passes of training that bypass every wrapper."""
    return tuple(_bypasses(script))


def _bypasses(script: Script) -> Iterator[Bypass]:
    if reduces_by_hand(script):
        return
    reported: set[ast.AST] = set()
    for loop in script.loops.training:
        if not loop.steps:
            continue
        found: list[Bypass] = []
        through_wrapper = False
        for backward in loop.backwards:
            for loss, context in losses(script, backward):
                calls = calls_behind(script, loss, context)
                if any(_uses_wrapper(script, each) for each in calls):
                    through_wrapper = True
                    break
                found += [each for call in calls if (each := _bypass(script, call, loop)) is not None]
        if through_wrapper:
            continue
        for each in found:
            if each.node not in reported and script.where(each.node) is Ranks.ALL:
                reported.add(each.node)
                yield each


def losses(script: Script, backward: Reached) -> Iterator[tuple[ast.expr, Context | None]]:
    """Tensors that a backward pass starts from, in the context of the calls that lead to it."""
    call = backward.node
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Attribute)
    names = script.program.callee_names(call)
    framework = any(name.startswith(("accelerate.", "lightning.", "torch.autograd.")) for name in names)
    loss = call.args[0] if call.args and (framework or _is_engine(call)) else call.func.value
    context: Context | None = None
    evaluator = script.program.evaluator
    for index, outer in enumerate(backward.path):
        target = evaluator.home(backward.path[index + 1]) if index + 1 < len(backward.path) else backward.function
        inner = [at for function, at in evaluator.callees(outer, context) if function is target]
        if not inner:
            return
        context = inner[0]
    yield loss, context


def _is_engine(call: ast.Call) -> bool:
    """`accelerator.backward(loss)`, also where the engine comes from elsewhere."""
    assert isinstance(call.func, ast.Attribute)
    return any(part in dotted(call.func.value).lower() for part in ("accelerator", "fabric", "engine", "autograd"))


def _uses_wrapper(script: Script, call: Located) -> bool:
    """True if a call goes through a wrapper: calls it, or hands it to a function that is not part of the script."""
    node = call.node
    assert isinstance(node, ast.Call)
    func = node.func
    if isinstance(func, ast.Attribute) and func.attr in ("forward", "__call__"):
        func = func.value
    if unwraps(script, func, call.context) or unwraps(script, node, call.context):
        return False
    if may_be_wrapped(script, func, call.context):
        return True
    if script.program.evaluator.callees(node, call.context):
        return False
    if any(name in _MAKES_MODELS for name in script.program.callee_names(node)):
        return False
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    return any(may_be_wrapped(script, each, call.context) and not unwraps(script, each, call.context) for each in given)


def _bypass(script: Script, call: Located, loop: TrainingLoop) -> Bypass | None:
    node = call.node
    assert isinstance(node, ast.Call)
    if isinstance(node.func, ast.Attribute) and node.func.attr in _NO_FORWARD:
        return None
    at: ast.expr = node.func
    while True:
        kind = bypass_kind(script, at, call.context)
        if kind:
            break
        if not isinstance(at, ast.Attribute):
            return None
        at = at.value
    method = script.function_of(node)
    if method.cls is not None and dotted(at) == method.positional[0]:
        return None  # within the model itself
    wrappers = script.wrappers
    if kind == "variable" and wrappers and not any(runs_after(script, loop.node, each.site) for each in wrappers):
        return None
    return Bypass(node, kind, at, loop)
