"""`set_epoch` is called on an object that does not decide the order.

What it does:
    Looks for `loader.sampler.set_epoch` where the loader has a batch sampler, and for `set_epoch` of a data set whose
    copies in persistent workers do not hear of it.

Why is this bad:
    With `batch_sampler=`, `loader.sampler` is a SequentialSampler that is never used. With `persistent_workers=True`
    the workers hold copies of the data set that were made before the first epoch. In both cases all epochs have the
    same order, although the script calls `set_epoch`.

Repair:
    Call `set_epoch` on the sampler within the batch sampler. Keep the epoch of a stream in shared memory
    (`torch.multiprocessing.Value`), or leave out `persistent_workers=True`.

Known problems:
    A data set class that hands the epoch to its workers in another way is not recognized.

References:
    F07, F08, F06. https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.epoch_loops import Loop, receivers, set_epoch_calls
from paceline.check.analyses.framework_names import DATA_LOADERS
from paceline.check.analyses.rank_shares import truth
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.program import CallSite
from paceline.syntax.values import Instance, Literal, Object, Part, Value

_SHARED = ("Value", "Manager", "share_memory_", "RawValue", "SharedMemory", "Array", "ShareableList", "Synchronized")


class SetEpochNotReaching(Rule):
    """Calls of `set_epoch` that change nothing."""

    code, name, topic = "DP005", "set-epoch-not-reaching", "data"
    faults = ("F07", "F08", "F06")
    severity = "error"
    valid = {
        "the sampler within the batch sampler": """
            dist.init_process_group("gloo")
            data = Numbers()
            batches = torch.utils.data.BatchSampler(DistributedSampler(data), 8, drop_last=True)
            loader = DataLoader(data, batch_sampler=batches)
            for epoch in range(3):
                loader.batch_sampler.sampler.set_epoch(epoch)
        """,
        "workers that are started in each epoch": """
            class Stream(IterableDataset):
                epoch = 0

                def set_epoch(self, epoch):
                    self.epoch = epoch

            dist.init_process_group("gloo")
            stream = Stream()
            loader = DataLoader(stream, num_workers=2, persistent_workers=False)
            for epoch in range(3):
                stream.set_epoch(epoch)
        """,
        "an epoch in shared memory": """
            class Stream(IterableDataset):
                def __init__(self):
                    self.epoch = mp.Value("i", 0)

                def set_epoch(self, epoch):
                    self.epoch.value = epoch

            dist.init_process_group("gloo")
            stream = Stream()
            loader = DataLoader(stream, num_workers=2, persistent_workers=True)
            for epoch in range(3):
                stream.set_epoch(epoch)
        """,
    }
    invalid = {
        "the sampler of a loader that has a batch sampler": """
            dist.init_process_group("gloo")
            data = Numbers()
            batches = torch.utils.data.BatchSampler(DistributedSampler(data), 8, drop_last=True)
            loader = DataLoader(data, batch_sampler=batches)
            for epoch in range(3):
                if hasattr(loader.sampler, "set_epoch"):
                    loader.sampler.set_epoch(epoch)  # here
        """,
        "a stream in persistent workers": """
            class Stream(IterableDataset):
                epoch = 0

                def set_epoch(self, epoch):
                    self.epoch = epoch

            dist.init_process_group("gloo")
            stream = Stream()
            loader = DataLoader(stream, num_workers=2, persistent_workers=True)
            for epoch in range(3):
                stream.set_epoch(epoch)  # here
        """,
        "the data set of a loader": """
            class Windows(Dataset):
                def set_epoch(self, epoch):
                    self.offset = epoch

            def train(loader, epochs):
                for epoch in range(epochs):
                    loader.dataset.set_epoch(epoch)  # here

            dist.init_process_group("gloo")
            workers = 4
            train(DataLoader(Windows(), num_workers=workers, persistent_workers=workers > 0), 3)
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        for site in set_epoch_calls(script):
            values = receivers(script, site)
            if values and all(_sampler_of_batches(script, each) for each in values):
                yield Violation(
                    site.node,
                    "a loader that has a batch sampler does not use loader.sampler, so this call changes nothing",
                    "call loader.batch_sampler.sampler.set_epoch(epoch)",
                    faults=("F07", "F06"),
                )
            elif (loader := self._persistent(script, site, values)) is not None:
                yield Violation(
                    site.node,
                    f"the workers of the loader in line {loader.lineno} are persistent: they keep copies of the data "
                    "set that this set_epoch does not reach",
                    "keep the epoch in torch.multiprocessing.Value, or leave out persistent_workers=True",
                    faults=("F08",),
                    severity="warning",
                )

    def _persistent(self, script: Script, site: CallSite, values: frozenset[Value]) -> ast.Call | None:
        """The loader with persistent workers that copies the data set whose epoch is set."""
        data = {each for value in values for each in _data_behind(script, value)}
        if not data or not all(isinstance(each, Instance) and not _shares(each) for each in data):
            return None
        if site.function.name == "set_epoch":
            return None
        any_of = {each.cls for each in data if isinstance(each, Instance) and each.call is None}
        for loader in script.loaders:
            given = script.program.argument_values(loader.made, "dataset", 0)
            if not any(each in data or (isinstance(each, Instance) and each.cls in any_of) for each in given):
                continue
            persistent = truth(script, script.argument(loader.made, "persistent_workers"))
            workers = truth(script, script.argument(loader.made, "num_workers", 5))
            module = script.function_of(loader.made.call).module
            renewed = any(isinstance(at, Loop) for at in module.ancestors(loader.made.call))
            if persistent and workers is not False and not renewed:
                return loader.made.call
        return None


def _sampler_of_batches(script: Script, value: Value) -> bool:
    """`loader.sampler` of a loader that has a batch sampler."""
    if not isinstance(value, Part) or value.name != "sampler" or not isinstance(value.base, Object):
        return False
    loader = value.base
    if loader.name not in DATA_LOADERS or not script.argument(loader, "sampler", 3).absent:
        return False
    batches = script.argument(loader, "batch_sampler", 4)
    given = script.program.evaluator.all_of(batches.given)
    return batches.certain and not batches.may_be_absent and bool(given) and Literal(None) not in given


def _data_behind(script: Script, value: Value) -> Iterator[Value]:
    """A data set, also as `loader.dataset`."""
    loader = value.base if isinstance(value, Part) and value.name == "dataset" else None
    if isinstance(loader, Object) and loader.name in DATA_LOADERS:
        yield from script.program.argument_values(loader, "dataset", 0)
    else:
        yield value


def _shares(data: Instance) -> bool:
    """True if the class has anything that processes share."""
    names = {each.attr for each in walk(data.cls.node) if isinstance(each, ast.Attribute)}
    names |= {each.id for each in walk(data.cls.node) if isinstance(each, ast.Name)}
    return not names.isdisjoint(_SHARED)
