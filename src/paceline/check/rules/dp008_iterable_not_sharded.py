"""A stream gives every rank all of its samples.

What it does:
    Looks for training loaders over an IterableDataset of the script whose code does not use the rank, and over
    `load_dataset(..., streaming=True)` without `split_dataset_by_node`.

Why is this bad:
    A loader of an IterableDataset takes no sampler, so the data set itself has to leave out what other ranks read. If
    it does not, every rank trains on the same samples.

Repair:
    Yield every sample whose number is `rank * num_workers + worker` modulo `world_size * num_workers`. For data sets
    of Hugging Face: `split_dataset_by_node(dataset, rank, world_size)`.

Known problems:
    A stream of random numbers is left out where the seeds of ranks differ.

References:
    F11, F02. https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import ITERABLE_DATASETS
from paceline.check.analyses.random_streams import Equality, draws, equality
from paceline.check.analyses.rank_shares import may_depend, streamed, trained_on, unknown_origin
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Loader, Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import Function
from paceline.syntax.values import Instance, Value


class IterableNotSharded(Rule):
    """Streams that every rank reads in full."""

    code, name, topic = "DP008", "iterable-not-sharded", "data"
    faults = ("F11", "F02")
    severity = "error"
    valid = {
        "rank and worker": """
            class Stream(IterableDataset):
                def __iter__(self):
                    info = torch.utils.data.get_worker_info()
                    start = dist.get_rank() * info.num_workers + info.id
                    yield from range(start, 1000, dist.get_world_size() * info.num_workers)

            dist.init_process_group("gloo")
            loader = DataLoader(Stream(), batch_size=8, num_workers=2)
            model = DDP(nn.Linear(1, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x in loader:
                model(x.float().unsqueeze(1)).mean().backward()
                optimizer.step()
        """,
        "workers that choose their share": """
            class Stream(IterableDataset):
                def __init__(self):
                    self.files = [f"{i}.pt" for i in range(64)]

                def __iter__(self):
                    for name in self.files:
                        yield torch.load(name, map_location="cpu")

            def choose(worker):
                info = torch.utils.data.get_worker_info()
                first = dist.get_rank() * info.num_workers + worker
                info.dataset.files = info.dataset.files[first :: dist.get_world_size() * info.num_workers]

            dist.init_process_group("gloo")
            loader = DataLoader(Stream(), batch_size=8, num_workers=2, worker_init_fn=choose)
            model = DDP(nn.Linear(1, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x in loader:
                model(x).mean().backward()
                optimizer.step()
        """,
        "a share that is handed over": """
            class Stream(IterableDataset):
                def __init__(self, files):
                    self.files = files

                def __iter__(self):
                    for name in self.files:
                        yield from torch.load(name, map_location="cpu")

            def train(files):
                model = DDP(nn.Linear(1, 1))
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for x in DataLoader(Stream(files), batch_size=8):
                    model(x).mean().backward()
                    optimizer.step()

            dist.init_process_group("gloo")
            train([f"{i}.pt" for i in range(dist.get_rank(), 64, dist.get_world_size())])
        """,
    }
    invalid = {
        "workers alone": """
            class Stream(IterableDataset):
                def __iter__(self):  # here
                    info = torch.utils.data.get_worker_info()
                    yield from range(info.id, 1000, info.num_workers)

            dist.init_process_group("gloo")
            loader = DataLoader(Stream(), batch_size=8, num_workers=2)
            model = DDP(nn.Linear(1, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x in loader:
                model(x.float().unsqueeze(1)).mean().backward()
                optimizer.step()
        """,
        "a stream of Hugging Face": """
            from datasets import load_dataset

            dist.init_process_group("gloo")
            data = load_dataset("allenai/c4", "en", split="train", streaming=True)  # here
            data = data.shuffle(seed=1).with_format("torch")
            loader = DataLoader(data, batch_size=8, num_workers=2)
            model = DDP(nn.Linear(1, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for batch in loader:
                model(batch["x"]).mean().backward()
                optimizer.step()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not (script.wrappers or "fsdp" in script.engines):
            return
        reported: set[ast.AST] = set()
        for loader in script.loaders:
            if not trained_on(script, loader):
                continue
            for node, name in _streams(script, loader):
                if node not in reported:
                    reported.add(node)
                    yield Violation(
                        node,
                        f"{name} does not use the rank, so every rank reads the whole stream",
                        "yield the share of each rank and worker, or use datasets.distributed.split_dataset_by_node",
                        evidence={"loader": loader.made.call.lineno},
                    )


def _streams(script: Script, loader: Loader) -> Iterator[tuple[ast.AST, str]]:
    """Streams behind a loader that are certainly read in full, with what to call them."""
    argument = script.argument(loader.made, "dataset", 0)
    values = script.program.evaluator.all_of(argument.given)
    if not argument.certain or unknown_origin(script, values) or script.where(loader.made.call) is not Ranks.ALL:
        return
    workers = script.argument(loader.made, "worker_init_fn", 10)
    if may_depend(script, [each.node for each in (*argument.given, *workers.given)]):
        return
    for value in values:
        if (loaded := streamed(script, value)) is not None:
            yield loaded.call, "the streamed data set"
        elif (method := _iter_of(script, value)) is not None and not _random(script, method):
            yield method.node, f"{method.cls.name if method.cls else ''}.__iter__"


def _iter_of(script: Script, value: Value) -> Function | None:
    """The `__iter__` of a stream of the script that takes nothing from elsewhere."""
    if not isinstance(value, Instance) or not script.program.is_a(value, *ITERABLE_DATASETS):
        return None
    given = [*value.call.args, *(each.value for each in value.call.keywords)] if value.call is not None else []
    if any(unknown_origin(script, script.values(node, value.context)) for node in given if _may_be_data(script, node)):
        return None
    if any(base not in ITERABLE_DATASETS for base in script.program.evaluator.external_bases(value.cls)):
        return None
    methods = (cls.methods.get("__iter__") for cls in script.program.evaluator.lineage(value.cls))
    return next((each for each in methods if each is not None), None)


def _may_be_data(script: Script, node: ast.expr) -> bool:
    """True if an argument may bring samples that are sharded elsewhere: it is no number or text."""
    return not isinstance(node, ast.Constant | ast.Attribute | ast.JoinedStr | ast.BinOp)


def _random(script: Script, method: Function) -> bool:
    """True if the samples are drawn from generators that differ between ranks."""
    calls = (each.node for each in script.loops.reached_calls(method.node, method))
    return any(equality(script, library) is not Equality.EQUAL for _, library in draws(script, calls))
