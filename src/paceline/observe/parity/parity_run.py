"""The probe of a parity run: feeds the training loop, keeps states, and ends the run after its steps.

Unlike other probes it changes the run: batches and random numbers of a replaying run come from the recording one, both
compute in float64 where that is asked for, and a pass over the training data ends after the steps that are compared.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import autograd, nn, serialization
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as machinery

from paceline.observe.call_site import user_place
from paceline.observe.model_registry import ModelRegistry, parameters_of
from paceline.observe.parity import snapshots
from paceline.observe.parity.draws import Draw, DrawRecorder, DrawReplayer
from paceline.observe.parity.evaluations import EvaluationLog
from paceline.observe.parity.loader_facts import training_loader
from paceline.observe.parity.merging import CannotMergeError, in_double, merged
from paceline.observe.parity.operations import OperationLog
from paceline.observe.parity.without_effect import watch_without_effect
from paceline.observe.probes.data_loaders import rows_of
from paceline.observe.probes.optimizer_steps import norms
from paceline.observe.session import Probe, Session, Topic
from paceline.parallel.exit import leave
from paceline.records.parity import (
    ParityEnd,
    ParityStep,
    ParityTask,
    TrainingLoader,
    batch_file,
    draw_file,
    rank_folder,
    step_folder,
)

_EMPTY_PASSES = 4
"""Passes over training data after the compared steps. They are empty, so that scripts come to their end."""
_INPUTS = 4
"""Forward passes whose input is compared where it comes from no loader."""


def _same_input(parts: list[list[torch.Tensor]], given: list[torch.Tensor]) -> bool:
    try:
        joined = merged(parts) if len(parts) > 1 else parts[0]
    except (CannotMergeError, IndexError):
        return False
    return len(joined) == len(given) and all(
        one.shape == other.shape and torch.allclose(one, other, equal_nan=True)
        for one, other in zip(joined, given, strict=True)
    )


class ParityRun(Probe):
    """Records or replays a training, as its task says.

    Args:
        task: of all ranks.
        rank: of this process.
        models: of the session.
    """

    signal = "parity"
    requires = ((machinery._BaseDataLoaderIter, "__next__"), (autograd, "_engine_run_backward"))

    def __init__(self, task: ParityTask, rank: int, models: ModelRegistry) -> None:
        self._task, self._rank, self._models = task, rank, models
        self._folder = Path(task.folder)
        self._own = rank_folder(self._folder, rank)
        self._notes: dict[str, None] = {}
        self._adjusted: dict[str, None] = {}
        self._nature: dict[str, None] = {}
        self._ended = False
        self._started = False
        self._pending = 0
        self._segment = self._within = self._outside = self._depth = self._inputs = 0
        self._fed = False
        self._within_loader = False
        self._loaders = 0
        self._versions: list[int] = []
        self._closed = self._samples = 0
        self._evaluations = EvaluationLog(self._own)
        self._operations: OperationLog | None = None
        self._evaluated = False
        self._dtypes: set[str] = set()
        self._natural: dict[int, list[float]] = {}
        self._ordinals: dict[int, int] = {}
        self._taken: dict[tuple[int, int], int] = {}

    def arm(self, session: Session) -> None:
        """Patch loaders, and listen to the step clock."""
        self._session = session
        self._make_folders()
        if self._task.double:
            torch.set_default_dtype(torch.float64)
        self._replace(machinery._BaseDataLoaderIter, "__next__", self._next)
        self._replace(DataLoader, "__iter__", self._iterate)
        self._replace(DataLoader, "__init__", self._made)
        self._replace(DataLoader, "__len__", self._length)
        self._replace(nn.functional, "batch_norm", self._batch_norm)
        session.patch(self, autograd, "_engine_run_backward", after=lambda *_: self._backward_ended())
        session.listen(self, Topic.FORWARD, self._forward)
        session.listen(self, Topic.BACKWARD_BEGINS, self._backward_begins)
        session.patch(self, DistributedDataParallel, "register_comm_hook", before=lambda *_: self._hook_registered())
        watch_without_effect(session, self, self._adjusted.setdefault, double=self._task.double)
        session.listen(self, Topic.STEP_BEGINS, self._step_begins)
        session.listen(self, Topic.STEP_ENDS, self._step_ends)
        session.listen(self, Topic.EVALUATION_BEGINS, self._evaluation)
        session.listen(self, Topic.MODEL_WRAPPED, self._start_again)
        session.listen(self, Topic.SCRIPT_ENDS, self._instant)
        session.listen(self, Topic.SCRIPT_ENDS, self._evaluations.close)
        session.patch(self, serialization, "save", aliases=(torch,), before=self._saves)
        session.undo(self, register_module_forward_pre_hook(self._forward_begins).remove)
        session.undo(self, register_module_forward_hook(self._forward_ends, always_call=True).remove)
        if self._task.source:
            self._draws: TorchDispatchMode = DrawReplayer(self._draws_to_train, self._recorded_draws, self._note)
        else:
            self._draws = DrawRecorder(self._draws_to_train, self._keep_draw)
        self._draws.__enter__()  # type: ignore[no-untyped-call]

    def end(self, exit_code: int = 0, error: str = "") -> None:
        """Write how the rank ended, once. What the script does after that is not recorded."""
        if self._ended:
            return
        self._instant()
        self._ended = True
        end = ParityEnd(
            steps=self._session.progress.step,
            evaluated=self._evaluated,
            exit_code=exit_code,
            error=error,
            dtypes=sorted(self._dtypes),
            notes=list(self._notes),
            nature=list(self._nature),
            adjusted=list(self._adjusted),
        )
        (self._own / "end.json").write_bytes(msgspec.json.encode(end))

    def _make_folders(self) -> None:
        for name in ("batches", "draws", "loaders"):
            (self._own / name).mkdir(parents=True, exist_ok=True)

    def _replace(self, owner: Any, name: str, function: Any) -> None:
        original = vars(owner)[name]

        @functools.wraps(original)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs) if self.live else original(*args, **kwargs)

        setattr(owner, name, replaced)
        self._session.undo(self, lambda: setattr(owner, name, original))

    def _note(self, text: str) -> None:
        self._notes[text] = None

    def _trains(self) -> bool:
        """True within the training steps that are compared."""
        if self._within_loader or self._closed or self._ended:
            return False
        if not (self._models.any_optimizer or self._started):  # models are being made
            return False
        modes = [model.training for _, model in self._models.modules()]
        return torch.is_grad_enabled() or any(modes)

    def _draws_to_train(self) -> bool:
        """Whether the random number that is drawn now belongs to a training step."""
        if self._trains():
            return True
        if not self._within_loader:
            self._evaluations.draw()
        return False

    # Batches

    def _next(self, original: Any, iterator: Any) -> Any:
        current = vars(iterator).get("_paceline_pass")
        if current is None:
            return self._computed_in(self._aside(original, iterator))
        if not self._is_training():
            batch = self._computed_in(self._aside(original, iterator))
            self._evaluations.batch(self._session.progress.step, rows_of(batch) or 0)
            return batch
        self._evaluations.close()
        if self._session.progress.step >= self._task.steps:
            self._instant()
            if self._closed:
                self.end()
            self._closed += 1
            if self._closed <= _EMPTY_PASSES:
                raise StopIteration
            self._leave_if_all_can()
        if self._ended:
            return self._computed_in(self._aside(original, iterator))
        if self._task.source:
            return self._replayed(original, iterator, (self._ordinal(current.loader), current.number))
        self._begin()
        self._fed = True
        batch = self._computed_in(self._aside(original, iterator))
        position = self._session.progress.position
        if position is not None:
            path = batch_file(self._folder, self._rank, (self._ordinal(position[0]), *position[1:]))
            torch.save((batch, current.rows), path)
            self._samples += current.rows or 0
        return batch

    def _ordinal(self, loader: int) -> int:
        """The number of a loader among those that train: two scripts may evaluate in another order."""
        return self._ordinals.setdefault(loader, len(self._ordinals))

    def _computed_in(self, batch: Any) -> Any:
        return in_double(batch) if self._task.double else batch

    def _made(self, original: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        original(loader, *args, **kwargs)
        loader._paceline_made = self._loaders
        self._loaders += 1

    def _length(self, original: Any, loader: Any) -> int:
        """Loops ask whether a batch is the last one: one process has as many as the ranks."""
        path = rank_folder(Path(self._task.source), 0) / "loaders" / f"{vars(loader).get('_paceline_made')}.json"
        if not self._task.source or not path.exists():
            return int(original(loader))
        recorded = msgspec.json.decode(path.read_bytes(), type=TrainingLoader)
        return recorded.batches * (self._task.world if self._task.interleave else 1)

    def _iterate(self, original: Any, loader: Any) -> Any:
        if not self._task.source and self._is_training() and "_paceline_made" in vars(loader):
            path = self._own / "loaders" / f"{loader._paceline_made}.json"
            if not path.exists():
                with contextlib.suppress(TypeError):  # a stream has no length
                    path.write_bytes(msgspec.json.encode(training_loader(loader)))
        return self._aside(original, loader)

    def _aside(self, original: Any, *args: Any) -> Any:
        """Call a function whose random numbers choose samples: those come with the batches."""
        before, self._within_loader = self._within_loader, True
        try:
            return original(*args)
        finally:
            self._within_loader = before

    def _is_training(self) -> bool:
        modes = [model.training for _, model in self._models.modules()]
        return torch.is_grad_enabled() and (any(modes) or not modes)

    def _replayed(self, original: Any, iterator: Any, key: tuple[int, int]) -> Any:
        self._session.announce(Topic.BATCH_WANTED, iterator)
        self._instant()
        self._begin()
        self._fed = True
        task, source = self._task, Path(self._task.source)
        taken = self._taken[key] = self._taken.get(key, -1) + 1
        ranks = range(task.world)
        if task.interleave:
            ranks, taken = range(taken % task.world, taken % task.world + 1), taken // task.world
        paths = [batch_file(source, rank, (*key, taken)) for rank in ranks]
        present = [path for path in paths if path.exists()]
        if not present:
            if taken == 0 and key[1] == 0 and not task.interleave:  # ranks do not train on it
                return self._aside(original, iterator)
            raise StopIteration
        if len(present) < len(paths):
            self._note("ranks take different numbers of batches")
        loaded = [torch.load(path, weights_only=False) for path in present]
        parts, rows = zip(*(reversed(loaded) if task.reverse else loaded), strict=True)
        try:
            return merged(parts, rows)
        except CannotMergeError as error:
            self._note(f"batches of the ranks cannot be joined: {error}")
            return parts[0]

    # Random numbers

    def _backward_ended(self) -> None:
        if self._trains():
            self._segment += 1
            self._within = 0
            self._fed = False

    def _forward_begins(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if torch.compiler.is_compiling():
            return
        if not self._depth:
            self._any_forward(args)
        self._depth += 1

    def _forward_ends(self, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._depth = max(0, self._depth - 1)

    def _next_draw(self) -> str:
        """A name for the next random number: of its forward pass, or in the order of all others."""
        if self._depth:
            self._within += 1
            return f"{self._segment}-{self._within}"
        self._outside += 1
        return str(self._outside)

    def _keep_draw(self, draw: Draw) -> None:
        torch.save(draw, draw_file(self._folder, self._rank, self._next_draw()))

    def _recorded_draws(self) -> list[Draw | None]:
        task, source = self._task, Path(self._task.source)
        ranks, name = range(task.world), self._next_draw()
        if task.interleave:
            own, _, rest = name.partition("-")
            each = 1 if rest else task.draws_per_batch
            micro, left = (int(own), 0) if rest else divmod(int(own) - 1, each)
            rank, micro = micro % task.world, micro // task.world
            ranks, name = range(rank, rank + 1), f"{micro}-{rest}" if rest else str(micro * each + left + 1)
        paths = [draw_file(source, rank, name) for rank in ranks]
        draws = [torch.load(path, weights_only=False) if path.exists() else None for path in paths]
        return draws[::-1] if task.reverse else draws

    # Methods that give another result on several ranks

    def _hook_registered(self) -> None:
        self._nature["a communication hook of DDP changes the gradients"] = None

    def _backward_begins(self) -> None:
        self._instant()
        if self._operations is not None:
            self._operations.close()
            self._operations = None
        window = self._session.progress.window
        if not self._models.any_wrapped or len(window.synchronized) < 1 or self._ended:
            return
        versions = [each._version for _, model in self._models.modules() for each in model.parameters()]
        if window.backwards and versions != self._versions and not window.synchronized[0]:
            why = "the script changes parameters between backward passes that are not synchronized, as SAM does"
            self._nature[why] = None
        self._versions = versions

    # States

    def _start_again(self) -> None:
        """Discard steps that were taken before the model was wrapped."""
        shutil.rmtree(self._own)
        self._make_folders()
        self._started = self._ended = False
        self._closed = self._samples = self._pending = self._segment = self._within = self._outside = self._inputs = 0
        self._dtypes.clear()
        self._ordinals.clear()

    def _any_forward(self, args: tuple[Any, ...]) -> None:
        if not torch.is_grad_enabled() or self._segment < self._inputs or self._within_loader or self._ended:
            return
        if not (self._models.any_wrapped or self._models.any_optimizer):
            return
        if not self._session.progress.stepping:
            self._begin()
        self._inputs = self._segment + 1
        if self._fed or self._segment >= _INPUTS:
            return
        tensors = [each.detach() for each in args if isinstance(each, torch.Tensor)]
        if not self._task.source:
            torch.save(tensors, self._own / f"input-{self._segment}.pt")
            return
        task, segment, ranks = self._task, self._segment, range(self._task.world)
        if task.interleave:
            ranks, segment = range(segment % task.world, segment % task.world + 1), segment // task.world
        paths = [rank_folder(Path(task.source), rank) / f"input-{segment}.pt" for rank in ranks]
        parts = [torch.load(path, weights_only=False) for path in paths if path.exists()]
        if not _same_input(parts[::-1] if task.reverse else parts, tensors):
            self._note("one process takes other batches than the ranks, since they come from no DataLoader")

    def _forward(self, _: Any) -> None:
        self._instant()
        self._begin()

    def _begin(self) -> None:
        """Before the first step: one process starts from the weights of rank 0."""
        if self._started:
            return
        self._started = True
        state = snapshots.all_models()
        if self._task.source:
            self._start_as_recorded(state)
        snapshots.write_tensors(self._own / "start.safetensors", state)
        self._operations = OperationLog(self._own / "operations.jsonl", lambda: self._within_loader)
        self._operations.__enter__()  # type: ignore[no-untyped-call]

    def _start_as_recorded(self, state: dict[str, torch.Tensor]) -> None:
        from safetensors.torch import load_file

        path = rank_folder(Path(self._task.source), 0) / "start.safetensors"
        if not path.exists():
            return
        recorded = load_file(path)
        differing = {
            name: each
            for name, each in state.items()
            if name in recorded and recorded[name].shape == each.shape and not torch.equal(recorded[name], each.cpu())
        }
        with torch.no_grad():
            for name, each in differing.items():
                each.copy_(recorded[name])
        if differing:
            self._adjusted["one process starts from the weights of rank 0"] = None

    def _step_begins(self, optimizer: Optimizer) -> None:
        step = self._session.progress.stepping
        if step > self._session.progress.step:
            self._instant()
        if step > self._task.steps:
            self._leave_if_all_can()
        if self._ended:
            return
        number = self._models.add_optimizer(optimizer)
        window = self._session.progress.window
        if window.own_averages:
            self._nature["ranks average parameters themselves, and may train apart between"] = None
        lr = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
        folder = step_folder(self._folder, self._rank, step)
        snapshots.write_tensors(
            folder / f"gradients-{number}.safetensors", snapshots.gradients(self._models, optimizer)
        )
        self._dtypes |= {str(each.dtype).removeprefix("torch.") for each in parameters_of(optimizer)}
        after = window.clipped_norms or norms(window, parameters_of(optimizer)) if window.norms else (None, None)
        line = ParityStep(
            step=step,
            optimizer=number,
            lr=lr,
            backwards=window.backwards,
            samples=self._samples or None,
            loss=window.loss,
            norm=after[0],
            place=user_place(),
        )
        with (self._own / "steps.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        if self._task.source:
            self._use_recorded_rates(optimizer, step, number)

    def _use_recorded_rates(self, optimizer: Optimizer, step: int, number: int) -> None:
        """One process steps with the rates of the ranks; the script's own come back after the step."""
        if not hasattr(self, "_recorded"):
            lines = (rank_folder(Path(self._task.source), 0) / "steps.jsonl").read_bytes().splitlines()
            steps = [msgspec.json.decode(line, type=ParityStep) for line in lines]
            self._recorded = {(each.step, each.optimizer): each for each in steps}
        recorded = self._recorded.get((step, number))
        if recorded is None or len(recorded.lr) != len(optimizer.param_groups):
            return
        self._natural[number] = [group["lr"] for group in optimizer.param_groups]
        for group, lr in zip(optimizer.param_groups, recorded.lr, strict=True):
            if not isinstance(group["lr"], torch.Tensor):
                group["lr"] = lr

    def _step_ends(self, optimizer: Optimizer) -> None:
        number = self._models.add_optimizer(optimizer) if optimizer is not None else -1
        for group, lr in zip(
            optimizer.param_groups if optimizer is not None else (), self._natural.pop(number, []), strict=False
        ):
            group["lr"] = lr
        self._samples = 0
        if not self._ended:
            self._pending = self._session.progress.step

    def _instant(self, *_: Any) -> None:
        """All of a step has been done: keep what it left."""
        if not self._pending:
            return
        step, self._pending = self._pending, 0
        state = snapshots.model_state(self._models) | snapshots.optimizer_state(self._models)
        snapshots.write_tensors(step_folder(self._folder, self._rank, step) / "state.safetensors", state)

    # What is not the training

    def _saves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        saved, path = (*args, *(kwargs.get(name) for name in ("obj", "f")[len(args) :]))[:2]
        self._evaluations.saved(self._session.progress.step, saved, path)

    def _evaluation(self) -> None:
        self._instant()
        self._evaluated |= self._session.progress.step >= self._task.steps

    def _batch_norm(self, original: Any, input: Any, mean: Any, var: Any, *args: Any, **kwargs: Any) -> Any:
        given = list(args)
        trains = kwargs.get("training", given[2] if len(given) > 2 else False)
        if not trains:
            return original(input, mean, var, *args, **kwargs)
        if mean is None:
            self._note("batch normalization without running statistics depends on the samples of a rank")
            return original(input, mean, var, *args, **kwargs)
        self._adjusted["batch normalization uses its running statistics in both runs"] = None
        if "training" in kwargs:
            kwargs["training"] = False
        else:
            given[2] = False
        return original(input, mean, var, *given, **kwargs)

    def _leave_if_all_can(self) -> None:
        """The steps that are compared are done. A rank that left early would take its peers' connections with it."""
        self.end()
        world = 1 if self._task.source else self._task.world
        if all((rank_folder(self._folder, rank) / "end.json").exists() for rank in range(world)):
            sys.stdout.flush()
            leave(0)
