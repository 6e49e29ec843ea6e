"""A value is reduced over ranks in every step, only to be logged.

What it does:
    Looks for collectives over detached losses and other numbers in the training loop that run in every step.

Why is this bad:
    Each of them makes all ranks wait for the slowest one once more in a step, and is too small to use the network. With
    `.item()` behind it, the CPU waits for the GPU as well.

Repair:
    Add up on the device, and reduce at the interval at which the value is logged.

Known problems:
    A number that decides something in each step, such as whether to skip it, has to be reduced; it is left out where
    the test is in the same function.

References:
    F77. https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.loss_terms import behind, loss_of
from paceline.check.analyses.rank_shares import terms_of
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.training_loops import Reached, TrainingLoop
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import last_name

_REDUCES = frozenset(f"torch.distributed.{name}" for name in ("all_reduce", "reduce", "all_gather", "gather"))
_DETACHES = frozenset(("detach", "item", "tensor", "no_grad"))


class ReduceEveryStep(Rule):
    """Collectives for logs in each step."""

    code, name, topic = "DP065", "reduce-every-step", "evaluation"
    faults = ("F77",)
    severity = "info"
    valid = {
        "at the interval of the log": """
            dist.init_process_group("gloo")
            data = Numbers()
            model = DDP(nn.Linear(2, 1))
            for step, (x, y) in enumerate(DataLoader(data, batch_size=8, sampler=DistributedSampler(data))):
                loss = F.mse_loss(model(x), y)
                loss.backward()
                if step % 50 == 0:
                    mean = loss.detach().clone()
                    dist.all_reduce(mean)
                    print(mean / dist.get_world_size())
        """,
        "after the loop": """
            dist.init_process_group("gloo")
            data, total = Numbers(), torch.zeros(1)
            model = DDP(nn.Linear(2, 1))
            for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
                loss = F.mse_loss(model(x), y)
                loss.backward()
                total += loss.detach()
            dist.all_reduce(total)
        """,
        "a count that the loss is divided by": """
            def total(value):
                value = value.detach().clone()
                dist.all_reduce(value)
                return value

            dist.init_process_group("gloo")
            data = Numbers()
            model = DDP(nn.Linear(2, 1))
            for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
                count = total((y > 0).sum())
                loss = F.mse_loss(model(x), y, reduction="sum") * dist.get_world_size() / count
                loss.backward()
        """,
        "gradients": """
            dist.init_process_group("gloo")
            data = Numbers()
            model = nn.Linear(2, 1)
            for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
                F.mse_loss(model(x), y).backward()
                for p in model.parameters():
                    dist.all_reduce(p.grad)
        """,
    }
    invalid = {
        "a helper that detaches": """
            def mean_over_ranks(value):
                value = value.detach().clone()
                dist.all_reduce(value)
                return value / dist.get_world_size()

            dist.init_process_group("gloo")
            data = Numbers()
            model = DDP(nn.Linear(2, 1))
            for step, (x, y) in enumerate(DataLoader(data, batch_size=8, sampler=DistributedSampler(data))):
                loss = F.mse_loss(model(x), y)
                loss.backward()
                mean = mean_over_ranks(loss)  # here
                if step % 100 == 0:
                    print(mean)
        """,
        "in each step": """
            dist.init_process_group("gloo")
            data = Numbers()
            model = DDP(nn.Linear(2, 1))
            for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
                loss = F.mse_loss(model(x), y)
                loss.backward()
                mean = loss.detach().clone()
                dist.all_reduce(mean)  # here
                print(mean.item())
        """,
        "a helper": """
            def reduced(value):
                value = value.clone()
                dist.all_reduce(value)
                return value / dist.get_world_size()

            dist.init_process_group("gloo")
            data = Numbers()
            model = DDP(nn.Linear(2, 1))
            for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
                loss = F.mse_loss(model(x), y)
                loss.backward()
                mean = reduced(loss.detach())  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain:
            return
        for loop in script.loops.training:
            if script.where(loop.node) is not Ranks.ALL:
                continue
            for each in loop.reached:
                if not _is_reduction(script, each) or not _every_step(script, loop, each):
                    continue
                at = each.path[0] if each.path else each.node
                if isinstance(at, ast.Call) and _for_a_log(script, at, each) and not _of_the_loss(script, loop, at):
                    yield Violation(
                        at,
                        "every step reduces this value over ranks, and all ranks wait for the slowest one",
                        "add up on the device, and reduce where the value is logged",
                    )
                    break


def _is_reduction(script: Script, each: Reached) -> bool:
    return isinstance(each.node, ast.Call) and not _REDUCES.isdisjoint(script.program.callee_names(each.node))


def _every_step(script: Script, loop: TrainingLoop, each: Reached) -> bool:
    """True if nothing decides that the collective runs but the loop itself."""
    return not any(True for _ in script.loops.reached_conditions(each, loop.node))


def _of_the_loss(script: Script, loop: TrainingLoop, call: ast.Call) -> bool:
    """True if the loss is computed from the result of a call."""
    losses = [loss_of(script, each.node) for each in loop.backwards if isinstance(each.node, ast.Call)]
    return any(at is call for loss in losses if loss is not None for at, _ in behind(script, loss))


def _for_a_log(script: Script, call: ast.Call, reduction: Reached) -> bool:
    """True if a call gets a detached value, or detaches it, and nothing in the function tests the result."""
    if not call.args:
        return False
    function = script.function_of(call)
    given = _given(call)
    sources = [
        given,
        *([_given(reduction.node)] if isinstance(reduction.node, ast.Call) and reduction.node.args else []),
    ]
    read = [at for source in sources for each in terms_of(script, source) for at in walk(each)]
    if not any(isinstance(at, ast.Call) and last_name(at.func) in _DETACHES for at in read):
        return False
    if any(isinstance(at, ast.Attribute) and at.attr in ("grad", "parameters") for at in read):
        return False
    names = {at.id for at in walk(given) if isinstance(at, ast.Name)} | _assigned(script, call)
    tests = [at.test for at in walk(function.node) if isinstance(at, ast.If | ast.While | ast.IfExp)]
    return not any(isinstance(at, ast.Name) and at.id in names for test in tests for at in walk(test))


def _given(call: ast.Call) -> ast.expr:
    """What a collective, or a helper around one, is given."""
    return call.args[-1] if "gather" in last_name(call.func) and len(call.args) > 1 else call.args[0]


def _assigned(script: Script, call: ast.Call) -> set[str]:
    statement = script.function_of(call).module.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {at.id for target in targets for at in walk(target) if isinstance(at, ast.Name)}
