"""The other side of a check: what runs where a learner's code is loaded. It does things and judges nothing."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import runpy
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import nn, serialization
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from paceline.observe.model_registry import ModelRegistry, parameters_of
from paceline.observe.probes.data_loaders import DataLoaders
from paceline.observe.probes.group_collectives import GroupCollectives
from paceline.observe.probes.optimizer_steps import OptimizerSteps
from paceline.observe.session import Probe, Session, Topic
from paceline.observe.sinks import ImmediateSink, MemorySink
from paceline.parallel.digest import digest
from paceline.records.observed_rank import LoaderBegun
from paceline.verify.oracle import State, state_of

ANSWER = "PACELINE_ANSWER"
"""Path of the file that is checked, in the folder of the call."""
_MODULE = "answer"
_MOST_STEPS = 256


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
    with traced(trace_file(Path.cwd(), int(os.environ["RANK"]))):
        return function(*arguments)


@contextlib.contextmanager
def traced(path: Path) -> Iterator[Session]:
    """Write each collective of this process to a file meanwhile, before it is waited for.

    Raises:
        RuntimeError: this torch has no hooks for that.
    """
    if GroupCollectives.missing():
        raise RuntimeError(f"torch {torch.__version__} does not tell of its collectives: it takes 2.14 or newer")
    with contextlib.closing(ImmediateSink(path)) as sink, Session(sink, [GroupCollectives()]) as session:
        yield session


@dataclass(frozen=True)
class LoaderPass:
    """One pass of this rank over a data loader, as far as it went.

    Attributes:
        samples: in the whole data set; None when it has no length.
        batches: indices of each batch that the loop received; empty where there are none to be seen.
    """

    samples: int | None
    batches: list[list[int]]


def passes_in(sink: MemorySink) -> list[LoaderPass]:
    """All passes over loaders, in the order in which they began; the probe hands over every pass."""
    batches: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
    for loader, number, _, indices in sink.batches:
        batches[loader, number].append(indices)
    return [LoaderPass(each.samples, batches[each.loader, each.number]) for each in sink.of(LoaderBegun)]


@dataclass(frozen=True)
class ScriptSeen:
    """What one rank did that ran a file as a program.

    Attributes:
        passes: over data loaders.
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
        trace: write each collective to `trace-<rank>.jsonl` in the folder, where torch tells of them.
    """

    arguments: tuple[str, ...]
    machines: int = 1
    trace: bool = True


class _Training(Probe):
    """Keeps what events do not hold: the weights' bits after each step, models, their inputs, names of saved files.

    Attributes:
        wrapped: the models inside DistributedDataParallel, in the order in which they were wrapped.
    """

    signal = "training"

    def __init__(self) -> None:
        self.digests: list[str] = []
        self.rates: list[float] = []
        self.inputs: list[NDArray[Any]] = []
        self.saved: list[str] = []
        self.wrapped: list[nn.Module] = []

    def arm(self, session: Session) -> None:
        """Listen for steps, and patch DDP and torch.save."""
        session.listen(self, Topic.STEP_ENDS, self._stepped)
        ddp = DistributedDataParallel
        session.patch(self, ddp, "__init__", after=lambda _, args, __: self.wrapped.append(args[0].module))
        session.patch(self, ddp, "forward", before=lambda args, _: self._note_inputs(args[1:]))
        session.patch(self, serialization, "save", aliases=(torch,), before=self._saves)

    def _stepped(self, optimizer: Optimizer) -> None:
        if len(self.digests) < _MOST_STEPS:
            self.rates.append(float(optimizer.param_groups[0]["lr"]))
            self.digests.append(digest(parameters_of(optimizer))[:16])

    def _note_inputs(self, inputs: tuple[Any, ...]) -> None:
        wanted = torch.is_grad_enabled() and len(self.inputs) < _MOST_STEPS
        if wanted and inputs and isinstance(inputs[0], torch.Tensor):
            self.inputs.append(inputs[0].detach().cpu().numpy().copy())

    def _saves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        file = kwargs["f"] if "f" in kwargs else args[1]
        self.saved.append(Path(file).name if isinstance(file, str | os.PathLike) else type(file).__name__)


def run_script(program: Program) -> ScriptSeen:
    """Run the learner's file as a program, as `torchrun` would, and watch it; runs on a rank, confined.

    Raises:
        SystemExit: it ended with another exit code than 0.
    """
    path = os.environ[ANSWER]
    sys.argv = [path, *program.arguments]
    os.environ.update(_place(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), program.machines))
    sys.path.insert(0, str(Path(path).parent))
    models, training, sink = ModelRegistry(), _Training(), MemorySink()
    probes = [OptimizerSteps(models), DataLoaders(models, every_pass=True), training]
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(Session(sink, probes))]
        if program.trace and not GroupCollectives.missing():
            sessions.append(stack.enter_context(traced(trace_file(Path.cwd(), int(os.environ["RANK"])))))
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
    return ScriptSeen(
        passes=passes_in(sink),
        digests=training.digests,
        rates=training.rates,
        inputs=training.inputs,
        saved=training.saved,
        states=[state_of(model) for model in training.wrapped],
        left_group=not dist.is_initialized(),
        trouble="; ".join(why for session in sessions for why in session.failed.values()),
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
