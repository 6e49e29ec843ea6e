"""All ranks use the same GPU.

What it does:
    Looks for moves of models and tensors to GPU 0, or to the current GPU where nothing binds a GPU to each process, on
    a path through the script that all ranks take.

Why is this bad:
    Every rank allocates on the first GPU. NCCL refuses it ("Duplicate GPU detected"), or the memory of that GPU runs
    out while the others idle.

Repair:
    `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before any other use of CUDA, and `.cuda()` or
    `torch.device("cuda", local_rank)`.

Known problems:
    A launcher that shows each process one GPU only makes `cuda:0` right; set CUDA_VISIBLE_DEVICES there.

References:
    F105. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.check.analyses.cuda_devices import DeviceUse, binds_devices, device_uses, helpers_may_bind, indices
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation


class OneDeviceForAll(Rule):
    """GPU 0 on every rank."""

    code, name, topic = "DP088", "one-device-for-all", "launch"
    faults = ("F105",)
    severity = "warning"
    valid = {
        "a device of each process": """
            dist.init_process_group("nccl")
            local_rank = int(os.environ["LOCAL_RANK"])
            torch.cuda.set_device(local_rank)
            model = DDP(nn.Linear(2, 1).cuda(), device_ids=[local_rank])
        """,
        "the device in an attribute": """
            class Trainer:
                def __init__(self, gpu):
                    self.device = torch.device("cuda", gpu)
                    self.model = DDP(nn.Linear(2, 1).to(self.device))

            dist.init_process_group("nccl")
            Trainer(dist.get_rank() % torch.cuda.device_count())
        """,
        "the CPU": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1).to("cpu"))
        """,
        "rank 0 alone uses its GPU": """
            dist.init_process_group("gloo")
            if dist.get_rank() == 0:
                nn.Linear(2, 1).to("cuda:0")
        """,
    }
    invalid = {
        "cuda:0": """
            dist.init_process_group("nccl")
            device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
            model = DDP(nn.Linear(2, 1).to(device))  # here
        """,
        "the current GPU, which nobody sets": """
            def main():
                dist.init_process_group("nccl")
                model = DDP(nn.Linear(2, 1).cuda())  # here
                for x, y in DataLoader(Numbers(), sampler=DistributedSampler(Numbers())):
                    model(x.cuda())

            if __name__ == "__main__":
                main()
        """,
        "set_device(0)": """
            dist.init_process_group("nccl")
            torch.cuda.set_device(0)  # here
            model = DDP(nn.Linear(2, 1).cuda())
        """,
        "device_ids": """
            dist.init_process_group("nccl")
            local_rank = int(os.environ["LOCAL_RANK"])
            torch.cuda.set_device(local_rank)
            model = DDP(nn.Linear(2, 1).cuda(), device_ids=[0])  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not script.starts_group or not script.wrappers:
            return
        bound = binds_devices(script) or helpers_may_bind(script)
        isolated = any("CUDA_VISIBLE_DEVICES" in module.source.text for module in script.program.imports.modules)
        if isolated:
            return
        uses = sorted(device_uses(script), key=lambda each: (each.site.module.path, each.site.node.lineno))
        for use in uses:
            number = _number(script, use)
            if number == 0:
                yield Violation(
                    use.site.node,
                    "every rank uses GPU 0 of its node",
                    'use torch.device("cuda", int(os.environ["LOCAL_RANK"])) on each rank',
                )
                return
            if number is None and not bound:
                yield Violation(
                    use.site.node,
                    "nothing binds a GPU to each process, so the current GPU of every rank is GPU 0",
                    'call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before any other use of CUDA',
                )
                return


def _number(script: Script, use: DeviceUse) -> object:
    """The GPU that all ranks use there, None for the current one; `...` if it differs or is not shown."""
    path = script.paths.everywhere(use.site.node)
    if path is None:
        return ...
    if use.device is None:
        return None
    found = indices(script, use.device, path.context)
    if found is None or len(found) != 1 or script.origins.rest_on_rank(use.device, path.context):
        return ...
    return next(iter(found))
