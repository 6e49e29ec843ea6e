"""A rank skips a backward pass or an optimizer step because of a value that only it has.

What it does:
    Looks for backward passes and optimizer steps that a test of a local value can skip (`continue` on a loss that is
    not finite, an empty batch), and for `except` clauses that go on after a failed training step.

Why is this bad:
    Every backward pass of a distributed model ends in an all-reduce that all ranks must join. A rank that skips one
    leaves the others waiting: the job hangs, or its next gradient is summed with an older one of the others.

Repair:
    All-reduce the flag with MAX and skip on all ranks, or multiply the loss by zero instead of skipping the step.

Known problems:
    A test of a value that passes a function of another package is left out.

References:
    F82. https://github.com/pytorch/pytorch/issues/44353
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.local_decisions import leaving_statement, local_origin, source_of
from paceline.check.analyses.local_values import LocalValues
from paceline.check.analyses.script import Script
from paceline.check.analyses.training_loops import TrainingLoop
from paceline.check.analyses.value_spread import Cause, Origin
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import last_name

_ENDS = frozenset({"exit", "_exit", "abort", "kill", "destroy_process_group"})
_STOPS = frozenset({"KeyboardInterrupt", "StopIteration", "SystemExit", "GeneratorExit", "ImportError"})


class LocalSkip(Rule):
    """Steps that one rank skips."""

    code, name, topic = "DP068", "local-skip", "control flow"
    faults = ("F82",)
    severity = "error"
    valid = {
        "all ranks agree to skip": """
            def any_rank(flag):
                flag = flag.to(torch.int32)
                dist.all_reduce(flag, op=dist.ReduceOp.MAX)
                return bool(flag)

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                if any_rank(torch.isnan(loss.detach())):
                    continue
                loss.backward()
                optimizer.step()
        """,
        "the norm of reduced gradients": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step, (x, y) in enumerate(loader):
                F.mse_loss(model(x), y).backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                if torch.isfinite(norm) and (step + 1) % 4 == 0:
                    optimizer.step()
        """,
        "an exception that ends the training": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                try:
                    F.mse_loss(model(x), y).backward()
                except RuntimeError as error:
                    print("failed", error)
                    raise
        """,
        "a loss that ends the job": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                if torch.isnan(loss):
                    raise FloatingPointError("the loss is not a number")
                loss.backward()
        """,
    }
    invalid = {
        "a loss that is not a number": """
            def train(model, loader, optimizer):
                for x, y in loader:
                    loss = F.mse_loss(model(x), y)
                    if not math.isfinite(loss.item()):
                        print("skipped")
                        continue  # here
                    loss.backward()
                    optimizer.step()

            import math
            dist.init_process_group("gloo")
            data = Numbers()
            model = DDP(nn.Linear(2, 1))
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            train(model, loader, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
        "a step of its own function": """
            class Trainer:
                def __init__(self):
                    data = Numbers()
                    self.loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
                    self.model = DDP(nn.Linear(2, 1))
                    self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

                def step(self, x, y):
                    loss = F.mse_loss(self.model(x), y)
                    if not torch.isnan(loss):  # here
                        loss.backward()
                        self.optimizer.step()

                def fit(self):
                    for x, y in self.loader:
                        self.step(x, y)

            dist.init_process_group("gloo")
            Trainer().fit()
        """,
        "out of memory": """
            dist.init_process_group("nccl")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                try:
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()
                except RuntimeError:  # here
                    torch.cuda.empty_cache()
                    continue
        """,
        "an exception that the loop survives": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                try:
                    loss = F.mse_loss(model(x), y)
                    if torch.isnan(loss):  # here
                        raise FloatingPointError("the loss is not a number")
                    loss.backward()
                except FloatingPointError as error:
                    print("skipped", error)
        """,
        "an empty batch": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                keep = y > 0
                x, y = x[keep], y[keep]
                if len(x) == 0:
                    continue  # here
                F.mse_loss(model(x), y).backward()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not (script.wrappers or script.engines & {"fsdp", "accelerate", "fabric"}):
            return
        reported: set[ast.AST] = set()
        for loop in script.loops.training:
            for test, origin in _skipping_tests(script, loop):
                if test not in reported:
                    reported.add(test)
                    yield Violation(
                        leaving_statement(script, test) or test,
                        f"a rank skips this step by a value of its own, from {source_of(origin)}; the others wait for"
                        " it in the all-reduce of the gradients",
                        "all-reduce the flag with ReduceOp.MAX, so that all ranks skip the step or none does",
                    )
            for handler in _forgiving_handlers(loop, script) if loop.steps else ():
                if handler not in reported:
                    reported.add(handler)
                    yield Violation(
                        handler,
                        "a rank that fails in this training step goes on with the next batch, while the others wait"
                        " for it in the all-reduce of the gradients",
                        "let the exception end the job, or agree with all ranks on skipping the step",
                        severity="warning",
                    )


def _skipping_tests(script: Script, loop: TrainingLoop) -> Iterator[tuple[ast.expr, Origin]]:
    for each in (*loop.backwards, *loop.steps):
        for condition in script.loops.reached_conditions(each, loop.node):
            if _ends_the_process(script, condition.test):
                continue
            origin = local_origin(script, condition.test) or _of_emptiness(script, condition.test)
            if origin is not None and origin.cause is Cause.DATA:
                yield condition.test, origin


def _ends_the_process(script: Script, test: ast.expr) -> bool:
    """`if ...: raise` outside of any `try`: the launcher ends the other ranks as well."""
    module = script.function_of(test).module
    branch = module.parents.get(test)
    if not isinstance(branch, ast.If) or not isinstance(branch.body[-1], ast.Raise):
        return False
    return not any(isinstance(at, ast.Try) and at.handlers for at in module.ancestors(branch))


def _of_emptiness(script: Script, test: ast.expr) -> Origin | None:
    """`len(x) == 0` and `x.numel() == 0` of data that a mask selects: the length is a matter of the batch."""
    node = test.operand if isinstance(test, ast.UnaryOp) else test
    sides = [node.left, node.comparators[0]] if isinstance(node, ast.Compare) and len(node.ops) == 1 else [node]
    if len(sides) == 2 and not (isinstance(sides[1], ast.Constant) and sides[1].value in (0, 1)):
        return None
    measured = sides[0]
    if isinstance(measured, ast.Call) and last_name(measured.func) in ("len", "numel"):
        inner = measured.args[0] if measured.args else getattr(measured.func, "value", None)
        if inner is not None:
            origin = LocalValues.of(script).origin(inner)
            return origin if origin.local and origin.cause is Cause.DATA else None
    return None


def _forgiving_handlers(loop: TrainingLoop, script: Script) -> Iterator[ast.ExceptHandler]:
    """`except` clauses within the loop around a backward pass, after which the loop goes on."""
    for each in loop.backwards:
        places = [(each.function, each.node), *((script.function_of(call), call) for call in each.path)]
        for function, node in places:
            child: ast.AST = node
            for at in function.module.ancestors(node):
                if at is loop.node or at is function.node:
                    break
                if isinstance(at, ast.Try) and child in at.body:
                    inner = function is not loop.function
                    yield from (each for each in at.handlers if _goes_on(each, in_function=inner))
                child = at


def _goes_on(handler: ast.ExceptHandler, *, in_function: bool) -> bool:
    """True if the loop goes on after a handler; `return` leaves only the function that the loop calls."""
    caught = {last_name(each) for each in walk(handler.type) if isinstance(each, ast.expr)} if handler.type else set()
    if caught & _STOPS:
        return False
    for at in walk(handler):
        if isinstance(at, ast.Raise | ast.Break) or (isinstance(at, ast.Return) and not in_function):
            return False
        if isinstance(at, ast.Call) and last_name(at.func) in (
            "exit",
            "_exit",
            "abort",
            "kill",
            "destroy_process_group",
        ):
            return False
    return True
