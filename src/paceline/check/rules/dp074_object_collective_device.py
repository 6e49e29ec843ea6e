"""Object collectives run under NCCL, and no rank has chosen its GPU.

What it does:
    Looks for `all_gather_object`, `broadcast_object_list` and the like in scripts whose process group uses NCCL and
    that never call `torch.cuda.set_device` or give a device.

Why is this bad:
    Under NCCL pickled objects travel through tensors on the current GPU. Without `set_device` that is GPU 0 for every
    rank: NCCL reports a duplicate GPU, or hangs.

Repair:
    `torch.cuda.set_device(local_rank)` before the first collective.

Known problems:
    A device that is chosen by CUDA_VISIBLE_DEVICES outside of the script makes the code right.

References:
    F88. https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather_object
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation

_OBJECTS = tuple(
    f"torch.distributed.{name}"
    for name in ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")
)
_CHOOSE = (
    "torch.cuda.set_device",
    "torch.cuda.device",
    "torch.set_default_device",
    "torch.accelerator.set_device_index",
)


class ObjectCollectiveDevice(Rule):
    """Object collectives without a device."""

    code, name, topic = "DP074", "object-collective-device", "control flow"
    faults = ("F88",)
    severity = "warning"
    valid = {
        "set_device": """
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            dist.init_process_group("nccl")
            names = [None] * dist.get_world_size()
            dist.all_gather_object(names, "a")
        """,
        "gloo": """
            dist.init_process_group("gloo")
            names = [None] * dist.get_world_size()
            dist.all_gather_object(names, "a")
        """,
        "a device of the process group": """
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            dist.init_process_group("nccl", device_id=device)
            names = [None] * dist.get_world_size()
            dist.all_gather_object(names, "a")
        """,
    }
    invalid = {
        "names of all ranks": """
            dist.init_process_group(backend="nccl")
            names = [None] * dist.get_world_size()
            dist.all_gather_object(names, "a")  # here
        """,
        "a run directory": """
            def share(value):
                values = [value]
                dist.broadcast_object_list(values, src=0)  # here
                return values[0]

            def main():
                dist.init_process_group("nccl")
                directory = share("runs/1")

            main()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        backends = [script.literals(site.node, "backend", 0) for site in script.calls(*_NCCL)]
        if not backends or any(not each or "nccl" not in each for each in backends) or _chooses(script):
            return
        for site in script.calls(*_OBJECTS):
            if not script.paths.to(site.node):
                continue  # a function that nothing calls here
            if script.argument(site.node, "device").absent and script.argument(site.node, "group").absent:
                yield Violation(
                    site.node,
                    f"{site.name.rpartition('.')[2]} sends through the current GPU, which is GPU 0 on every rank here",
                    "call torch.cuda.set_device(local_rank) before the first collective",
                )


_NCCL = ("torch.distributed.init_process_group",)


def _chooses(script: Script) -> bool:
    if any(True for _ in script.calls(*_CHOOSE)):
        return True
    if any(not script.argument(site.node, "device_id").absent for site in script.calls(*_NCCL)):
        return True
    modules = script.program.imports.modules
    return any("CUDA_VISIBLE_DEVICES" in module.source.text or "set_device" in module.source.text for module in modules)
