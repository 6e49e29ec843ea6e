"""Ranks read their own clocks to decide what all of them must do together.

What it does:
    Looks for tests of `time.time()` and other clocks that end a loop in which ranks meet, or that guard a collective.

Why is this bad:
    Clocks and the moments at which ranks read them differ. At the limit one rank stops, or starts to save, a step
    before the others: they wait for it in the next collective.

Repair:
    Let rank 0 read its clock and broadcast the decision, or count steps instead of seconds.

Known problems:
    A time that passes a function of another package is left out.

References:
    F85. https://github.com/IBM/ado/pull/41
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.local_decisions import calls_behind_test, collective_within, local_exits, local_origin
from paceline.check.analyses.local_tables import CLOCKS
from paceline.check.analyses.script import Script
from paceline.check.analyses.value_spread import Cause
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk


class ClockDecision(Rule):
    """Decisions by the clock of each rank."""

    code, name, topic = "DP070", "clock-decision", "control flow"
    faults = ("F85",)
    severity = "error"
    valid = {
        "rank 0 decides": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            started = time.time()
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                over = torch.tensor([time.time() - started > 60])
                dist.broadcast(over, src=0)
                if over:
                    break
        """,
        "a line for the log": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            last = time.time()
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                if time.time() - last > 10:
                    print("still training")
                    last = time.time()
        """,
        "a loop that goes round until all ranks have met": """
            dist.init_process_group("gloo")
            before, now, until = 0, 1, time.time() + 0.1
            while before < now:
                if time.time() >= until:
                    length = torch.tensor(now)
                    dist.all_reduce(length)
                    before, now = now, length.item()
                    until = time.time() + 0.1
        """,
    }
    invalid = {
        "a budget of seconds": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            started = time.time()
            for epoch in range(100):
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                elapsed = time.time() - started
                if elapsed > 3600:  # here
                    break
        """,
        "a checkpoint every ten minutes": """
            def save(model):
                if dist.get_rank() == 0:
                    torch.save(model.module.state_dict(), "model.pt")
                dist.barrier()

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            saved = time.monotonic()
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                if time.monotonic() - saved > 600:  # here
                    save(model)
                    saved = time.monotonic()
        """,
        "while there is time": """
            def main(limit):
                dist.init_process_group("gloo")
                model = DDP(nn.Linear(2, 1))
                end = time.perf_counter() + limit
                while time.perf_counter() < end:  # here
                    model(torch.randn(4, 2)).mean().backward()

            main(60)
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        reported: set[ast.expr] = set()
        for _, each in local_exits(script):
            if each.origin.cause is Cause.CLOCK and each.test not in reported:
                reported.add(each.test)
                yield _violation(each.test, "leaves this loop")
        for call in _clock_reads(script):
            if _is_polled(call, script):
                continue
            for test, branch in _tests_around(script, call):
                if test in reported or collective_within(script, branch) is None:
                    continue
                reported.add(test)
                yield _violation(test, "runs the collectives of this branch")


def _clock_reads(script: Script) -> Iterator[ast.If]:
    """Branches on the clock."""
    for function in script.program.functions:
        names = {each for call in function.calls for each in script.program.callee_names(call)}
        if any(each.startswith(("time.", "datetime.")) for each in names):
            for node in walk(function.node):
                if isinstance(node, ast.If) and script.function_of(node) is function and _reads_clock(script, node):
                    yield node


def _is_polled(branch: ast.If, script: Script) -> bool:
    """True if a `while` loop goes round until the branch changes what it tests, so that all ranks come to it."""
    for at in script.function_of(branch).module.ancestors(branch):
        if isinstance(at, ast.While):
            tested = {each.id for each in walk(at.test) if isinstance(each, ast.Name)}
            stored = {
                each.id for each in walk(branch) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
            return bool(tested & stored)
        if isinstance(at, ast.For | ast.AsyncFor | ast.FunctionDef | ast.AsyncFunctionDef):
            break
    return False


def _reads_clock(script: Script, node: ast.If) -> bool:
    return any(
        name in CLOCKS for call in calls_behind_test(script, node.test) for name in script.program.callee_names(call)
    )


def _tests_around(script: Script, node: ast.If) -> Iterator[tuple[ast.expr, ast.AST]]:
    origin = local_origin(script, node.test)
    if origin is not None and origin.cause is Cause.CLOCK:
        for statement in node.body:
            yield node.test, statement


def _violation(test: ast.expr, does: str) -> Violation:
    return Violation(
        test,
        f"each rank {does} by its own clock; at the limit some ranks do it a step earlier, and the others wait",
        "let rank 0 decide and broadcast the decision, or count steps",
    )
