"""The loop trains the variable that was wrapped, not the wrapper.

What it does:
    Looks for a model that is wrapped in DDP under another name, and a training loop whose loss comes from the original
    variable.

Why is this bad:
    `ddp = DDP(net)` leaves `net` as it is. A forward of `net` never reaches DDP, so each rank trains on its own data
    without synchronization, and nothing reports it.

Repair:
    Use one name: `net = DDP(net)`.

Fix safety:
    Only where `ddp = DDP(net)` is a statement of the same function's body, before the loop, and neither name is bound
    again: then `net(x)` becomes `ddp(x)`. It is safe: the wrapper runs the same forward, and averages the gradients.

Known problems:
    A loop that trains before the model is wrapped is left out, as far as the order can be read.

References:
    F38, F37. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.bypassed_wrappers import bypasses
from paceline.check.analyses.script import Script
from paceline.check.edits import Edit, replace
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk


class OriginalVariableUsed(Rule):
    """Training with the variable from before wrapping."""

    code, name, topic = "DP036", "original-variable-used", "wrapping"
    faults = ("F38", "F37")
    severity = "error"
    fixes = True
    valid = {
        "the original variable evaluates and saves": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            net = nn.Linear(2, 1)
            ddp = DDP(net)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(ddp(x), y).backward()
                optimizer.step()
            with torch.no_grad():
                print(net(x))
        """,
        "trained alone before it is wrapped": """
            def train(model, loader):
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            net = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(net(x), y).backward()
                optimizer.step()
            ddp = DDP(net)
            train(ddp, loader)
        """,
        "one attribute, wrapped in place": """
            class Trainer:
                def __init__(self, net):
                    self.net = net
                    self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
                    self.net = DDP(self.net)

                def run(self, loader):
                    for x, y in loader:
                        F.mse_loss(self.net(x), y).backward()
                        self.optimizer.step()

            dist.init_process_group("gloo")
            data = Numbers()
            Trainer(nn.Linear(2, 1)).run(DataLoader(data, sampler=DistributedSampler(data)))
        """,
    }
    invalid = {
        "two names": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            net = nn.Linear(2, 1)
            ddp = DDP(net)
            optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(net(x), y).backward()  # here
                optimizer.step()
        """,
        "the wrapper is made in a method and forgotten": """
            class Trainer:
                def __init__(self, net):
                    self.net = net
                    self.ddp = DDP(net)
                    self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.1)

                def step(self, x, y):
                    prediction = self.net(x)  # here
                    return F.mse_loss(prediction, y)

                def run(self, loader):
                    for x, y in loader:
                        loss = self.step(x, y)
                        loss.backward()
                        self.optimizer.step()

            dist.init_process_group("gloo")
            data = Numbers()
            Trainer(nn.Linear(2, 1)).run(DataLoader(data, sampler=DistributedSampler(data)))
        """,
        "the original is passed to the training function": """
            def train(model, loader, optimizer):
                for x, y in loader:
                    loss = F.mse_loss(model(x), y)  # here
                    loss.backward()
                    optimizer.step()

            def worker(rank, world):
                dist.init_process_group("gloo", rank=rank, world_size=world)
                data = Numbers()
                loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
                model = nn.Linear(2, 1)
                model_ddp = DDP(model)
                train(model, loader, torch.optim.SGD(model_ddp.parameters(), lr=0.1))

            mp.spawn(worker, args=(2,), nprocs=2)
        """,
        "the original has synchronized batch norm": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            net = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
            net = nn.SyncBatchNorm.convert_sync_batchnorm(net)
            ddp = DDP(net)
            optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(net(x), y).backward()  # here
                optimizer.step()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        lines: set[int] = set()
        for found in bypasses(script):
            if found.kind != "variable" or found.node.lineno in lines:
                continue
            lines.add(found.node.lineno)
            base = ast.unparse(found.base)
            yield Violation(
                found.node,
                f"the loss comes from {base}, the model as it was before wrapping, so its gradients are not averaged",
                "train through the object that DDP(...) returns; give it the name of the model",
                edits=_repair(script, found.node),
            )


def _repair(script: Script, call: ast.Call) -> tuple[Edit, ...]:
    """The name of the wrapper in the place of the model's."""
    function = script.function_of(call)
    if not isinstance(call.func, ast.Name):
        return ()
    names = [each for each in walk(function.node) if isinstance(each, ast.Name)]
    stored = [each for each in names if not isinstance(each.ctx, ast.Load)]
    for wrapper in script.wrappers:
        match function.module.parents.get(wrapper.site.node):
            case ast.Assign(targets=[ast.Name() as target]) as statement:
                pass
            case _:
                continue
        if wrapper.site.function is not function or statement.lineno >= call.lineno:
            continue
        model = wrapper.site.node.args[0] if wrapper.site.node.args else None
        again = [each for each in stored if each.id == call.func.id and each.lineno >= statement.lineno]
        once = sum(each.id == target.id for each in stored) == 1
        of_model = isinstance(model, ast.Name) and model.id == call.func.id
        if of_model and once and not again and function.module.parents.get(statement) is function.node:
            return (replace(call.func, target.id),)
    return ()
