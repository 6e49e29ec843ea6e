"""Gradients of several micro-steps are added up, and the loss is not divided by their number.

What it does:
    Looks for training loops that step every few backward passes while the loss, certainly a mean, reaches `backward`
    without a division, and gradients are not scaled elsewhere.

Why is this bad:
    Backward passes add their gradients. With k micro-steps the gradient is k times that of the mean over the global
    batch, and k changes with the number of ranks as a rule: the learning rate, clipping and weight decay mean something
    else on each machine.

Repair:
    `(loss / accumulate).backward()`, with the true number of micro-steps in the last window of an epoch.

Known problems:
    A learning rate that was tuned for the sum is right; reading does not show it. A last window with fewer micro-steps
    that is divided by the full number is not reported.

References:
    F27. https://github.com/verl-project/verl/pull/3332
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.accumulation import Accumulation, accumulations
from paceline.check.analyses.gradient_edits import edits_gradients
from paceline.check.analyses.loss_terms import Term, reduction, terms
from paceline.check.analyses.script import Script
from paceline.check.analyses.world_size import is_world_size
from paceline.check.rule import Rule, Violation


class AccumulationNotDivided(Rule):
    """Accumulated means that are not divided."""

    code, name, topic = "DP024", "accumulation-not-divided", "gradients"
    faults = ("F27",)
    severity = "warning"
    valid = {
        "divided by the number of micro-steps": """
            def train(model, loader, optimizer, args):
                for i, (x, y) in enumerate(loader):
                    loss = F.mse_loss(model(x), y)
                    loss = loss / args.accumulate
                    loss.backward()
                    if (i + 1) % args.accumulate == 0:
                        optimizer.step()
                        optimizer.zero_grad()

            dist.init_process_group("gloo")
            data = Numbers()
            model = DDP(nn.Linear(2, 1))
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            train(model, loader, torch.optim.SGD(model.parameters(), lr=0.1), argparse.ArgumentParser().parse_args())
        """,
        "a generator that steps less often than its critic": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            critic, generator = DDP(nn.Linear(2, 1)), DDP(nn.Linear(2, 2))
            opt_c = torch.optim.SGD(critic.parameters(), lr=0.1)
            opt_g = torch.optim.SGD(generator.parameters(), lr=0.1)
            for i, (x, y) in enumerate(loader):
                opt_c.zero_grad()
                critic(x).mean().backward()
                opt_c.step()
                if i % 5 == 0:
                    opt_g.zero_grad()
                    critic(generator(x)).mean().backward()
                    opt_g.step()
        """,
        "gradients are divided before the step": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i, (x, y) in enumerate(loader):
                F.mse_loss(model(x), y).backward()
                if (i + 1) % 4 == 0:
                    for p in model.parameters():
                        p.grad.div_(4)
                    optimizer.step()
                    optimizer.zero_grad()
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
                loss = F.mse_loss(model(x), y)
                loss.backward()  # here
                if (i + 1) % 4 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "a scaler of the script that steps": """
            class Scaler:
                def __init__(self):
                    self.scaler = torch.amp.GradScaler("cuda")

                def __call__(self, loss, optimizer, update=True):
                    self.scaler.scale(loss).backward()  # here
                    if update:
                        self.scaler.step(optimizer)
                        self.scaler.update()

            dist.init_process_group("nccl")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), Scaler()
            for i, (x, y) in enumerate(loader):
                update = (i + 1) % 4 == 0
                scaler(F.mse_loss(model(x), y), optimizer, update=update)
                if update:
                    optimizer.zero_grad()
        """,
        "micro-steps of an inner loop": """
            class GPT(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.head = nn.Linear(2, 10)

                def forward(self, x, targets=None):
                    logits = self.head(x)
                    loss = None if targets is None else F.cross_entropy(logits, targets)
                    return logits, loss

            dist.init_process_group("gloo")
            gradient_accumulation_steps = 5
            model = DDP(GPT())
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            for it in range(100):
                for micro_step in range(gradient_accumulation_steps):
                    model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
                    logits, loss = model(torch.randn(4, 2), torch.zeros(4, dtype=torch.long))
                    loss.backward()  # here
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not (script.plain or _accelerate_by_hand(script)) or edits_gradients(script):
            return
        reported: set[ast.AST] = set()
        for each in accumulations(script):
            assert isinstance(each.backward.node, ast.Call)
            found = list(terms(script, each.backward.node))
            if each.backward.node in reported or not found or not _of_micro_steps(each):
                continue
            window = ast.unparse(each.window)
            if _undivided(script, found):
                message = (
                    f"gradients of {window} micro-steps are added up and the loss, a mean, is not divided by their"
                )
                message += " number"
            elif _divided_by_all(script, each, found):
                message = (
                    f"the loss is divided by the micro-steps of all ranks, but each rank runs {window} of them, and"
                )
                message += " DDP averages over ranks"
            else:
                continue
            reported.add(each.backward.node)
            yield Violation(each.backward.node, message, f"divide the loss by {window} before backward")


def _accelerate_by_hand(script: Script) -> bool:
    """True if a script with accelerate accumulates itself, so that accelerate does not divide."""
    makers = list(script.calls("accelerate.Accelerator"))
    options = ("gradient_accumulation_steps", "gradient_accumulation_plugin")
    given = any(not script.argument(each.node, name).absent for each in makers for name in options)
    return bool(makers) and not given and not any(True for _ in script.method_calls("accumulate"))


def _divided_by_all(script: Script, accumulation: Accumulation, found: list[Term]) -> bool:
    """`steps = accumulate // world_size` micro-steps, and a loss divided by `accumulate`."""
    if not isinstance(accumulation.window, ast.Name):
        return False
    for binding, _ in script.program.evaluator.bindings(accumulation.window):
        value = None if isinstance(binding.node, ast.AugAssign) else binding.value
        if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.FloorDiv | ast.Div):
            continue
        if is_world_size(script, value.right):
            whole = ast.unparse(value.left)
            return any(each.divides and ast.unparse(each.node) == whole for term in found for each in term.factors)
    return False


def _of_micro_steps(accumulation: Accumulation) -> bool:
    """An inner loop may be over tasks or samples; its name has to say that it accumulates."""
    if accumulation.tests:
        return True
    assert isinstance(accumulation.micro, ast.For)
    text = f"{ast.unparse(accumulation.micro.target)} {ast.unparse(accumulation.window)}".lower()
    return any(part in text for part in ("acc", "micro"))


def _undivided(script: Script, found: list[Term]) -> bool:
    return any(reduction(script, each) == "mean" for each in found) and all(not each.factors for each in found)
