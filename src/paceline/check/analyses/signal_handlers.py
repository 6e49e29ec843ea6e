"""Values that are set when a process gets a signal, which ranks notice at different steps."""

from __future__ import annotations

import ast
from functools import lru_cache

from paceline.check.analyses.script import Script
from paceline.check.analyses.value_spread import Cause, Origin, Spread
from paceline.syntax.module_index import Function
from paceline.syntax.values import FunctionValue


def set_by_signal(script: Script, function: Function) -> Origin | None:
    """The origin of what a function sets outside of itself; None if it is no signal handler."""
    call = _handlers(script).get(function)
    return Origin(Spread.LOCAL, Cause.DATA, call) if call is not None else None


@lru_cache(maxsize=4)
def _handlers(script: Script) -> dict[Function, ast.Call]:
    """Signal handlers, each with the call of `signal.signal` that registers it."""
    found: dict[Function, ast.Call] = {}
    for site in script.calls("signal.signal"):
        for value in script.program.argument_values(site.node, "handler", 1):
            if isinstance(value, FunctionValue):
                found.setdefault(value.function, site.node)
    return found
