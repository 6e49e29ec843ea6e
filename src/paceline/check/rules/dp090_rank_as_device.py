"""The rank in the whole job numbers the GPU.

What it does:
    Looks for devices with the number of `dist.get_rank()` or `RANK`, without a remainder by the number of GPUs.

Why is this bad:
    On a second node ranks start at the number of GPUs of the first one. `cuda:8` does not exist there: the run fails
    with "invalid device ordinal".

Repair:
    `int(os.environ["LOCAL_RANK"])` for the device, the rank for files and data.

Known problems:
    On one node both numbers are equal. Therefore this is a warning only in scripts that name nodes.

References:
    F107, F105. https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.check.analyses.cuda_devices import device_uses, is_global_rank
from paceline.check.analyses.rank_tests import RankKind
from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import given
from paceline.check.rule import Rule, Violation

_NODES = ("nnodes", "num_nodes", "node_rank", "NODE_RANK", "SLURM_NNODES", "num_machines", "n_nodes")


class RankAsDevice(Rule):
    """Devices numbered by the rank."""

    code, name, topic = "DP090", "rank-as-device", "launch"
    faults = ("F107", "F105")
    severity = "warning"
    valid = {
        "the local rank": """
            dist.init_process_group("nccl")
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            print("nodes", os.environ.get("SLURM_NNODES"))
        """,
        "the remainder": """
            dist.init_process_group("nccl")
            device = dist.get_rank() % torch.cuda.device_count()
            model = DDP(nn.Linear(2, 1).to(device), device_ids=[device])
        """,
        "the index that mp.spawn gives": """
            def worker(rank, world):
                dist.init_process_group("nccl", rank=rank, world_size=world)
                torch.cuda.set_device(rank)

            if __name__ == "__main__":
                mp.spawn(worker, args=(2,), nprocs=2)
        """,
        "the rank is the index that mp.spawn gives": """
            def setup(rank, world):
                dist.init_process_group("nccl", rank=rank, world_size=world)

            def worker(rank, world):
                setup(rank, world)
                torch.cuda.set_device(dist.get_rank())

            if __name__ == "__main__":
                mp.spawn(worker, args=(2,), nprocs=2)
        """,
    }
    invalid = {
        "set_device": """
            parser = argparse.ArgumentParser()
            parser.add_argument("--num_nodes", type=int, default=1)
            dist.init_process_group("nccl")
            rank = dist.get_rank()
            torch.cuda.set_device(rank)  # here
        """,
        "the text of a device": """
            def main():
                rank = int(os.environ["RANK"])
                dist.init_process_group("nccl")
                device = f"cuda:{rank}"
                model = DDP(nn.Linear(2, 1).to(device))  # here

            main()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not script.starts_group or _counts_within_node(script):
            return
        texts = [module.source.text for module in script.program.imports.modules]
        several_nodes = any(word in text for text in texts for word in _NODES)
        for use in sorted(device_uses(script), key=lambda each: (each.site.module.path, each.site.node.lineno)):
            if use.device is None:
                continue
            for path in script.paths.to(use.site.node):
                if is_global_rank(script, use.device, path.context):
                    yield Violation(
                        use.site.node,
                        "the rank in the whole job numbers the GPU, which does not exist on a second node",
                        'use int(os.environ["LOCAL_RANK"]) for the device',
                        severity=None if several_nodes else "info",
                    )
                    return


def _counts_within_node(script: Script) -> bool:
    """True if the process group numbers its ranks by their index within the node, so that there is only one node."""
    ranks = (given(site.node, "rank", 4) for site in script.calls("torch.distributed.init_process_group"))
    return any(rank is not None and script.ranks.kind(rank) is RankKind.LOCAL for rank in ranks)
