"""DDP averages the gradients of a loss that is a sum over the batch.

What it does:
    Looks for losses that are summed over the local batch (`reduction="sum"`, `.sum()`) and reach `backward` of a model
    in DDP without a division by a count or a multiplication by the world size.

Why is this bad:
    DDP divides the sum of the gradients by the number of ranks. For a loss that is a mean this gives the mean over the
    global batch. For a sum it gives the gradient of the global sum divided by N: the learning rate is N times too
    small, and weight decay and clipping weigh N times more. Adam hides most of it.

Repair:
    Use the mean, or multiply the loss by the world size.

Known problems:
    A learning rate that was tuned for the smaller gradient is right; reading does not show it.

References:
    F23. https://github.com/pytorch/pytorch/issues/37359
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.gradient_edits import edits_gradients
from paceline.check.analyses.loss_terms import (
    Term,
    behind,
    is_local,
    losses,
    reduced_tensor,
    reduction,
    scaled_by_world,
    unresolved,
)
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import last_name


class SummedLoss(Rule):
    """Losses that are sums over the local batch."""

    code, name, topic = "DP021", "summed-loss", "gradients"
    faults = ("F23",)
    severity = "warning"
    valid = {
        "a mean": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
        """,
        "a sum times the world size": """
            class ComputeLoss:
                def __call__(self, prediction, target):
                    items = F.mse_loss(prediction, target, reduction="sum")
                    return 0.05 * items, items.detach()

            dist.init_process_group("gloo")
            WORLD_SIZE = int(os.environ.get("WORLD_SIZE", 1))
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            compute_loss = ComputeLoss()
            for x, y in loader:
                loss, items = compute_loss(model(x), y)
                if WORLD_SIZE > 1:
                    loss *= WORLD_SIZE
                loss.backward()
        """,
        "a sum divided by the size of the batch": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                loss = F.mse_loss(model(x), y, reduction="sum") / len(x)
                loss.backward()
        """,
        "a penalty on parameters": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                loss = F.mse_loss(model(x), y) + 1e-4 * model.module.weight.abs().sum()
                loss.backward()
        """,
    }
    invalid = {
        "a loss function that sums": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            criterion = nn.MSELoss(reduction="sum")
            for x, y in loader:
                loss = criterion(model(x), y)  # here
                loss.backward()
        """,
        "two sums of a helper": """
            def elbo(recon, x, mu, logvar):
                bce = F.binary_cross_entropy(recon, x, reduction="sum")  # here
                kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())  # here
                return bce + kld

            def train(model, loader, optimizer):
                for x, _ in loader:
                    optimizer.zero_grad()
                    recon, mu, logvar = model(x)
                    loss = elbo(recon, x, mu, logvar)
                    loss.backward()
                    optimizer.step()

            def main():
                dist.init_process_group("gloo")
                data = Numbers()
                loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
                model = DDP(nn.Linear(2, 1))
                train(model, loader, torch.optim.SGD(model.parameters(), lr=0.1))

            main()
        """,
        "a sum of squares in micro-steps": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            accumulate = 4
            for x, y in loader:
                loss = (model(x) - y).pow(2).sum()  # here
                (loss / accumulate).backward()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not (script.wrappers or "fsdp" in script.engines) or edits_gradients(script):
            return
        reported: set[ast.expr] = set()
        for _, _, terms in losses(script):
            for term in terms:
                if term.node not in reported and _is_sum(script, term):
                    reported.add(term.node)
                    yield Violation(
                        term.node,
                        "this loss is a sum over the local batch, and DDP divides its gradient by the number of ranks",
                        "take the mean over the batch, or multiply the loss by dist.get_world_size()",
                        evidence={"backward_line": term.backward.lineno},
                    )


def _is_sum(script: Script, term: Term) -> bool:
    if reduction(script, term) != "sum" or scaled_by_world(script, term.factors, divides=False):
        return False
    for each in term.factors:
        counts = "acc" in ast.unparse(each.node).lower()
        if each.divides and not counts:
            return False
        if not each.divides and unresolved(script, each.node, each.context):
            return False
    assert isinstance(term.node, ast.Call)
    tensor = reduced_tensor(term.node)
    if tensor is None or last_name(term.node.func) != "sum":
        return True  # a loss function with reduction="sum"
    return is_local(script, tensor, term.context) and not _of_means(script, term, tensor)


def _of_means(script: Script, term: Term, tensor: ast.expr) -> bool:
    """True if a tensor may hold means already, such as the losses of several tasks."""
    for each, context in behind(script, tensor, term.context):
        if isinstance(each, ast.Call):
            inner = Term(each, context, (), term.backward)
            if last_name(each.func) in ("stack", "cat", "mean") or reduction(script, inner) == "mean":
                return True
    return False
