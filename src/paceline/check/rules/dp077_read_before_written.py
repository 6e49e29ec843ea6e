"""Ranks read a file that another rank may still be writing.

What it does:
    Looks for a file that rank 0 writes and that all ranks read later, or a directory that rank 0 makes and that all
    ranks use, without a collective between the two.

Why is this bad:
    Nothing makes the other ranks wait. They find no file, the start of a file, or the file of an earlier run. With an
    earlier file the run goes on with different weights on the ranks.

Repair:
    `dist.barrier()` between the write and the read, on all ranks.

Known problems:
    Paths are compared as they are written out in the script. Disks of several nodes need a copy on each node.

References:
    F94. https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator

from paceline.check.analyses.framework_names import COLLECTIVES, DDP
from paceline.check.analyses.process_paths import Path, meeting
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.same_file import written_out
from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import Effect, Write, display, reads, several_processes, writes
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.conditions import conditions
from paceline.syntax.module_index import Function, last_name

_WAITS = ("barrier", "wait_for_everyone", "monitored_barrier", "synchronize", "all_reduce", "broadcast", "prepare",
          "broadcast_object_list", "all_gather", "all_gather_object", "clip_grad_norm_")  # fmt: skip


class Waiting(enum.Enum):
    """The ways in which ranks wait for each other between a write and a read."""

    NONE = "nothing"
    WRAP = "the constructor of DDP"
    COLLECTIVE = "a collective"


class ReadBeforeWritten(Rule):
    """Reads that do not wait for the writer."""

    code, name, topic = "DP077", "read-before-written", "files"
    faults = ("F94",)
    severity = "warning"
    valid = {
        "a barrier between": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            if dist.get_rank() == 0:
                torch.save(model.module.state_dict(), "model.pt")
            dist.barrier()
            model.module.load_state_dict(torch.load("model.pt", map_location="cpu"))
        """,
        "a barrier in the function that saves": """
            def save(model, path):
                if dist.get_rank() == 0:
                    torch.save(model.module.state_dict(), path)
                dist.barrier()

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            save(model, "model.pt")
            model.module.load_state_dict(torch.load("model.pt", map_location="cpu"))
        """,
        "rank 0 reads its own file": """
            dist.init_process_group("gloo")
            if dist.get_rank() == 0:
                torch.save({}, "model.pt")
                torch.load("model.pt", map_location="cpu")
        """,
        "a checkpoint of an earlier run": """
            dist.init_process_group("gloo")
            if os.path.exists("last.pt"):
                state = torch.load("last.pt", map_location="cpu")
            if dist.get_rank() == 0:
                torch.save({}, "last.pt")
        """,
    }
    invalid = {
        "the best weights after training": """
            BEST = "best.pt"

            def save(model):
                torch.save(model.state_dict(), BEST)

            def main():
                dist.init_process_group("gloo")
                model = DDP(nn.Linear(2, 1))
                for epoch in range(3):
                    if dist.get_rank() == 0:
                        save(model.module)
                model.module.load_state_dict(torch.load("best.pt", map_location="cpu"))  # here

            main()
        """,
        "a cache that rank 0 makes": """
            class Cached(Dataset):
                def __init__(self, path):
                    self.path = path
                    if dist.get_rank() == 0:
                        np.save(self.path, np.zeros(10))
                    self.data = np.load(self.path)  # here

            dist.init_process_group("gloo")
            data = Cached(os.path.join("cache", "train.npy"))
        """,
        "nothing but DDP between": """
            def build(rank):
                if rank == 0:
                    np.savez("stats.npz", mean=np.zeros(3))
                model = DDP(nn.Linear(2, 1))
                return model, np.load("stats.npz")  # here

            dist.init_process_group("gloo")
            build(dist.get_rank())
        """,
        "a directory that rank 0 makes": """
            dist.init_process_group("gloo")
            rank = dist.get_rank()
            if rank == 0:
                os.makedirs("out", exist_ok=True)
            torch.save(torch.get_rng_state(), os.path.join("out", f"random-{rank}.pt"))  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not several_processes(script):
            return
        written = [
            (write, path)
            for write in writes(script)
            if write.effect is not Effect.APPEND
            for path in script.paths.to(write.site.node)
            if path.ranks is Ranks.ZERO
        ]
        if not written:
            return
        users = [*reads(script), *writes(script)]
        reported: set[ast.AST] = set()
        for user in users:
            for path in script.paths.to(user.site.node):
                if not path.everywhere or user.site.node in reported:
                    continue
                races = ((each, between) for each, at in written if (between := _race(script, each, at, user, path)))
                write, between = next(races, (None, Waiting.COLLECTIVE))
                if write is not None:
                    reported.add(user.site.node)
                    yield _violation(write, user, between)


def _violation(write: Write, user: Write, between: Waiting) -> Violation:
    made = "makes the directory" if write.effect is Effect.DIRECTORY else "writes it"
    if between is Waiting.WRAP:
        return Violation(
            user.site.node,
            f"all ranks use {display(user.path)}, which rank 0 writes in line {write.site.node.lineno}; only the"
            " constructor of DDP between makes them wait",
            "call dist.barrier() on all ranks between the two, so that the order does not rest on DDP",
            severity="info",
        )
    return Violation(
        user.site.node,
        f"all ranks use {display(user.path)} without waiting for rank 0, which {made} in line {write.site.node.lineno}",
        "call dist.barrier() on all ranks between the two",
        evidence={"writer": write.site.node.lineno},
    )


def _race(script: Script, write: Write, at: Path, user: Write, path: Path) -> Waiting | None:
    """The way in which ranks wait before they use a file that rank 0 writes earlier; None if nothing goes wrong."""
    if (found := meeting(at, path)) is None or write.site.node is user.site.node:
        return None
    first, second, index = found
    if _end(first.node) >= _line(second.node) or _apart(script, first.node, second.node):
        return None
    if any(_tests_existence(each.function, each.node) for each in path.frames[index:]):
        return None  # DP072 is about files that each rank looks for
    name, used = written_out(script, write.path, at.context), written_out(script, user.path, path.context)
    if write.effect is Effect.DIRECTORY:
        if user.effect is not Effect.WRITE or not used.startswith(name.rstrip("/") + "/"):
            return None
    elif name != used or user.effect is not Effect.READ:
        return None
    between = [
        call
        for frame, low, high in (
            (first, _line(first.node), _line(second.node)),
            *((each, _line(each.node), 10**9) for each in at.frames[index + 1 :]),
            *((each, 0, _line(each.node)) for each in path.frames[index + 1 :]),
        )
        for call in frame.function.calls
        if low <= call.lineno <= high and call is not frame.node and call not in (first.node, second.node)
    ]
    waits = {_waits(script, call) for call in between}
    if Waiting.COLLECTIVE in waits:
        return None
    return Waiting.WRAP if Waiting.WRAP in waits else Waiting.NONE


def _tests_existence(function: Function, node: ast.AST) -> bool:
    texts = (ast.unparse(each.test) for each in conditions(function.module, node) if each.holds)
    return any("exists" in text or "isfile" in text or "is_file" in text for text in texts)


def _apart(script: Script, first: ast.AST, second: ast.AST) -> bool:
    """True if the two stand in different branches of one test."""
    module = script.function_of(first).module
    for at in module.ancestors(first):
        if isinstance(at, ast.If):
            inside = [at.body if any(first in walk(each) for each in at.body) else at.orelse]
            others = at.orelse if inside[0] is at.body else at.body
            if any(second in walk(each) for each in others):
                return True
    return False


def _waits(script: Script, call: ast.Call) -> Waiting:
    """True if a call makes ranks wait for each other: a collective, a backward pass, DDP around a model."""
    found = Waiting.NONE
    for reached in script.loops.called(call):
        each = reached.node
        if not isinstance(each, ast.Call):
            continue
        name, names = last_name(each.func), script.program.callee_names(each)
        if name in _WAITS or script.loops.is_backward(each) or any(known in COLLECTIVES for known in names):
            return Waiting.COLLECTIVE
        if "DistributedDataParallel" in name or name == "DDP" or any(known in DDP for known in names):
            found = Waiting.WRAP
    return found


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _end(node: ast.AST) -> int:
    return getattr(node, "end_lineno", 0) or 0
