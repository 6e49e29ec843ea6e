"""Each rank makes up a name of its own for the output.

What it does:
    Looks for files and directories that all ranks write under a name from the clock, the process id or a random
    number, without the rank in it and without a broadcast.

Why is this bad:
    The ranks of one run write to different directories, or to one directory or several as the clock decides. Parts of
    a checkpoint are spread, and a path that rank 0 prints does not hold what other ranks wrote.

Repair:
    Make the name on rank 0 and send it to the others: `dist.broadcast_object_list(names)`. Or make the directory on
    rank 0 only.

Known problems:
    A name with the date but no time is taken for the same on all ranks.

References:
    F100. https://github.com/Lightning-AI/pytorch-lightning/issues/8945
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import Naming, Write, made_up, naming, several_processes, writes
from paceline.check.rule import Rule, Violation
from paceline.syntax.values import Context


class PathPerRank(Rule):
    """Output paths from the clock or the process id."""

    code, name, topic = "DP083", "path-per-rank", "files"
    faults = ("F100",)
    severity = "warning"
    valid = {
        "rank 0 makes the name": """
            dist.init_process_group("gloo")
            names = [time.strftime("%H%M%S")]
            dist.broadcast_object_list(names)
            os.makedirs(names[0], exist_ok=True)
        """,
        "a helper broadcasts the name": """
            def run_name():
                found = [f"run-{time.time()}"]
                dist.broadcast_object_list(found, src=0)
                return found[0]

            dist.init_process_group("gloo")
            out = os.path.join("runs", run_name())
            os.makedirs(out, exist_ok=True)
        """,
        "only rank 0 writes": """
            dist.init_process_group("gloo")
            out = f"runs/{time.time()}"
            if dist.get_rank() == 0:
                os.makedirs(out)
                torch.save({}, os.path.join(out, "model.pt"))
        """,
        "a trace of each rank": """
            dist.init_process_group("gloo")
            with open(f"trace-{dist.get_rank()}-{os.getpid()}.txt", "w") as file:
                file.write("")
        """,
    }
    invalid = {
        "the process id": """
            from pathlib import Path

            def new_directory():
                path = Path("runs") / f"{os.getpid()}"  # here
                path.mkdir(parents=True)
                return path

            dist.init_process_group("gloo")
            out = new_directory()
        """,
        "the time, in a class": """
            from datetime import datetime

            class Experiment:
                def __init__(self, name):
                    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")  # here
                    self.out = os.path.join("runs", f"{name}-{stamp}")
                    os.makedirs(self.out, exist_ok=True)

            def main():
                dist.init_process_group("gloo")
                Experiment("digits")

            if __name__ == "__main__":
                main()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not several_processes(script):
            return
        reported: set[ast.AST] = set()
        for write in writes(script):
            path = script.paths.everywhere(write.site.node)
            if path is None or naming(script, write.path, path.context) is not Naming.PER_PROCESS:
                continue
            for violation in _violations(script, write, path.context):
                if violation.node not in reported:
                    reported.add(violation.node)
                    yield violation


def _violations(script: Script, write: Write, context: Context | None) -> Iterator[Violation]:
    source = made_up(script, write.path, context)
    if source is not None:
        yield Violation(
            source,
            f"each rank makes up an output path of its own from {ast.unparse(source)}, and writes there in line"
            f" {write.site.node.lineno}",
            "make the name on rank 0 and send it with dist.broadcast_object_list, or write on rank 0 only",
        )
