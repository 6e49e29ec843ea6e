"""Gradients are clipped before they are complete.

What it does:
    Looks for `clip_grad_norm_` and `clip_grad_value_` that run in micro-steps without `optimizer.step()`, in front of
    the backward pass, or on gradients that a GradScaler has scaled.

Why is this bad:
    The threshold is meant for the gradient that the optimizer steps on. Within an accumulation window it bounds partial
    sums, under `no_sync` even gradients of one rank alone; in front of `backward` it bounds nothing; and scaled
    gradients exceed it always. Ranks may stay equal, so that nothing reports it.

Repair:
    Clip once, directly in front of `optimizer.step()`; with a GradScaler after `scaler.unscale_(optimizer)`.

Known problems:
    A step whose condition stands in another function than the loop is followed, one behind a callback is not.

References:
    F30. https://docs.pytorch.org/docs/stable/notes/amp_examples.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses import framework_names as names
from paceline.check.analyses.accumulation import Accumulation, accumulations
from paceline.check.analyses.script import Script
from paceline.check.analyses.training_loops import Reached, TrainingLoop
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import last_name


class ClipBeforeSynchronization(Rule):
    """Clipping of gradients that are not complete."""

    code, name, topic = "DP028", "clip-before-synchronization", "gradients"
    faults = ("F30",)
    severity = "warning"
    valid = {
        "in front of the step": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i, (x, y) in enumerate(loader):
                (F.mse_loss(model(x), y) / 4).backward()
                if (i + 1) % 4 == 0:
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "unscaled": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler("cuda")
            for x, y in loader:
                scaler.scale(F.mse_loss(model(x), y)).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
        """,
    }
    invalid = {
        "in each micro-step": """
            from contextlib import nullcontext

            def micro_step(model, x, y):
                (F.mse_loss(model(x), y) / 4).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # here

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i, (x, y) in enumerate(loader):
                last = (i + 1) % 4 == 0
                with nullcontext() if last else model.no_sync():
                    micro_step(model, x, y)
                if last:
                    optimizer.step()
                    optimizer.zero_grad()
        """,
        "in front of the backward pass": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # here
                loss.backward()
                optimizer.step()
        """,
        "of scaled gradients": """
            dist.init_process_group("nccl")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler = torch.cuda.amp.GradScaler()
            for x, y in loader:
                optimizer.zero_grad()
                scaler.scale(F.mse_loss(model(x), y)).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # here
                scaler.step(optimizer)
                scaler.update()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain:
            return
        reported: set[ast.AST] = set()
        for loop in script.loops.training:
            clips = [each for each in loop.reached if _is_clip(script, each.node)]
            windows = [each for each in accumulations(script) if each.loop is loop] if clips else []
            for clip in clips:
                reason = _wrong(script, loop, clip, windows)
                if reason is not None and clip.node not in reported:
                    reported.add(clip.node)
                    yield Violation(clip.node, *reason)


def _is_clip(script: Script, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and bool(set(script.program.callee_names(node)) & set(names.CLIPS))


def _wrong(script: Script, loop: TrainingLoop, clip: Reached, windows: list[Accumulation]) -> tuple[str, str] | None:
    for window in windows:
        if _in_micro_step(script, loop, clip, window):
            return (
                "gradients are clipped in each micro-step, while they are partial sums, not once before the step",
                "clip under the condition of optimizer.step, directly in front of it",
            )
    if _before_backward(loop, clip):
        return (
            "gradients are clipped before backward computes them, so the step is not bounded",
            "clip between backward and optimizer.step",
        )
    if _scaled(script, loop):
        return (
            "gradients are clipped while GradScaler's factor is in them",
            "call scaler.unscale_(optimizer) before clipping",
        )
    return None


def _in_micro_step(script: Script, loop: TrainingLoop, clip: Reached, window: Accumulation) -> bool:
    if not window.tests:
        return clip.function is script.function_of(window.micro) and script.loops.stands_in(clip.node, window.micro)
    tests = {each.test for each in window.tests}
    found = {each.test for each in script.loops.reached_conditions(clip, loop.node)}
    return not found & tests and not any("%" in ast.unparse(each) for each in found)


def _before_backward(loop: TrainingLoop, clip: Reached) -> bool:
    """True if backward follows the clip in the same block, and none precedes it in the loop."""
    module = clip.function.module
    block = module.parents[module.statement(clip.node)]
    behind = [
        each
        for each in loop.backwards
        if each.function is clip.function
        and each.path == clip.path
        and module.parents[module.statement(each.node)] is block
        and getattr(each.node, "lineno", 0) > getattr(clip.node, "lineno", 0)
    ]
    return len(behind) == len(loop.backwards) == 1 and not _steps_between(loop, clip, behind[0])


def _steps_between(loop: TrainingLoop, clip: Reached, backward: Reached) -> bool:
    """True if the optimizer steps between the two: then the clip is for the gradients of the round before."""
    first, last = getattr(clip.node, "lineno", 0), getattr(backward.node, "lineno", 0)
    return any(first <= getattr(each.node, "lineno", 0) <= last or each.path != clip.path for each in loop.steps)


def _scaled(script: Script, loop: TrainingLoop) -> bool:
    """True if the loss is scaled by a GradScaler and never unscaled."""
    if any(True for _ in script.method_calls("unscale_")):
        return False
    scales = any(
        isinstance(at, ast.Call) and last_name(at.func) == "scale" and _of_scaler(script, at)
        for each in loop.backwards
        for at in walk(each.node)
    )
    return scales and any(_of_scaler(script, each.node) for each in loop.steps)


def _of_scaler(script: Script, node: ast.AST) -> bool:
    """True if a call is one of a method of a GradScaler."""
    return isinstance(node, ast.Call) and any("GradScaler" in name for name in script.program.callee_names(node))
