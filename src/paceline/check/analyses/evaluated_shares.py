"""Loops that evaluate a share of the data on each rank, and lists that they fill."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.rank_shares import distributed_samplers, may_depend, samplers
from paceline.check.analyses.script import Loader, Script


def is_share(script: Script, loader: Loader) -> bool:
    """True if a loader holds a share of data that the script evaluates."""
    if script.trains_on(loader) or not script.evaluates(loader):
        return False
    return bool(distributed_samplers(samplers(script, loader))) or may_depend(script, [loader.made.call])


def loader_around(script: Script, call: ast.Call) -> Loader | None:
    """The loader of the evaluation loop around a call, if it holds a share of the data."""
    for at in script.function_of(call).module.ancestors(call):
        if isinstance(at, ast.For):
            values = script.iterated(at)
            found = (loader for loader in script.loaders if loader.made in values)
            return next((each for each in found if is_share(script, each)), None)
    return None


def appended(script: Script, node: ast.Name) -> Iterator[ast.Call]:
    """Calls that append to a list in the function in which it is read."""
    for call in script.function_of(node).calls:
        receiver = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "append" else None
        if isinstance(receiver, ast.Name) and receiver.id == node.id:
            yield call
