"""All ranks download or prepare the same data.

What it does:
    Looks for downloads on a path through the script that all ranks take at the same time: `download=True` of a data
    set, `urlretrieve`, `torch.hub.load`. Also for downloads under a test of the rank that runs before the process
    group exists and then holds on every rank.

Why is this bad:
    The ranks unpack into the same directory at the same time. One of them reads a file that another one still writes:
    a checksum fails, or the data is incomplete.

Repair:
    Download on rank 0 (on each node: `LOCAL_RANK` 0), then `dist.barrier()`, then make the data set on all ranks.

Known problems:
    Packages that lock their cache, such as `datasets` and `huggingface_hub`, or that rename a complete file, are left
    out. Nothing happens if the data is there already.

References:
    F103, F104. https://github.com/pytorch/examples/pull/1411
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import START
from paceline.check.analyses.process_paths import Path, runs_before
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import Effect, Naming, naming, several_processes, writes
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.conditions import conditions
from paceline.syntax.program import CallSite
from paceline.syntax.values import ClassValue, FunctionValue, Named

_PACKAGES = ("torchvision.datasets.", "torchaudio.datasets.", "torchtext.datasets.", "medmnist.", "torch_geometric.")
_DOWNLOADS = ("urllib.request.urlretrieve", "torch.hub.load", "wget.download",
              "gdown.download", "nltk.download", "torchvision.datasets.utils.download_url",
              "torchvision.datasets.utils.download_and_extract_archive")  # fmt: skip


class DownloadOnEveryRank(Rule):
    """Downloads on all ranks."""

    code, name, topic = "DP084", "download-on-every-rank", "files"
    faults = ("F103", "F104")
    severity = "warning"
    valid = {
        "rank 0 downloads, the others wait": """
            from torchvision import datasets

            dist.init_process_group("gloo")
            if int(os.environ["LOCAL_RANK"]) == 0:
                datasets.MNIST("data", download=True)
            dist.barrier()
            data = datasets.MNIST("data", download=False)
        """,
        "the others wait in front of it": """
            from torchvision import datasets

            def build(rank):
                if rank != 0:
                    dist.barrier()
                data = datasets.MNIST("data", download=True)
                if rank == 0:
                    dist.barrier()
                return data

            dist.init_process_group("gloo")
            build(dist.get_rank())
        """,
        "an argument from the rank": """
            from torchvision import datasets

            dist.init_process_group("gloo")
            data = datasets.CIFAR10("data", download=dist.get_rank() == 0)
        """,
        "before the workers start": """
            from torchvision import datasets

            def worker(rank):
                dist.init_process_group("gloo", rank=rank, world_size=2)
                data = datasets.MNIST("data")

            if __name__ == "__main__":
                datasets.MNIST("data", download=True)
                mp.spawn(worker, nprocs=2)
        """,
    }
    invalid = {
        "a data set": """
            from torchvision import datasets

            def main():
                dist.init_process_group("gloo")
                data = datasets.MNIST("data", train=True, download=True)  # here

            main()
        """,
        "a data set of the script": """
            class Digits(Dataset):
                def __init__(self, root, download=False):
                    self.path = os.path.join(root, "digits.npz")
                    if download:
                        self.fetch()

                def fetch(self):
                    np.savez(self.path, digits=np.zeros(3))

            dist.init_process_group("gloo")
            data = Digits("data", download=True)  # here
        """,
        "a test of the rank before there is a process group": """
            from torchvision import datasets

            def is_main_process():
                return not dist.is_initialized() or dist.get_rank() == 0

            def main():
                if is_main_process():  # here
                    datasets.MNIST("data", download=True)
                dist.init_process_group("gloo")

            main()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not several_processes(script):
            return
        downloads = list(_downloads(script))
        for site in downloads:
            if script.paths.everywhere(site.node) is not None:
                yield Violation(
                    site.node,
                    "every rank downloads or prepares the data at the same time, into the same place",
                    "do it on rank 0 of each node, then call dist.barrier(), then make the data set on all ranks",
                )
        yield from _behind_early_tests(script, downloads)


def _behind_early_tests(script: Script, downloads: list[CallSite]) -> Iterator[Violation]:
    """Downloads and writes behind a test of the rank that holds everywhere."""
    work: list[tuple[CallSite, ast.expr | None]] = [(site, None) for site in downloads]
    work += [(each.site, each.path) for each in writes(script) if each.effect is Effect.WRITE]
    reported: set[ast.AST] = set()
    for site, name in work:
        for path in script.paths.to(site.node):
            test = _early_test(script, path)
            if test is None or test in reported:
                continue
            if name is None or naming(script, name, path.context) is Naming.SAME:
                reported.add(test)
                yield Violation(
                    test,
                    "this test of the rank runs before init_process_group, where every process takes itself for rank 0;"
                    f" all of them run line {site.node.lineno}",
                    'test int(os.environ["RANK"]), or do it after init_process_group',
                )


def _downloads(script: Script) -> Iterator[CallSite]:
    yield from script.calls(*_DOWNLOADS)
    for function in script.program.functions:
        for call in function.calls:
            if any(each.arg == "download" for each in call.keywords) and script.literals(call, "download") == {True}:
                site = _of_data_set(script, call)
                if site is not None:
                    yield site


def _of_data_set(script: Script, call: ast.Call) -> CallSite | None:
    for value in script.values(call.func):
        function = script.function_of(call)
        if isinstance(value, Named) and value.name.startswith(_PACKAGES):
            return CallSite(value.name, call, function)
        if isinstance(value, ClassValue | FunctionValue) and _prepares(script, call):
            return CallSite(ast.unparse(call.func), call, function)
    return None


def _prepares(script: Script, call: ast.Call) -> bool:
    """True if a call of the script's own downloads, or writes files that have the same name on all ranks."""
    reached = {id(each.node) for each in script.loops.called(call)}
    if any(id(site.node) in reached for site in script.calls(*_DOWNLOADS)):
        return True
    for write in writes(script):
        if id(write.site.node) in reached and write.effect is Effect.WRITE:
            path = script.paths.everywhere(write.site.node)
            if path is not None and naming(script, write.path, path.context) is Naming.SAME:
                return True
    return False


def _early_test(script: Script, path: Path) -> ast.expr | None:
    """A test of the rank that runs before the process group exists, by a function that then says 0."""
    if path.ranks is not Ranks.ZERO:
        return None
    starts = [each for site in script.calls(*START) for each in script.paths.to(site.node)]
    if not starts or not all(runs_before(path, each) for each in starts):
        return None
    tests = [each.test for at in path.frames for each in conditions(at.function.module, at.node)]
    return next((each for each in tests if _asks_the_group(script, each)), None)


def _asks_the_group(script: Script, test: ast.expr) -> bool:
    for each in script.origins.of(test):
        if isinstance(each.node, ast.Call):
            names = script.program.callee_names(each.node)
            if "torch.distributed.is_initialized" in names or "torch.distributed.is_available" in names:
                return True
    called = (node for node in walk(test) if isinstance(node, ast.Call))
    return any(
        "is_initialized" in ast.unparse(function.node)
        for call in called
        for function, _ in script.program.evaluator.callees(call)
    )
