"""`torch.load` puts tensors on the device from which they were saved.

What it does:
    Looks for `torch.load` without `map_location` on ranks that run on GPUs.

Why is this bad:
    A checkpoint that rank 0 saved holds tensors of `cuda:0`. Every rank that loads it allocates them there: the first
    GPU holds one copy and one CUDA context for each rank, and runs out of memory.

Repair:
    `torch.load(path, map_location="cpu")`, or the device of the rank.

Fix safety:
    Safe: `load_state_dict` copies from any device. Code that uses the loaded tensors themselves finds them on the CPU.

Known problems:
    Files that hold no tensors of a GPU are harmless; reading does not show what a file holds.

References:
    F98. https://docs.pytorch.org/docs/stable/generated/torch.load.html
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.check.edits import add_keyword
from paceline.check.rule import Rule, Violation
from paceline.check.script import Script


class LoadWithoutMapLocation(Rule):
    """Loads onto the device of the rank that saved."""

    code, name, topic = "DP081", "load-without-map-location", "files"
    faults = ("F98",)
    severity = "warning"
    fixes = True
    valid = {
        "to the CPU": """
            dist.init_process_group("nccl")
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            state = torch.load("model.pt", map_location="cpu")
        """,
        "a dictionary of arguments": """
            dist.init_process_group("nccl")
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            options = {"map_location": "cpu"}
            state = torch.load("model.pt", **options)
        """,
    }
    invalid = {
        "on every rank": """
            dist.init_process_group("nccl")
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            state = torch.load("model.pt")  # here
        """,
        "a trailing comma": """
            dist.init_process_group("nccl")
            model = DDP(nn.Linear(2, 1).cuda())
            state = torch.load(  # here
                "model.pt",
                weights_only=True,
            )
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.uses_gpu:
            return
        for site in script.calls("torch.load"):
            if script.argument(site.node, "map_location", 1).absent:
                yield Violation(
                    site.node,
                    "torch.load without map_location puts the tensors of every rank on the GPU that saved them",
                    'pass map_location="cpu", or the device of the rank',
                    edits=(add_keyword(site.node, 'map_location="cpu"', site.module.source.text),),
                )
