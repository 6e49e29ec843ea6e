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

from paceline.check.analyses.computed_from import computed_from
from paceline.check.analyses.evaluated_shares import appended, is_share, loader_around
from paceline.check.analyses.framework_names import DATA_LOADERS
from paceline.check.analyses.rank_shares import distributed_samplers, samplers
from paceline.check.analyses.script import Loader, Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import last_name
from paceline.syntax.program import CallSite
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
        "counts of shares that are padded to the same size": """
            def evaluate(model, loader):
                right, count = 0, 0
                with torch.no_grad():
                    for x, y in loader:
                        right += (model(x).argmax(1) == y).sum().item()
                        count += len(y)
                accuracy = torch.tensor(right / count)
                dist.all_reduce(accuracy)
                return accuracy / dist.get_world_size()

            dist.init_process_group("gloo")
            data = Numbers()
            sampler = DistributedSampler(data, shuffle=False)
            evaluate(DDP(nn.Linear(2, 1)), DataLoader(data, batch_size=8, sampler=sampler))
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
        "the count of a share": """
            def evaluate(model, loader):
                right, count = 0, 0
                with torch.no_grad():
                    for x, y in loader:
                        right += (model(x).argmax(1) == y).sum().item()
                        count += len(y)
                accuracy = torch.tensor(right / count)  # here
                dist.all_reduce(accuracy)
                return accuracy / dist.get_world_size()

            dist.init_process_group("gloo")
            data = Numbers()
            mine = torch.utils.data.Subset(data, range(dist.get_rank(), len(data), dist.get_world_size()))
            evaluate(DDP(nn.Linear(2, 1)), DataLoader(mine, batch_size=8))
        """,
        "a division behind the reduction": """
            @torch.no_grad()
            def evaluate(model, loader):
                total = torch.zeros(())
                for x, y in loader:
                    total += F.mse_loss(model(x), y)
                dist.all_reduce(total)
                return total / (len(loader) * dist.get_world_size())  # here

            dist.init_process_group("gloo")
            data = Numbers()
            mine = torch.utils.data.Subset(data, range(dist.get_rank(), len(data), dist.get_world_size()))
            evaluate(DDP(nn.Linear(2, 1)), DataLoader(mine, batch_size=8))
        """,
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
        "a list of losses": """
            @torch.no_grad()
            def evaluate(model, loader):
                losses = []
                for x, y in loader:
                    losses.append(F.mse_loss(model(x), y))
                mean = torch.stack(losses).mean()  # here
                dist.all_reduce(mean)
                return mean / dist.get_world_size()

            dist.init_process_group("gloo")
            data = Numbers()
            mine = torch.utils.data.Subset(data, range(dist.get_rank(), len(data), dist.get_world_size()))
            evaluate(DDP(nn.Linear(2, 1)), DataLoader(mine, batch_size=8))
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
            given = script.argument(site.node, "tensor", 0).given
            for node in (
                *(mean for each in given for mean in _means(script, each.node)),
                *_divided_later(script, site),
            ):
                statement = script.function_of(node).module.statement(node)
                if statement not in reported:
                    reported.add(statement)
                    yield Violation(
                        node,
                        f"a mean over batches or over a share of the data is averaged over ranks in line "
                        f"{site.node.lineno}: small parts count as much as large ones",
                        "reduce the sum over samples and the count, and divide once",
                    )


def _means(script: Script, node: ast.expr) -> Iterator[ast.expr]:
    """Means over parts of the evaluation data that a value is computed from."""
    yield from (each for each in _lengths(script, node) if _evaluated(script, each) is not None)
    yield from _by_own_count(script, node)
    for each in computed_from(script, node):
        if isinstance(each, ast.Attribute) and each.attr in ("avg", "global_avg") and _updated(script, each):
            yield each
        elif isinstance(each, ast.Call) and last_name(each.func) == "mean":
            parts = [at for at in walk(each) if isinstance(at, ast.Name)]
            if any(_grows(script, at) for at in parts):
                yield each


def _by_own_count(script: Script, node: ast.expr) -> Iterator[ast.expr]:
    """Divisions by a count of the samples of this rank, whose shares may differ by one."""
    for each in computed_from(script, node):
        if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Div) and isinstance(each.right, ast.Name):
            for binding, _ in script.program.evaluator.bindings(each.right):
                if _counts_in_share(script, binding.node):
                    yield each
                    break


def _counts_in_share(script: Script, statement: ast.AST) -> bool:
    """`count += len(y)` in a loop over a share of the evaluation data that is not padded."""
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.op, ast.Add):
        return False
    calls = [each for each in walk(statement.value) if isinstance(each, ast.Call)]
    if not any(last_name(each.func) in ("len", "size", "numel") for each in calls):
        return False
    loader = loader_around(script, calls[0])
    return loader is not None and not distributed_samplers(samplers(script, loader))


def _divided_later(script: Script, site: CallSite) -> Iterator[ast.expr]:
    """`total / (len(loader) * world_size)` behind `dist.all_reduce(total)`."""
    given = script.argument(site.node, "tensor", 0).given
    text = ast.unparse(given[0].node) if given and isinstance(given[0].node, ast.Name | ast.Attribute) else None
    for node in walk(site.function.node) if text is not None else ():
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div) or node.lineno <= site.node.lineno:
            continue
        if any(ast.unparse(at) == text for at in walk(node.left) if isinstance(at, ast.Name | ast.Attribute)):
            lengths = (each for at in walk(node.right) for each in _length(at))
            yield from (each for each in lengths if _evaluated(script, each) is not None)


def _updated(script: Script, node: ast.Attribute) -> bool:
    """True if a meter is updated in a loop over a share of the evaluation data that is not padded."""
    function = script.function_of(node)
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "update"
        and ast.unparse(call.func.value) == ast.unparse(node.value)
        and (loader := loader_around(script, call)) is not None
        and not distributed_samplers(samplers(script, loader))
        for call in function.calls
    )


def _grows(script: Script, node: ast.Name) -> bool:
    """True if a list gets one mean for each batch of a share of the evaluation data."""
    return any(
        any("loss" in ast.unparse(each).lower() or "mean" in ast.unparse(each).lower() for each in call.args)
        and loader_around(script, call) is not None
        for call in appended(script, node)
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


def _length(node: ast.AST) -> Iterator[ast.Call]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and node.args:
        yield node


def _evaluated(script: Script, length: ast.Call) -> Loader | None:
    """The loader of `len(loader)`, if it holds a share of the evaluation data."""
    made = {each for each in script.values(length.args[0]) if isinstance(each, Object) and each.name in DATA_LOADERS}
    calls = {each.call for each in made}
    found = (loader for loader in script.loaders if loader.made.call in calls)
    return next((each for each in found if is_share(script, each)), None)
