"""Which GPU a script names, and how it binds one to each process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.check.analyses import framework_names as names
from paceline.check.analyses.rank_tests import RankKind
from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import given
from paceline.syntax.module_index import dotted, last_name
from paceline.syntax.program import CallSite
from paceline.syntax.values import Context, Elements, Literal, Located, Object, Value

_MAKERS = ("torch.zeros", "torch.ones", "torch.empty", "torch.full", "torch.tensor", "torch.rand", "torch.randn",
           "torch.arange", "torch.eye", "torch.as_tensor")  # fmt: skip
_HELPERS = ("device", "init_dist", "dist_init", "setup", "distributed", "init_process", "launch")
MAX_DEPTH = 6


@dataclass(frozen=True)
class DeviceUse:
    """A place where a script chooses a GPU.

    Attributes:
        device: the expression that names it; None for the current device (`model.cuda()`).
    """

    site: CallSite
    device: ast.expr | None


def device_uses(script: Script) -> Iterator[DeviceUse]:
    """Moves of models and tensors, devices of new tensors and of DDP, and the choice of the current device."""
    for site in script.method_calls("cuda"):
        if not dotted(site.node.func).startswith("torch.cuda"):
            yield DeviceUse(site, given(site.node, "device", 0))
    for site in script.method_calls("to"):
        if (device := given(site.node, "device", 0)) is not None:
            yield DeviceUse(site, device)
    for site in script.calls("torch.cuda.set_device"):
        if (device := given(site.node, "device", 0)) is not None:
            yield DeviceUse(site, device)
    for site in script.calls(*_MAKERS):
        if (device := _keyword(site.node, "device")) is not None:
            yield DeviceUse(site, device)
    for site in script.calls(*names.DDP):
        listed = given(site.node, "device_ids", 1)
        for value in script.values(listed) if listed is not None else ():
            if isinstance(value, Elements) and len(value.node.elts) == 1:
                yield DeviceUse(site, value.node.elts[0])


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


def binds_devices(script: Script) -> bool:
    """True if the script may bind each process to a GPU of its own: by any of the usual calls and variables."""
    if any(True for _ in script.calls("torch.cuda.set_device", "torch.cuda.device", "torch.set_default_device")):
        return True
    if any(script.argument(site.node, "device_id").given for site in script.calls(*names.START)):
        return True
    texts = [module.source.text for module in script.program.imports.modules]
    return any(
        word in text
        for text in texts
        for word in ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "local_rank", "SLURM_LOCALID", "device_count()", "deepspeed")
    )


def helpers_may_bind(script: Script) -> bool:
    """True if a function of another package may choose the GPU: `utils.get_device()`, `init_distributed_mode(args)`."""
    for function in script.program.functions:
        for call in function.calls:
            name = last_name(call.func).lower()
            if not any(part in name for part in _HELPERS) or script.program.evaluator.callees(call):
                continue
            known = script.program.callee_names(call)
            if not known or not all(each.startswith(("torch.", "builtins.")) for each in known):
                return True
    return False


def indices(script: Script, device: ast.expr, context: Context | None) -> set[object] | None:
    """Numbers of the GPUs that a device can be; None in the set for the current one. None if it is not shown.

    The CPU is left out: `"cuda:0" if torch.cuda.is_available() else "cpu"` gives 0.
    """
    found: set[object] = set()
    for value in script.values(device, context):
        each = _index(script, value)
        if each is ...:
            return None
        if each != "cpu":
            found.add(each)
    return found


def _index(script: Script, value: Value) -> object:
    """The number of a device, None for the current GPU, `cpu`, or `...` if it is not shown."""
    if isinstance(value, Literal):
        if isinstance(value.value, int) and not isinstance(value.value, bool):
            return value.value
        if isinstance(value.value, str):
            name, _, digits = value.value.partition(":")
            if name == "cuda":
                return int(digits) if digits.isdigit() else None
            return "cpu" if name == "cpu" else ...
        return ...
    if isinstance(value, Object) and value.name == "torch.device":
        kinds = script.program.argument_values(value, "type", 0)
        numbers = script.program.argument_values(value, "index", 1)
        if len(kinds) != 1 or len(numbers) > 1:
            inner = {_index(script, each) for each in kinds} - {"cpu"}
            return inner.pop() if len(inner) == 1 and not numbers else ...
        kind = _index(script, next(iter(kinds)))
        if not numbers:
            return kind
        number = next(iter(numbers))
        return _index(script, number) if kind is None else ...
    return ...


def is_global_rank(script: Script, device: ast.expr, context: Context | None) -> bool:
    """True if a device is numbered by the rank in the whole job: `cuda:{rank}` with `rank = dist.get_rank()`."""
    return any(
        script.ranks.kind(each.node, each.context) is RankKind.GLOBAL and _comes_from_rank(script, each)
        for each in _numbers(script, Located(device, context))
    )


def _comes_from_rank(script: Script, number: Located) -> bool:
    """True if the value of the rank is shown, and no remainder of it is taken on the way."""
    origins = script.origins.of(number.node, number.context)
    if any(isinstance(each.node, ast.BinOp) and isinstance(each.node.op, ast.Mod | ast.Sub) for each in origins):
        return False
    return any(
        script.ranks.kind(each.node, each.context) is RankKind.GLOBAL
        for each in origins
        if isinstance(each.node, ast.Call | ast.Subscript)
    )


def _numbers(script: Script, device: Located, depth: int = 0) -> Iterator[Located]:
    """The expression that numbers a device: `rank` of `rank`, `torch.device("cuda", rank)` and `f"cuda:{rank}"`."""
    node, context = device.node, device.context
    if depth > MAX_DEPTH:
        return
    inner: list[ast.expr] = []
    match node:
        case ast.Name() | ast.Attribute() if script.ranks.kind(node, context) is not RankKind.NONE:
            yield device
        case ast.Name() | ast.Attribute():
            for each in script.origins.step(device):
                yield from _numbers(script, each, depth + 1)
        case ast.Call() if script.ranks.kind(node, context) is not RankKind.NONE:
            yield device
        case ast.Call(func=ast.Attribute(value=ast.Constant(), attr="format")):
            inner = node.args
        case ast.Call() if set(script.program.callee_names(node)) & {"torch.device", "builtins.str", "builtins.int"}:
            inner = node.args[-1:]
        case ast.JoinedStr():
            inner = [each.value for each in node.values if isinstance(each, ast.FormattedValue)]
        case ast.BinOp(left=ast.Constant(value=str())):
            inner = [node.right]
        case ast.IfExp():
            inner = [node.body, node.orelse]
    for part in inner:
        yield from _numbers(script, Located(part, context), depth + 1)


def backends(script: Script, call: ast.Call) -> set[object]:
    """Backends that a process group can have, as far as they are shown."""
    return script.literals(call, "backend", 0) or set()


def environment_stores(script: Script, *variables: str) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """Assignments of environment variables, with the value: `os.environ["MASTER_PORT"] = ...`."""
    for module in {function.module: None for function in script.program.functions}:
        for environ in module.loads_by_name.get("environ", ()):
            item = module.parents.get(environ)
            statement = module.parents.get(item) if item is not None else None
            if (
                isinstance(item, ast.Subscript)
                and isinstance(item.ctx, ast.Store)
                and isinstance(statement, ast.Assign)
                and isinstance(item.slice, ast.Constant)
                and item.slice.value in variables
            ):
                yield statement, statement.value
