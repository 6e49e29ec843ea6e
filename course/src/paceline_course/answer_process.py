"""The other side of a check: what runs where a learner's code is loaded. It does things and judges nothing."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from numpy.typing import NDArray

from paceline.observe.collective_trace import CollectiveTrace
from paceline.observe.loaders import LoaderLedger
from paceline.observe.step_count import StepWatch
from paceline.records.observed import LoaderPass
from paceline.verify.oracle import State, state_of

ANSWER = "PACELINE_ANSWER"
"""Path of the file that is checked, in the folder of the call."""
_MODULE = "answer"


class MissingName(Exception):  # noqa: N818
    """An answer does not define what its task asks for."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class Task:
    """What to do over there.

    Attributes:
        path: of the checks' module.
        module: the name under which it is loaded.
        function: its name in that module.
        arguments: for it, pickled: they are read after the module, which may define their types.
        trace: write each collective to `trace-<rank>.jsonl` in the folder.
    """

    path: str
    module: str
    function: str
    arguments: bytes
    trace: bool = False


def perform(task: Task) -> Any:
    """Call the function of a check; runs on a rank, confined."""
    function = getattr(load_file(task.path, task.module), task.function)
    arguments = pickle.loads(task.arguments)
    if not task.trace:
        return function(*arguments)
    with CollectiveTrace(trace_file(Path.cwd(), int(os.environ["RANK"]))):
        return function(*arguments)


@dataclass(frozen=True)
class ScriptSeen:
    """What one rank did that ran a file as a program.

    Attributes:
        passes: over data loaders, with the indices that the loop received.
        digests: of the weights after each optimizer step.
        rates: the learning rate in each step.
        inputs: what was given to wrapped models in each forward with gradients.
        saved: names of the files given to torch.save.
        states: of each model that was wrapped in DistributedDataParallel, at the end.
        left_group: whether the process group was destroyed at the end, or never made.
        trouble: what could not be seen, and why; empty when all was.
    """

    passes: list[LoaderPass]
    digests: list[str]
    rates: list[float]
    inputs: list[NDArray[Any]]
    saved: list[str]
    states: list[State]
    left_group: bool
    trouble: str


@dataclass(frozen=True)
class Program:
    """How the learner's file is started.

    Attributes:
        arguments: of its command line.
        machines: that torchrun's variables tell of.
    """

    arguments: tuple[str, ...]
    machines: int = 1


def run_script(program: Program) -> ScriptSeen:
    """Run the learner's file as a program, as `torchrun` would, and watch it; runs on a rank, confined.

    Raises:
        SystemExit: it ended with another exit code than 0.
    """
    path = os.environ[ANSWER]
    sys.argv = [path, *program.arguments]
    os.environ.update(_place(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), program.machines))
    sys.path.insert(0, str(Path(path).parent))
    trace = CollectiveTrace(trace_file(Path.cwd(), int(os.environ["RANK"])))
    with contextlib.ExitStack() as stack:
        if CollectiveTrace.available():
            stack.enter_context(trace)
        ledger, steps = stack.enter_context(LoaderLedger()), stack.enter_context(StepWatch(inputs=True))
        saved = stack.enter_context(_saved_names())
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
    return ScriptSeen(
        passes=ledger.passes,
        digests=steps.digests,
        rates=steps.rates,
        inputs=steps.inputs,
        saved=saved,
        states=[state_of(model) for model in steps.wrapped],
        left_group=not dist.is_initialized(),
        trouble="; ".join(said for said in (trace.trouble, ledger.trouble, steps.trouble) if said),
    )


def _place(rank: int, world: int, machines: int) -> dict[str, str]:
    """What torchrun says of a rank's machine."""
    a_machine = world // machines
    return {
        "LOCAL_RANK": str(rank % a_machine),
        "LOCAL_WORLD_SIZE": str(a_machine),
        "GROUP_RANK": str(rank // a_machine),
        "GROUP_WORLD_SIZE": str(machines),
    }


@contextlib.contextmanager
def _saved_names() -> Iterator[list[str]]:
    """Names of what is given to torch.save meanwhile."""
    names: list[str] = []
    save = torch.save

    def watched(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        names.append(Path(f).name if isinstance(f, str | os.PathLike) else type(f).__name__)
        return save(obj, f, *args, **kwargs)

    torch.save = watched
    try:
        yield names
    finally:
        torch.save = save


def trace_file(folder: Path, rank: int) -> Path:
    """Where a rank writes its collectives."""
    return folder / f"trace-{rank}.jsonl"


def learners(name: str) -> Any:
    """What the learner's file calls `name`; the file is loaded at the first call.

    Raises:
        MissingName: it has no such name.
    """
    module = answer_module()
    if not hasattr(module, name):
        raise MissingName(name)
    return getattr(module, name)


def answer_module() -> ModuleType:
    """The learner's file as a module; other exercise files stand beside it and can be imported."""
    path = Path(os.environ[ANSWER])
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    return load_file(path)


def load_file(path: Path | str, name: str = _MODULE) -> ModuleType:
    """A file as a module, loaded once a process under that name."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
