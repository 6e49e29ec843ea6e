"""A training loader gives every rank the whole data set.

What it does:
    Looks for a training loop that goes over a DataLoader without a sampler, batch sampler or sharded data set, in a
    script that wraps its model in DDP or FSDP. Also for batches that every rank cuts out of the same permutation, for
    loaders that are not handed to `accelerator.prepare` or `fabric.setup_dataloaders` although the model is, and for
    subclasses of the Trainer of transformers that return a plain loader.

Why is this bad:
    DDP does not split data. Without a DistributedSampler each of N ranks reads every sample, so an epoch takes as long
    as on one device and means N epochs. Ranks with equal seeds even train on identical batches.

Repair:
    `DataLoader(dataset, sampler=DistributedSampler(dataset))`, and `sampler.set_epoch(epoch)` in each epoch. Prepare
    the loader where a framework shards it.

Known problems:
    A data set that shards itself by the rank is right, and recognized if its class or the arguments that it is made
    with have the rank in them. Loaders that are handed to a function of another package are left out. DP007 is about
    samplers that do not shard, DP008 about streams.

References:
    F01, F02, F21. https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import DATA_LOADERS, HF_TRAINER, ITERABLE_DATASETS
from paceline.check.analyses.random_streams import Equality, equality
from paceline.check.analyses.rank_shares import (
    data_may_differ,
    distributed_samplers,
    has_sampler,
    is_run,
    is_sampler,
    may_depend,
    samplers,
    streamed,
    trained_on,
    unknown_origin,
)
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Loader, Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function
from paceline.syntax.program import CallSite
from paceline.syntax.values import Instance, Object

_PERMUTATIONS = (
    "torch.randperm",
    "numpy.random.permutation",
    "numpy.random.RandomState.permutation",
    "numpy.random.default_rng.permutation",
)
_PREPARE_MODEL = (
    "accelerate.Accelerator.prepare",
    "accelerate.Accelerator.prepare_model",
    "lightning.Fabric.setup",
    "lightning.Fabric.setup_module",
)
_SHARDS = frozenset({"process_index", "local_process_index", "world_size", "num_processes", "prepare_data_loader"})


class NoSampler(Rule):
    """Training loaders without a sampler."""

    code, name, topic = "DP001", "no-sampler", "data"
    faults = ("F01", "F02", "F21")
    severity = "error"
    valid = {
        "a DistributedSampler": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "the data set is a slice of the rank": """
            dist.init_process_group("gloo")
            rank, world = dist.get_rank(), dist.get_world_size()
            data = torch.utils.data.Subset(Numbers(), range(rank, 1000, world))
            loader = DataLoader(data, batch_size=8, shuffle=True)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "a part of each batch": """
            dist.init_process_group("gloo")
            rank, world = dist.get_rank(), dist.get_world_size()
            seeded = torch.Generator().manual_seed(0)
            loader = DataLoader(Numbers(), batch_size=16, shuffle=True, generator=seeded)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                x, y = x.chunk(world)[rank], y.chunk(world)[rank]
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "training on one device beside it": """
            class Net(nn.Module):
                def forward(self, x):
                    return x.sum(1, keepdim=True)

            def train(model, loader):
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()

            def distributed():
                dist.init_process_group("gloo")
                data = Numbers()
                train_ddp(DDP(Net()), DataLoader(data, batch_size=8, sampler=DistributedSampler(data)))

            def train_ddp(model, loader):
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()

            train(Net(), DataLoader(Numbers(), batch_size=8))
        """,
        "a loader that accelerate prepares": """
            from accelerate import Accelerator

            accelerator = Accelerator()
            model, loader = nn.Linear(2, 1), DataLoader(Numbers(), batch_size=8, shuffle=True)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
            for x, y in loader:
                accelerator.backward(F.mse_loss(model(x), y))
                optimizer.step()
        """,
        "a loader that a framework replaces": """
            from opacus import PrivacyEngine

            dist.init_process_group("gloo")
            loader = DataLoader(Numbers(), batch_size=8)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if len(sys.argv) > 1:
                model, optimizer, loader = PrivacyEngine().make_private(model, optimizer, loader)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "one device": """
            loader = DataLoader(Numbers(), batch_size=8, shuffle=True)
            model = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
    }
    invalid = {
        "shuffle alone": """
            dist.init_process_group("gloo")
            loader = DataLoader(Numbers(), batch_size=8, shuffle=True)  # here
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "a generator that starts the loader again": """
            def cycle(loader):
                while True:
                    for batch in loader:
                        yield batch

            dist.init_process_group("gloo")
            loader = DataLoader(Numbers(), batch_size=8, shuffle=True)  # here
            model = DDP(nn.Linear(2, 1))
            batches = cycle(loader)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(100):
                x, y = next(batches)
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "a loader that accelerate does not prepare": """
            from accelerate import Accelerator

            accelerator = Accelerator()
            model, loader = nn.Linear(2, 1), DataLoader(Numbers(), batch_size=8, shuffle=True)  # here
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer = accelerator.prepare(model, optimizer)
            for x, y in loader:
                accelerator.backward(F.mse_loss(model(x), y))
                optimizer.step()
        """,
        "the same permutation on every rank": """
            dist.init_process_group("gloo")
            x, y = torch.rand(1000, 2), torch.rand(1000, 1)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
            for i in range(0, len(x), 8):
                rows = order[i : i + 8]  # here
                F.mse_loss(model(x[rows]), y[rows]).backward()
                optimizer.step()
        """,
        "a loader that a function makes for training": """
            def loader_of(data, train):
                sampler = None if train else DistributedSampler(data, shuffle=False)
                return DataLoader(data, batch_size=8, shuffle=train)  # here

            def run(loader, model, optimizer):
                for step, (x, y) in enumerate(loader):
                    loss = F.mse_loss(model(x), y)
                    loss.backward()
                    optimizer.step()

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            run(loader_of(Numbers(), True), model, torch.optim.SGD(model.parameters(), lr=0.1))
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if script.plain and (script.wrappers or "fsdp" in script.engines):
            yield from self._loaders(script)
            yield from self._permutations(script)
        elif script.engines & {"accelerate", "fabric"}:
            yield from self._not_prepared(script)
        if "trainer" in script.engines:
            yield from self._own_train_loader(script)

    def _loaders(self, script: Script) -> Iterator[Violation]:
        reported: set[ast.Call] = set()
        for loader in script.loaders:
            if loader.made.call in reported or has_sampler(script, loader) or not trained_on(script, loader):
                continue
            if _is_stream(script, loader) or data_may_differ(script, loader):
                continue
            reported.add(loader.made.call)
            yield Violation(
                loader.made.call,
                "the training loader has no sampler, so every rank reads the whole data set",
                "pass sampler=DistributedSampler(dataset) instead of shuffle=True, and call sampler.set_epoch(epoch)",
                faults=_same_batches(script, loader.made),
            )

    def _permutations(self, script: Script) -> Iterator[Violation]:
        """Batches cut out of a permutation in memory: `perm[i : i + size]` on every rank."""
        for loop in script.loops.training:
            if script.where(loop.node) is not Ranks.ALL or not isinstance(loop.node, ast.For):
                continue
            for node in walk(loop.node):
                if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
                    continue
                drawn = [each for each in script.values(node.value) if isinstance(each, Object)]
                if not drawn or any(each.name not in _PERMUTATIONS for each in drawn):
                    continue
                if _mentions(node.slice, loop.node.target) and not may_depend(script, [loop.node, drawn[0].call]):
                    yield Violation(
                        node,
                        f"every rank takes the whole batch `{ast.unparse(node)}` of the permutation, "
                        "so all ranks read all samples",
                        "give each rank its part of the batch: perm[i + rank : i + size : world_size]",
                        faults=("F21", "F02"),
                    )
                    break

    def _not_prepared(self, script: Script) -> Iterator[Violation]:
        """Loaders of accelerate and Fabric that are iterated as they were made, although the model is prepared."""
        models = [*script.calls(*_PREPARE_MODEL)]
        if not models:
            return
        reported: set[ast.Call] = set()
        for loop in script.loops.training:
            values = script.batches_of(loop)
            loaders = [each for each in values if isinstance(each, Object) and each.name in DATA_LOADERS]
            if not loaders or len(loaders) != len(values) or not is_run(script, loop.function):
                continue
            for made in loaders:
                loader = Loader(made, CallSite(made.name, made.call, script.function_of(made.call)))
                if made.call in reported or data_may_differ(script, loader):
                    continue
                if distributed_samplers(samplers(script, loader)) or may_depend(script, [made.call]):
                    continue
                reported.add(made.call)
                yield Violation(
                    made.call,
                    "the training loader is not prepared, so every rank reads the whole data set; "
                    f"the model is, in line {models[0].node.lineno}",
                    "hand the loader to accelerator.prepare(...), or to fabric.setup_dataloaders(...)",
                    faults=_same_batches(script, made),
                )

    def _own_train_loader(self, script: Script) -> Iterator[Violation]:
        """A subclass of the Trainer of transformers whose `get_train_dataloader` returns a loader as it was made."""
        evaluator = script.program.evaluator
        for module in script.program.imports.modules:
            for cls in module.classes:
                method = cls.methods.get("get_train_dataloader")
                if method is None or not any(base in HF_TRAINER for base in evaluator.external_bases(cls)):
                    continue
                values = evaluator.returned(method, evaluator.context(method, None, None, Instance(cls)))
                for made in values:
                    if not isinstance(made, Object) or made.name not in DATA_LOADERS or len(values) > 1:
                        continue
                    loader = Loader(made, CallSite(made.name, made.call, method))
                    if distributed_samplers(samplers(script, loader)) or _shards_in(script, method, made):
                        continue
                    yield Violation(
                        made.call,
                        f"{cls.name}.get_train_dataloader returns a loader that is not prepared, so every rank reads "
                        "the whole data set",
                        "return self.accelerator.prepare(DataLoader(...)), or override _get_train_sampler instead",
                        severity="warning",
                        faults=("F01", "F02"),
                    )


def _same_batches(script: Script, made: Object) -> tuple[str, ...]:
    """F02 as well where all ranks get the same order: they do not shuffle, or their generators have equal seeds."""
    shuffles = script.literals(made, "shuffle", 2) == {True}
    same = not shuffles or equality(script, "torch") is Equality.EQUAL
    return ("F01", "F02") if same else ("F01",)


def _shards_in(script: Script, method: Function, made: Object) -> bool:
    """True if a method shards by the rank, or the sampler comes from where reading does not lead."""
    for name in ("sampler", "batch_sampler"):
        found = script.argument(made, name)
        values = script.program.evaluator.all_of(found.given)
        if not found.certain or (found.given and unknown_origin(script, values)):
            return True
        if any(isinstance(each, Object) and not is_sampler(script, each) for each in values):
            return True  # self._get_train_sampler(), which may be that of the Trainer
    words = {each.attr for each in walk(method.node) if isinstance(each, ast.Attribute)}
    return bool(words & _SHARDS)


def _mentions(node: ast.AST, target: ast.expr) -> bool:
    names = {each.id for each in walk(target) if isinstance(each, ast.Name)}
    return any(isinstance(each, ast.Name) and each.id in names for each in walk(node))


def _is_stream(script: Script, loader: Loader) -> bool:
    """True if the data set is a stream, which DP008 is about."""
    for each in script.argument(loader.made, "dataset", 0).given:
        for value in script.values(each.node, each.context):
            if script.program.is_a(value, *ITERABLE_DATASETS) or streamed(script, value):
                return True
    return False
