"""The backend does not fit the device of the tensors.

What it does:
    Looks for collectives of CPU tensors in a script that starts NCCL alone, and for DDP on a GPU in a script that
    starts gloo alone.

Why is this bad:
    NCCL moves tensors of GPUs only: "No backend type associated with device type cpu". Gloo copies each gradient
    through the CPU, which makes training several times slower.

Repair:
    NCCL for GPUs, gloo for CPUs. `init_process_group()` without a backend starts both.

Known problems:
    Tensors are taken for CPU tensors only if the script creates them without a device and never moves them.

References:
    F120, F76. https://docs.pytorch.org/docs/stable/distributed.html#backends
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.cuda_devices import backends
from paceline.check.analyses.framework_names import DDP
from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import given
from paceline.check.rule import Rule, Violation
from paceline.syntax.program import CallSite
from paceline.syntax.values import Context, Elements, Object

_CREATES = ("torch.tensor", "torch.zeros", "torch.ones", "torch.empty", "torch.full", "torch.rand", "torch.randn",
            "torch.arange", "torch.FloatTensor", "torch.LongTensor")  # fmt: skip
_REDUCES = tuple(f"torch.distributed.{name}" for name in ("all_reduce", "broadcast", "reduce"))
_DEFAULTS = ("torch.set_default_device", "torch.set_default_tensor_type")


class BackendDevice(Rule):
    """NCCL with CPU tensors, gloo with GPUs."""

    code, name, topic = "DP097", "backend-device", "launch"
    faults = ("F120", "F76")
    severity = "error"
    valid = {
        "NCCL and a tensor on the GPU": """
            dist.init_process_group("nccl")
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            total = torch.zeros(2, device="cuda")
            dist.all_reduce(total)
            count = torch.tensor([1.0]).cuda()
            dist.all_reduce(count)
        """,
        "both backends": """
            dist.init_process_group("cpu:gloo,cuda:nccl")
            total = torch.zeros(2)
            dist.all_reduce(total)
        """,
        "the backend and the device that fit": """
            cuda = torch.cuda.is_available()
            dist.init_process_group("nccl" if cuda else "gloo")
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
            total = torch.zeros(2, device=device)
            dist.all_reduce(total)
        """,
        "a group of its own for CPU tensors": """
            dist.init_process_group("nccl")
            cpu = dist.new_group(backend="gloo")
            total = torch.zeros(2)
            dist.all_reduce(total, group=cpu)
        """,
    }
    invalid = {
        "a CPU tensor": """
            def main():
                dist.init_process_group(backend="nccl")
                total = torch.zeros(2)
                total[0] += 1
                dist.all_reduce(total)  # here

            main()
        """,
        "a tensor that is made in the call": """
            dist.init_process_group("nccl")
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

            class Meter:
                def reduce(self):
                    total = torch.tensor([self.sum, self.count], dtype=torch.float64)
                    dist.all_reduce(total)  # here
                    return total

            Meter().reduce()
        """,
        "gloo and DDP on a GPU": """
            dist.init_process_group("gloo")  # here
            local_rank = int(os.environ["LOCAL_RANK"])
            model = DDP(nn.Linear(2, 1).cuda(local_rank), device_ids=[local_rank])
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        starts = list(script.calls("torch.distributed.init_process_group"))
        if not script.plain or not starts:
            return
        found = [backends(script, each.node) for each in starts]
        if all("nccl" in each and each <= {"nccl", "gloo"} for each in found):
            if not any(True for _ in script.calls(*_DEFAULTS)):
                yield from _cpu_tensors(script, all(each == {"nccl"} for each in found))
        elif all(each == {"gloo"} for each in found):
            yield from _slow_gloo(script, starts)


def _cpu_tensors(script: Script, always: bool) -> Iterator[Violation]:
    for site in script.calls(*_REDUCES):
        tensor = given(site.node, "tensor", 0)
        if tensor is None or not script.argument(site.node, "group", 2).absent:
            continue
        path = script.paths.everywhere(site.node)
        if path is not None and _is_on_cpu(script, tensor, path.context, site):
            yield Violation(
                site.node,
                f"{ast.unparse(tensor)} is on the CPU, and NCCL moves tensors of GPUs only",
                "create the tensor on the GPU of the rank, or start the group without a backend",
                severity=None if always else "warning",
            )


def _is_on_cpu(script: Script, tensor: ast.expr, context: Context | None, site: CallSite) -> bool:
    """True if it is a new tensor that nothing puts on another device."""
    bound = _bound(script, tensor)
    values = {value for each in bound for value in script.values(each, context)}
    if not values or not all(isinstance(each, Object) and each.name in _CREATES for each in values):
        return False
    made = {each.call for each in values if isinstance(each, Object)}
    if not all(each in made for each in bound):
        return False  # moved, or made in a function
    if any(keyword.arg in ("device", None) for call in made for keyword in call.keywords):
        return False
    around = site.module.ancestors(site.node)
    return not any(isinstance(at, ast.With) and "device" in ast.unparse(at.items[0]) for at in around)


def _bound(script: Script, tensor: ast.expr) -> list[ast.expr]:
    """Expressions that the tensor is bound to, changes in place left out."""
    if not isinstance(tensor, ast.Name):
        return [tensor]
    bindings = [binding for binding, _ in script.program.evaluator.bindings(tensor)]
    return [each.value for each in bindings if each.value is not None and not isinstance(each.node, ast.AugAssign)]


def _slow_gloo(script: Script, starts: list[CallSite]) -> Iterator[Violation]:
    """DDP in a script that binds GPUs to its processes."""
    lists = [script.values(given(site.node, "device_ids", 1)) for site in script.calls(*DDP)]
    on_gpus = any(isinstance(each, Elements) for values in lists for each in values)
    binds = any(script.paths.to(site.node) for site in script.calls("torch.cuda.set_device"))
    if lists and (on_gpus or binds):
        for site in starts:
            if script.paths.everywhere(site.node) is not None:
                yield Violation(
                    site.node,
                    "gloo copies every gradient of the GPUs through the CPU, which makes training slow",
                    'start the group with "nccl"',
                    severity="info",
                    faults=("F120",),
                )
                return
