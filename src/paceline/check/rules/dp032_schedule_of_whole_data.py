"""A schedule counts the steps of one device.

What it does:
    Looks for schedulers whose number of steps is computed from `len(dataset) // batch_size` although each rank reads a
    shard of the data set, from the length of a loader without a sampler that is not the one trained on, or from the
    length of a loader before `accelerator.prepare` shards it; and for schedulers that are stepped once for each rank.

Why is this bad:
    With N ranks an epoch has N times fewer steps. A schedule for the steps of one device ends training at 1/N of its
    way: the learning rate never decays, or warm-up takes N times as long. Stepped N times it ends too early.

Repair:
    Compute the number of steps from `len(loader)` of the loader with the DistributedSampler.

Known problems:
    Schedules that count samples or tokens over all ranks are right; reading recognizes them by the world size in them.

References:
    F33. https://github.com/huggingface/accelerate/issues/662
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import DATA_LOADERS, DISTRIBUTED_SAMPLERS, SCHEDULERS
from paceline.check.analyses.loss_terms import behind
from paceline.check.analyses.script import Loader, Script
from paceline.check.analyses.world_size import is_world_size
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import last_name
from paceline.syntax.program import CallSite
from paceline.syntax.values import FunctionValue, Object, Value

_MAKERS = (SCHEDULERS, "transformers.get_", "timm.scheduler.")
_METHODS = (".step", ".load_state_dict", ".state_dict", ".get_last_lr")


class ScheduleOfWholeData(Rule):
    """Schedules for the steps of one device."""

    code, name, topic = "DP032", "schedule-of-whole-data", "gradients"
    faults = ("F33",)
    severity = "warning"
    valid = {
        "the length of the sharded loader": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3 * len(loader))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
                scheduler.step()
        """,
        "a scheduler that accelerate steps for each rank": """
            from accelerate import Accelerator
            accelerator = Accelerator()
            model, loader = nn.Linear(2, 1), DataLoader(Numbers(), batch_size=8, shuffle=True)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3 * len(loader))
            model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
            for x, y in loader:
                accelerator.backward(F.mse_loss(model(x), y))
                optimizer.step()
                scheduler.step()
        """,
        "the length of a loader that accelerate has sharded": """
            from accelerate import Accelerator
            accelerator = Accelerator()
            model, loader = nn.Linear(2, 1), DataLoader(Numbers(), batch_size=8, shuffle=True)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
            scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3 * len(loader))
            for x, y in loader:
                accelerator.backward(F.mse_loss(model(x), y))
                optimizer.step()
                scheduler.step()
        """,
        "samples of all ranks": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            steps = len(data) // (8 * dist.get_world_size())
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3 * steps)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
                scheduler.step()
        """,
        "a batch that is divided over the ranks": """
            def main(args):
                dist.init_process_group("gloo")
                data = Numbers()
                per_rank = args.batch_size // dist.get_world_size()
                loader = DataLoader(data, batch_size=per_rank, sampler=DistributedSampler(data))
                model = DDP(nn.Linear(2, 1))
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                steps = len(data) // args.batch_size
                scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()
                    scheduler.step()

            main(argparse.ArgumentParser().parse_args())
        """,
        "a class that steps a schedule of single devices": """
            class Stretched:
                def __init__(self, scheduler):
                    self.scheduler = scheduler

                def step(self):
                    for _ in range(dist.get_world_size()):
                        self.scheduler.step()

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = Stretched(torch.optim.lr_scheduler.StepLR(optimizer, 1000))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
                scheduler.step()
        """,
    }
    invalid = {
        "a loader that accelerate shards later": """
            from accelerate import Accelerator
            accelerator = Accelerator()
            model, loader = nn.Linear(2, 1), DataLoader(Numbers(), batch_size=8, shuffle=True)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=3 * len(loader))  # here
            model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
            for x, y in loader:
                accelerator.backward(F.mse_loss(model(x), y))
                optimizer.step()
                scheduler.step()
        """,
        "the length of the data set": """
            def main(args):
                dist.init_process_group("gloo")
                data = Numbers()
                loader = DataLoader(data, batch_size=args.batch_size, sampler=DistributedSampler(data))
                model = DDP(nn.Linear(2, 1))
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                steps = len(data) // args.batch_size
                scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)  # here
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()
                    scheduler.step()

            main(argparse.ArgumentParser().parse_args())
        """,
        "a loader of before": """
            dist.init_process_group("gloo")
            data = Numbers()
            steps_per_epoch = len(DataLoader(data, batch_size=8))
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3 * steps_per_epoch)  # here
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
                scheduler.step()
        """,
        "a step for each rank": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, len(loader))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
                for _ in range(dist.get_world_size()):  # here
                    scheduler.step()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if "accelerate" in script.engines:
            yield from _counted_before_prepare(script)
        if not script.plain:
            return
        yield from _stepped_per_rank(script)
        sharded = [each for each in script.loaders if _is_sharded(script, each) and script.trains_on(each)]
        if not sharded or not _steps_with_batches(script):
            return
        for site in _schedulers(script):
            nodes = [node for each in _arguments(script, site) for node, _ in behind(script, each)]
            if any(_is_world(script, each) for each in nodes):
                continue
            if any(_counts_whole_data(script, each, sharded) for each in nodes):
                yield Violation(
                    site.node,
                    "the schedule counts the batches of the whole data set, but each rank reads a shard of it: an epoch"
                    " has N times fewer steps",
                    "compute the number of steps from len() of the loader with the DistributedSampler",
                )


def _counted_before_prepare(script: Script) -> Iterator[Violation]:
    """Schedules of `len(loader)` before `accelerator.prepare(loader)` that are not prepared themselves."""
    sites = script.calls("accelerate.Accelerator.prepare", "accelerate.Accelerator.prepare_data_loader")
    prepared = {value for site in sites for each in site.node.args for value in script.values(each)}
    options = ("split_batches", "dataloader_config")
    makers = list(script.calls("accelerate.Accelerator"))
    if not prepared or any(not script.argument(each.node, name).absent for each in makers for name in options):
        return
    for site in _schedulers(script):
        nodes = [node for each in _arguments(script, site) for node, _ in behind(script, each)]
        if not _steps_with_batches(script) or script.values(site.node) & prepared:
            continue
        if any(_is_world(script, each) or last_name(each) == "num_processes" for each in nodes):
            continue
        measured = [_measured(each) for each in nodes]
        found = [script.values(each) for each in measured if each is not None]
        if any(values and all(_is_loader(each) and each in prepared for each in values) for values in found):
            yield Violation(
                site.node,
                "the schedule counts the batches before accelerator.prepare() shards the loader: an epoch has N times"
                " fewer steps",
                "compute the number of steps behind accelerator.prepare(), or prepare the scheduler as well",
            )


def _is_loader(value: Value) -> bool:
    return isinstance(value, Object) and value.name in DATA_LOADERS


def _schedulers(script: Script) -> Iterator[CallSite]:
    for function in script.program.functions:
        for call in function.calls:
            names = script.program.callee_names(call)
            made = any(each.startswith(_MAKERS) and not each.endswith(_METHODS) for each in names)
            if made and (call.args or call.keywords):
                yield CallSite(names[0], call, function)


def _arguments(script: Script, site: CallSite) -> Iterator[ast.expr]:
    """Arguments of a scheduler, and what the functions read that it is given."""
    for each in (*site.node.args[1:], *(keyword.value for keyword in site.node.keywords)):
        yield each
        for value in script.values(each):
            if isinstance(value, FunctionValue):
                for node in walk(value.function.node):
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                        yield node


def _is_world(script: Script, node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute) and node.attr in ("num_samples", "total_size", "num_replicas"):
        return True
    return isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript) and is_world_size(script, node)


def _is_sharded(script: Script, loader: Loader) -> bool:
    values, _ = script.sampler(loader)
    return bool(values) and all(isinstance(each, Object) and each.name in DISTRIBUTED_SAMPLERS for each in values)


def _counts_whole_data(script: Script, node: ast.expr, sharded: list[Loader]) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv):
        measured = _measured(node.left)
        return measured is not None and any(
            _same_data(script, measured, each) and _same_batch(script, node.right, each) for each in sharded
        )
    measured = _measured(node)
    if measured is None:
        return False
    values = script.values(measured)
    trained = {each.made.call for loop in script.loops.training for each in sharded if each.made in loop.iterated}
    return bool(values) and all(
        isinstance(each, Object)
        and each.name in DATA_LOADERS
        and each.call not in trained
        and script.argument(each, "sampler", 3).absent
        and script.argument(each, "batch_sampler", 4).absent
        and _loads_same_data(script, each, sharded)
        for each in values
    )


def _measured(node: ast.expr) -> ast.expr | None:
    """`x` of `len(x)`."""
    if isinstance(node, ast.Call) and last_name(node.func) == "len" and len(node.args) == 1:
        return node.args[0]
    return None


def _same_data(script: Script, node: ast.expr, loader: Loader) -> bool:
    given = script.program.argument_values(loader.made, "dataset", 0)
    values = script.values(node)
    return bool(given & values) and not script.unknown(values)


def _loads_same_data(script: Script, made: Object, sharded: list[Loader]) -> bool:
    given = script.program.argument_values(made, "dataset", 0)
    return any(given & script.program.argument_values(each.made, "dataset", 0) for each in sharded)


def _same_batch(script: Script, node: ast.expr, loader: Loader) -> bool:
    """True if a divisor is the batch size that the loader is given."""
    given = script.argument(loader.made, "batch_size", 1).given
    return any(
        ast.unparse(each.node) == ast.unparse(node)
        or (script.values(node) == script.values(each.node, each.context) and not script.unknown(script.values(node)))
        for each in given
    )


def _steps_with_batches(script: Script) -> bool:
    """True if a scheduler is stepped in the loop over batches."""
    return any(
        isinstance(each.node, ast.Call) and _is_scheduler_step(script, each.node)
        for loop in script.loops.training
        for each in loop.reached
    )


def _is_scheduler_step(script: Script, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("step", "step_update"):
        return False
    names = script.program.callee_names(call)
    return any(each.startswith(SCHEDULERS) for each in names) or "sched" in ast.unparse(call.func.value).lower()


def _stepped_per_rank(script: Script) -> Iterator[Violation]:
    for site in script.method_calls("step"):
        wrapped = site.function.cls is not None and site.function.name == "step"  # by a scheduler of the script's own
        if wrapped or not _is_scheduler_step(script, site.node):
            continue
        for at in site.module.ancestors(site.node):
            if at is site.function.node:
                break
            if isinstance(at, ast.For) and _counts_ranks(script, at.iter):
                yield Violation(
                    at,
                    "the scheduler is stepped once for each rank, so the schedule ends N times too early",
                    "step it once for each step of the optimizer",
                )


def _counts_ranks(script: Script, iterable: ast.expr) -> bool:
    return (
        isinstance(iterable, ast.Call)
        and last_name(iterable.func) == "range"
        and any(is_world_size(script, each) for each in iterable.args)
    )
