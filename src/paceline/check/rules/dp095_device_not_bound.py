"""A barrier of NCCL runs before a GPU is bound to the process.

What it does:
    Looks for `dist.barrier()` in a script that starts NCCL without `device_id` and does not call
    `torch.cuda.set_device` before. DP074 is about collectives of objects.

Why is this bad:
    The barrier uses the current GPU, which is GPU 0 on every rank until one is set. NCCL reports duplicate GPUs, or
    hangs, and each rank keeps a context of several hundred megabytes on GPU 0.

Repair:
    `torch.cuda.set_device(local_rank)` before `init_process_group`, or `init_process_group(device_id=...)`.

Known problems:
    Scripts that see one GPU per process are right; the variable CUDA_VISIBLE_DEVICES in the script silences the rule.

References:
    F117, F105. https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.cuda_devices import backends, helpers_may_bind
from paceline.check.analyses.process_paths import runs_before
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.program import CallSite


class DeviceNotBound(Rule):
    """Collectives on the current GPU."""

    code, name, topic = "DP095", "device-not-bound", "launch"
    faults = ("F117", "F105")
    severity = "warning"
    valid = {
        "set_device first": """
            dist.init_process_group("nccl")
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            dist.barrier()
        """,
        "device_id": """
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            dist.init_process_group("nccl", device_id=device)
            dist.barrier()
        """,
        "gloo": """
            dist.init_process_group("gloo")
            dist.barrier()
        """,
        "a barrier with its device": """
            dist.init_process_group("nccl")
            dist.barrier(device_ids=[int(os.environ["LOCAL_RANK"])])
        """,
    }
    invalid = {
        "a barrier right after the start": """
            dist.init_process_group("nccl")
            dist.barrier()  # here
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        """,
        "devices by number only, in functions": """
            def setup():
                dist.init_process_group(backend="nccl")
                return torch.device("cuda", int(os.environ["LOCAL_RANK"]))

            def wait():
                if dist.is_initialized():
                    dist.barrier()  # here

            def main():
                device = setup()
                model = DDP(nn.Linear(2, 1).to(device))
                wait()

            main()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or any(
            "CUDA_VISIBLE_DEVICES" in module.source.text for module in script.program.imports.modules
        ):
            return
        starts = list(script.calls("torch.distributed.init_process_group"))
        if not starts or not all(_is_unbound_nccl(script, each) for each in starts):
            return
        if any(True for _ in script.calls("torch.cuda.device", "torch.set_default_device")) or helpers_may_bind(script):
            return
        bound = [each for site in script.calls("torch.cuda.set_device") for each in script.paths.to(site.node)]
        found = [
            (site, path)
            for site in script.calls("torch.distributed.barrier")
            if script.argument(site.node, "device_ids").absent and script.argument(site.node, "group").absent
            for path in script.paths.to(site.node)
            if path.everywhere and not any(runs_before(each, path) for each in bound)
        ]
        begun = [each for site in starts for each in script.paths.to(site.node)]
        found = [(site, path) for site, path in found if any(runs_before(each, path) for each in begun)]
        unread = any(True for _ in script.calls("torch.cuda.set_device")) and not bound
        if found and not unread:
            site = min((each for each, _ in found), key=lambda each: (each.module.path, each.node.lineno))
            yield Violation(
                site.node,
                f"{ast.unparse(site.node.func)} uses the current GPU, which is GPU 0 on every rank: nothing binds"
                " another one before",
                'call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before init_process_group',
                faults=("F117",),
            )


def _is_unbound_nccl(script: Script, site: CallSite) -> bool:
    found = backends(script, site.node)
    return "nccl" in found and found <= {"nccl", "gloo"} and script.argument(site.node, "device_id").absent
