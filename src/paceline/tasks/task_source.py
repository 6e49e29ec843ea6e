"""Where in a user's file something stands: the line of a field of `Task(...)`, of a function, of an error."""

from __future__ import annotations

import ast
import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from paceline.tasks.task import Task


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
