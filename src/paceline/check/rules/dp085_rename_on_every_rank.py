"""All ranks rename the same file.

What it does:
    Looks for `os.replace`, `os.rename`, `shutil.move` and `Path.rename` to a name that is the same on all ranks, on a
    path through the script that all ranks take at the same time.

Why is this bad:
    One rank moves the file away while others still write or move it. They fail with FileNotFoundError, or put an
    incomplete file in the place of a complete one. The "atomic" save is not atomic any more.

Repair:
    `dist.barrier()` if ranks write parts of it, then `if dist.get_rank() == 0:` around the rename.

Known problems:
    Names that are computed by other packages are taken for different ones.

References:
    F132, F107. https://github.com/huggingface/transformers/issues/35580
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import (
    Effect,
    Naming,
    Write,
    display,
    expects_failure,
    naming,
    several_processes,
    writes,
)
from paceline.check.rule import Rule, Violation


class RenameOnEveryRank(Rule):
    """Files that all ranks move."""

    code, name, topic = "DP085", "rename-on-every-rank", "files"
    faults = ("F132", "F107")
    severity = "warning"
    valid = {
        "rank 0 renames": """
            def save(state):
                if dist.get_rank() == 0:
                    torch.save(state, "last.pt.tmp")
                    os.replace("last.pt.tmp", "last.pt")

            dist.init_process_group("gloo")
            save({})
        """,
        "a name with the rank in it": """
            dist.init_process_group("gloo")
            path = f"random-{dist.get_rank()}.pt"
            torch.save(torch.get_rng_state(), path + ".tmp")
            os.replace(path + ".tmp", path)
        """,
        "text in which something is replaced": """
            dist.init_process_group("gloo")
            name = "runs/a".replace("a", "b")
        """,
    }
    invalid = {
        "after a save on rank 0": """
            dist.init_process_group("gloo")
            if dist.get_rank() == 0:
                torch.save({}, "last.pt.tmp")
            os.replace("last.pt.tmp", "last.pt")  # here
        """,
        "a method, and pathlib": """
            from pathlib import Path

            class Checkpoints:
                def __init__(self, directory):
                    self.directory = Path(directory)

                def commit(self):
                    partial = self.directory / "checkpoint.tmp"
                    partial.rename(self.directory / "checkpoint")  # here

            def main():
                dist.init_process_group("gloo")
                Checkpoints("out").commit()

            main()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not several_processes(script):
            return
        for write in writes(script):
            if write.effect is not Effect.RENAME or expects_failure(script, write.site.node):
                continue
            path = script.paths.everywhere(write.site.node)
            if path is None:
                yield from _once_per_node(script, write)
            elif naming(script, write.path, path.context) is Naming.SAME:
                yield Violation(
                    write.site.node,
                    f"every rank renames a file to {display(write.path)}: one rank moves it while others still use it,"
                    " and they fail or replace a complete file",
                    "rename on rank 0 only, behind a barrier if other ranks write parts of the file",
                )


def _once_per_node(script: Script, write: Write) -> Iterator[Violation]:
    """A rename by the first rank of each node, or by ranks in turns, which are those of one node as a rule."""
    for path in script.paths.to(write.site.node):
        in_turns = path.ranks is Ranks.ALL and path.in_turns and path.certain
        first = path.ranks is Ranks.LOCAL_ZERO and not script.paths.starts_processes
        if (in_turns or first) and naming(script, write.path, path.context) is Naming.SAME:
            yield Violation(
                write.site.node,
                f"more than one rank renames a file to {display(write.path)} on several nodes with one file system",
                "rename on global rank 0 only, behind a barrier",
                severity="info",
                faults=("F132", "F107"),
            )
            return
