"""Gradients and parameters that a script averages or sends between ranks itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from paceline.check.analyses.script import Script
from paceline.syntax.module_index import last_name
from paceline.syntax.reaching_definitions import Kind

_REDUCES_GRADIENTS = re.compile(r"(average|reduce|sync|aggregate|mean).*grad|grad.*(average|reduce|sync|aggregate)")
_REDUCING = tuple(f"torch.distributed.{each}" for each in (
    "all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor", "all_gather",
    "all_gather_into_tensor", "gather",
))  # fmt: skip
_KEEPS_TENSORS = frozenset(
    ["cat", "stack", "list", "tuple", "zip", "chain", "enumerate", "parameters_to_vector", "flatten", "view", "reshape",
     "contiguous", "clone", "detach", "values", "items", "_flatten_dense_tensors", "filter", "map", "to", "div", "div_",
     "float", "ravel", "flatten_dense_tensors"]
)  # fmt: skip


@lru_cache(maxsize=4)
def reduces_by_hand(script: Script) -> bool:
    """True if the script averages gradients or parameters itself."""
    if any(site.node.args and gives_gradients(script, site.node.args[0]) for site in script.calls(*_REDUCING)):
        return True
    return any(
        _REDUCES_GRADIENTS.search(last_name(call.func).lower())
        for function in script.program.functions
        for call in function.calls
    )


def synchronizes_parameters(script: Script) -> bool:
    """True if the script sends parameters from one rank to the others."""
    broadcasts = script.calls("torch.distributed.broadcast", "torch.distributed._broadcast_coalesced")
    return any(site.node.args and gives_gradients(script, site.node.args[0]) for site in broadcasts)


def gives_gradients(script: Script, node: ast.expr) -> bool:
    """True if an argument of a collective is made of gradients or parameters of a model."""
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
