"""A run that is resumed lacks state that the checkpoint does not hold.

What it does:
    Looks at the dictionaries that a script saves with the state of its optimizer, in scripts that load such a
    checkpoint again. Reports a learning rate scheduler or a gradient scaler that the script uses in training and does
    not save, and an epoch or step that is missing. Also training loops that save in the middle of an epoch and cannot
    go on there.

Why is this bad:
    The resumed run starts its schedule, its loss scale or its epoch count anew. Without the epoch `set_epoch` repeats
    the order of the first epochs. Nothing fails.

Repair:
    Add `scheduler.state_dict()`, `scaler.state_dict()` and the epoch to the checkpoint, and load them.

Known problems:
    Dictionaries that are filled in other ways than by keys, `update` and `dict(...)` are left out.

References:
    F99. https://docs.pytorch.org/tutorials/recipes/recipes/saving_and_loading_a_general_checkpoint.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.checkpoint_contents import (
    checkpoint_entries,
    restores_optimizer,
    saves,
    states_in,
    steps_in_training,
)
from paceline.check.analyses.framework_names import DISTRIBUTED_SAMPLERS
from paceline.check.analyses.script import Script
from paceline.check.analyses.training_loops import TrainingLoop
from paceline.check.analyses.written_files import given
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.values import Context, Mapping, Object

_COUNTS = ("epoch", "step", "iter", "global")


class IncompleteCheckpoint(Rule):
    """Checkpoints that lack state."""

    code, name, topic = "DP082", "incomplete-checkpoint", "files"
    faults = ("F99",)
    severity = "warning"
    valid = {
        "all state": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.Adam(model.parameters())
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
            state = torch.load("last.pt", map_location="cpu")
            optimizer.load_state_dict(state["optimizer"])
            for epoch in range(state["epoch"], 3):
                scheduler.step()
                torch.save({
                    "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "epoch": epoch
                }, "last.pt")
        """,
        "a file that is never loaded again": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.Adam(model.parameters())
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
            for epoch in range(3):
                scheduler.step()
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
        """,
        "the schedule is built at the epoch of the checkpoint": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.Adam(model.parameters())
            state = torch.load("last.pt", map_location="cpu")
            optimizer.load_state_dict(state["optimizer"])
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, last_epoch=state["epoch"])
            for epoch in range(state["epoch"], 3):
                scheduler.step()
                torch.save({"optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pt")
        """,
        "a schedule that goes on from the learning rate of the optimizer": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.Adam(model.parameters())
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
            state = torch.load("last.pt", map_location="cpu")
            optimizer.load_state_dict(state["optimizer"])
            for epoch in range(state["epoch"], 3):
                scheduler.step()
                torch.save({"optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pt")
        """,
    }
    invalid = {
        "the scheduler": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.Adam(model.parameters())
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
            state = torch.load("last.pt", map_location="cpu")
            optimizer.load_state_dict(state["optimizer"])
            for epoch in range(state["epoch"], 3):
                scheduler.step()
                torch.save({"optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pt")  # here
        """,
        "the batches of an epoch": """
            dist.init_process_group("gloo")
            data = Numbers()
            sampler = DistributedSampler(data)
            loader = DataLoader(data, sampler=sampler)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.Adam(model.parameters())
            state = torch.load("last.pt", map_location="cpu")
            optimizer.load_state_dict(state["optimizer"])
            for epoch in range(state["epoch"], 3):
                sampler.set_epoch(epoch)
                for step, (x, y) in enumerate(loader):  # here
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()
                    if step % 100 == 0:
                        torch.save({"optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pt")
        """,
        "the epoch, in a class": """
            class Trainer:
                def __init__(self, path):
                    self.path = path
                    self.model = DDP(nn.Linear(2, 1))
                    self.optimizer = torch.optim.Adam(self.model.parameters())
                    if os.path.exists(path):
                        state = torch.load(path, map_location="cpu")
                        self.model.module.load_state_dict(state["model"])
                        self.optimizer.load_state_dict(state["optimizer"])

                def fit(self, epochs, loader):
                    for epoch in range(epochs):
                        for x, y in loader:
                            F.mse_loss(self.model(x), y).backward()
                            self.optimizer.step()
                        self.save()

                def save(self):
                    state = {"model": self.model.module.state_dict()}
                    state["optimizer"] = self.optimizer.state_dict()
                    if dist.get_rank() == 0:
                        torch.save(state, self.path)  # here

            dist.init_process_group("gloo")
            Trainer("last.pt").fit(3, DataLoader(Numbers(), sampler=DistributedSampler(Numbers())))
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not restores_optimizer(script):
            return
        yield from _repeated_batches(script)
        if any("last_epoch" in module.stores_by_attribute for module in script.program.imports.modules):
            return  # the schedule is set to the epoch by hand
        reported: set[ast.AST] = set()
        for save in saves(script):
            missing = [_missing(script, save.saved, context) for context in save.contexts]
            lost = sorted(set.intersection(*missing))
            values = (each for at in save.contexts for each in script.values(save.saved, at))
            made = {each.node for each in values if isinstance(each, Mapping)}
            if lost and not made & reported and script.paths.to(save.node):
                reported |= made
                yield Violation(
                    save.node,
                    f"the checkpoint that training resumes from lacks {' and '.join(lost)}; a resumed run starts"
                    f" {'it' if len(lost) == 1 else 'them'} anew",
                    "add the missing state to the checkpoint, and load it on all ranks",
                    severity="info" if lost == ["the epoch"] else None,
                )


def _repeated_batches(script: Script) -> Iterator[Violation]:
    """Epochs that a resumed run begins anew, though the checkpoint was saved in the middle of one."""
    for loop in script.loops.training:
        loaders = [each for each in script.loaders if each.made in loop.iterated]
        if not loaders or len(loaders) != len(loop.iterated) or _skips(loop):
            continue
        samplers = {value for each in loaders for value in script.sampler(each)[0]}
        if not samplers or not all(isinstance(each, Object) and each.name in DISTRIBUTED_SAMPLERS for each in samplers):
            continue
        within = {id(each.node) for each in loop.reached}
        for site in script.calls("torch.save"):
            saved = given(site.node, "obj", 0) if id(site.node) in within else None
            paths = script.paths.to(site.node) if saved is not None else []
            if saved is not None and any("optimizer" in states_in(script, saved, each.context) for each in paths):
                yield Violation(
                    loop.node,
                    f"line {site.node.lineno} saves in the middle of an epoch, and a resumed run begins the epoch anew:"
                    " it trains twice on the first batches",
                    "save the number of batches as well, and skip them when the run is resumed",
                    severity="info",
                )
                break


def _skips(loop: TrainingLoop) -> bool:
    """True if the loop may leave batches out, or goes over something other than a loader itself."""
    if not isinstance(loop.node, ast.For):
        return True
    text = ast.unparse(loop.node.iter)
    return "skip" in text or "islice" in text or any(isinstance(each, ast.Continue) for each in walk(loop.node))


def _missing(script: Script, saved: ast.expr, context: Context | None) -> set[str]:
    """State that a dictionary with an optimizer in it does not hold; empty if it cannot be read."""
    values = script.values(saved, context)
    if len(values) != 1 or not isinstance(mapping := next(iter(values)), Mapping):
        return set()
    entries = checkpoint_entries(script, mapping)
    if entries is None:
        return set()
    held = {kind for value in entries.values() for kind in states_in(script, value, mapping.context)}
    if "optimizer" not in held or len(entries) < 2 or script.function_of(mapping.node).name == "state_dict":
        return set()
    found = {
        f"the {kind}"
        for kind in ("scheduler", "gradient scaler")
        if kind not in held and steps_in_training(script, kind)
    }
    keys = " ".join(entries).lower()
    names = " ".join(ast.unparse(value) for value in entries.values()).lower()
    if not any(part in keys or part in names for part in _COUNTS):
        found.add("the epoch")
    return found if not any(word in keys for word in ("sched", "scaler", "amp", "lr")) else found & {"the epoch"}
