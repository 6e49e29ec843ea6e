"""CUDA is used in a process that is forked from one that has used it.

What it does:
    Looks for data sets and `collate_fn` functions that move tensors to the GPU, in loaders with forked workers, and for
    processes that are forked after the script has used CUDA.

Why is this bad:
    CUDA does not survive a fork. The worker fails with "Cannot re-initialize CUDA in forked subprocess", or hangs.

Repair:
    Move the batch to the GPU in the training loop. Start processes with `spawn`, before any use of CUDA.

Known problems:
    Loaders whose number of workers comes from the command line are reported only if its default is above 0.

References:
    F116. https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#cuda-in-multiprocessing
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.process_paths import runs_before
from paceline.check.analyses.script import Loader, Script
from paceline.check.analyses.written_files import given
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import Function, dotted, last_name
from paceline.syntax.program import CallSite
from paceline.syntax.values import FunctionValue, Instance, Literal

_METHODS = ("torch.multiprocessing.set_start_method", "multiprocessing.set_start_method",
            "torch.multiprocessing.get_context", "multiprocessing.get_context")  # fmt: skip
_TOUCHES = ("torch.cuda.init", "torch.cuda.current_device", "torch.cuda.get_device_name", "torch.cuda.set_device",
            "torch.cuda.manual_seed", "torch.cuda.get_device_properties",
            "torch.cuda.empty_cache", "torch.cuda.synchronize")  # fmt: skip


class ForkAfterCuda(Rule):
    """CUDA in forked workers."""

    code, name, topic = "DP098", "fork-after-cuda", "launch"
    faults = ("F116",)
    severity = "error"
    valid = {
        "the training loop moves the batch": """
            class Images(Dataset):
                def __getitem__(self, index):
                    return torch.zeros(3)

            dist.init_process_group("nccl")
            data = Images()
            loader = DataLoader(data, num_workers=2, sampler=DistributedSampler(data))
            for x in loader:
                x.cuda()
        """,
        "no workers": """
            class Images(Dataset):
                def __getitem__(self, index):
                    return torch.zeros(3).cuda()

            dist.init_process_group("nccl")
            data = Images()
            loader = DataLoader(data, num_workers=0, sampler=DistributedSampler(data))
        """,
        "spawned processes": """
            def worker(rank):
                dist.init_process_group("nccl", rank=rank, world_size=2)

            if __name__ == "__main__":
                print(torch.cuda.get_device_name(0))
                mp.spawn(worker, nprocs=2)
        """,
    }
    invalid = {
        "a data set": """
            class Images(Dataset):
                def __getitem__(self, index):
                    return torch.zeros(3).cuda()  # here

            def main():
                dist.init_process_group("nccl")
                data = Images()
                loader = DataLoader(data, num_workers=2, sampler=DistributedSampler(data))

            main()
        """,
        "a collate function": """
            def collate(batch):
                return torch.stack(batch).to("cuda")  # here

            dist.init_process_group("nccl")
            data = Numbers()
            loader = DataLoader(data, num_workers=4, collate_fn=collate, sampler=DistributedSampler(data))
        """,
        "forked processes": """
            def worker(rank):
                dist.init_process_group("nccl", rank=rank, world_size=2)

            if __name__ == "__main__":
                print(torch.cuda.get_device_name(0))
                mp.start_processes(worker, nprocs=2, start_method="fork")  # here
        """,
        "CUDA is initialized before the fork": """
            def worker(rank):
                dist.init_process_group("nccl", rank=rank, world_size=2)
                DDP(nn.Linear(2, 1).to(rank))

            if __name__ == "__main__":
                torch.cuda.init()
                mp.start_processes(worker, nprocs=2, start_method="fork")  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        reported: set[ast.AST] = set()
        if not _changes_start_method(script):
            for loader in script.loaders:
                for call in _moves_in_workers(script, loader):
                    if call not in reported:
                        reported.add(call)
                        yield Violation(
                            call,
                            f"the workers of the loader in line {loader.made.call.lineno} use CUDA, which fails in"
                            " forked processes",
                            "move the batch to the GPU in the training loop",
                        )
        for site in script.calls("torch.multiprocessing.start_processes", "torch.multiprocessing.spawn"):
            if script.literals(site.node, "start_method", 5) == {"fork"} and _touched_before(script, site):
                yield Violation(
                    site.node,
                    "the processes are forked after the script has used CUDA, which then fails in them",
                    'use start_method="spawn", or use CUDA in the processes only',
                )


def _changes_start_method(script: Script) -> bool:
    """True if workers may be spawned."""
    return any(
        isinstance(value, Literal) and value.value in ("spawn", "forkserver")
        for call in script.calls(*_METHODS)
        for value in script.values(given(call.node, "method", 0))
    )


def _moves_in_workers(script: Script, loader: Loader) -> Iterator[ast.Call]:
    """Calls that move to the GPU and run in the workers of a loader."""
    workers = script.literals(loader.made, "num_workers", 5)
    if not workers or not all(isinstance(each, int) and each > 0 for each in workers):
        return
    context = script.argument(loader.made, "multiprocessing_context")
    if not context.absent and script.literals(loader.made, "multiprocessing_context") != {"fork"}:
        return
    functions: list[Function] = []
    for value in script.program.argument_values(loader.made, "dataset", 0):
        if isinstance(value, Instance):
            lineage = script.program.evaluator.lineage(value.cls)
            methods = (cls.methods.get("__getitem__") for cls in lineage)
            functions += [each for each in methods if each is not None][:1]
    for value in script.program.argument_values(loader.made, "collate_fn", 6):
        if isinstance(value, FunctionValue):
            functions.append(value.function)
    for function in functions:
        for reached in script.loops.reached_calls(function.node, function):
            if isinstance(reached.node, ast.Call) and _moves_to_gpu(script, reached.node):
                yield reached.node


def _moves_to_gpu(script: Script, call: ast.Call) -> bool:
    if last_name(call.func) == "cuda" and not dotted(call.func).startswith("torch."):
        return isinstance(call.func, ast.Attribute)
    device = given(call, "device", 0) if last_name(call.func) == "to" else None
    return device is not None and any(
        isinstance(each.node, ast.Constant) and isinstance(each.node.value, str) and each.node.value.startswith("cuda")
        for each in script.origins.of(device)
    )


def _touched_before(script: Script, site: CallSite) -> bool:
    starts = script.paths.to_unstarted(site.node)
    touches = [
        *script.calls(*_TOUCHES),
        *(each for each in script.method_calls("cuda") if not dotted(each.node.func).startswith("torch.")),
    ]
    return any(
        runs_before(touch, start)
        for each in touches
        for touch in script.paths.to_unstarted(each.node)
        for start in starts
    )
