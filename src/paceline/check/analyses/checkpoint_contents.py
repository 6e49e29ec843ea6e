"""What `torch.save` is given: checkpoints, the state that they hold, and state that a script restores."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.check.analyses.framework_names import OPTIMIZERS, SCHEDULERS
from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import given
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function, dotted
from paceline.syntax.values import Context, Literal, Mapping, Object


@dataclass(frozen=True)
class Save:
    """The contents that one `torch.save` writes.

    Attributes:
        node: the call, or the one of `save_on_master(...)` with `torch.save(*args)` in it.
        saved: the object.
        file: its name; None if it is not shown.
        contexts: in which object and name are looked at.
    """

    node: ast.Call
    saved: ast.expr
    file: ast.expr | None
    contexts: tuple[Context | None, ...]


def saves(script: Script) -> Iterator[Save]:
    """Objects that the script saves, in order of the source."""
    for site in script.calls("torch.save"):
        paths = script.paths.to(site.node)
        if (saved := given(site.node, "obj", 0)) is not None:
            contexts = dict.fromkeys(path.context for path in paths)
            yield Save(site.node, saved, given(site.node, "f", 1), tuple(contexts) or (None,))
        elif _hands_on(site.node, site.function):
            outer = {path.frames[-2].node: path.frames[-2].context for path in paths if len(path.frames) > 1}
            for call, context in outer.items():
                if isinstance(call, ast.Call) and (saved := given(call, "obj", 0)) is not None:
                    yield Save(call, saved, given(call, "f", 1), (context,))


def _hands_on(call: ast.Call, function: Function) -> bool:
    """`def save_on_master(*args): torch.save(*args)`."""
    arguments = function.node.args if isinstance(function.node, ast.FunctionDef) else None
    first = call.args[0] if call.args else None
    return (
        arguments is not None
        and arguments.vararg is not None
        and not function.positional
        and isinstance(first, ast.Starred)
        and dotted(first.value) == arguments.vararg.arg
    )


def restores_optimizer(script: Script) -> bool:
    """True if the script restores an optimizer."""
    return any(True for _ in script.calls("torch.load")) and any(
        isinstance(value, Object) and value.name.startswith(OPTIMIZERS) and not value.name.startswith(SCHEDULERS)
        for site in script.method_calls("load_state_dict")
        if isinstance(site.node.func, ast.Attribute)
        for value in script.values(site.node.func.value)
    )


def checkpoint_entries(script: Script, mapping: Mapping) -> dict[str, ast.expr] | None:
    """Keys and values of a dictionary, with keys that are set later; None if some cannot be read."""
    found: dict[str, ast.expr] = {}
    if isinstance(mapping.node, ast.Dict):
        for key, value in zip(mapping.node.keys, mapping.node.values, strict=True):
            if not isinstance(key, ast.Constant):
                return None
            found[str(key.value)] = value
    else:
        if mapping.node.args or any(each.arg is None for each in mapping.node.keywords):
            return None
        found = {str(each.arg): each.value for each in mapping.node.keywords}
    if not mapping.name or mapping.function is None:
        return found
    for node in walk(mapping.function.node):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            statement = mapping.function.module.parents[node]
            if node.value.id == mapping.name and isinstance(statement, ast.Assign):
                keys = script.values(node.slice)
                if not all(isinstance(each, Literal) for each in keys):
                    return None
                found.update({str(each.value): statement.value for each in keys if isinstance(each, Literal)})
        elif isinstance(node, ast.Call) and dotted(node.func) == f"{mapping.name}.update":
            return None
    return found


def states_in(script: Script, value: ast.expr, context: Context | None) -> Iterator[str]:
    """Kinds of state that an entry holds."""
    for each in script.origins.of(value, context):
        node = each.node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "state_dict":
            for owner in script.values(node.func.value, each.context):
                if isinstance(owner, Object):
                    if owner.name.startswith(SCHEDULERS):
                        yield "scheduler"
                    elif owner.name.startswith(OPTIMIZERS):
                        yield "optimizer"
                    elif "GradScaler" in owner.name:
                        yield "gradient scaler"


def steps_in_training(script: Script, kind: str) -> bool:
    """True if training uses a scheduler, without the epoch in its arguments, or a scaler."""
    for site in script.method_calls("step"):
        assert isinstance(site.node.func, ast.Attribute)
        for owner in script.values(site.node.func.value):
            if isinstance(owner, Object):
                if kind == "scheduler" and owner.name.startswith(SCHEDULERS):
                    if _rests_in_optimizer(script, owner):
                        continue
                    return script.argument(owner, "last_epoch").absent and not site.node.args
                if kind == "gradient scaler" and "GradScaler" in owner.name:
                    return script.argument(owner, "enabled").absent
    return False


def _rests_in_optimizer(script: Script, scheduler: Object) -> bool:
    """True if the learning rate, which the optimizer holds, is all that a schedule goes on from."""
    name = scheduler.name.removeprefix(SCHEDULERS)
    return name == "ExponentialLR" or (name == "StepLR" and script.literals(scheduler, "step_size", 1) == {1})
