"""A metric of one rank's share of the data is reported as that of the whole.

What it does:
    Follows values that rank 0 prints, logs or writes back to batches of a sharded evaluation loader, or to a slice
    `[rank::world_size]`, and reports those that pass no collective on the way. Also for `self.log(...)` without
    `sync_dist=True` in the validation and test steps of Lightning modules that run on several devices.

Why is this bad:
    Each rank evaluates its own share. The number that rank 0 reports is that of 1/N of the data: it is noisier than the
    metric it stands for, and changes with the number of ranks.

Repair:
    Sum the numerator and the count over ranks, and divide then: `dist.all_reduce(torch.tensor([correct, total]))`.

Known problems:
    The loss of training batches is left out: logs of rank 0 usually show its own.

References:
    F71. https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.computed_from import computed_from
from paceline.check.analyses.evaluated_shares import appended, is_share, loader_around
from paceline.check.analyses.framework_names import COLLECTIVES
from paceline.check.analyses.local_values import LocalValues
from paceline.check.analyses.rank_tests import RankKind, Ranks
from paceline.check.analyses.script import Loader, Script
from paceline.check.analyses.synchronized_names import SynchronizedNames, may_synchronize
from paceline.check.analyses.value_origins import without_gradients
from paceline.check.analyses.value_spread import Cause, Spread
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import last_name
from paceline.syntax.values import Literal

_SINKS = frozenset(
    (
        "print", "write", "info", "warning", "log", "add_scalar", "add_scalars", "dump", "dumps", "writerow", "save",
        "log_metrics", "log_metric", "append", "echo", "debug",
    )
)  # fmt: skip


class ShardMetric(Rule):
    """Metrics of rank 0's share."""

    code, name, topic = "DP059", "shard-metric", "evaluation"
    faults = ("F71",)
    severity = "warning"
    valid = {
        "sums over ranks": """
            def evaluate(model, loader):
                sums = torch.zeros(2)
                for x, y in loader:
                    sums += torch.tensor([F.mse_loss(model(x), y, reduction="sum").item(), len(x)])
                dist.all_reduce(sums)
                return sums[0] / sums[1]

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            error = evaluate(DDP(nn.Linear(2, 1)), loader)
            if dist.get_rank() == 0:
                print("error", error)
        """,
        "a validation step that synchronizes": """
            import lightning as L

            class Fit(L.LightningModule):
                def validation_step(self, batch, _):
                    self.log("val_loss", batch[0].mean(), sync_dist=True)

            L.Trainer(devices=2, strategy="ddp").fit(Fit(), DataLoader(Numbers()), DataLoader(Numbers()))
        """,
        "gathered on rank 0": """
            def predict(model, loader):
                return torch.cat([model(x) for x, _ in loader])

            dist.init_process_group("gloo")
            rank, data = dist.get_rank(), Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            with torch.no_grad():
                own = predict(DDP(nn.Linear(2, 1)), loader)
            parts = [torch.empty_like(own) for _ in range(dist.get_world_size())] if rank == 0 else None
            dist.gather(own, parts, dst=0)
            if rank == 0:
                print(torch.cat(parts).mean())
        """,
        "rank 0 evaluates everything": """
            def evaluate(model, loader):
                total = 0.0
                for x, y in loader:
                    total += F.mse_loss(model(x), y, reduction="sum").item()
                return total / len(loader.dataset)

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            if dist.get_rank() == 0:
                print("error", evaluate(model.module, DataLoader(Numbers(), batch_size=8)))
        """,
    }
    invalid = {
        "the accuracy of a shard": """
            def evaluate(model, loader):
                correct = total = 0
                for x, y in loader:
                    correct += (model(x).round() == y).sum().item()
                    total += len(x)
                return correct / total

            dist.init_process_group("gloo")
            rank, data = dist.get_rank(), Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            accuracy = evaluate(DDP(nn.Linear(2, 1)), loader)
            if rank == 0:
                print(f"accuracy {accuracy:.3f}")  # here
        """,
        "a list of losses": """
            def evaluate(model, loader):
                losses = []
                with torch.no_grad():
                    for x, y in loader:
                        losses.append(F.mse_loss(model(x), y).item())
                return float(np.mean(losses))

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            loss = evaluate(DDP(nn.Linear(2, 1)), loader)
            if dist.get_rank() == 0:
                print("loss", loss)  # here
        """,
        "a validation step of Lightning": """
            import lightning as L

            class Fit(L.LightningModule):
                def training_step(self, batch, _):
                    return batch[0].mean()

                def validation_step(self, batch, _):
                    self.log("val_loss", batch[0].mean())  # here

            L.Trainer(devices=2, strategy="ddp").fit(Fit(), DataLoader(Numbers()), DataLoader(Numbers()))
        """,
        "in a class": """
            class Trainer:
                def __init__(self):
                    self.rank, data = int(os.environ["RANK"]), Numbers()
                    self.loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
                    self.model = DDP(nn.Linear(2, 1))

                @torch.no_grad()
                def test(self):
                    total, n = 0.0, 0
                    for x, y in self.loader:
                        total += F.mse_loss(self.model(x), y, reduction="sum").item()
                        n += len(x)
                    return {"mse": total / n}

                def report(self):
                    metrics = self.test()
                    if self.rank == 0:
                        print(metrics)  # here

            dist.init_process_group("gloo")
            Trainer().report()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if "lightning" in script.engines:
            yield from self._lightning(script)
        if script.plain:
            yield from self._plain(script)

    def _lightning(self, script: Script) -> Iterator[Violation]:
        """`self.log(...)` in a validation step without `sync_dist`, with several devices."""
        if not any(_on_several(script, site.node) for site in script.calls("lightning.Trainer")):
            return
        for site in script.method_calls("log", "log_dict"):
            receiver = site.node.func.value if isinstance(site.node.func, ast.Attribute) else None
            if site.function.name not in _STEPS or not isinstance(receiver, ast.Name) or not site.node.args:
                continue
            synchronizes = script.argument(site.node, "sync_dist")
            values = script.program.evaluator.all_of(synchronizes.given)
            if not (synchronizes.absent or values == {Literal(False)}) or _synchronizes_itself(script, site.node):
                continue
            yield Violation(
                site.node,
                f"{site.function.name} logs the value of one process: without sync_dist=True Lightning reports that of "
                "rank 0's share of the data",
                "pass sync_dist=True, or log a metric of torchmetrics",
            )

    def _plain(self, script: Script) -> Iterator[Violation]:
        if not _has_shares(script):
            return
        local = LocalValues.of(script)
        reported: set[ast.AST] = set()
        for function in script.program.functions:
            for call in function.calls:
                if last_name(call.func) not in _SINKS or script.where(call) not in (Ranks.ZERO, Ranks.LOCAL_ZERO):
                    continue
                found = _share_in(script, local, call)
                if found is None or found[1] in reported:
                    continue
                reported.add(found[1])
                yield Violation(
                    call,
                    f"`{ast.unparse(found[0])}` is that of this rank's share of the data (line "
                    f"{getattr(found[1], 'lineno', 0)}), and rank 0 reports it without combining the ranks",
                    "sum numerator and count over ranks with dist.all_reduce, and divide then",
                )


def _has_shares(script: Script) -> bool:
    """True if the script evaluates shares of data at all: through loaders, or by slices of the rank."""
    if any(is_share(script, loader) for loader in script.loaders):
        return True
    return any("::" in module.source.text for module in script.program.imports.modules)


_STEPS = ("validation_step", "test_step", "on_validation_epoch_end", "on_test_epoch_end")


def _on_several(script: Script, trainer: ast.Call) -> bool:
    """True if a Trainer of Lightning certainly runs several processes."""
    strategy = script.literals(trainer, "strategy") or set()
    devices = script.literals(trainer, "devices") or set()
    nodes = script.literals(trainer, "num_nodes") or set()
    distributed = any(str(each).startswith(("ddp", "fsdp", "deepspeed")) for each in strategy)
    several = any(isinstance(each, int) and each > 1 for each in devices | nodes)
    return several or (distributed and devices != {1})


def _synchronizes_itself(script: Script, call: ast.Call) -> bool:
    """True if a metric of torchmetrics is logged, or a value that passed a collective."""
    nodes = [*call.args, *(each.value for each in call.keywords)]
    for each in (at for node in nodes for at in computed_from(script, node)):
        if isinstance(each, ast.Call) and last_name(each.func) in ("all_gather", "all_reduce", "compute"):
            return True
        names = script.program.callee_names(each) if isinstance(each, ast.Call) else []
        if isinstance(each, ast.Attribute):
            names += [getattr(value, "name", "") for value in script.values(each)]
        if any(name.startswith("torchmetrics.") for name in names):
            return True
    return False


def _share_in(script: Script, local: LocalValues, call: ast.Call) -> tuple[ast.expr, ast.AST] | None:
    """A value in the arguments of a call that comes from a share of the evaluation data, and the share."""
    arguments = [*call.args, *(each.value for each in call.keywords)]
    nodes = [node for argument in arguments for node in walk(argument)]
    named = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute | ast.Call)]
    if any(script.ranks.kind(node) is not RankKind.NONE for node in named):
        return None  # the report says whose number it is
    for node in named:
        if isinstance(node, ast.Call) and node.func in named and last_name(node.func) in ("len", "type", "str"):
            continue
        origin = local.origin(node)
        if origin.local and origin.cause is Cause.DATA and origin.node is not None:
            is_share_alone = _is_evaluated(script, origin.node) and not _is_gathered(script, node)
            return (node, origin.node) if is_share_alone else None
        if origin.spread is not Spread.REDUCED and (loader := _in_list(script, node)) is not None:
            return node, loader.made.call
    return None


def _is_gathered(script: Script, node: ast.expr) -> bool:
    """True if a value is computed from a variable that a collective fills, such as the list of `dist.gather`."""
    for each in computed_from(script, node):
        if not isinstance(each, ast.Name):
            continue
        for call in script.function_of(each).calls:
            given = {at.id for argument in call.args for at in walk(argument) if isinstance(at, ast.Name)}
            if each.id in given and not set(COLLECTIVES).isdisjoint(script.program.callee_names(call)):
                return True
    return False


def _in_list(script: Script, node: ast.expr) -> Loader | None:
    """The loader whose share fills a list that a value is computed from, where no collective is on the way."""
    behind = list(computed_from(script, node))
    if any(isinstance(each, ast.Call) and may_synchronize(last_name(each.func)) for each in behind):
        return None
    if _is_gathered(script, node):
        return None
    for each in behind:
        for call in appended(script, each) if isinstance(each, ast.Name) else ():
            if SynchronizedNames(script).function(script.function_of(call)):
                continue
            if (loader := loader_around(script, call)) is not None:
                return loader
    return None


def _is_evaluated(script: Script, share: ast.AST) -> bool:
    """True if a share of the data is one that the script evaluates, and does not train on."""
    loaders = [each for each in script.loaders if each.made.call is share]
    if loaders:
        return all(script.evaluates(each) and not script.trains_on(each) for each in loaders)
    if any(share is getattr(loop.node, "iter", None) for loop in script.loops.training):
        return False
    function = script.function_of(share)
    return without_gradients(script, share) or any(part in function.name for part in ("eval", "valid", "test"))
