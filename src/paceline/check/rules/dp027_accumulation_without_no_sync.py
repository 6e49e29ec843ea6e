"""Every micro-step of gradient accumulation ends in an all-reduce.

What it does:
    Looks for accumulation of gradients with a model in DDP in a script that never turns synchronization off.

Why is this bad:
    Only the last backward pass before `optimizer.step()` has to synchronize. With k micro-steps the gradients travel k
    times.

Repair:
    Run forward and backward of the other micro-steps within `model.no_sync()`.

Known problems:
    Where gradients are small or the network is fast, nothing is gained. With parameters that only some micro-steps use,
    every backward pass has to synchronize.

References:
    F28. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.accumulation import accumulations
from paceline.check.analyses.no_sync_blocks import mentions_no_sync
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation


class AccumulationWithoutNoSync(Rule):
    """Accumulation that synchronizes in every micro-step."""

    code, name, topic = "DP027", "accumulation-without-no-sync", "gradients"
    faults = ("F28",)
    severity = "info"
    valid = {
        "no_sync in all micro-steps but the last": """
            from contextlib import nullcontext

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i, (x, y) in enumerate(loader):
                last = (i + 1) % 4 == 0
                with nullcontext() if last else model.no_sync():
                    (F.mse_loss(model(x), y) / 4).backward()
                if last:
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "a step for each batch": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i, (x, y) in enumerate(loader):
                optimizer.zero_grad()
                F.mse_loss(model(x), y).backward()
                optimizer.step()
                if i % 10 == 0:
                    print(i)
        """,
    }
    invalid = {
        "a step every four batches": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i, (x, y) in enumerate(loader):
                (F.mse_loss(model(x), y) / 4).backward()  # here
                if (i + 1) % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "an inner loop of a function": """
            def update(model, batches, optimizer, micro_steps):
                optimizer.zero_grad()
                for _ in range(micro_steps):
                    x, y = next(batches)
                    loss = F.mse_loss(model(x), y) / micro_steps
                    loss.backward()  # here
                optimizer.step()

            dist.init_process_group("gloo")
            data = Numbers()
            batches = iter(DataLoader(data, batch_size=8, sampler=DistributedSampler(data)))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(10):
                update(model, batches, optimizer, 4)
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not script.wrappers or mentions_no_sync(script):
            return
        reported: set[ast.AST] = set()
        for each in accumulations(script):
            if each.micro not in reported and _accumulates(each.micro, each.window, bool(each.tests)):
                reported.add(each.micro)
                yield Violation(
                    each.backward.node,
                    f"DDP synchronizes in each of {ast.unparse(each.window)} micro-steps, though only the last one"
                    " before optimizer.step has to",
                    "run forward and backward of the other micro-steps within model.no_sync()",
                )


def _accumulates(micro: ast.AST, window: ast.expr, conditional: bool) -> bool:
    if conditional:
        return True
    target = ast.unparse(micro.target) if isinstance(micro, ast.For) else ""
    return any(part in f"{target} {ast.unparse(window)}".lower() for part in ("acc", "micro"))
