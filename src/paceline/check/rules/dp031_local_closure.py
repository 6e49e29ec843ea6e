"""The optimizer decides on numbers that only this rank has.

What it does:
    Looks for `LBFGS.step(closure)` whose closure returns the loss of this rank's data, and for updates of parameters by
    hand that add random noise of this rank.

Why is this bad:
    LBFGS stops, and searches along its line, by the value that the closure returns. Ranks see different values, call
    the closure a different number of times, and hang in its backward pass; or their parameters drift apart. Noise that
    differs between ranks does the same.

Repair:
    All-reduce the mean of the loss in the closure and return it. Draw noise with a generator that all ranks seed alike.

Known problems:
    A closure of another package is not read.

References:
    F36. https://github.com/pytorch/pytorch/issues/30439
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.local_values import LocalValues
from paceline.check.analyses.script import Script
from paceline.check.analyses.value_spread import Cause
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function, last_name
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import FunctionValue

_NOISE = ("randn_like", "randn", "rand_like", "rand", "normal", "normal_")
_UPDATES = frozenset(("add_", "sub_", "copy_", "mul_", "addcmul_"))


class LocalClosure(Rule):
    """Closures and updates with local numbers."""

    code, name, topic = "DP031", "local-closure", "gradients"
    faults = ("F36",)
    severity = "error"
    valid = {
        "a reduced loss": """
            dist.init_process_group("gloo")
            rank, world = dist.get_rank(), dist.get_world_size()
            points = torch.linspace(0, 1, 100).unsqueeze(1)[rank::world]
            model = DDP(nn.Linear(1, 1))
            optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")

            def closure():
                optimizer.zero_grad()
                loss = model(points).pow(2).mean()
                loss.backward()
                mean = loss.detach() / world
                dist.all_reduce(mean)
                return mean

            for step in range(20):
                optimizer.step(closure)
        """,
        "noise that all ranks draw alike": """
            dist.init_process_group("gloo")
            torch.manual_seed(0)
            model = DDP(nn.Linear(2, 1))
            for step in range(20):
                model(torch.ones(4, 2)).mean().backward()
                with torch.no_grad():
                    for p in model.parameters():
                        p.add_(torch.randn_like(p), alpha=0.01)
        """,
    }
    invalid = {
        "the loss of a shard": """
            dist.init_process_group("gloo")
            rank, world = dist.get_rank(), dist.get_world_size()
            points = torch.linspace(0, 1, 100).unsqueeze(1)[rank::world]
            model = DDP(nn.Linear(1, 1))
            optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")

            def closure():
                optimizer.zero_grad()
                loss = model(points).pow(2).mean()
                loss.backward()
                return loss  # here

            for step in range(20):
                optimizer.step(closure)
        """,
        "a closure for each batch": """
            class Trainer:
                def __init__(self):
                    self.model = DDP(nn.Linear(2, 1))
                    self.optimizer = torch.optim.LBFGS(self.model.parameters())
                    data = Numbers()
                    self.loader = DataLoader(data, batch_size=100, sampler=DistributedSampler(data))

                def fit(self):
                    for x, y in self.loader:
                        def closure():
                            self.optimizer.zero_grad()
                            loss = F.mse_loss(self.model(x), y)
                            loss.backward()
                            return loss  # here

                        self.optimizer.step(closure)

            dist.init_process_group("gloo")
            Trainer().fit()
        """,
        "noise of each rank": """
            dist.init_process_group("gloo")
            torch.manual_seed(100 + dist.get_rank())
            model = DDP(nn.Linear(2, 1))
            for step in range(20):
                model(torch.ones(4, 2)).mean().backward()
                with torch.no_grad():
                    for p in model.parameters():
                        p.add_(torch.randn_like(p), alpha=0.01)  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers and "fsdp" not in script.engines:
            return
        reported: set[ast.AST] = set()
        for site in script.method_calls("step"):
            if "torch.optim.LBFGS.step" not in script.program.callee_names(site.node):
                continue
            for closure in _closures(script, site.node):
                for node in _local_returns(script, closure):
                    if node not in reported:
                        reported.add(node)
                        yield Violation(
                            node,
                            "LBFGS decides on the loss of this rank; ranks call the closure a different number of times"
                            " and hang, or drift apart",
                            "all-reduce the mean of the loss in the closure, and return that",
                            evidence={"step_line": site.node.lineno},
                        )
        yield from _noisy_updates(script)


def _closures(script: Script, call: ast.Call) -> Iterator[Function]:
    argument = script.argument(call, "closure", 0)
    for each in argument.given:
        for value in script.values(each.node, each.context):
            if isinstance(value, FunctionValue):
                yield value.function


def _local_returns(script: Script, function: Function) -> Iterator[ast.AST]:
    values = LocalValues.of(script)
    for statement in function.returns:
        if statement.value is not None and values.origin(statement.value).cause is Cause.DATA:
            yield statement


def _noisy_updates(script: Script) -> Iterator[Violation]:
    """`p.add_(torch.randn_like(p))` for the parameters of a wrapped model, where seeds differ between ranks."""
    if not script.wrappers or not _seeds_differ(script):
        return
    for function in script.program.functions:
        for call in function.calls:
            if last_name(call.func) not in _UPDATES or not isinstance(call.func, ast.Attribute):
                continue
            if _is_parameter(script, call.func.value) and any(map(_draws, call.args)):
                yield Violation(
                    call,
                    "each rank adds noise of its own to the parameters, so the copies of the model drift apart",
                    "draw the noise with a generator that all ranks seed alike",
                    severity="warning",
                )


def _draws(node: ast.expr) -> bool:
    return any(
        isinstance(at, ast.Call) and last_name(at.func) in _NOISE and not any(k.arg == "generator" for k in at.keywords)
        for at in walk(node)
    )


def _seeds_differ(script: Script) -> bool:
    """True if the last seed that the script sets has the rank in it, or it sets none."""
    sites = list(script.calls("torch.manual_seed", "torch.random.manual_seed", "lightning.seed_everything"))
    if not sites:
        return not any("seed" in last_name(call.func).lower() for f in script.program.functions for call in f.calls)
    last = max(sites, key=lambda each: each.node.lineno)
    return any(script.ranks.depends(each) for each in last.node.args)


def _is_parameter(script: Script, node: ast.expr) -> bool:
    at = node.value if isinstance(node, ast.Attribute) and node.attr == "data" else node
    if not isinstance(at, ast.Name):
        return False
    for binding, _ in script.program.evaluator.bindings(at):
        if binding.kind is Kind.ELEMENT and isinstance(binding.value, ast.Subscript):
            return _is_params(binding.value)
        if binding.kind is Kind.ELEMENT and isinstance(binding.value, ast.Call):
            func = binding.value.func
            if isinstance(func, ast.Attribute) and func.attr in ("parameters", "named_parameters"):
                return script.is_wrapped(func.value) or script.is_inner(func.value)
    return False


def _is_params(node: ast.Subscript) -> bool:
    """`group["params"]` of an optimizer of the script."""
    return isinstance(node.slice, ast.Constant) and node.slice.value == "params"
