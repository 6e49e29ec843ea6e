"""Every epoch has the same order, because `set_epoch` is not called.

What it does:
    Looks for a training loader with a DistributedSampler that shuffles, in a loop over epochs, without a call of
    `set_epoch` that may reach the sampler.

Why is this bad:
    DistributedSampler seeds its shuffle with `seed + epoch`. Without `set_epoch` the epoch stays 0: all epochs go
    through the data in the same order, and each rank sees the same samples in all of them.

Repair:
    `sampler.set_epoch(epoch)` at the start of each epoch, with the same value on all ranks.

Fix safety:
    Safe: the call changes the order of samples alone. Offered where the sampler and the variable of the loop stand in
    the same function.

Known problems:
    Loops over steps that start the loader again at its end are not seen.

References:
    F06. https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.epoch_loops import (
    Loop,
    epoch_loops,
    epoch_variable,
    handed_on,
    reaches_sampler,
    receivers,
    set_epoch_calls,
    unclear,
)
from paceline.check.analyses.rank_shares import distributed_samplers, samplers
from paceline.check.analyses.script import Loader, Script
from paceline.check.edits import Edit
from paceline.check.rule import Rule, Violation
from paceline.syntax.values import Instance, Literal, Object


class MissingSetEpoch(Rule):
    """Samplers that give every epoch the same order."""

    code, name, topic = "DP004", "missing-set-epoch", "data"
    faults = ("F06",)
    severity = "warning"
    fixes = True
    valid = {
        "in the loop over epochs": """
            dist.init_process_group("gloo")
            data = Numbers()
            sampler = DistributedSampler(data)
            loader = DataLoader(data, batch_size=8, sampler=sampler)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()
        """,
        "through the loader, in a function": """
            def train(model, loader, optimizer, epoch):
                if hasattr(loader.sampler, "set_epoch"):
                    loader.sampler.set_epoch(epoch)
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for epoch in range(3):
                train(model, loader, torch.optim.SGD(model.parameters(), lr=0.1), epoch)
        """,
        "through getattr": """
            class Trainer:
                def __init__(self):
                    data = Numbers()
                    self.loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
                    self.model = DDP(nn.Linear(2, 1))
                    self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

                def fit(self, epochs):
                    for epoch in range(epochs):
                        hook = getattr(self.loader.sampler, "set_epoch", None)
                        if hook is not None:
                            hook(epoch)
                        for x, y in self.loader:
                            F.mse_loss(self.model(x), y).backward()
                            self.optimizer.step()

            dist.init_process_group("gloo")
            Trainer().fit(3)
        """,
        "no shuffle": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for epoch in range(3):
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()
        """,
        "one epoch": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
    }
    invalid = {
        "never called": """
            dist.init_process_group("gloo")
            data = Numbers()
            sampler = DistributedSampler(data)  # here
            loader = DataLoader(data, batch_size=8, sampler=sampler)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for epoch in range(3):
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()
        """,
        "the epoch of another sampler": """
            dist.init_process_group("gloo")
            train, test = Numbers(), Numbers()
            train_sampler = DistributedSampler(train)  # here
            test_sampler = DistributedSampler(test)
            loader = DataLoader(train, batch_size=8, sampler=train_sampler)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for epoch in range(3):
                test_sampler.set_epoch(epoch)
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()
        """,
        "a method for each epoch": """
            class Trainer:
                def __init__(self):
                    data = Numbers()
                    self.loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))  # here
                    self.model = DDP(nn.Linear(2, 1))
                    self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

                def epoch(self):
                    for x, y in self.loader:
                        F.mse_loss(self.model(x), y).backward()
                        self.optimizer.step()

                def fit(self, epochs):
                    for _ in range(epochs):
                        self.epoch()

            dist.init_process_group("gloo")
            Trainer().fit(3)
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or handed_on(script):
            return
        calls = set_epoch_calls(script)
        targets = [receivers(script, site) for site in calls]
        reported: set[ast.Call] = set()
        for loader in script.loaders:
            found = [each for each in distributed_samplers(samplers(script, loader)) if _shuffles(script, each)]
            if not found or not (loops := script.trains_on(loader)):
                continue
            epochs = next((around for loop in loops if (around := epoch_loops(script, loop))), None)
            if epochs is None:
                continue
            for sampler in found:
                if sampler.call in reported or any(
                    unclear(values) or reaches_sampler(values, sampler, loader) or _of_own_class(values)
                    for values in targets
                ):
                    continue
                if _seed_may_change(script, sampler) or _stores_epoch(script, sampler):
                    continue
                reported.add(sampler.call)
                yield Violation(
                    sampler.call,
                    "set_epoch is never called for this DistributedSampler, so every epoch has the same order",
                    "call sampler.set_epoch(epoch) at the start of each epoch",
                    edits=tuple(_repair(script, sampler, loader, epochs[0], loops[0].node)),
                )


def _shuffles(script: Script, sampler: Object) -> bool:
    """True if a sampler certainly shuffles."""
    argument = script.argument(sampler, "shuffle", 3)
    return argument.absent or (
        argument.certain
        and not argument.may_be_absent
        and script.program.evaluator.all_of(argument.given) == {Literal(True)}
    )


def _of_own_class(values: frozenset[object]) -> bool:
    """True if the epoch is set through an object of the script that may hold the sampler."""
    return any(isinstance(each, Instance) and "epoch" in "".join(each.cls.methods) for each in values) and any(
        isinstance(each, Instance) and each.cls.attributes for each in values
    )


def _seed_may_change(script: Script, sampler: Object) -> bool:
    """True if the sampler is made anew with a seed that may be that of the epoch."""
    argument = script.argument(sampler, "seed", 4)
    if not argument.given:
        return not argument.certain
    inside = any(isinstance(at, Loop) for at in script.function_of(sampler.call).module.ancestors(sampler.call))
    return any(not isinstance(each.node, ast.Constant) for each in argument.given) and (
        inside or sampler.context is not None
    )


def _stores_epoch(script: Script, sampler: Object) -> bool:
    """`sampler.epoch = epoch`."""
    for module in script.program.imports.modules:
        for target in module.stores_by_attribute.get("epoch", ()):
            if any(isinstance(each, Object) and each.call is sampler.call for each in script.values(target.value)):
                return True
    return False


def _repair(script: Script, sampler: Object, loader: Loader, epochs: Loop, training: Loop) -> Iterator[Edit]:
    """A call in front of the first statement of the loop over epochs."""
    function = script.function_of(epochs)
    variable = epoch_variable(epochs)
    name = _variable(script, sampler) or _variable(script, loader.made)
    if not variable or not name or script.function_of(training) is not function:
        return
    made = sampler.call if _variable(script, sampler) else loader.made.call
    if script.function_of(made) is not function or made.lineno > epochs.lineno:
        return
    of = name if made is sampler.call else f"{name}.sampler"
    first = epochs.body[0]
    at = first.lineno, first.col_offset
    yield Edit(at, at, f"{of}.set_epoch({variable})\n{' ' * first.col_offset}")


def _variable(script: Script, made: Object) -> str:
    """The variable that the object is assigned to as it is made."""
    parent = script.function_of(made.call).module.parents.get(made.call)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1 and isinstance(parent.targets[0], ast.Name):
        return parent.targets[0].id
    return ""
