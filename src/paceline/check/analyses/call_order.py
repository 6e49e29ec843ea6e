"""Which of two places of a script runs first, and which places run between training steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.script import Script
from paceline.syntax.module_index import Function
from paceline.syntax.program import CallSite

_DEPTH = 4
Place = tuple[int, int]
"""Line and column."""


def runs_after(script: Script, node: ast.AST, site: CallSite | ast.AST) -> bool:
    """True if a node runs behind a call, as far as one function shows both or the calls that lead to them.

    Unknown orders count as behind, and so do those of two methods of one class.
    """
    places = shared_places(script, node, site.node if isinstance(site, CallSite) else site)
    return places is None or max(places[0]) >= min(places[1])


def runs_later(script: Script, node: ast.AST, other: ast.AST) -> bool:
    """Likewise, but for a later place than that from which the other node is reached."""
    places = shared_places(script, node, other)
    return places is None or max(places[0]) > min(places[1])


def runs_again_after(script: Script, node: ast.AST, other: ast.AST) -> bool:
    """True if a node certainly runs, maybe once more, when the other one is done."""
    places = shared_places(script, node, other)
    return places is not None and max(places[0]) > max(places[1])


def in_one_run(script: Script, node: ast.AST, other: ast.AST) -> bool:
    """True if one function, or one class, certainly leads to both nodes: two tests of a file do not meet."""
    first, second = script.function_of(node), script.function_of(other)
    same_class = first.cls is not None and first.cls is second.cls
    return same_class or shared_places(script, node, other) is not None


def shared_places(script: Script, node: ast.AST, other: ast.AST) -> tuple[set[Place], set[Place]] | None:
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
        place = _place(at)
        if place in places:
            continue
        places.add(place)
        queue += [(call, depth + 1) for _, call in script.program.evaluator.call_sites(function)]
    return found


def _place(node: ast.AST) -> Place:
    """Where a node runs: a call at its end, behind its arguments and, in `Trainer(model).fit()`, the call before it."""
    if isinstance(node, ast.Call):
        return node.end_lineno or 0, node.end_col_offset or 0
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def runs_in_a_loop(script: Script, node: ast.AST) -> bool:
    """True if a loop stands around a node, or around a call that leads to it."""
    return any(True for _ in _loops_around(script, node))


def repeats_with_training(script: Script, node: ast.AST) -> bool:
    """True if a node runs between training steps: a loop around it, or around a call that leads to it, trains.

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
    """True if a backward pass runs within a node."""
    reached = script.loops.reached_calls(outer, script.function_of(outer))
    return any(script.loops.is_backward(each.node) for each in reached)
