"""The script chooses visible GPUs itself, the same ones on every rank.

What it does:
    Looks for assignments of `CUDA_VISIBLE_DEVICES` in code that every rank runs, with a value that is the same on all
    ranks.

Why is this bad:
    With one GPU in the list every rank uses that GPU, or fails at `set_device`. A longer list takes effect only before
    the first use of CUDA, and hides GPUs that the launcher counts on.

Repair:
    Remove the line, and set the variable where the job is launched.

Known problems:
    Scripts that start their own processes may limit them in this way, and are left out.

References:
    F106, F105. https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.cuda_devices import environment_stores
from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import given
from paceline.check.rule import Rule, Violation
from paceline.syntax.values import Literal


class VisibleDevices(Rule):
    """CUDA_VISIBLE_DEVICES in the script."""

    code, name, topic = "DP089", "visible-devices", "launch"
    faults = ("F106", "F105")
    severity = "warning"
    valid = {
        "one GPU for each rank": """
            os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]
            dist.init_process_group("nccl")
            model = DDP(nn.Linear(2, 1).cuda())
        """,
        "no GPU at all": """
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
        """,
        "before the script starts its processes": """
            def worker(rank):
                dist.init_process_group("nccl", rank=rank, world_size=2)
                torch.cuda.set_device(rank)

            if __name__ == "__main__":
                os.environ["CUDA_VISIBLE_DEVICES"] = "2,3"
                mp.spawn(worker, nprocs=2)
        """,
    }
    invalid = {
        "one GPU for all": """
            os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # here
            dist.init_process_group("nccl")
            model = DDP(nn.Linear(2, 1).cuda())
        """,
        "one GPU for each rank, and its number once more": """
            os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]  # here
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            dist.init_process_group("nccl")
        """,
        "a list from the arguments": """
            def main():
                parser = argparse.ArgumentParser()
                parser.add_argument("--gpus")
                args = parser.parse_args()
                os.environ["CUDA_VISIBLE_DEVICES"] = args.gpus  # here
                dist.init_process_group("nccl")
                model = DDP(nn.Linear(2, 1).cuda())

            main()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not script.starts_group or script.paths.starts_processes:
            return
        for statement, value in environment_stores(script, "CUDA_VISIBLE_DEVICES"):
            path = script.paths.everywhere(statement)
            if path is None:
                continue
            if script.origins.rest_on_rank(value, path.context):
                yield from _counted_twice(script, statement)
                continue
            texts = [str(each.value) for each in script.values(value, path.context) if isinstance(each, Literal)]
            if any(text in ("", "-1") for text in texts):
                continue
            one = len(texts) == 1 and texts[0].isdigit()
            yield Violation(
                statement,
                "every rank sets CUDA_VISIBLE_DEVICES to the same value"
                + (
                    ": all ranks see one GPU, the same one" if one else ", which hides GPUs that the launcher counts on"
                ),
                "remove the line, and set the variable where the job is launched",
                severity=None if one else "info",
            )


def _counted_twice(script: Script, statement: ast.stmt) -> Iterator[Violation]:
    """Each process sees one GPU, number 0, and the script asks for the one with the number of the rank."""
    for site in script.calls("torch.cuda.set_device"):
        device = given(site.node, "device", 0)
        if device is not None and script.paths.to(site.node) and script.origins.rest_on_rank(device):
            yield Violation(
                statement,
                f"each rank sees one GPU, which has number 0 there, but line {site.node.lineno} asks for the number of"
                " the rank",
                "remove the line, and let set_device choose the GPU",
            )
            return
