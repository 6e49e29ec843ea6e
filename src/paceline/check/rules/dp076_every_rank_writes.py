"""All ranks write the same file.

What it does:
    Looks for calls that write a file, or make a directory, under a name that is the same on all ranks, on a path
    through the script that all ranks take at the same time.

Why is this bad:
    The ranks overwrite each other's file. A reader, or a crash, finds a file of two ranks; the last writer wins. A
    second `os.makedirs` of the same directory fails.

Repair:
    `if dist.get_rank() == 0:` around the write, and `dist.barrier()` where other ranks read the file. A directory:
    `exist_ok=True`.

Fix safety:
    Only `exist_ok=True` is added. It is safe: the directory is there afterwards in both cases.

Known problems:
    Names that are computed by other packages are taken for different ones. A file system of each node holds one file
    per node; a test of the local rank is right there, and reported as info.

References:
    F93, F104, F107. https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints
"""

from __future__ import annotations

import ast
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
    opened_by,
    several_processes,
    writes,
)
from paceline.check.edits import Edit, add_keyword
from paceline.check.rule import Rule, Violation
from paceline.syntax.conditions import conditions
from paceline.syntax.values import Literal


class EveryRankWrites(Rule):
    """Files that all ranks write."""

    code, name, topic = "DP076", "every-rank-writes", "files"
    faults = ("F93", "F104", "F107")
    severity = "warning"
    fixes = True
    valid = {
        "rank 0 writes": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            if dist.get_rank() == 0:
                torch.save(model.module.state_dict(), "model.pt")
        """,
        "a helper that returns on other ranks": """
            def save(state, path):
                if dist.get_rank() != 0:
                    return
                torch.save(state, path)

            dist.init_process_group("gloo")
            save(DDP(nn.Linear(2, 1)).module.state_dict(), "model.pt")
        """,
        "a name with the rank in it": """
            class Trainer:
                def __init__(self, rank):
                    self.path = f"state-{rank}.pt"

                def save(self):
                    torch.save(torch.get_rng_state(), self.path)

            dist.init_process_group("gloo")
            Trainer(dist.get_rank()).save()
        """,
        "the parent of the workers writes": """
            def worker(rank, world):
                dist.init_process_group("gloo", rank=rank, world_size=world)

            if __name__ == "__main__":
                torch.save(torch.randn(10), "data.pt")
                mp.spawn(worker, args=(2,), nprocs=2)
        """,
        "a directory that may exist": """
            dist.init_process_group("gloo")
            os.makedirs("out", exist_ok=True)
        """,
        "an argument keeps the function from writing": """
            def build(path, write=False):
                if write:
                    np.save(path, np.zeros(3))
                return np.load(path)

            dist.init_process_group("gloo")
            if dist.get_rank() == 0:
                build("data.npy", write=True)
            dist.barrier()
            build("data.npy")
        """,
        "a function of a library": """
            def save(model, path):
                torch.save(model.state_dict(), path)

            def setup():
                dist.init_process_group("gloo")
        """,
    }
    invalid = {
        "in the body of the script": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            torch.save(model.module.state_dict(), "model.pt")  # here
        """,
        "a method, and a path from arguments": """
            class Trainer:
                def __init__(self, out):
                    self.out = out
                    self.model = DDP(nn.Linear(2, 1))

                def fit(self, epochs):
                    for epoch in range(epochs):
                        self.save(epoch)

                def save(self, epoch):
                    torch.save(self.model.module.state_dict(), os.path.join(self.out, f"{epoch}.pt"))  # here

            def main():
                parser = argparse.ArgumentParser()
                parser.add_argument("--out")
                args = parser.parse_args()
                dist.init_process_group("gloo")
                Trainer(args.out).fit(3)

            if __name__ == "__main__":
                main()
        """,
        "workers that mp.spawn starts": """
            def worker(rank, world):
                dist.init_process_group("gloo", rank=rank, world_size=world)
                with open("metrics.txt", "w") as file:  # here
                    file.write("done")

            if __name__ == "__main__":
                mp.spawn(worker, args=(2,), nprocs=2)
        """,
        "a directory that must not exist": """
            dist.init_process_group("gloo")
            os.makedirs("out")  # here
        """,
        "a test of the local rank": """
            dist.init_process_group("gloo")
            if int(os.environ["LOCAL_RANK"]) == 0:
                torch.save({}, "model.pt")  # here
        """,
        "the first rank of each node is left after a return": """
            def save(model, local_rank):
                if local_rank != 0:
                    return
                torch.save(model.module.state_dict(), "model.pt")  # here

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            save(model, int(os.environ["LOCAL_RANK"]))
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not several_processes(script):
            return
        for write in writes(script):
            if write.effect in (Effect.RENAME, Effect.APPEND):
                continue  # DP085, DP087
            if write.effect is Effect.DIRECTORY:
                yield from _of_directory(script, write)
                continue
            yield from _of_file(script, write)


def _of_file(script: Script, write: Write) -> Iterator[Violation]:
    for path in script.paths.to(write.site.node):
        per_node = path.ranks is Ranks.LOCAL_ZERO and not path.in_turns and not script.paths.starts_processes
        if not (path.everywhere or per_node) or opened_by(script, write.path, path.context):
            continue
        if naming(script, write.path, path.context) is not Naming.SAME:
            continue
        if per_node:
            yield Violation(
                write.site.node,
                f"the first rank of each node writes {display(write.path)}; on a shared file system they overwrite"
                " each other's file",
                "test the global rank, dist.get_rank() == 0, unless each node has its own disk",
                severity="info",
                faults=("F107", "F93"),
            )
            return
        yield Violation(
            write.site.node,
            f"every rank {write.effect.value} {display(write.path)}, so the ranks overwrite each other's file",
            "write on rank 0 only: if dist.get_rank() == 0, and a barrier before other ranks read it",
            severity="info" if write.effect is Effect.COPY else None,
            faults=("F93", "F104"),
        )
        return


def _of_directory(script: Script, write: Write) -> Iterator[Violation]:
    call = write.site.node
    exist_ok = script.argument(call, "exist_ok", None if _is_mkdir(call) else 2)
    if not exist_ok.absent and not (exist_ok.certain and _all_false(script, exist_ok)):
        return
    for path in script.paths.to(call):
        if not path.everywhere or naming(script, write.path, path.context) is not Naming.SAME:
            continue
        if expects_failure(script, call):
            return
        tested = any("exists" in ast.unparse(each.test) or "isdir" in ast.unparse(each.test) for at in path.frames
                     for each in conditions(at.function.module, at.node))  # fmt: skip
        yield Violation(
            call,
            f"every rank makes the directory {display(write.path)}"
            + (
                "; two ranks can find it missing at the same time, and one of them fails"
                if tested
                else ", and all but the first one fail because it exists"
            ),
            "pass exist_ok=True",
            severity="info" if tested else None,
            edits=_exist_ok(script, write),
            faults=("F93",),
        )
        return


def _is_mkdir(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "mkdir"


def _all_false(script: Script, argument: object) -> bool:
    values = script.program.evaluator.all_of(argument.given)  # type: ignore[attr-defined]
    return values == {Literal(False)}


def _exist_ok(script: Script, write: Write) -> tuple[Edit, ...]:
    call = write.site.node
    if script.argument(call, "exist_ok", 2).given or write.site.name == "os.mkdir" or call.args[2:]:
        return ()
    return (add_keyword(call, "exist_ok=True", write.site.module.source.text),)
