"""Gradients of a model in DDP are reduced or divided a second time.

What it does:
    Looks for collectives on `p.grad` of the parameters of a wrapped model, and for divisions of these gradients by the
    world size.

Why is this bad:
    DDP has put the mean over all ranks into `p.grad` when `backward` returns. A second sum makes it N times too large,
    a second division N times too small. Adam hides it from the loss curve. A second mean changes nothing, and costs one
    more collective for each parameter; it is reported as `info`.

Repair:
    Remove the collective and the division, or the wrapper.

Known problems:
    Scripts that turn synchronization off with `no_sync` and reduce by hand are left out.

References:
    F129. https://github.com/pytorch/torchtitan/pull/2323
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses import framework_names as names
from paceline.check.analyses.gradient_edits import gradient_edits, is_gradient
from paceline.check.analyses.no_sync_blocks import mentions_no_sync
from paceline.check.analyses.script import Script
from paceline.check.analyses.world_size import is_world_size
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import last_name
from paceline.syntax.reaching_definitions import Kind

_REDUCING = frozenset(each for each in names.COLLECTIVES if "reduce" in each)


class GradientReducedTwice(Rule):
    """Gradients that are reduced by DDP and by hand."""

    code, name, topic = "DP033", "gradient-reduced-twice", "gradients"
    faults = ("F129",)
    severity = "error"
    valid = {
        "no wrapper": """
            def average_gradients(model):
                for p in model.parameters():
                    dist.all_reduce(p.grad)
                    p.grad /= dist.get_world_size()

            dist.init_process_group("gloo")
            model = nn.Linear(2, 1)
            model(torch.randn(4, 2)).mean().backward()
            average_gradients(model)
        """,
        "a loss with weights beside the wrapped model": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            criterion = nn.Linear(1, 1)
            criterion(model(torch.randn(4, 2))).mean().backward()
            for p in criterion.parameters():
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
        """,
        "reduced by hand within no_sync": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            with model.no_sync():
                model(torch.randn(4, 2)).mean().backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
        """,
    }
    invalid = {
        "a helper that sums": """
            def sync_gradients(model):
                for p in model.parameters():
                    if p.grad is not None:
                        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)  # here

            def main():
                dist.init_process_group("gloo")
                model = DDP(nn.Linear(2, 1))
                model(torch.randn(4, 2)).mean().backward()
                sync_gradients(model)

            main()
        """,
        "a helper that averages": """
            def average_gradients(model):
                size = float(dist.get_world_size())
                for p in model.parameters():
                    if p.grad is not None:
                        dist.all_reduce(p.grad.data, op=dist.ReduceOp.SUM)  # here
                        p.grad.data /= size

            def main():
                dist.init_process_group("gloo")
                model = DDP(nn.Linear(2, 1))
                model(torch.randn(4, 2)).mean().backward()
                average_gradients(model)

            main()
        """,
        "divided once more": """
            class Trainer:
                def __init__(self):
                    self.world_size = int(os.environ["WORLD_SIZE"])
                    self.model = DDP(nn.Linear(2, 1))
                    self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

                def step(self, x):
                    self.model(x).mean().backward()
                    for name, p in self.model.named_parameters():
                        p.grad.div_(self.world_size)  # here
                    self.optimizer.step()

            dist.init_process_group("gloo")
            Trainer().step(torch.randn(4, 2))
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not script.wrappers or mentions_no_sync(script):
            return
        reduced = [site.node for site in script.calls(*_REDUCING) if _reduces_wrapped(script, site.node)]
        for call in dict.fromkeys(reduced):
            if _averages(script, call):
                yield Violation(
                    call,
                    "DDP has averaged these gradients already; a second average changes nothing and costs a collective"
                    " for each parameter",
                    "remove the collective and the division",
                    severity="info",
                )
            else:
                yield Violation(
                    call,
                    "DDP has averaged these gradients already; this collective sums them a second time",
                    "remove the collective and the division behind it, or the wrapper",
                )
        if reduced:
            return
        for node, number in gradient_edits(script):
            if number is None or not is_world_size(script, number) or not _divides(node):
                continue
            gradient = node.func.value if isinstance(node, ast.Call) else _target(node)  # type: ignore[attr-defined]
            if _of_wrapped(script, gradient):
                yield Violation(
                    node,
                    "DDP has divided these gradients by the number of ranks already",
                    "remove the division",
                )


def _reduces_wrapped(script: Script, call: ast.Call) -> bool:
    return any(is_gradient(each) and _of_wrapped(script, each) for each in call.args[:1])


def _averages(script: Script, call: ast.Call) -> bool:
    """True if the sum is divided by the number of ranks, so that it is a mean of equal numbers."""
    operation = script.argument(call, "op", 1).given
    if any("AVG" in ast.unparse(each.node) for each in operation):
        return True
    function = script.function_of(call)
    return any(
        script.function_of(node) is function and number is not None and _is_exactly_world(script, number)
        for node, number in gradient_edits(script)
        if _divides(node)
    )


def _is_exactly_world(script: Script, number: ast.expr) -> bool:
    return not isinstance(number, ast.BinOp) and is_world_size(script, number)


def _divides(node: ast.AST) -> bool:
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Div)
    return isinstance(node, ast.Call) and last_name(node.func) == "div_"


def _target(node: ast.AST) -> ast.expr | None:
    return node.target if isinstance(node, ast.AugAssign) else None


def _of_wrapped(script: Script, gradient: ast.expr | None) -> bool:
    """True if a gradient is one of a parameter of a model in DDP: of a loop over `model.parameters()`."""
    at = gradient
    while isinstance(at, ast.Attribute):
        at = at.value
    if not isinstance(at, ast.Name):
        return False
    for binding, _ in script.program.evaluator.bindings(at):
        if binding.kind is not Kind.ELEMENT or binding.value is None:
            continue
        for call in (each for each in walk(binding.value) if isinstance(each, ast.Call)):
            func = call.func
            if isinstance(func, ast.Attribute) and func.attr in ("parameters", "named_parameters"):
                known = not script.unknown(script.values(func.value))
                if (known and script.is_wrapped(func.value)) or script.is_inner(func.value):
                    return True
    return False
