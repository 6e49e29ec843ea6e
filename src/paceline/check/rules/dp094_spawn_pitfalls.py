"""Processes that are spawned import the script again, and get their function as a pickle.

What it does:
    Looks for `mp.spawn` that runs when the script is imported, and for lambdas and inner functions that are given to
    `mp.spawn`, or to a DataLoader whose workers are spawned.

Why is this bad:
    A spawned process imports the script. Without `if __name__ == "__main__":` it would spawn again, and Python stops it
    with a RuntimeError. Lambdas and inner functions cannot be pickled.

Repair:
    Start the job with torchrun. Or put the start under `if __name__ == "__main__":`, and functions at the top level.

Known problems:
    The start method of `multiprocessing.Process` is taken for fork unless the script sets it.

References:
    F112, F104. https://docs.pytorch.org/docs/stable/multiprocessing.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import DATA_LOADERS
from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import Effect, Naming, display, given, naming, writes
from paceline.check.rule import Rule, Violation
from paceline.syntax.conditions import asks_for_main, conditions
from paceline.syntax.program import CallSite
from paceline.syntax.values import FunctionValue, Literal

_SPAWN = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
_METHODS = ("torch.multiprocessing.set_start_method", "multiprocessing.set_start_method")


class SpawnPitfalls(Rule):
    """Spawns without a main guard, and functions that cannot be pickled."""

    code, name, topic = "DP094", "spawn-pitfalls", "launch"
    faults = ("F112", "F104")
    severity = "error"
    valid = {
        "a main guard": """
            def worker(rank, world):
                dist.init_process_group("gloo", rank=rank, world_size=world)

            def main():
                mp.spawn(worker, args=(2,), nprocs=2)

            if __name__ == "__main__":
                main()
        """,
        "forked processes": """
            def main():
                def worker(rank):
                    dist.init_process_group("gloo", rank=rank, world_size=2)

                mp.start_processes(worker, nprocs=2, start_method="fork")

            main()
        """,
        "a lambda in forked workers of a loader": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, num_workers=2, collate_fn=lambda batch: batch, sampler=DistributedSampler(data))
        """,
    }
    invalid = {
        "no main guard": """
            def worker(rank, world):
                dist.init_process_group("gloo", rank=rank, world_size=world)

            mp.spawn(worker, args=(2,), nprocs=2)  # here
        """,
        "no guard around the main function": """
            def worker(rank, world):
                dist.init_process_group("gloo", rank=rank, world_size=world)

            def main():
                mp.spawn(worker, args=(2,), nprocs=2)  # here

            main()
        """,
        "work at the top level of the script": """
            def prepare(path):
                np.save(path, np.zeros(3))

            prepare("table.npy")  # here

            def worker(rank):
                dist.init_process_group("gloo", rank=rank, world_size=2)

            if __name__ == "__main__":
                mp.spawn(worker, nprocs=2)
        """,
        "an inner function": """
            def main():
                def worker(rank):
                    dist.init_process_group("gloo", rank=rank, world_size=2)

                mp.spawn(worker, nprocs=2)  # here

            if __name__ == "__main__":
                main()
        """,
        "a lambda in spawned workers of a loader": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(  # here
                data, num_workers=2, multiprocessing_context="spawn", collate_fn=lambda batch: batch
            )
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        for site in script.calls(*_SPAWN):
            if not _spawns(script, site):
                continue
            target = given(site.node, "fn", 0)
            if target is not None and _is_inner_function(script, target):
                yield Violation(
                    site.node,
                    "the function that is spawned cannot be pickled: it is a lambda or an inner function",
                    "define it at the top level of the script, or start the job with torchrun",
                )
            elif _runs_at_import(script, site):
                yield Violation(
                    site.node,
                    "each spawned process imports the script and reaches this call again, which Python refuses",
                    'put the start of the script under if __name__ == "__main__":, or start it with torchrun',
                )
        yield from _work_at_import(script)
        for site in script.calls(*DATA_LOADERS):
            for name in ("collate_fn", "worker_init_fn"):
                node = next((each.value for each in site.node.keywords if each.arg == name), None)
                if node is not None and _is_inner_function(script, node) and _workers_are_spawned(script, site):
                    yield Violation(
                        site.node,
                        f"the workers of the loader are spawned, and {name} cannot be pickled",
                        "define the function at the top level of the script",
                    )
                    break


def _spawns(script: Script, site: CallSite) -> bool:
    method = script.argument(site.node, "start_method", 5)
    if method.absent:
        return site.name == "torch.multiprocessing.spawn" or not method.given
    return script.literals(site.node, "start_method", 5) in ({"spawn"}, {"forkserver"})


def _is_inner_function(script: Script, node: ast.expr) -> bool:
    """True if it certainly is a lambda, or a function within a function."""
    values = script.values(node)
    return bool(values) and all(
        isinstance(each, FunctionValue)
        and each.function.cls is None
        and (
            isinstance(each.function.node, ast.Lambda)
            or (each.function.parent is not None and each.function.parent.parent is not None)
        )
        for each in values
    )


def _work_at_import(script: Script) -> Iterator[Violation]:
    """Files that each spawned process writes again, because it imports the script."""
    if not any(_spawns(script, site) for site in script.calls(*_SPAWN)):
        return
    reported: set[ast.AST] = set()
    for write in writes(script):
        for path in script.paths.to_unstarted(write.site.node):
            first = path.frames[0]
            tests = [each.test for each in conditions(first.function.module, first.node)]
            own = first.function.module is script.program.root and not any(map(asks_for_main, tests))
            if not own or write.effect is not Effect.WRITE or first.node in reported or not path.certain:
                continue
            if naming(script, write.path, path.context) is Naming.SAME:
                reported.add(first.node)
                yield Violation(
                    first.node,
                    "each spawned process imports the script and runs this line again, so all of them write"
                    f" {display(write.path)}",
                    'put the line under if __name__ == "__main__":',
                    severity="warning",
                    faults=("F112", "F104"),
                )


def _runs_at_import(script: Script, site: CallSite) -> bool:
    """True if a path to the call has no test of `__name__`."""
    for path in script.paths.to_unstarted(site.node):
        first = path.frames[0]
        tests = [each.test for each in conditions(first.function.module, first.node)]
        if first.function.module is script.program.root and not any(map(asks_for_main, tests)):
            return True
    return False


def _workers_are_spawned(script: Script, site: CallSite) -> bool:
    workers = script.literals(site.node, "num_workers", 5)
    if not workers or 0 in workers:
        return False
    if script.literals(site.node, "multiprocessing_context") in ({"spawn"}, {"forkserver"}):
        return True
    return any(
        isinstance(value, Literal) and value.value in ("spawn", "forkserver")
        for call in script.calls(*_METHODS)
        for value in script.values(given(call.node, "method", 0))
    )
