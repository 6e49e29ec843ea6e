"""`no_sync()` is around the backward pass only.

What it does:
    Looks for `with model.no_sync():` blocks with a backward pass whose forward pass runs in front of the block.

Why is this bad:
    DDP decides in the forward pass whether the next backward pass synchronizes. Around `backward` alone `no_sync` does
    nothing: every micro-step still ends in an all-reduce.

Repair:
    Put the forward pass into the block as well.

Known problems:
    A forward pass in a function that is called elsewhere is not seen.

References:
    F26. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.loss_terms import loss_of
from paceline.check.analyses.no_sync_blocks import no_sync_blocks
from paceline.check.analyses.script import Script
from paceline.check.analyses.training_loops import Reached
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function


class NoSyncWithoutForward(Rule):
    """`no_sync` blocks without the forward pass."""

    code, name, topic = "DP026", "no-sync-without-forward", "gradients"
    faults = ("F26",)
    severity = "warning"
    valid = {
        "both passes": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                with model.no_sync():
                    loss = F.mse_loss(model(x), y)
                    loss.backward()
        """,
        "a helper with both passes": """
            def micro_step(model, x, y):
                loss = F.mse_loss(model(x), y)
                loss.backward()

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                model(x)
                with model.no_sync():
                    micro_step(model, x, y)
        """,
    }
    invalid = {
        "the backward pass alone": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                with model.no_sync():  # here
                    loss.backward()
        """,
        "a context that is chosen": """
            from contextlib import nullcontext

            class Trainer:
                def __init__(self):
                    self.net = DDP(nn.Linear(2, 1))
                    self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

                def fit(self, loader):
                    for i, (x, y) in enumerate(loader):
                        last = (i + 1) % 4 == 0
                        loss = F.mse_loss(self.net(x), y) / 4
                        with nullcontext() if last else self.net.no_sync():  # here
                            loss.backward()
                        if last:
                            self.optimizer.step()

            dist.init_process_group("gloo")
            data = Numbers()
            Trainer().fit(DataLoader(data, batch_size=8, sampler=DistributedSampler(data)))
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers:
            return
        for function, block in no_sync_blocks(script):
            calls = [each for each in script.loops.reached_calls(block, function) if isinstance(each.node, ast.Call)]
            if not any(script.loops.is_backward(each.node) for each in calls):
                continue
            if any(_may_be_forward(script, each.node) for each in calls):
                continue
            if _forward_before(script, function, block) or _loss_from_outside(script, block, calls):
                yield Violation(
                    block,
                    "the forward pass runs in front of this no_sync block, so DDP synchronizes in the backward pass"
                    " nevertheless",
                    "put the forward pass into the block",
                )


def _loss_from_outside(script: Script, block: ast.AST, calls: list[Reached]) -> bool:
    """True if the loss of every backward pass in the block is computed in front of it, or handed in."""
    backwards = [each for each in calls if script.loops.is_backward(each.node)]
    if any(each.path for each in backwards):
        return False
    for each in backwards:
        assert isinstance(each.node, ast.Call)
        loss = loss_of(script, each.node)
        names = [at for at in walk(loss) if isinstance(at, ast.Name)] if loss is not None else []
        bindings = [binding for name in names for binding, _ in script.program.evaluator.bindings(name)]
        if not bindings or any(script.loops.stands_in(binding.node, block) for binding in bindings):
            return False
        if not any(binding.name.endswith("loss") or binding.name.startswith("loss") for binding in bindings):
            return False
    return True


def _may_be_forward(script: Script, node: ast.AST) -> bool:
    """True if a call is a forward pass, or one of a function that is given a model and cannot be read."""
    assert isinstance(node, ast.Call)
    if script.is_wrapped(node.func) or script.is_inner(node.func):
        return True
    if script.loops.is_backward(node) or script.program.evaluator.callees(node):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("no_sync", "scale", "item", "detach"):
        return False
    return any(script.is_wrapped(each) for each in node.args)


def _forward_before(script: Script, function: Function, block: ast.With | ast.AsyncWith) -> bool:
    """True if the wrapped model is called earlier in the same block of statements, or in one around it."""
    module = function.module
    return any(
        call.lineno < block.lineno
        and script.is_wrapped(call.func)
        and any(at in module.ancestors(block) for at in (module.parents[module.statement(call)],))
        for call in function.calls
    )
