"""The contract of a task: what each field of `Task` must be, what a loss and a metric must return, and where in the
user's file something stands.

Everything here looks at values only. Models are built and losses computed in `train.task_validation`.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from paceline.records.errors import PacelineError, choices
from paceline.tasks.data.arrays import Arrays
from paceline.tasks.table import Defaults
from paceline.tasks.task import Gathered, Loss, Task


@dataclass(frozen=True)
class TaskSource:
    """The file of a task.

    Attributes:
        path: as the user named it; None for a built-in task.
    """

    path: Path | None = None

    def at(self, line: int | None) -> str:
        """The start of a message: `my_task.py, line 7: `; empty for a built-in task."""
        if self.path is None:
            return ""
        return f"{self.path}: " if line is None else f"{self.path}, line {line}: "

    def of_field(self, name: str) -> int | None:
        """The line at which the field is given to `Task(...)`; None if that cannot be told.

        Args:
            name: a field of Task, or `defaults.lr` and `metrics['mae']`, whose line is that of the whole field.
        """
        calls = _calls_of_task(self.path)
        if len(calls) != 1:
            return None
        (call,) = calls
        plain = name.split(".")[0].split("[")[0]
        for keyword in call.keywords:
            if keyword.arg == plain:
                return keyword.value.lineno
        position = [field.name for field in fields(Task)].index(plain)
        if position < len(call.args):
            return call.args[position].lineno
        return call.lineno

    def of_function(self, function: Callable[..., Any], field: str) -> int | None:
        """The line at which a function of the file begins; that of the field when it was made elsewhere."""
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is not None and self._is_here(code.co_filename):
            return int(code.co_firstlineno)
        return self.of_field(field)

    def of_error(self, error: BaseException) -> int | None:
        """The innermost line of the file that an exception passed through."""
        if isinstance(error, SyntaxError) and error.filename and self._is_here(error.filename):
            return error.lineno
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [frame.lineno for frame in frames if self._is_here(frame.filename)]
        return theirs[-1] if theirs else None

    def _is_here(self, filename: str) -> bool:
        return self.path is not None and Path(filename).resolve() == self.path.resolve()


def _calls_of_task(path: Path | None) -> list[ast.Call]:
    """Calls of `Task(...)` or `x.Task(...)` in a file."""
    if path is None:
        return []
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "Task"
    ]


_MOST_COLUMNS = 16
"""A longer list of tensors is taken for a list of samples, not of columns."""


@dataclass(frozen=True)
class Problem:
    """What is wrong with one field.

    Attributes:
        field: `model`, `metrics['mae']`, `defaults.lr` ...
        what: goes on after the field's name: "is a Sequential, ...".
        why, hint: as in PacelineError.
    """

    field: str
    what: str
    hint: str
    why: str = ""

    def error(self, source: TaskSource, line: int | None = None) -> PacelineError:
        """As a message with the line of the field, or another one."""
        at = line if line is not None else source.of_field(self.field)
        return PacelineError(f"{source.at(at)}{self.field} {self.what}", why=self.why, hint=self.hint)


def check_task(task: Task, source: TaskSource) -> None:
    """Refuse a task with a field that cannot be right, without building or computing anything.

    Raises:
        PacelineError: naming the field, its line, what was expected and what came.
    """
    for problem in _problems(task):
        raise problem.error(source)


def _problems(task: Any) -> Iterator[Problem]:
    # Typed as Any: what a user gave may be of any type, whatever the annotations of Task say.
    yield from _name(task.name)
    yield from _model(task.model)
    yield from _loss(task.loss)
    yield from _data("train_data", task.train_data)
    yield from _data("eval_data", task.eval_data)
    yield from _metrics(task.metrics)
    for field in ("count", "loss_scope"):
        legal = get_args(get_type_hints(Task)[field])
        if (value := getattr(task, field)) not in legal:
            yield Problem(field, f"is {value!r}", f"legal values: {choices(map(repr, legal))}")
    yield from _defaults(task.defaults)
    if not _whole(task.eval_batch) or task.eval_batch < 1:
        yield Problem("eval_batch", f"is {task.eval_batch!r}, not a number of samples", "a whole number, 1 or more")
    if not isinstance(task.data_source, str):
        yield Problem(
            "data_source", f"is {kind(task.data_source)}, not a text", 'data_source="where the data are from"'
        )


def _name(name: Any) -> Iterator[Problem]:
    if not isinstance(name, str):
        yield Problem("name", f"is {kind(name)}, not a text", 'name="my-task"')
    elif not name.strip() or not name.isprintable():
        yield Problem("name", f"is {name!r}", 'one line of printable text: name="my-task"')


def _model(model: Any) -> Iterator[Problem]:
    if isinstance(model, nn.Module):
        yield Problem(
            "model",
            f"is {kind(model)} that is already built",
            "a function that builds a fresh module: model=make_model without (), or model=lambda: Net(...)",
            "each process builds its own, after the random numbers were seeded with --seed",
        )
    elif not callable(model):
        yield Problem("model", f"is {kind(model)}, not a function", "a function that builds and returns an nn.Module")


def _loss(loss: Any) -> Iterator[Problem]:
    hint = "def loss(model, batch): ... return Loss(sum=..., count=..., outputs=...)"
    if isinstance(loss, nn.modules.loss._Loss) or (isinstance(loss, type) and issubclass(loss, nn.Module)):
        name = loss.__name__ if isinstance(loss, type) else type(loss).__name__
        yield Problem("loss", f"is {name}, which takes outputs and labels, not (model, batch)", hint)
    elif not callable(loss):
        yield Problem("loss", f"is {kind(loss)}, not a function", hint)


def _data(field: str, data: Any) -> Iterator[Problem]:
    dataset = "Arrays(x, y), or a map-style dataset with __len__ and __getitem__"
    if isinstance(data, Arrays):
        yield from _length(field, data)
        return
    if isinstance(data, type):
        yield Problem(field, f"is the class {data.__name__}, not a dataset", f"{field}={data.__name__}(...)")
    elif isinstance(data, DataLoader):
        yield Problem(
            field,
            "is a DataLoader",
            f"{field}=loader.dataset; the size of batches is global_batch of Defaults, or --global-batch",
            "Paceline makes the batches itself, so that every sample is used once whatever the number of workers",
        )
    elif isinstance(data, (Tensor, np.ndarray)):
        yield Problem(field, f"is {kind(data)}", f"{field}=Arrays(x) or Arrays(x, y), of arrays of shape (n, ...)")
    elif _are_columns(data):
        yield Problem(
            field, f"is a {type(data).__name__} of columns", f"{field}=Arrays(*columns): {field}=Arrays(x, y)"
        )
    elif isinstance(data, (Mapping, str, bytes)):
        yield Problem(field, f"is {kind(data)}", dataset)
    elif isinstance(data, Iterable) and not _has_items(data):
        yield Problem(field, f"is {kind(data)}, an iterable dataset", _MAP_STYLE, _FORWARD_ONLY)
    elif not _has_items(data) or not hasattr(type(data), "__len__"):
        missing = [name for name in ("__len__", "__getitem__") if not hasattr(type(data), name)]
        yield Problem(field, f"is {kind(data)}, which has no {' and no '.join(missing)}", dataset)
    else:
        yield from _length(field, data)


_MAP_STYLE = (
    "a map-style dataset, with __len__ and __getitem__(index). A stream that fits into memory is one as a list: "
    "list(stream). For files, keep an index of (file, position), and read sample i in __getitem__"
)
_FORWARD_ONLY = (
    "each sample exactly once, the same batches on any number of workers and a resume in mid-epoch need sample i to be "
    "taken directly, and an iterable only runs forward"
)


def _has_items(data: Any) -> bool:
    """Whether `data[i]` is there: torch's `Dataset` has a `__getitem__` that only raises."""
    return getattr(type(data), "__getitem__", None) not in (None, Dataset.__getitem__)


def _length(field: str, data: Any) -> Iterator[Problem]:
    try:
        length = len(data)
    except Exception as error:  # noqa: BLE001  # whatever their code raises
        yield Problem(field, "has a __len__ that fails", "__len__ returns how many samples there are", words(error))
        return
    if not length:
        yield Problem(field, "is empty", "at least one sample")


def _are_columns(data: Any) -> bool:
    """Whether this is (x, y) with x and y of the same length, and not a list of samples."""
    if not isinstance(data, (tuple, list)) or not 0 < len(data) <= _MOST_COLUMNS:
        return False
    if not all(isinstance(part, (Tensor, np.ndarray)) and part.ndim for part in data):
        return False
    return min(len(part) for part in data) > len(data)


def _metrics(metrics: Any) -> Iterator[Problem]:
    hint = 'a dict: metrics={"accuracy": accuracy}'
    if not isinstance(metrics, Mapping):
        yield Problem("metrics", f"is {kind(metrics)}, not a dict", hint)
        return
    for name, metric in metrics.items():
        if not isinstance(name, str) or not name.strip():
            yield Problem("metrics", f"has the key {name!r}, which is no name", hint)
        elif isinstance(metric, type):
            yield Problem(f"metrics[{name!r}]", f"is the class {metric.__name__}", _METRIC)
        elif isinstance(metric, Gathered):
            for part in ("rows", "finish"):
                if not callable(getattr(metric, part)):
                    yield Problem(f"metrics[{name!r}]", f"has {part} that is no function", "Gathered(rows, finish)")
        elif not callable(metric):
            yield Problem(f"metrics[{name!r}]", f"is {kind(metric)}, not a function", _METRIC)


_METRIC = "def metric(outputs, batch): ... return sum, count (their quotient is the metric)"


def _defaults(defaults: Any) -> Iterator[Problem]:
    if not isinstance(defaults, Defaults):
        yield Problem("defaults", f"is {kind(defaults)}, not Defaults", "defaults=Defaults(global_batch=64, lr=0.1)")
        return
    hints = get_type_hints(Defaults)
    for field in fields(Defaults):
        value, wanted = getattr(defaults, field.name), hints[field.name]
        right = _whole(value) if wanted is int else _number(value) if wanted is float else isinstance(value, str)
        if not right:
            words_ = {int: "a whole number", float: "a number", str: "a text"}[wanted]
            yield Problem(
                f"defaults.{field.name}", f"is {value!r}, not {words_}", f"such as {field.name}={field.default!r}"
            )


def model_problem(model: Any) -> Problem | None:
    """What is wrong with what `model` returned; None if nothing is."""
    if not isinstance(model, nn.Module):
        return Problem(
            "model", f"returned {kind(model)}, not an nn.Module", "let model() build and return a fresh module"
        )
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        what = f"returned a model in {type(model).__name__}"
        return Problem("model", what, "return the plain module; Paceline wraps it")
    lazy = [name for name, p in model.named_parameters() if isinstance(p, nn.parameter.UninitializedParameter)]
    if lazy:
        hint = "run a batch through the module in model() before it is returned"
        return Problem("model", f"has a lazy layer without a shape: {lazy[0]}", hint)
    if not any(p.requires_grad for p in model.parameters()):
        return Problem("model", "returned a module that has nothing to train", "parameters with requires_grad=True")
    return None


def loss_problem(loss: Any, samples: int | None) -> Problem | None:
    """What is wrong with what a loss function returned for a batch; None if nothing is.

    Args:
        loss: what it returned.
        samples: in the batch, where the task has count="samples".
    """
    hint = "return Loss(sum, count) with the sum over the batch, not its mean"
    if not isinstance(loss, Loss):
        return Problem("loss", f"returned {kind(loss)}, not a Loss", hint)
    total: Any = loss.sum
    count = loss.count
    if not isinstance(total, Tensor):
        return Problem("loss", f"returned a sum that is {kind(total)}, not a tensor", "leave out item() and float()")
    if total.numel() != 1:
        shape = tuple(total.shape)
        return Problem("loss", f"returned a sum of shape {shape}, which is no single number", "reduction='sum'")
    if not total.dtype.is_floating_point:
        return Problem("loss", f"returned a sum of {total.dtype}, which has no gradient", "a sum of floats")
    return _count_problem(count, samples)


def _count_problem(count: Any, samples: int | None) -> Problem | None:
    if isinstance(count, Tensor):
        if count.numel() != 1 or count.dtype.is_complex:
            return Problem("loss", f"returned a count of shape {tuple(count.shape)}", "one number: len(labels)")
    elif not _number(count):
        return Problem("loss", f"returned a count that is {kind(count)}", "one number: len(labels)")
    value = float(count)
    if not math.isfinite(value) or value < 0:
        return Problem("loss", f"returned the count {value:g}", "how many are summed over, 0 or more: len(labels)")
    if samples is not None and value != samples:
        return Problem(
            "loss",
            f"counts {value:g} where the batch has {samples} samples",
            'leave count="samples" out of the Task: the count is then taken from the loss',
        )
    return None


def gradient_problem(loss: Loss) -> Problem | None:
    """What is wrong with a loss that was computed with gradients."""
    if loss.sum.requires_grad:
        return None
    return Problem(
        "loss",
        "does not depend on the model's parameters",
        "leave out detach(), item() and no_grad() on the way from the model to its sum",
    )


def metric_problem(field: str, returned: Any) -> Problem | None:
    """What is wrong with what a metric returned; None if nothing is."""
    pair = isinstance(returned, (tuple, list)) or (isinstance(returned, Tensor) and returned.ndim == 1)
    if not pair or len(returned) != 2:
        size = f" of {len(returned)}" if isinstance(returned, (tuple, list)) else ""
        return Problem(field, f"returned {kind(returned)}{size}, not (sum, count)", _METRIC)
    for part, value in zip(("sum", "count"), returned, strict=True):
        single = isinstance(value, Tensor) and value.numel() == 1 and not value.dtype.is_complex
        if not single and not _number(value):
            return Problem(field, f"returned a {part} that is {kind(value)}, not a number", _METRIC)
    if (count := float(returned[1])) < 0:
        return Problem(field, f"returned the count {count:g}", _METRIC)
    return None


def rows_problem(field: str, rows: Any, samples: int) -> Problem | None:
    """What is wrong with the rows of a `Gathered` metric."""
    hint = "Gathered.rows returns a tensor with one row a sample, (batch, ...)"
    if not isinstance(rows, Tensor):
        return Problem(field, f"has rows that are {kind(rows)}, not a tensor", hint)
    if not rows.ndim or len(rows) != samples:
        return Problem(field, f"has rows of shape {tuple(rows.shape)} for a batch of {samples} samples", hint)
    return None


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, (Real, np.number)) and not isinstance(value, (bool, np.bool_))


def kind(value: Any) -> str:
    """A value in a few words: `a Sequential`, `an int`, `None`, `a tensor of shape (3, 2)`."""
    if value is None:
        return "None"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def describe_batch(batch: Any) -> str:
    """What a batch holds: `(float32 (32, 8), int64 (32,))`."""
    if isinstance(batch, Tensor):
        return f"{str(batch.dtype).removeprefix('torch.')} {tuple(batch.shape)}"
    if isinstance(batch, Mapping):
        return "{" + ", ".join(f"{name!r}: {describe_batch(part)}" for name, part in batch.items()) + "}"
    if isinstance(batch, (tuple, list)) and len(batch) <= _MOST_COLUMNS:
        inside = ", ".join(describe_batch(part) for part in batch)
        return f"[{inside}]" if isinstance(batch, list) else f"({inside})"
    return kind(batch)


def words(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:600] if text else type(error).__name__


def nearest(name: str, legal: Any) -> str:
    """`did you mean x? `, or nothing."""
    close = difflib.get_close_matches(name, list(legal), n=1)
    return f"did you mean {close[0]}? " if close else ""
