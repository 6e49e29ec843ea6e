"""The optimizer steps on gradients that DDP did not synchronize.

What it does:
    Compares the condition of `no_sync()` (or of `require_backward_grad_sync`) with the condition of `optimizer.step()`
    for every micro-step of an accumulation window, the last window of an epoch included.

Why is this bad:
    DDP must synchronize in the last backward pass before a step. If it does so in another micro-step, each rank steps
    on gradients that are partly its own, and the copies of the model drift apart. Nothing reports it.

Repair:
    Use one variable for both: `last = (i + 1) % accumulate == 0 or i + 1 == len(loader)`, then
    `with nullcontext() if last else model.no_sync():` and `if last: optimizer.step()`.

Known problems:
    Counters that are increased by hand, and conditions of other functions, are left out.

References:
    F25. https://github.com/modelscope/FunASR/pull/3472
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.accumulation import accumulations, steps_without
from paceline.check.analyses.no_sync_blocks import controls
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation


class NoSyncOffByOne(Rule):
    """Steps behind a backward pass under `no_sync`."""

    code, name, topic = "DP025", "no-sync-off-by-one", "gradients"
    faults = ("F25",)
    severity = "error"
    valid = {
        "one flag for both": """
            from contextlib import nullcontext

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i, (x, y) in enumerate(loader):
                update = (i + 1) % 4 == 0 or i + 1 == len(loader)
                with nullcontext() if update else model.no_sync():
                    (F.mse_loss(model(x), y) / 4).backward()
                if update:
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "a flag of the wrapper, as in nanoGPT": """
            dist.init_process_group("gloo")
            ddp = int(os.environ.get("RANK", -1)) != -1
            steps = 4
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            while True:
                for micro_step in range(steps):
                    if ddp:
                        model.require_backward_grad_sync = micro_step == steps - 1
                    loss = model(torch.randn(4, 2)).mean() / steps
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        """,
        "counted from one": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            accumulate = int(sys.argv[1])
            for step, (x, y) in enumerate(loader, start=1):
                if step % accumulate != 0:
                    with model.no_sync():
                        (F.mse_loss(model(x), y) / accumulate).backward()
                else:
                    (F.mse_loss(model(x), y) / accumulate).backward()
                    optimizer.step()
                    optimizer.zero_grad()
        """,
    }
    invalid = {
        "the first micro-step synchronizes": """
            import contextlib

            def train(model, loader, optimizer, accumulate):
                for i, (x, y) in enumerate(loader):
                    context = model.no_sync() if i % accumulate != 0 else contextlib.nullcontext()  # here
                    with context:
                        (F.mse_loss(model(x), y) / accumulate).backward()
                    if (i + 1) % accumulate == 0:
                        optimizer.step()
                        optimizer.zero_grad()

            dist.init_process_group("gloo")
            data = Numbers()
            model = DDP(nn.Linear(2, 1))
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            train(model, loader, torch.optim.SGD(model.parameters(), lr=0.1), 4)
        """,
        "the last window": """
            from contextlib import nullcontext

            class Trainer:
                def __init__(self, accumulate=4):
                    self.accumulate = accumulate
                    data = Numbers()
                    self.loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
                    self.model = DDP(nn.Linear(2, 1))
                    self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

                def fit(self):
                    for step, (x, y) in enumerate(self.loader):
                        boundary = (step + 1) % self.accumulate == 0
                        with nullcontext() if boundary else self.model.no_sync():  # here
                            (F.mse_loss(self.model(x), y) / self.accumulate).backward()
                        if boundary or step + 1 == len(self.loader):
                            self.optimizer.step()
                            self.optimizer.zero_grad()

            dist.init_process_group("gloo")
            Trainer().fit()
        """,
        "a flag that is never set": """
            dist.init_process_group("gloo")
            steps = 4
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            while True:
                for micro_step in range(steps):
                    model.require_backward_grad_sync = micro_step == steps  # here
                    loss = model(torch.randn(4, 2)).mean() / steps
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        """,
        "two branches": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i, (x, y) in enumerate(loader):
                if i % 4 == 0:
                    (F.mse_loss(model(x), y) / 4).backward()
                else:
                    with model.no_sync():  # here
                        (F.mse_loss(model(x), y) / 4).backward()
                if (i + 1) % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers:
            return
        reported: set[ast.AST] = set()
        for accumulation in accumulations(script):
            for control in controls(script, accumulation):
                if control.node in reported:
                    continue
                step = steps_without(script, accumulation, control.is_off)
                if step is not None:
                    reported.add(control.node)
                    yield Violation(
                        control.node,
                        "the optimizer steps after a micro-step in which DDP does not synchronize, so each rank steps"
                        " on gradients that are partly its own",
                        "use the condition of optimizer.step, the last window included, to turn synchronization on",
                        evidence={"step_line": getattr(accumulation.step.node, "lineno", 0)},
                    )
