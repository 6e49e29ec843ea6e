"""A mean loss is multiplied or divided by the world size although DDP averages gradients.

What it does:
    Looks for losses with the world size as a factor or divisor that reach `backward` of a model in DDP. If the loss is
    certainly a mean, it is a `warning`; if reading does not show what it is, an `info`. Sums are left out.

Why is this bad:
    DDP divides the sum of the gradients by the number of ranks. For a mean loss that is all: times N the learning rate
    is N times too large, divided by N it is N times too small. Adam hides it from the loss curve.

Repair:
    Remove the factor. Keep it where the loss is a sum, or a mean over samples gathered from all ranks.

Known problems:
    A deliberate linear scaling of the learning rate can be written as a factor of the loss.

References:
    F24. https://github.com/neuralmagic/sparseml/pull/135
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.gradient_edits import edits_gradients
from paceline.check.analyses.loss_terms import Term, behind, losses, reduction, scaled_by_world
from paceline.check.analyses.script import Script
from paceline.check.analyses.synchronized_names import may_synchronize
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import last_name


class LossTimesWorld(Rule):
    """The world size in a loss."""

    code, name, topic = "DP023", "loss-times-world", "gradients"
    faults = ("F24",)
    severity = "warning"
    valid = {
        "a sum": """
            dist.init_process_group("gloo")
            world = dist.get_world_size()
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                loss = F.mse_loss(model(x), y, reduction="sum") * world
                loss.backward()
        """,
        "a mean over gathered samples": """
            def gathered(t):
                parts = [torch.empty_like(t) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, t.detach())
                parts[dist.get_rank()] = t
                return torch.cat(parts)

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                z = gathered(model(x))
                loss = torch.cdist(z, z).mean()
                (loss * dist.get_world_size()).backward()
        """,
        "the number that is logged": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                loss.backward()
                mean = loss.detach() / dist.get_world_size()
                dist.all_reduce(mean)
        """,
        "no wrapper": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = nn.Linear(2, 1)
            for x, y in loader:
                loss = F.mse_loss(model(x), y) / dist.get_world_size()
                loss.backward()
                for p in model.parameters():
                    dist.all_reduce(p.grad)
        """,
    }
    invalid = {
        "times the world size": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                loss = loss * dist.get_world_size()  # here
                loss.backward()
        """,
        "divided once more": """
            class Trainer:
                def __init__(self, rank, world_size):
                    self.world_size = world_size
                    self.model = DDP(nn.Linear(2, 1))
                    self.criterion = nn.CrossEntropyLoss()
                    data = Numbers()
                    self.loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))

                def loss(self, x, y):
                    return self.criterion(self.model(x), y)

                def fit(self):
                    for x, y in self.loader:
                        loss = self.loss(x, y)
                        loss /= self.world_size  # here
                        loss.backward()

            def worker(rank, world_size):
                dist.init_process_group("gloo", rank=rank, world_size=world_size)
                Trainer(rank, world_size).fit()

            if __name__ == "__main__":
                mp.spawn(worker, args=(2,), nprocs=2)
        """,
        "a loss that cannot be read": """
            from losses import detection_loss

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                loss = detection_loss(model(x), y)
                loss *= dist.get_world_size()  # here
                loss.backward()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not script.wrappers or edits_gradients(script):
            return
        if any(True for _ in script.method_calls("register_comm_hook")):
            return
        found: dict[ast.expr, list[tuple[Term, bool]]] = {}
        for _, _, terms in losses(script):
            for term in terms:
                for divides in (False, True):
                    factor = scaled_by_world(script, term.factors, divides=divides)
                    if factor is not None and not scaled_by_world(script, term.factors, divides=not divides):
                        found.setdefault(factor.node, []).append((term, divides))
        for node, scaled in found.items():
            kinds = {reduction(script, term) for term, _ in scaled if not _is_factor(term)}
            if kinds <= {"mean", None} and kinds and not any(_gathers(script, term) for term, _ in scaled):
                yield _violation(node, scaled[0][1], certain=kinds == {"mean"})


def _violation(node: ast.expr, divides: bool, *, certain: bool) -> Violation:
    does = "divided by" if divides else "multiplied by"
    times = "1/N of" if divides else "N times"
    kind = "mean" if certain else "loss"
    return Violation(
        node,
        f"the {kind} is {does} the world size before backward, but DDP averages gradients already: the gradient is"
        f" {times} that of one device",
        "remove the factor" if certain else "remove the factor if the loss is a mean over the local batch",
        severity=None if certain else "info",
    )


def _is_factor(term: Term) -> bool:
    """A weight or the world size itself, which stands beside the loss in a product."""
    return not isinstance(term.node, ast.Call) or "world" in last_name(term.node.func)


def _gathers(script: Script, term: Term) -> bool:
    """True if samples of other ranks are in the loss."""
    return any(
        (isinstance(each, ast.Call) and may_synchronize(last_name(each.func)))
        or (isinstance(each, ast.Name) and _filled_by_gather(script, each))
        for each, _ in behind(script, term.node, term.context)
    )


def _filled_by_gather(script: Script, name: ast.Name) -> bool:
    return any(
        "gather" in last_name(call.func) and any(isinstance(at, ast.Name) and at.id == name.id for at in call.args)
        for call in script.function_of(name).calls
    )
