"""Ranks choose the learning rate or the best weights by metrics of their own shards.

What it does:
    Looks for `ReduceLROnPlateau.step(metric)`, changes of the learning rate, and best weights, where the metric comes
    from this rank's data and passed no collective; and for metrics that Lightning monitors and `self.log` does not
    synchronize.

Why is this bad:
    Each rank sees another value. One rank lowers its learning rate, or restores other weights, and the copies of the
    model drift apart although their gradients are equal. Nothing reports it.

Repair:
    All-reduce the sum and the count of the metric first, and decide on the result.

Known problems:
    A metric that passes a function of another package is taken to be reduced there.

References:
    F84. https://github.com/huggingface/accelerate/issues/3797
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import SCHEDULERS
from paceline.check.analyses.local_decisions import is_call_of, local_origin, source_of
from paceline.check.analyses.local_values import LocalValues
from paceline.check.analyses.monitored_metrics import logged_by_each_rank
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.value_spread import Cause, Origin
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk


class LocalScheduler(Rule):
    """Learning rates and best weights by local metrics."""

    code, name, topic = "DP069", "local-scheduler", "control flow"
    faults = ("F84",)
    severity = "warning"
    valid = {
        "a reduced loss": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            for epoch in range(3):
                total = torch.zeros(1)
                for x, y in loader:
                    loss = F.mse_loss(model(x), y)
                    loss.backward()
                    optimizer.step()
                    total += loss.detach()
                dist.all_reduce(total)
                scheduler.step(total.item())
        """,
        "a metric of the whole set on every rank": """
            def evaluate(model, loader):
                return sum(F.mse_loss(model.module(x), y).item() for x, y in loader)

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            held_out = DataLoader(Numbers(), batch_size=8)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            for epoch in range(3):
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()
                scheduler.step(evaluate(model, held_out))
        """,
    }
    invalid = {
        "a monitored metric of Lightning": """
            import lightning as L
            from lightning.pytorch.callbacks import ModelCheckpoint

            class Net(L.LightningModule):
                def __init__(self):
                    super().__init__()
                    self.net = nn.Linear(2, 1)

                def validation_step(self, batch, index):
                    x, y = batch
                    loss = F.mse_loss(self.net(x), y)
                    self.log("val_loss", loss)  # here
                    self.log("val_size", len(x))

            best = ModelCheckpoint(monitor="val_loss")
            trainer = L.Trainer(devices=2, strategy="ddp", callbacks=[best])
            trainer.fit(Net(), DataLoader(Numbers()), DataLoader(Numbers()))
        """,
        "the mean training loss of the rank": """
            def train_epoch(model, loader, optimizer):
                total = 0.0
                for x, y in loader:
                    loss = F.mse_loss(model(x), y)
                    loss.backward()
                    optimizer.step()
                    total += loss.item()
                return total / len(loader)

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            for epoch in range(3):
                mean = train_epoch(model, loader, optimizer)
                scheduler.step(mean)  # here
        """,
        "best weights by the score of a shard": """
            def evaluate(model, loader):
                hits = 0
                for x, y in loader:
                    hits += (model(x).argmax(1) == y).sum().item()
                return hits / len(loader)

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            held_out = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            best, weights = 0.0, None
            for epoch in range(3):
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()
                score = evaluate(model, held_out)
                if score > best:  # here
                    best, weights = score, copy.deepcopy(model.state_dict())
            model.load_state_dict(weights)
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        yield from _schedulers(script)
        for site, metric in logged_by_each_rank(script):
            yield Violation(
                site.node,
                f"{metric} is monitored, but each rank logs the mean over its own batches, and rank 0's decides",
                "pass sync_dist=True to self.log, or log a metric of torchmetrics",
            )
        for function in script.program.functions:
            if function.calls:
                yield from _choices(script, function.node)


def _schedulers(script: Script) -> Iterator[Violation]:
    values = LocalValues.of(script)
    for site in script.method_calls("step"):
        receiver = site.node.func.value  # type: ignore[attr-defined]
        if not site.node.args or not _is_scheduler(script, site.node, receiver):
            continue
        origin = values.origin(site.node.args[0])
        if origin.local and origin.cause is Cause.DATA:
            yield Violation(
                site.node,
                f"each rank sets its learning rate by a metric of its own, from {source_of(origin)}; the copies of the"
                " model drift apart",
                "all-reduce the sum and the count of the metric before scheduler.step",
            )


def _is_scheduler(script: Script, call: ast.Call, receiver: ast.expr) -> bool:
    if any(name.startswith(SCHEDULERS) for name in script.program.callee_names(call)):
        return True
    return any(part in ast.unparse(receiver).lower() for part in ("sched", "plateau"))


def _choices(script: Script, function: ast.AST) -> Iterator[Violation]:
    """Branches on a local metric that keep weights or change the learning rate."""
    for node in _own_branches(function):
        chosen = _chosen(script, node)
        if chosen is None:
            continue
        origin = local_origin(script, node.test)
        if origin is None or origin.cause is not Cause.DATA or script.where(node) is not Ranks.ALL:
            continue
        yield _choice(node, chosen, origin)


def _choice(node: ast.If, chosen: str, origin: Origin) -> Violation:
    return Violation(
        node.test,
        f"each rank {chosen} by a metric of its own, from {source_of(origin)}; ranks decide differently",
        "all-reduce the sum and the count of the metric before the comparison",
    )


def _own_branches(function: ast.AST) -> Iterator[ast.If]:
    stack = list(ast.iter_child_nodes(function))
    while stack:
        at = stack.pop()
        if isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda | ast.expr):
            continue
        if isinstance(at, ast.If):
            yield at
        stack.extend(ast.iter_child_nodes(at))


def _chosen(script: Script, node: ast.If) -> str | None:
    for statement in node.body:
        for at in walk(statement):
            if is_call_of(at, "deepcopy") and any("state_dict" in ast.unparse(each) for each in at.args):  # type: ignore[attr-defined]
                return "keeps weights"
            if is_call_of(at, "load_state_dict"):
                return "restores weights"
            if isinstance(at, ast.Assign | ast.AugAssign) and _sets_learning_rate(at):
                return "sets its learning rate"
    return None


def _sets_learning_rate(node: ast.Assign | ast.AugAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(
        isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Constant) and each.slice.value == "lr"
        for each in targets
    )
