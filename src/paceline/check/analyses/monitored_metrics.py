"""Metrics that Lightning monitors and that each rank logs for itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import LIGHTNING
from paceline.check.analyses.script import Script
from paceline.syntax.module_index import last_name
from paceline.syntax.program import CallSite
from paceline.syntax.values import Literal, Object

_MONITORS = frozenset(("ModelCheckpoint", "EarlyStopping", "BackboneFinetuning"))
_SEVERAL = ("ddp", "fsdp", "deepspeed", "horovod")


def logged_by_each_rank(script: Script) -> Iterator[tuple[CallSite, str]]:
    """`self.log("val_loss", value)` without `sync_dist=True` of a metric that a callback or a scheduler monitors."""
    if "lightning" not in script.engines or not _several_devices(script):
        return
    monitored = _monitored(script)
    for site in script.method_calls("log"):
        cls = site.function.cls
        if cls is None or not any(each in LIGHTNING for each in script.program.evaluator.external_bases(cls)):
            continue
        names = script.literals(site.node, "name", 0) or set()
        synchronized = script.argument(site.node, "sync_dist")
        local = synchronized.absent or script.literals(site.node, "sync_dist") == {False}
        for name in sorted(str(each) for each in names & monitored):
            if local and not _is_metric(script, site.node):
                yield site, name


def _several_devices(script: Script) -> bool:
    for site in script.calls("lightning.Trainer"):
        strategy = script.literals(site.node, "strategy") or set()
        devices = script.literals(site.node, "devices") or set()
        if any(str(each).startswith(_SEVERAL) for each in strategy):
            return devices != {1}
        if any(isinstance(each, int) and (each > 1 or each == -1) for each in devices):
            return True
    return False


def _monitored(script: Script) -> set[object]:
    found: set[object] = set()
    for function in script.program.functions:
        for call in function.calls:
            if last_name(call.func) in _MONITORS:
                found |= script.literals(call, "monitor", 0) or set()
                found |= script.literals(call, "monitor", 2) or set()
        for statement in function.returns:
            if isinstance(statement.value, ast.Dict):
                found |= _entry(script, statement.value)
    return {each for each in found if isinstance(each, str)}


def _entry(script: Script, node: ast.Dict) -> set[object]:
    """The value of `monitor` in a dictionary, also in one within it."""
    found: set[object] = set()
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(value, ast.Dict):
            found |= _entry(script, value)
        elif isinstance(key, ast.Constant) and key.value == "monitor":
            found |= {each.value for each in script.values(value) if isinstance(each, Literal)}
    return found


def _is_metric(script: Script, call: ast.Call) -> bool:
    """True if a metric of torchmetrics is logged, which synchronizes itself, or something that may be one."""
    given = script.argument(call, "value", 1).given
    for each in given:
        if isinstance(each.node, ast.Attribute):
            return True
        if any(isinstance(v, Object) and v.name.startswith("torchmetrics.") for v in script.values(each.node)):
            return True
    return not given
