"""From what the user typed to a Task: a built-in name, or a file with `task()`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import multiprocessing
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

from paceline.records.errors import PacelineError, choices
from paceline.tasks.contract import TaskSource, check_task, nearest, words
from paceline.tasks.names import check_task_name
from paceline.tasks.table import BUILT_IN, Defaults, TaskOptions
from paceline.tasks.task import Task

_PREFIX = "paceline_user_task_"
"""Before the name of a file, so that it hides no module that the file or a library imports."""


def load_task(spec: str, options: TaskOptions) -> Task:
    """The task that `spec` names.

    Args:
        spec: a built-in name, or the path of a Python file.
        options: reach the task where it takes them.

    Raises:
        PacelineError: unknown, cannot be loaded, does not take an option that was given, or has a field that cannot be
            right.
    """
    check_task_name(spec)
    if spec in BUILT_IN:
        refuse_unused(spec, BUILT_IN[spec].options, options)
        module, function = BUILT_IN[spec].factory.split(":")
        built: Task = getattr(importlib.import_module(module), function)(options)
        return built
    return _user_task(Path(spec), options)


def refuse_unused(spec: str, taken: tuple[str, ...], options: TaskOptions) -> None:
    """Refuse an option that the task would ignore: silence would be a wrong result."""
    for option in fields(TaskOptions):
        if option.name in taken or option.name == "data_dir":
            continue
        if getattr(options, option.name) != option.default:
            flag = "--" + option.name.replace("_", "-")
            raise PacelineError(
                f"the task {spec} does not take {flag}",
                hint=f"leave it out; {spec} takes: {choices('--' + t.replace('_', '-') for t in taken) or 'none'}",
            )


def _user_task(path: Path, options: TaskOptions) -> Task:
    module = _import_file(path)
    function = getattr(module, "task", None)
    if not callable(function):
        raise PacelineError(
            f"{path} has no function task()",
            hint="define `def task() -> Task:` in it, with `from paceline.tasks.task import Task`",
        )
    taken = tuple(inspect.signature(function).parameters)
    refuse_unused(str(path), taken, options)
    given = {f.name: getattr(options, f.name) for f in fields(TaskOptions) if f.name in taken}
    try:
        built = function(**given)
    except PacelineError:
        raise
    except (Exception, SystemExit) as error:
        raise _their_error(path, "task() failed", error, given) from error
    if not isinstance(built, Task):
        raise PacelineError(
            f"task() in {path} returned {type(built).__name__}, not a Task",
            hint="return paceline.tasks.task.Task(name=..., model=..., loss=..., train_data=..., eval_data=...)",
        )
    check_task(built, TaskSource(path))
    return built


@dataclass(frozen=True)
class TaskFile:
    """The file of a task as it was imported here. Pickled, it imports the file where it arrives.

    Attributes:
        module: its name in `sys.modules`.
        path: absolute.
    """

    module: str
    path: str

    def __reduce__(self) -> Any:
        return _arrived, (self.module, self.path)


def task_files() -> tuple[TaskFile, ...]:
    """Files of tasks that were imported in this process."""
    return tuple(
        TaskFile(name, str(Path(str(module.__file__)).resolve()))
        for name, module in list(sys.modules.items())
        if name.startswith(_PREFIX) and getattr(module, "__file__", None)
    )


def _arrived(module: str, path: str) -> TaskFile:
    if module not in sys.modules:
        _import_file(Path(path))
    return TaskFile(module, path)


def _import_file(path: Path) -> ModuleType:
    name = _PREFIX + path.stem
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise PacelineError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module  # DataLoader workers unpickle its classes by this name
    sys.path.insert(0, str(path.resolve().parent))  # a file's neighbours can be imported, as when it is run
    try:
        with _own_start_method():
            module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script may end itself by sys.exit()
        raise _their_error(path, "it cannot be imported", error, None) from error
    return module


@contextlib.contextmanager
def _own_start_method() -> Iterator[None]:
    """Let a file call `multiprocessing.set_start_method` as a script may; what it does not set stays as it was."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method(None, force=True)
    try:
        yield
    finally:
        if multiprocessing.get_start_method(allow_none=True) is None:
            multiprocessing.set_start_method(before, force=True)


def _their_error(path: Path, what: str, error: BaseException, called: Mapping[str, Any] | None) -> PacelineError:
    at = TaskSource(path).at(TaskSource(path).of_error(error))
    return PacelineError(
        f"{at}{what}",
        why=words(error),
        hint=_wrong_field(error) or f"{without_paceline(path, called)} shows it without paceline",
    )


def _wrong_field(error: BaseException) -> str:
    """For a call of `Task` or `Defaults` that names no field of theirs: the legal names."""
    found = re.match(r"(Task|Defaults)\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error))
    if found is None:
        return ""
    made: Any = Task if found[1] == "Task" else Defaults
    legal = [field.name for field in fields(made)]
    return f"{nearest(found[2], legal)}fields of {found[1]}: {choices(legal)}"


def without_paceline(path: Path, called: Mapping[str, Any] | None) -> str:
    """A shell command that runs a task file alone, and so shows its error with a traceback.

    Args:
        path: of the file.
        called: the arguments of task(); None to run the file only.
    """
    on_path = shutil.which("python")
    same = on_path is not None and Path(on_path).resolve() == Path(sys.executable).resolve()
    same = same and sys.prefix == str(Path(str(on_path)).parent.parent)  # a venv's python is a link to the system's
    python = "python" if same else shlex.quote(sys.executable)
    if called is None:
        return f"{python} {shlex.quote(str(path))}"
    arguments = ", ".join(f"{name}={value!r}" for name, value in called.items())
    beside = "" if str(path.parent) == "." else f"import sys; sys.path.insert(0, {str(path.parent)!r}); "
    program = f"{beside}import runpy; runpy.run_path({str(path)!r})['task']({arguments})"
    return f"{python} -c " + (shlex.quote(program) if set(program) & set('"$`\\!') else f'"{program}"')
