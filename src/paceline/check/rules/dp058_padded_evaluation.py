"""A metric counts some samples twice, because the evaluation sampler pads.

What it does:
    Looks for evaluation loops over a loader with a DistributedSampler whose results are reduced or gathered over ranks,
    without anything that removes the samples that the sampler adds; and for `accelerator.gather` of evaluation batches.

Why is this bad:
    DistributedSampler repeats samples until the length of the data set is a multiple of the number of ranks. With 101
    samples on 2 ranks 102 are counted, and the metric changes with the number of ranks.

Repair:
    Evaluate `range(rank, len(dataset), world_size)` and reduce sums and counts; or gather, restore the order and cut to
    `len(dataset)`.

Known problems:
    A data set whose length is a multiple of the number of ranks is not padded. Where reading does not show the length,
    this is reported as worth knowing.

References:
    F70. https://github.com/pytorch/pytorch/issues/25162
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.rank_shares import distributed_samplers, samplers
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Loader, Script
from paceline.check.analyses.synchronized_names import SynchronizedNames
from paceline.check.analyses.value_origins import without_gradients
from paceline.check.analyses.wrapped_models import is_prepared
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function, last_name
from paceline.syntax.values import Literal, Object

_TRIMS = frozenset(("total_size", "num_samples", "unique", "drop_duplicates", "drop_last", "Subset"))
"""Names with which scripts take away what the sampler added."""


class PaddedEvaluation(Rule):
    """Metrics over samples that the sampler repeats."""

    code, name, topic = "DP058", "padded-evaluation", "evaluation"
    faults = ("F70",)
    severity = "warning"
    valid = {
        "shards that are not padded": """
            dist.init_process_group("gloo")
            data = Numbers()
            mine = torch.utils.data.Subset(data, range(dist.get_rank(), len(data), dist.get_world_size()))
            model, sums = DDP(nn.Linear(2, 1)).eval(), torch.zeros(2)
            for x, y in DataLoader(mine, batch_size=8):
                sums += torch.stack([F.mse_loss(model(x), y, reduction="sum"), torch.tensor(len(x))])
            dist.all_reduce(sums)
        """,
        "accelerate cuts off what it filled up": """
            from accelerate import Accelerator
            accelerator = Accelerator()
            model, loader = accelerator.prepare(nn.Linear(2, 1), DataLoader(Numbers(), batch_size=8))
            for x, y in loader:
                with torch.no_grad():
                    output, target = accelerator.gather_for_metrics((model(x), y))
        """,
        "gathered batches that are cut": """
            from accelerate import Accelerator
            accelerator, outputs = Accelerator(), []
            model, loader = accelerator.prepare(nn.Linear(2, 1), DataLoader(Numbers(), batch_size=8))
            for x, y in loader:
                with torch.no_grad():
                    outputs.append(accelerator.gather(F.mse_loss(model(x), y, reduction="none")))
            print(torch.cat(outputs)[:1000].mean())
        """,
        "cut to the length of the data set": """
            def gather(part, total):
                parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, part)
                return torch.stack(parts, 1).flatten(0, 1)[:total]

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            model, outputs = DDP(nn.Linear(2, 1)).eval(), []
            for x, y in loader:
                outputs.append(model(x))
            outputs = gather(torch.cat(outputs), len(data))
        """,
    }
    invalid = {
        "samples that accelerate filled up": """
            from accelerate import Accelerator
            accelerator = Accelerator()
            model, loader = accelerator.prepare(nn.Linear(2, 1), DataLoader(Numbers(), batch_size=8))
            right = total = 0
            for x, y in loader:
                with torch.no_grad():
                    output, target = accelerator.gather((model(x), y))  # here
                right += (output.round() == target).sum().item()
                total += len(target)
        """,
        "sums over ranks": """
            def evaluate(model, loader):
                sums = torch.zeros(2)
                for x, y in loader:
                    sums += torch.stack([F.mse_loss(model(x), y, reduction="sum"), torch.tensor(len(x))])
                dist.all_reduce(sums)
                return sums[0] / sums[1]

            dist.init_process_group("gloo")
            data = Numbers()
            sampler = DistributedSampler(data, shuffle=False)  # here
            evaluate(DDP(nn.Linear(2, 1)), DataLoader(data, batch_size=8, sampler=sampler))
        """,
        "gathered predictions": """
            def gather(part):
                parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, part)
                return torch.cat(parts)

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))  # here
            model, outputs = DDP(nn.Linear(2, 1)).eval(), []
            for x, y in loader:
                outputs.append((model(x) - y).abs())
            print(gather(torch.cat(outputs)).mean())
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if "accelerate" in script.engines:
            yield from _gathered_with_padding(script)
        if not script.plain:
            return
        synchronized = SynchronizedNames(script)
        reported: set[ast.Call] = set()
        for loader in script.loaders:
            padded = [each for each in distributed_samplers(samplers(script, loader)) if _pads(script, each)]
            if not padded or padded[0].call in reported or script.trains_on(loader):
                continue
            lengths = _lengths(script, loader)
            if lengths and all(length % 8 == 0 for length in lengths):
                continue
            loops = [loop for loop in script.evaluates(loader) if script.where(loop) is Ranks.ALL]
            loops = [loop for loop in loops if _evaluates(script, loop)]
            functions = {script.function_of(loop) for loop in loops}
            reducing = [each for each in functions if synchronized.function(each)]
            if not reducing or any(_trims(script, each, loader) for each in reducing):
                continue
            reported.add(padded[0].call)
            yield Violation(
                padded[0].call,
                f"DistributedSampler repeats samples to give all ranks as many, and {_name(reducing[0])} counts them "
                "twice in the metric",
                "evaluate range(rank, len(dataset), world_size) instead, or cut what is gathered to len(dataset)",
                severity=None if any(length % 2 for length in lengths) else "info",
            )


def _gathered_with_padding(script: Script) -> Iterator[Violation]:
    """`accelerator.gather` of the samples of an evaluation batch: the last batch is filled up with the first."""
    for loop in script.all_loops:
        function = script.function_of(loop)
        if not any(is_prepared(each) for each in script.iterated(loop)) or _cuts(function):
            continue
        reached = [each.node for each in script.loops.reached_calls(loop, function)]
        if any(script.loops.is_backward(each) for each in reached):
            continue
        batch = {at.id for at in walk(loop.target) if isinstance(at, ast.Name)}
        for call in reached:
            if not isinstance(call, ast.Call) or script.function_of(call) is not function:
                continue
            given = {at.id for each in call.args for at in walk(each) if isinstance(at, ast.Name)}
            if "accelerate.Accelerator.gather" in script.program.callee_names(call) and given & batch:
                yield Violation(
                    call,
                    "accelerate fills up the last batch with samples of the first one, so that all ranks have as many,"
                    " and gather() hands them to the metric",
                    "use accelerator.gather_for_metrics(), which cuts them off",
                    severity="info",
                )
                break


def _evaluates(script: Script, loop: ast.For | ast.AsyncFor) -> bool:
    """True if a loop without backward passes evaluates: without gradients, or with the model in eval mode."""
    function = script.function_of(loop)
    if without_gradients(script, loop) or any(part in function.name for part in ("eval", "valid", "test")):
        return True
    return any(last_name(call.func) == "eval" for call in function.calls)


def _lengths(script: Script, loader: Loader) -> list[int]:
    """Numbers of samples that the call which makes the data set shows: `split(101, seed=1)`."""
    found = []
    for each in script.argument(loader.made, "dataset", 0).given:
        for at in script.origins.of(each.node, each.context):
            own = isinstance(at.node, ast.Call) and script.program.evaluator.callees(at.node, at.context)
            first = at.node.args[:1] if isinstance(at.node, ast.Call) and own else []
            found += [node.value for node in first if isinstance(node, ast.Constant) and isinstance(node.value, int)]
    return found


def _name(function: Function) -> str:
    return "the script" if function.parent is None else f"{function.name}()"


def _pads(script: Script, sampler: Object) -> bool:
    """True if a sampler pads: it does not drop the tail, and has more than one rank."""
    drop = script.argument(sampler, "drop_last", 5)
    dropped = not drop.absent and script.program.evaluator.all_of(drop.given) != {Literal(False)}
    return not dropped and script.literals(sampler, "num_replicas", 1) is None


def _trims(script: Script, function: Function, loader: Loader) -> bool:
    """True if the function, or one that it calls, cuts or deduplicates what it reduces."""
    data = script.program.argument_values(loader.made, "dataset", 0)
    if any(isinstance(each, Object) and each.name == "torch.utils.data.Subset" for each in data):
        return True
    called = {each.function for each in script.loops.reached_calls(function.node, function)}
    callers = {caller for caller, _ in script.program.evaluator.call_sites(function) if caller.parent is not None}
    return any(_cuts(each) for each in {function, *called, *callers})


def _cuts(function: Function) -> bool:
    for node in walk(function.node):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            if node.slice.lower is None and node.slice.upper is not None and node.slice.step is None:
                return True
        elif isinstance(node, ast.Attribute | ast.Name) and last_name(node) in _TRIMS:
            return True
    return False
