"""A tensor on the CPU is given to a collective of NCCL.

What it does:
    Looks for collectives over tensors that are made of numbers without `device=`, in scripts that start NCCL.

Why is this bad:
    NCCL communicates between GPUs alone: the call raises "No backend type associated with device type cpu". Scripts
    that were tried with gloo on a CPU fail at their first metric on GPUs.

Repair:
    `torch.tensor(value, device=device)`, or `init_process_group("cpu:gloo,cuda:nccl")`.

Known problems:
    Tensors that come from functions of other packages are left out. Scripts that start NCCL on GPUs and gloo elsewhere
    are right on a CPU, so they get a warning.

References:
    F76, F120. https://docs.pytorch.org/docs/stable/distributed.html#backends
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.rank_shares import arguments_for
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import last_name
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import Instance

_POSITIONS = {
    "all_reduce": (0, 2),
    "reduce": (0, 3),
    "broadcast": (0, 2),
    "gather": (0, 3),
    "all_gather": (1, 2),
    "all_gather_into_tensor": (1, 2),
}
"""Where collectives take the tensor and the group."""
_MADE_OF_SIZES = ("zeros", "ones", "full", "empty", "arange", "rand", "randn", "randint", "Tensor", "FloatTensor",
                  "LongTensor", "IntTensor")  # fmt: skip
_SAME_DEVICE = ("float", "double", "long", "int", "clone", "detach", "view", "reshape", "unsqueeze", "squeeze")
_DEFAULTS = ("set_default_device", "set_default_tensor_type")


class MetricOnWrongDevice(Rule):
    """Collectives of NCCL that get a tensor on the CPU."""

    code, name, topic = "DP064", "metric-on-wrong-device", "evaluation"
    faults = ("F76", "F120")
    severity = "error"
    valid = {
        "on the GPU": """
            dist.init_process_group("nccl")
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            total = torch.tensor([1.0, 2.0], device=device)
            dist.all_reduce(total)
            count = torch.tensor(3.0)
            count = count.to(device)
            dist.all_reduce(count)
        """,
        "gloo": """
            dist.init_process_group("gloo")
            total = torch.tensor([1.0, 2.0])
            dist.all_reduce(total)
        """,
        "a group of gloo": """
            dist.init_process_group("nccl")
            cpu = dist.new_group(backend="gloo")
            total = torch.tensor([1.0, 2.0])
            dist.all_reduce(total, group=cpu)
        """,
    }
    invalid = {
        "a number": """
            dist.init_process_group("nccl")
            correct = 3
            total = torch.tensor([correct, 5.0])
            dist.all_reduce(total)  # here
        """,
        "in a helper": """
            def mean(value):
                value = torch.tensor(float(value))
                dist.all_reduce(value)  # here
                return value / dist.get_world_size()

            dist.init_process_group(backend="nccl", init_method="env://")
            mean(0.5)
        """,
        "NCCL where there are GPUs": """
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
            correct = seen = 0
            correct += 3
            counts = torch.tensor([correct, seen], dtype=torch.float64)
            dist.all_reduce(counts)  # here
        """,
        "zeros that are gathered": """
            dist.init_process_group("nccl")
            parts = [torch.zeros(2) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, torch.ones(2))  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        backends = _backends(script)
        if "nccl" not in backends:
            return
        for name, (position, group) in _POSITIONS.items():
            for site in script.calls(f"torch.distributed.{name}"):
                given = script.argument(site.node, "tensor", position).given
                if not given or not script.argument(site.node, "group", group).absent:
                    continue
                if (made := _on_cpu(script, given[0].node)) is not None:
                    yield Violation(
                        site.node,
                        f"the tensor that line {made.lineno} makes is on the CPU, and NCCL takes tensors on GPUs "
                        "alone, so this call raises",
                        "make the tensor with device=, the GPU of the rank",
                        severity=None if backends == {"nccl"} else "warning",
                    )


def _backends(script: Script) -> set[object]:
    """Backends that the script starts; none if reading does not show them, or if tensors are made on another device."""
    backends: set[object] = set()
    for site in script.calls("torch.distributed.init_process_group"):
        literals = script.literals(site.node, "backend", 0)
        if literals is None:
            return set()
        backends |= literals
    texts = (module.source.text for module in script.program.imports.modules)
    return set() if any(each in text for text in texts for each in _DEFAULTS) else backends


def _on_cpu(script: Script, node: ast.expr, depth: int = 6) -> ast.Call | None:
    """The call that makes a tensor on the CPU, if the expression certainly is one."""
    if depth == 0:
        return None
    match node:
        case ast.Call():
            return _made_on_cpu(script, node, depth)
        case ast.Name():
            return _all_on_cpu(script, _bound(script, node), depth)
        case ast.Attribute(value=ast.Name(id="self")):
            values = [each for each in script.values(node.value) if isinstance(each, Instance)]
            assigned = [each for value in values for each in value.cls.attributes.get(node.attr, ())]
            plain = [each.value for each in assigned if not isinstance(each.node, ast.AugAssign)]
            return _all_on_cpu(script, plain, depth)
    return None


def _bound(script: Script, node: ast.Name) -> list[ast.expr | None]:
    found: list[ast.expr | None] = []
    for binding, function in script.program.evaluator.bindings(node):
        if binding.kind is Kind.PARAMETER:
            found += arguments_for(script, function, binding.name) or [None]
            if script.program.evaluator.escapes(function):
                found.append(None)
        elif not isinstance(binding.node, ast.AugAssign):
            found.append(binding.value if binding.kind is Kind.VALUE and not binding.path else None)
    return found


def _all_on_cpu(script: Script, nodes: list[ast.expr | None], depth: int) -> ast.Call | None:
    made = [_on_cpu(script, each, depth - 1) if each is not None else None for each in nodes]
    return made[0] if made and None not in made else None


def _made_on_cpu(script: Script, call: ast.Call, depth: int) -> ast.Call | None:
    names = script.program.callee_names(call)
    if names == ["torch.tensor"]:
        number = bool(call.args) and _is_number(script, call.args[0])
        return call if number and script.argument(call, "device").absent else None
    if len(names) == 1 and names[0] in {f"torch.{each}" for each in _MADE_OF_SIZES}:
        return call if script.argument(call, "device").absent else None
    if isinstance(call.func, ast.Attribute) and call.func.attr in _SAME_DEVICE:
        return _on_cpu(script, call.func.value, depth - 1)
    return None


def _is_number(script: Script, node: ast.expr, depth: int = 4) -> bool:
    """True if an expression is a Python number, or a list; a tensor would keep its device in `torch.tensor`."""
    match node:
        case ast.List() | ast.Tuple():
            return True
        case ast.Constant():
            return True
        case ast.Call():
            return last_name(node.func) in ("item", "len", "float", "int", "tolist", "time", "perf_counter", "sum")
        case ast.BinOp():
            return _is_number(script, node.left, depth) and _is_number(script, node.right, depth)
        case ast.Name() if depth:
            bound = [
                each for each, _ in script.program.evaluator.bindings(node) if not isinstance(each.node, ast.AugAssign)
            ]
            return bool(bound) and all(
                each.kind is Kind.VALUE
                and not each.path
                and each.value is not None
                and _is_number(script, each.value, depth - 1)
                for each in bound
            )
    return False
