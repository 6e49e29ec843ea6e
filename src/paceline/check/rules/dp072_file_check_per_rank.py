"""Each rank looks at the file system to decide what all ranks must do together.

What it does:
    Looks for branches on `os.path.exists` and the like that hold a collective on one side only, and for state that is
    restored from a file whose name has the rank in it, if that file exists.

Why is this bad:
    Ranks look at different moments, and on several machines at different disks. One of them may see a file that rank 0
    has just written, or miss it: it takes the other branch, waits in another collective, or starts at another epoch.

Repair:
    Let rank 0 look, and broadcast the answer.

Known problems:
    A file that is there before the job starts, on a file system that all machines share, is seen by all ranks. Unless
    the script writes it, the finding is an `info`.

References:
    F89. https://github.com/Lightning-AI/pytorch-lightning/pull/5155
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.local_decisions import calls_behind_test, collective_within, local_origin
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.same_file import written_out
from paceline.check.analyses.script import Script
from paceline.check.analyses.value_spread import Cause
from paceline.check.analyses.written_files import writes
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import last_name

_WRITERS = frozenset(
    ("save", "makedirs", "mkdir", "dump", "savez", "to_csv", "write_text", "touch", "open", "save_file")
)


class FileCheckPerRank(Rule):
    """Branches on the file system."""

    code, name, topic = "DP072", "file-check-per-rank", "control flow"
    faults = ("F89",)
    severity = "warning"
    valid = {
        "rank 0 looks": """
            dist.init_process_group("gloo")
            found = torch.tensor([int(os.path.exists("last.pt"))])
            dist.broadcast(found, src=0)
            if found.item():
                state = torch.load("last.pt", map_location="cpu")
                dist.barrier()
        """,
        "the same collective on both sides": """
            dist.init_process_group("gloo")
            if os.path.exists("cache.pt"):
                dist.barrier()
            else:
                if dist.get_rank() == 0:
                    torch.save(torch.zeros(1), "cache.pt")
                dist.barrier()
        """,
        "weights that the script does not write": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            if os.path.exists("pretrained.pt"):
                model.load_state_dict(torch.load("pretrained.pt", map_location="cpu"))
        """,
    }
    invalid = {
        "a cache that rank 0 builds": """
            CACHE = "features.pt"

            dist.init_process_group("gloo")
            if not os.path.exists(CACHE):  # here
                if dist.get_rank() == 0:
                    torch.save(torch.randn(10), CACHE)
                dist.barrier()
            features = torch.load(CACHE)
        """,
        "a file of each rank": """
            dist.init_process_group("gloo")
            rank = dist.get_rank()
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.Adam(model.parameters())
            path = f"optimizer_{rank}.pt"
            if os.path.isfile(path):  # here
                optimizer.load_state_dict(torch.load(path, map_location="cpu"))
        """,
        "a checkpoint that each rank looks for": """
            class Checkpoints:
                def __init__(self, folder):
                    self.folder = folder

                def save(self, model, name):
                    if dist.get_rank() == 0:
                        torch.save(model.module.state_dict(), os.path.join(self.folder, name + ".pt"))
                    dist.barrier()

                def restore(self, model):
                    path = os.path.join(self.folder, "last.pt")
                    if not os.path.exists(path):  # here
                        return
                    model.module.load_state_dict(torch.load(path, map_location="cpu"))

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            checkpoints = Checkpoints("runs")
            checkpoints.restore(model)
            for step in range(3):
                model(torch.randn(4, 2)).mean().backward()
                checkpoints.save(model, "last")
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        for function in script.program.functions:
            for node in walk(function.node) if function.calls else ():
                if isinstance(node, ast.If) and script.function_of(node) is function:
                    yield from _of_branch(script, node)


_LOOKS = frozenset(("exists", "isfile", "is_file", "isdir", "is_dir", "glob", "listdir"))


def _of_branch(script: Script, node: ast.If) -> Iterator[Violation]:
    if not any(last_name(each.func) in _LOOKS for each in calls_behind_test(script, node.test)):
        return
    origin = local_origin(script, node.test)
    if origin is None or origin.cause is not Cause.FILES or script.where(node) is not Ranks.ALL:
        return
    if script.paths.everywhere(node) is None:
        return  # a function that nothing calls here
    sides = [
        next((found for each in block if (found := collective_within(script, each)) is not None), None)
        for block in (node.body, node.orelse)
    ]
    if (sides[0] is None) is not (sides[1] is None):
        call = sides[0] or sides[1]
        assert call is not None
        yield Violation(
            node.test,
            f"each rank looks for the file itself, and only those that go this way reach the collective of line"
            f" {call.lineno}",
            "let rank 0 look, and broadcast the answer",
            severity=None if _writes(script, node) else "info",
        )
    elif (_restores(node.body) or _restores(_behind(script, node))) and _written_by_script(script, node):
        yield Violation(
            node.test,
            "each rank looks for the checkpoint itself; where ranks see different disks, some resume and others start"
            " anew",
            "let rank 0 look, and broadcast the answer",
            severity="info",
        )
    elif script.ranks.depends(node.test) and _restores(node.body):
        yield Violation(
            node.test,
            "each rank restores its state only if its own file exists; ranks may go on from different states",
            "load only if all ranks have their file: all-reduce the flag with ReduceOp.MIN",
            severity="info",
        )


def _behind(script: Script, node: ast.If) -> list[ast.stmt]:
    """Statements that run where `if not path.exists(): return` does not leave the function."""
    parent = script.function_of(node).module.parents[node]
    block = getattr(parent, "body", [])
    if node not in block or not isinstance(node.body[-1], ast.Return):
        return []
    return list(block[block.index(node) + 1 :])


def _restores(block: list[ast.stmt]) -> bool:
    return any(
        isinstance(at, ast.Call) and last_name(at.func) == "load_state_dict" for each in block for at in walk(each)
    )


def _written_by_script(script: Script, node: ast.If) -> bool:
    """True if the script saves to the path that the test looks for."""
    if script.ranks.depends(node.test):
        return False
    looked_for = [each for call in calls_behind_test(script, node.test) for each in _paths_of(call)]
    contexts = {path.context for path in script.paths.to(node)}
    names = {ast.unparse(each) for each in looked_for}
    names |= {written_out(script, each, context) for each in looked_for for context in contexts}
    return any(
        ast.unparse(write.path) in names
        or any(written_out(script, write.path, path.context) in names for path in script.paths.to(write.site.node))
        for write in writes(script)
    )


def _paths_of(call: ast.Call) -> Iterator[ast.expr]:
    """Paths that `os.path.exists(path)` or `path.exists()` looks for."""
    if last_name(call.func) in _LOOKS:
        yield from call.args
        if isinstance(call.func, ast.Attribute) and not call.args:
            yield call.func.value


def _writes(script: Script, node: ast.If) -> bool:
    """True if the branch writes a file that the test looks for."""
    looked_for = {ast.unparse(each) for at in walk(node.test) if isinstance(at, ast.Call) for each in at.args}
    looked_for |= {
        ast.unparse(at.func.value)
        for at in walk(node.test)
        if isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute)
    }
    for block in (node.body, node.orelse):
        for each in block:
            for at in walk(each):
                if isinstance(at, ast.Call) and last_name(at.func) in _WRITERS:
                    given = {ast.unparse(part) for part in at.args}
                    if given & looked_for:
                        return True
    return False
