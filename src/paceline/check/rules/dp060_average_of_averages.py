"""A metric is the mean over ranks of means over batches.

What it does:
    Looks for evaluation results that are divided by the number of batches, `len(loader)`, or by a count of this rank,
    and are averaged over ranks then.

Why is this bad:
    The last batch is smaller than the others, and shares can differ by one sample, but each counts as much as any
    other. The result is not the mean over the samples, and changes with the number of ranks and the batch size.

Repair:
    Reduce the sum over samples and the count, and divide once: `dist.all_reduce(torch.tensor([total, count]))`.

Known problems:
    With equal batches everywhere the result is right; it is reported as worth knowing.

References:
    F72. https://github.com/Lightning-AI/pytorch-lightning/issues/4493
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.computed_from import computed_from
from paceline.check.framework_names import DATA_LOADERS
from paceline.check.rank_shares import distributed_samplers, may_depend, samplers
from paceline.check.rule import Rule, Violation
from paceline.check.script import Loader, Script
from paceline.syntax.values import Object

_REDUCES = ("torch.distributed.all_reduce", "torch.distributed.reduce")


class AverageOfAverages(Rule):
    """Means of means of unequal parts."""

    code, name, topic = "DP060", "average-of-averages", "evaluation"
    faults = ("F72",)
    severity = "info"
    valid = {
        "sums and counts": """
            dist.init_process_group("gloo")
            data, sums = Numbers(), torch.zeros(2)
            model = DDP(nn.Linear(2, 1))
            for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False)):
                sums += torch.tensor([F.mse_loss(model(x), y).item() * len(x), len(x)])
            dist.all_reduce(sums)
            print(sums[0] / sums[1])
        """,
        "the mean loss of training": """
            dist.init_process_group("gloo")
            data, total = Numbers(), torch.zeros(1)
            model = DDP(nn.Linear(2, 1))
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                loss.backward()
                total += loss.detach() / len(loader)
            dist.all_reduce(total)
        """,
    }
    invalid = {
        "batches": """
            def evaluate(model, loader):
                total = 0.0
                for x, y in loader:
                    total += F.mse_loss(model(x), y).item()
                mean = torch.tensor(total / len(loader))  # here
                dist.all_reduce(mean)
                return mean / dist.get_world_size()

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            evaluate(DDP(nn.Linear(2, 1)), loader)
        """,
        "a helper": """
            def mean_over_ranks(value):
                value = torch.tensor(value)
                dist.all_reduce(value)
                return value.item() / dist.get_world_size()

            dist.init_process_group("gloo")
            data, total = Numbers(), 0.0
            model = DDP(nn.Linear(2, 1))
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            with torch.no_grad():
                for x, y in loader:
                    total += F.mse_loss(model(x), y).item()
            total /= len(loader)  # here
            print(mean_over_ranks(total))
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain:
            return
        reported: set[ast.AST] = set()
        for site in script.calls(*_REDUCES):
            for given in script.argument(site.node, "tensor", 0).given:
                for length in _lengths(script, given.node):
                    loader = _evaluated(script, length)
                    statement = script.function_of(length).module.statement(length)
                    if loader is None or statement in reported:
                        continue
                    reported.add(statement)
                    yield Violation(
                        length,
                        f"the mean over batches is averaged over ranks in line {site.node.lineno}: the last batch "
                        "counts as much as a full one, though it is smaller",
                        "reduce the sum over samples and the count, and divide once",
                    )


def _lengths(script: Script, node: ast.expr) -> Iterator[ast.Call]:
    """`len(loader)` by which something is divided on the way to a value."""
    for each in computed_from(script, node):
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div):
            yield from _length(each.right)
        elif isinstance(each, ast.Name):
            for binding, _ in script.program.evaluator.bindings(each):
                if isinstance(binding.node, ast.AugAssign) and isinstance(binding.node.op, ast.Div):
                    yield from _length(binding.node.value)


def _length(node: ast.expr) -> Iterator[ast.Call]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and node.args:
        yield node


def _evaluated(script: Script, length: ast.Call) -> Loader | None:
    """The loader of `len(loader)`, if it holds a share of the evaluation data."""
    made = {each for each in script.values(length.args[0]) if isinstance(each, Object) and each.name in DATA_LOADERS}
    for loader in script.loaders:
        if loader.made.call not in {each.call for each in made} or script.trains_on(loader):
            continue
        share = distributed_samplers(samplers(script, loader)) or may_depend(script, [loader.made.call])
        if share and script.evaluates(loader):
            return loader
    return None
