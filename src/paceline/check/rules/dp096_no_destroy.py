"""The process group is never destroyed.

What it does:
    Looks for scripts that start NCCL in code that runs to its end, and never call `destroy_process_group`.

Why is this bad:
    PyTorch warns at exit that resources leak. Ranks that end at different times can hang or abort while NCCL shuts
    down, after the training itself is complete.

Repair:
    `dist.destroy_process_group()` at the end of the main function, best in `finally`.

Known problems:
    A function of another package may destroy the group.

References:
    F118. https://docs.pytorch.org/docs/stable/distributed.html#shutdown
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.check.analyses.cuda_devices import backends
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation


class NoDestroy(Rule):
    """Groups without an end."""

    code, name, topic = "DP096", "no-destroy", "launch"
    faults = ("F118",)
    severity = "info"
    valid = {
        "destroyed at the end": """
            def main():
                dist.init_process_group("nccl")
                dist.destroy_process_group()

            main()
        """,
        "gloo ends quietly": """
            dist.init_process_group("gloo")
        """,
        "a function of a library": """
            def setup():
                dist.init_process_group("nccl")
        """,
    }
    invalid = {
        "in the main function": """
            def main():
                dist.init_process_group("nccl")  # here
                model = DDP(nn.Linear(2, 1).cuda())

            if __name__ == "__main__":
                main()
        """,
        "in a helper": """
            def setup(backend="nccl"):
                dist.init_process_group(backend)  # here

            setup()
            print(dist.get_world_size())
        """,
        "the group starts in a context manager": """
            class Job:
                def __enter__(self):
                    dist.init_process_group("nccl")  # here
                    return self

                def __exit__(self, *exc):
                    pass

            with Job() as job:
                model = DDP(nn.Linear(2, 1).cuda())
                model(torch.randn(4, 2).cuda()).mean().backward()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or any(
            "destroy_process_group" in module.source.text or "cleanup" in module.source.text
            for module in script.program.imports.modules
        ):
            return
        for site in script.calls("torch.distributed.init_process_group"):
            if backends(script, site.node) == {"nccl"} and script.paths.everywhere(site.node) is not None:
                yield Violation(
                    site.node,
                    "the process group is never destroyed: PyTorch warns at exit, and NCCL may hang in shutdown",
                    "call dist.destroy_process_group() at the end",
                )
                return
