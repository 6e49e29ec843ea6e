"""Data set classes of a script, and the loaders that go over them."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.check.analyses.framework_names import ITERABLE_DATASETS
from paceline.check.analyses.script import Loader, Script
from paceline.syntax.module_index import Class, Function
from paceline.syntax.values import Instance, Object, Part, Value

_BASES = ("torch.utils.data.Dataset", *ITERABLE_DATASETS)
_VIEWS = ("torch.utils.data.Subset", "torch.utils.data.ConcatDataset", "torch.utils.data.random_split")


def data_set_classes(script: Script) -> Iterator[Class]:
    """Classes of the script with samples by index: derived from Dataset, or with `__getitem__` and `__len__`."""
    for module in script.program.imports.modules:
        for cls in module.classes:
            if is_data_set(script, cls) and "__getitem__" in cls.methods:
                yield cls


def is_data_set(script: Script, cls: Class) -> bool:
    """True if a class is one of data sets."""
    bases = script.program.evaluator.external_bases(cls)
    if any(base.rpartition(".")[2].endswith(("Dataset", "ImageFolder", "DatasetFolder")) for base in bases):
        return True
    return not any("nn." in base for base in bases) and {"__getitem__", "__len__"} <= set(cls.methods)


def behind(script: Script, value: Value, depth: int = 4) -> Iterator[Value]:
    """A data set behind `Subset`, `ConcatDataset` and `random_split`."""
    at = value.base if isinstance(value, Part) else value
    if isinstance(at, Object) and at.name in _VIEWS and depth:
        for each in script.program.argument_values(at, "dataset", 0):
            yield from behind(script, each, depth - 1)
    else:
        yield value


def loaders_over(script: Script, cls: Class) -> list[Loader]:
    """Loaders of a class's objects that training loops take batches of."""
    found = []
    for loader in script.loaders:
        given = script.program.argument_values(loader.made, "dataset", 0)
        objects = {each for value in given for each in behind(script, value)}
        own = any(isinstance(each, Instance) and cls in script.program.evaluator.lineage(each.cls) for each in objects)
        if own and script.trains_on(loader):
            found.append(loader)
    return found


def getitem(script: Script, cls: Class) -> Function | None:
    """The method that gives a sample."""
    methods = (each.methods.get("__getitem__") for each in script.program.evaluator.lineage(cls))
    return next((each for each in methods if each is not None), None)
