"""The local rank comes from a command line argument, which torchrun does not pass.

What it does:
    Looks for `add_argument("--local_rank")` in a script that uses the value and never reads `LOCAL_RANK`.

Why is this bad:
    torchrun sets the variable `LOCAL_RANK` and passes no argument, so every rank keeps the default and takes the same
    GPU. `torch.distributed.launch` passes `--local-rank` since PyTorch 2.0, which the parser does not know.

Repair:
    `local_rank = int(os.environ["LOCAL_RANK"])`.

Known problems:
    A launcher of one's own that passes `--local_rank` is not seen.

References:
    F109. https://docs.pytorch.org/docs/stable/elastic/run.html#transitioning-from-torch-distributed-launch-to-torchrun
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.values import Literal

_DASHED = {"--local-rank", "--local_rank"}


class LocalRankArgument(Rule):
    """--local_rank without LOCAL_RANK."""

    code, name, topic = "DP092", "local-rank-argument", "launch"
    faults = ("F109",)
    severity = "warning"
    valid = {
        "the variable": """
            local_rank = int(os.environ["LOCAL_RANK"])
            torch.cuda.set_device(local_rank)
            dist.init_process_group("nccl")
        """,
        "an argument with the variable as its default": """
            parser = argparse.ArgumentParser()
            parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
            args = parser.parse_args()
            torch.cuda.set_device(args.local_rank)
            dist.init_process_group("nccl")
        """,
        "an argument that is ignored": """
            parser = argparse.ArgumentParser()
            parser.add_argument("--local_rank", type=int, help="ignored")
            args = parser.parse_args()
            dist.init_process_group("gloo")
        """,
    }
    invalid = {
        "an argument": """
            parser = argparse.ArgumentParser()
            parser.add_argument("--local_rank", type=int, default=0)  # here
            args = parser.parse_args()
            torch.cuda.set_device(args.local_rank)
            dist.init_process_group("nccl")
        """,
        "in functions": """
            def arguments():
                parser = argparse.ArgumentParser()
                group = parser.add_argument_group("distributed")
                group.add_argument("--local_rank", default=-1, type=int)  # here
                return parser.parse_args()

            def main(args):
                device = torch.device("cuda", args.local_rank)
                dist.init_process_group("nccl")
                model = DDP(nn.Linear(2, 1).to(device))

            if __name__ == "__main__":
                main(arguments())
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        modules = script.program.imports.modules
        if not script.plain or not script.starts_group or script.paths.starts_processes:
            return
        if any("LOCAL_RANK" in module.source.text or "deepspeed" in module.source.text for module in modules):
            return
        for site in script.method_calls("add_argument"):
            flags = {
                value.value
                for node in site.node.args
                for value in script.values(node)
                if isinstance(value, Literal) and isinstance(value.value, str)
            }
            if not flags & _DASHED or not any(
                _is_read(module.loads_by_name.get("local_rank", ())) for module in modules
            ):
                continue
            yield Violation(
                site.node,
                "torchrun sets LOCAL_RANK and passes no argument, so local_rank has its default on every rank",
                'read int(os.environ["LOCAL_RANK"])',
                severity="info" if flags >= _DASHED else None,
            )


def _is_read(nodes: object) -> bool:
    return any(isinstance(each, ast.Attribute) for each in nodes)  # type: ignore[attr-defined]
