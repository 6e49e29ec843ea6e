"""All ranks print the progress of training.

What it does:
    Looks for the first `print`, or progress bar without `disable=`, in the training loops of a script that all ranks
    reach and that does not show the rank. A script has one finding at most.

Why is this bad:
    Each line appears once for each rank, with values of different ranks and in any order. Progress bars overwrite each
    other. Nothing is wrong with the training itself.

Repair:
    `if dist.get_rank() == 0:` around the output, `tqdm(loader, disable=rank != 0)`.

Fix safety:
    Only bars of tqdm get `disable=dist.get_rank() != 0`, where the process group certainly has been started before and
    the file imports torch.distributed. It is safe: the loop runs as before.

Known problems:
    Loggers are left out, since their configuration may silence ranks.

References:
    F102. https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.call_order import runs_again_after
from paceline.check.analyses.imported_names import reach
from paceline.check.analyses.process_paths import Path
from paceline.check.analyses.rank_tests import RankKind
from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import several_processes
from paceline.check.edits import Edit, add_keyword
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.program import CallSite
from paceline.syntax.values import Object

_BARS = ("tqdm.tqdm", "tqdm.trange", "rich.progress.track")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class RepeatedOutput(Rule):
    """Output of all ranks."""

    code, name, topic = "DP086", "repeated-output", "files"
    faults = ("F102",)
    severity = "info"
    fixes = True
    valid = {
        "rank 0 prints": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(Numbers(), sampler=DistributedSampler(Numbers())):
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                if dist.get_rank() == 0:
                    print(loss.item())
        """,
        "the line shows the rank": """
            dist.init_process_group("gloo")
            rank = dist.get_rank()
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(Numbers(), sampler=DistributedSampler(Numbers())):
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                print(f"[{rank}] {loss.item()}")
        """,
        "print is replaced on other ranks": """
            import builtins

            def setup_for_distributed(is_master):
                builtin_print = builtins.print

                def print(*args, **kwargs):
                    if is_master:
                        builtin_print(*args, **kwargs)

                builtins.print = print

            dist.init_process_group("gloo")
            setup_for_distributed(dist.get_rank() == 0)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(Numbers(), sampler=DistributedSampler(Numbers())):
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                print(loss.item())
        """,
        "a sampler for one process": """
            data = Numbers()
            model = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(data, sampler=DistributedSampler(data, num_replicas=1, rank=0)):
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                print(loss.item())
        """,
    }
    invalid = {
        "in the loop over epochs": """
            def train_epoch(model, loader, optimizer):
                for x, y in loader:
                    loss = F.mse_loss(model(x), y)
                    loss.backward()
                    optimizer.step()
                return loss

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loader = DataLoader(Numbers(), sampler=DistributedSampler(Numbers()))
            for epoch in range(3):
                loss = train_epoch(model, loader, optimizer)
                print(f"epoch {epoch}: {loss.item()}")  # here
                print("time", time.time())
        """,
        "a progress bar": """
            from tqdm import tqdm

            def main():
                dist.init_process_group("gloo")
                model = DDP(nn.Linear(2, 1))
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for x, y in tqdm(DataLoader(Numbers(), sampler=DistributedSampler(Numbers()))):  # here
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()

            main()
        """,
        "a progress bar that is moved by hand": """
            from tqdm import tqdm

            class Progress:
                def __init__(self):
                    self.bar = tqdm(total=3)  # here

                def step(self):
                    self.bar.update()

            dist.init_process_group("gloo")
            progress = Progress()
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(3):
                model(torch.randn(4, 2)).mean().backward()
                optimizer.step()
                progress.step()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not several_processes(script) or _replaces_print(script):
            return
        loops = _training_loops(script)
        if not loops:
            return
        sites = [*script.calls("builtins.print"), *script.calls(*_BARS)]
        for site in sorted(sites, key=lambda each: (each.module is not script.program.root, each.node.lineno)):
            path = script.paths.everywhere(site.node)
            if (
                path is not None
                and (_in_training(path, loops) or _by_hand(script, site))
                and not _tells_ranks_apart(script, site)
            ):
                bar = site.name in _BARS
                yield Violation(
                    site.node,
                    f"every rank {'shows a progress bar' if bar else 'prints this line'}, so the output appears once"
                    " for each rank",
                    "pass disable=rank != 0 to the progress bar" if bar else "print on rank 0 only",
                    edits=_repair(script, site) if bar else (),
                )
                return


def _by_hand(script: Script, site: CallSite) -> bool:
    """True if it is a progress bar that goes over nothing, and is moved by `update()` calls."""
    if site.name not in _BARS or site.node.args or any(each.arg == "iterable" for each in site.node.keywords):
        return False
    return any(
        isinstance(each, Object) and each.call is site.node
        for moved in script.method_calls("update")
        for each in script.values(moved.node.func.value)  # type: ignore[attr-defined]
    )


def _replaces_print(script: Script) -> bool:
    """True if the script silences other ranks in one place: it replaces `builtins.print` or `sys.stdout`."""
    return any(
        "print" in module.stores_by_attribute
        or "stdout" in module.stores_by_attribute
        or "setup_for_distributed" in module.calls_by_name
        for module in script.program.imports.modules
    )


def _training_loops(script: Script) -> set[ast.AST]:
    """Training loops, and the loops around them, of calling functions too."""
    found: set[ast.AST] = set()
    for loop in script.loops.training:
        found.add(loop.node)
        for path in script.paths.to(loop.node):
            for frame in path.frames:
                found |= {at for at in frame.function.module.ancestors(frame.node) if isinstance(at, _LOOPS)}
    return found


def _in_training(path: Path, loops: set[ast.AST]) -> bool:
    return any(at in loops for frame in path.frames for at in frame.function.module.ancestors(frame.node))


def _tells_ranks_apart(script: Script, site: CallSite) -> bool:
    """True if the output shows the rank, goes elsewhere, or is switched off on other ranks."""
    call = site.node
    if any(each.arg in ("disable", "file", None) for each in call.keywords):
        return True
    return any(
        script.ranks.kind(node) is not RankKind.NONE
        for argument in call.args
        for node in walk(argument)
        if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    )


def _repair(script: Script, site: CallSite) -> tuple[Edit, ...]:
    package = reach(site.module, "torch.distributed")
    started = any(
        script.paths.everywhere(each.node) is not None and runs_again_after(script, site.node, each.node)
        for each in script.calls("torch.distributed.init_process_group")
    )
    if not package or not started or not site.name.startswith("tqdm.") or len(site.node.args) > 2:
        return ()
    return (add_keyword(site.node, f"disable={package}.get_rank() != 0", site.module.source.text),)
