"""From what the user typed to a Task: a built-in name, or a file with `task()`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from dataclasses import fields
from pathlib import Path
from types import ModuleType

from paceline.records.errors import PacelineError, choices
from paceline.tasks.names import check_task_name
from paceline.tasks.table import BUILT_IN, TaskOptions
from paceline.tasks.task import Task


def load_task(spec: str, options: TaskOptions) -> Task:
    """The task that `spec` names.

    Args:
        spec: a built-in name, or the path of a Python file.
        options: reach the task where it takes them.

    Raises:
        PacelineError: unknown, cannot be loaded, or does not take an option that was given.
    """
    check_task_name(spec)
    if spec in BUILT_IN:
        refuse_unused(spec, BUILT_IN[spec].options, options)
        module = importlib.import_module(BUILT_IN[spec].module)
        built: Task = module.build(options)
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
    except Exception as error:
        raise _their_error(path, "task() failed", error) from error
    if not isinstance(built, Task):
        raise PacelineError(
            f"task() in {path} returned {type(built).__name__}, not a Task",
            hint="return paceline.tasks.task.Task(name=..., model=..., loss=..., train_data=..., eval_data=...)",
        )
    return built


def _import_file(path: Path) -> ModuleType:
    name = f"paceline_user_task_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise PacelineError(f"{path} cannot be loaded as Python")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module  # DataLoader workers unpickle its classes by this name
    sys.path.insert(0, str(path.resolve().parent))  # a file's neighbours can be imported, as when it is run
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script may end itself by sys.exit()
        raise _their_error(path, "it cannot be imported", error) from error
    return module


def _their_error(path: Path, what: str, error: BaseException) -> PacelineError:
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    line = f", line {theirs[-1].lineno}" if theirs else ""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).resolve() == path.resolve():
        line = f", line {error.lineno}"
    return PacelineError(
        f"{path}{line}: {what}",
        why=f"{type(error).__name__}: {error}",
        hint=f"python {path} shows it without paceline",
    )
