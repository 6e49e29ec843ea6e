"""State is restored on some ranks only, and training goes on.

What it does:
    Looks for `load_state_dict` under a test of the rank, before a training loop: of a model that DDP has wrapped
    already, and of an optimizer, a scheduler or a gradient scaler at any time.

Why is this bad:
    DDP sends parameters from rank 0 only when it wraps the model. What one rank loads later stays on that rank: every
    rank trains other weights, or steps with other moments, and nothing ever repairs it.

Repair:
    Load on all ranks, with `map_location`. Weights can be loaded on rank 0 alone before DDP wraps the model.

Known problems:
    State that the script sends itself with broadcasts is right; any broadcast behind the load is taken for that.

References:
    F95. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import OPTIMIZERS, SCHEDULERS
from paceline.check.analyses.process_paths import Path, meeting, runs_before
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import last_name
from paceline.syntax.values import Object

_SENDS = ("broadcast", "scatter", "all_gather", "sync")


class RestoredOnSomeRanks(Rule):
    """Loads of state under a test of the rank."""

    code, name, topic = "DP078", "restored-on-some-ranks", "files"
    faults = ("F95",)
    severity = "error"
    valid = {
        "weights on rank 0 before the model is wrapped": """
            dist.init_process_group("gloo")
            net = nn.Linear(2, 1)
            if dist.get_rank() == 0:
                net.load_state_dict(torch.load("model.pt", map_location="cpu"))
            model = DDP(net)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(Numbers(), sampler=DistributedSampler(Numbers())):
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "everything on all ranks": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.Adam(model.parameters())
            state = torch.load("last.pt", map_location="cpu")
            model.module.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            for x, y in DataLoader(Numbers(), sampler=DistributedSampler(Numbers())):
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "rank 0 evaluates the best weights after training": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.Adam(model.parameters())
            for x, y in DataLoader(Numbers(), sampler=DistributedSampler(Numbers())):
                F.mse_loss(model(x), y).backward()
                optimizer.step()
            if dist.get_rank() == 0:
                model.module.load_state_dict(torch.load("best.pt", map_location="cpu"))
        """,
        "rank 0 loads and sends it": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.Adam(model.parameters())
            if dist.get_rank() == 0:
                model.module.load_state_dict(torch.load("last.pt", map_location="cpu"))
            for parameter in model.parameters():
                dist.broadcast(parameter.data, 0)
            for x, y in DataLoader(Numbers(), sampler=DistributedSampler(Numbers())):
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "the restored numbers are broadcast later": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            if dist.get_rank() == 0:
                optimizer.load_state_dict(torch.load("optimizer.pt", map_location="cpu"))
            for state in optimizer.state.values():
                dist.broadcast(state["momentum_buffer"], src=0)
            for step in range(3):
                model(torch.randn(4, 2)).mean().backward()
                optimizer.step()
        """,
    }
    invalid = {
        "weights after the model is wrapped": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            if dist.get_rank() == 0:
                model.module.load_state_dict(torch.load("model.pt", map_location="cpu"))  # here
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in DataLoader(Numbers(), sampler=DistributedSampler(Numbers())):
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "an optimizer, in a helper": """
            def resume(optimizer, path):
                if dist.get_rank() > 0:
                    return
                optimizer.load_state_dict(torch.load(path, map_location="cpu"))  # here

            def train(model, optimizer):
                for x, y in DataLoader(Numbers(), sampler=DistributedSampler(Numbers())):
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()

            def main():
                dist.init_process_group("gloo")
                model = DDP(nn.Linear(2, 1))
                optimizer = torch.optim.AdamW(model.parameters())
                resume(optimizer, "optimizer.pt")
                train(model, optimizer)

            main()
        """,
        "a scheduler, in a class": """
            class Trainer:
                def __init__(self, rank):
                    self.rank = rank
                    self.model = DDP(nn.Linear(2, 1))
                    self.optimizer = torch.optim.Adam(self.model.parameters())
                    self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 10)
                    if self.rank == 0:
                        self.schedule.load_state_dict(torch.load("schedule.pt"))  # here

                def fit(self):
                    for x, y in DataLoader(Numbers(), sampler=DistributedSampler(Numbers())):
                        F.mse_loss(self.model(x), y).backward()
                        self.optimizer.step()
                    self.schedule.step()

            dist.init_process_group("gloo")
            Trainer(dist.get_rank()).fit()
        """,
        "only a flag is broadcast later": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.Adam(model.parameters())
            if dist.get_rank() == 0:
                optimizer.load_state_dict(torch.load("optimizer.pt", map_location="cpu"))  # here
            for step in range(3):
                with model.no_sync():
                    model(torch.randn(4, 2)).mean().backward()
                model(torch.randn(4, 2)).mean().backward()
                optimizer.step()
                stop = torch.tensor(float(os.path.exists("stop")))
                dist.broadcast(stop, src=0)
                if stop.item():
                    break
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain:
            return
        for site in script.method_calls("load_state_dict"):
            paths = script.paths.to(site.node)
            path = next((each for each in paths if each.ranks is not Ranks.ALL), None)
            if path is None or any(each.ranks is Ranks.ALL for each in paths):
                continue
            what = _what(script, site.node, path)
            if what and _trains_later(script, path) and not _sent_later(script, path):
                yield Violation(
                    site.node,
                    f"{path.ranks.value} alone restore{'s' if path.ranks is Ranks.ZERO else ''} {what}, and training"
                    " goes on with different state on the ranks",
                    "load on all ranks, with map_location"
                    + ("; or on rank 0 before DDP wraps the model" if what == "the model" else ""),
                )


def _what(script: Script, call: ast.Call, path: Path) -> str:
    """Kind of state that must be equal on all ranks; empty if it need not be."""
    assert isinstance(call.func, ast.Attribute)
    receiver = call.func.value
    for value in script.values(receiver, path.context):
        if isinstance(value, Object):
            if value.name.startswith(SCHEDULERS):
                return "a scheduler"
            if value.name.startswith(OPTIMIZERS):
                return "an optimizer"
            if "GradScaler" in value.name:
                return "a gradient scaler"
    if script.is_wrapped(receiver, path.context):
        return "the model"
    if script.is_inner(receiver, path.context) and all(
        runs_before(wrap, path) for wrapper in script.wrappers for wrap in script.paths.to(wrapper.site.node)
    ):
        return "the model" if script.wrappers else ""
    return ""


def _trains_later(script: Script, path: Path) -> bool:
    """True if a training loop comes behind the load."""
    return any(
        runs_before(path, other)
        for loop in script.loops.training
        for other in script.paths.to(loop.node)
        if other.ranks is Ranks.ALL
    )


def _sent_later(script: Script, path: Path) -> bool:
    """True if the script sends state to other ranks behind the load."""
    for frame in path.frames:
        for call in frame.function.calls:
            later = call.lineno >= getattr(frame.node, "lineno", 0) and not _is_number(script, call)
            name = last_name(call.func)
            if later and name != "no_sync" and any(part in name for part in _SENDS):
                return True
    sends = (call for function in script.program.functions for call in function.calls)
    return any(
        "broadcast" in last_name(call.func)
        and not _is_number(script, call)
        and any(_behind(path, other) for other in script.paths.to(call))
        for call in sends
    )


def _is_number(script: Script, call: ast.Call) -> bool:
    """True if a call sends a number that the script computes, such as a flag, and no state."""
    values = script.values(call.args[0]) if call.args else frozenset()
    return bool(values) and all(
        isinstance(each, Object) and each.name in ("torch.tensor", "torch.as_tensor") for each in values
    )


def _behind(path: Path, other: Path) -> bool:
    return meeting(path, other) is not None and runs_before(path, other)
