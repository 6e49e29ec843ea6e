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
from paceline.observe.parity.batch_norm import with_running_statistics
from paceline.observe.parity.batches import Batches
from paceline.observe.parity.draws import Draw, DrawRecorder, DrawReplayer
from paceline.observe.parity.evaluations import EvaluationLog
from paceline.observe.parity.loader_facts import training_loader
from paceline.observe.parity.merging import in_double
from paceline.observe.parity.operations import OperationLog
from paceline.observe.parity.precision import InDouble, autocast_types
from paceline.observe.parity.without_effect import watch_without_effect
from paceline.observe.probes.data_loaders import rows_of
from paceline.observe.probes.optimizer_steps import gradient_squares, norms
from paceline.observe.session import Probe, Session, Topic
from paceline.parallel.exit import leave
from paceline.records.parity import (
    ParityEnd,
    ParityStep,
    ParityTask,
    TrainingLoader,
    draw_file,
    rank_folder,
    read_end,
    read_steps,
    step_folder,
)

_EMPTY_PASSES = 4
"""Passes over training data after the compared steps. They are empty, so that scripts come to their end."""
_INPUTS = 4
"""Forward passes whose input is compared where it comes from no loader."""
_APART = 10
"""Ranks that nothing keeps together may train before they wrap a model: so many times the steps that are asked for."""


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
        self._ended = self._started = False
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
        self._precision: set[str] = set()
        self._natural: dict[int, list[float]] = {}
        self._batches = Batches(task, rank, self._note, self._adjust)
        self._stepped = self._discarded = self._awaited = 0
        self._together = self._within_step = self._closure = False

    def arm(self, session: Session) -> None:
        """Patch loaders, and listen to the step clock."""
        self._session = session
        self._make_folders()
        if self._task.double:
            torch.set_default_dtype(torch.float64)
            InDouble(self._asked_for).__enter__()  # type: ignore[no-untyped-call]
        self._replace(machinery._BaseDataLoaderIter, "__next__", self._next)
        self._replace(DataLoader, "__iter__", self._iterate)
        self._replace(DataLoader, "__init__", self._made)
        self._replace(DataLoader, "__len__", self._length)
        self._replace(nn.functional, "batch_norm", with_running_statistics(self._note, self._adjust))
        session.patch(self, autograd, "_engine_run_backward", after=lambda *_: self._backward_ended())
        session.listen(self, Topic.FORWARD, self._instant)
        session.listen(self, Topic.FORWARD, self._begin)
        session.listen(self, Topic.BACKWARD_BEGINS, self._backward_begins)
        session.patch(self, DistributedDataParallel, "register_comm_hook", before=lambda *_: self._hook_registered())
        watch_without_effect(session, self, self._adjust, double=self._task.double)
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
            self._awaited = read_end(Path(self._task.source), 0).discarded
            self._draws: TorchDispatchMode = DrawReplayer(
                self._draws_to_train, self._recorded_draws, self._note, grow=not self._task.keep_sizes
            )
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
            discarded=self._discarded,
            closure=self._closure,
            evaluated=self._evaluated,
            exit_code=exit_code,
            error=error,
            dtypes=sorted(self._dtypes),
            precision=sorted(self._precision),
            notes=list(self._notes),
            nature=list(self._nature),
            adjusted=list(self._adjusted),
        )
        (self._own / "end.json").write_bytes(msgspec.json.encode(end))

    def _asked_for(self, dtype: torch.dtype) -> None:
        self._precision.add(str(dtype).removeprefix("torch."))

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

    def _adjust(self, text: str) -> None:
        self._adjusted[text] = None

    def _trains(self) -> bool:
        """True within the training steps that are compared."""
        if self._within_loader or self._closed or self._ended or self._waits:
            return False
        if not (self._models.any_optimizer or self._started):  # models are being made
            return False
        modes = [model.training for _, model in self._models.modules()]
        return torch.is_grad_enabled() or any(modes)

    @property
    def _waits(self) -> bool:
        """One process takes steps now that the ranks took before they wrapped the model, which do not count."""
        return self._session.progress.step < self._awaited and not self._models.any_wrapped

    def _draws_to_train(self) -> bool:
        """True if the current random draw belongs to a training step."""
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
            try:
                batch = self._computed_in(self._aside(original, iterator))
            except StopIteration:
                self._evaluations.pass_ends()
                raise
            self._evaluations.batch(self._session.progress.step, rows_of(batch) or 0, current)
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
        if self._ended or self._waits:
            return self._computed_in(self._aside(original, iterator))
        key = (current.loader, current.number)
        if self._task.source:
            return self._replayed(original, iterator, key)
        self._begin()
        self._fed = True
        batch = self._computed_in(self._aside(original, iterator))
        self._samples += current.rows or 0
        self._batches.keep(key, batch, current.rows)
        return batch

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
        if not self._batches.replays(key):
            return self._computed_in(self._aside(original, iterator))
        self._session.announce(Topic.BATCH_WANTED, iterator)
        self._instant()
        self._begin()
        self._fed = True
        return self._batches.replay(key, self._alone)

    @property
    def _alone(self) -> int | None:
        """The rank whose part alone is replayed; None for all."""
        return self._task.alone if self._session.progress.step + 1 >= self._task.alone_from else None

    # Random numbers

    def _backward_ended(self) -> None:
        progress = self._session.progress
        if not progress.digests:  # else the probe of backward passes does so
            progress.window.norms = gradient_squares(self._models)
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
        elif self._alone is not None:
            ranks = range(self._alone, self._alone + 1)
        paths = [draw_file(source, rank, name) for rank in ranks]
        draws = [torch.load(path, weights_only=False) if path.exists() else None for path in paths]
        return draws[::-1] if task.reverse else draws

    # Methods that give another result on several ranks

    def _hook_registered(self) -> None:
        self._nature["a communication hook of DDP changes the gradients"] = None

    def _backward_begins(self) -> None:
        self._closure |= self._within_step
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
        self._discarded, self._awaited = self._stepped, 0
        self._batches.start_again()
        self._models.any_optimizer = False  # of the training, from now on
        self._closed = self._samples = self._pending = self._segment = self._within = self._outside = self._inputs = 0
        self._dtypes.clear()

    def _any_forward(self, args: tuple[Any, ...]) -> None:
        if not torch.is_grad_enabled() or self._segment < self._inputs or self._within_loader or self._ended:
            return
        if self._waits or not (self._models.any_wrapped or self._models.any_optimizer):
            return
        if not self._session.progress.stepping:
            self._begin()
        for dtype in autocast_types():
            self._asked_for(dtype)
        self._inputs = self._segment + 1
        if self._fed or self._within_step or self._segment >= _INPUTS or self._alone is not None:
            return
        tensors = [each.detach() for each in args if isinstance(each, torch.Tensor)]
        if not self._task.source:
            self._batches.keep_input(self._segment, tensors)
        elif not self._batches.is_input(self._segment, tensors):
            self._note("one process takes other batches than the ranks, since they come from no DataLoader")

    def _begin(self, *_: Any) -> None:
        """Before the first step: one process starts from the weights of rank 0."""
        if self._started or self._waits:
            return
        self._started = True
        state = snapshots.all_models()
        if self._task.source:
            path = rank_folder(Path(self._task.source), 0) / "start.safetensors"
            if snapshots.restore(state, path):
                self._adjust("one process starts from the weights of rank 0")
        snapshots.write_tensors(self._own / "start.safetensors", state)
        self._operations = OperationLog(self._own / "operations.jsonl", lambda: self._within_loader)
        self._operations.__enter__()  # type: ignore[no-untyped-call]

    def _step_begins(self, optimizer: Optimizer) -> None:
        window, step = self._session.progress.window, self._session.progress.stepping
        synchronized = self._models.any_wrapped or self._models.sharded
        self._together |= bool(synchronized or window.own_reductions or window.own_averages)
        if step > self._session.progress.step:
            self._instant()
        if step > self._task.steps:
            self._leave_if_all_can()
        self._within_step = True
        if self._ended or self._waits:
            return
        number = self._models.add_optimizer(optimizer)
        for _, sharder in self._models.sharded:
            self._note(f"no parameter was compared: each rank holds a part of it ({sharder})")
        if window.own_averages:
            self._nature["ranks average parameters themselves, and may train apart between"] = None
        lr = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
        folder = step_folder(self._folder, self._rank, step)
        snapshots.write_tensors(
            folder / f"gradients-{number}.safetensors", snapshots.gradients(self._models, optimizer)
        )
        if self._session.progress.loss_scale is not None:
            self._asked_for(torch.float32)
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
            early_clips=window.clips_before_backward,
            own_reductions=window.own_reductions,
            place=user_place(),
        )
        with (self._own / "steps.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        if self._task.source:
            self._use_recorded_rates(optimizer, step, number)

    def _use_recorded_rates(self, optimizer: Optimizer, step: int, number: int) -> None:
        """One process steps with the rates of the ranks; the script's own come back after the step."""
        if not hasattr(self, "_recorded"):
            steps = read_steps(Path(self._task.source), 0)
            self._recorded = {(each.step, each.optimizer): each for each in steps}
        recorded = self._recorded.get((step, number))
        if recorded is None or len(recorded.lr) != len(optimizer.param_groups):
            return
        self._natural[number] = [group["lr"] for group in optimizer.param_groups]
        for group, lr in zip(optimizer.param_groups, recorded.lr, strict=True):
            if not isinstance(group["lr"], torch.Tensor):
                group["lr"] = lr

    def _step_ends(self, optimizer: Optimizer) -> None:
        self._within_step = False
        number = self._models.add_optimizer(optimizer) if optimizer is not None else -1
        for group, lr in zip(
            optimizer.param_groups if optimizer is not None else (), self._natural.pop(number, []), strict=False
        ):
            group["lr"] = lr
        self._samples = 0
        self._stepped = self._session.progress.step
        if self._stepped == self._awaited and self._awaited:
            self._session.announce(Topic.MODEL_WRAPPED)  # one process may not wrap it
        elif not self._ended and not self._waits:
            self._pending = self._stepped

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

    def _leave_if_all_can(self) -> None:
        """The steps that are compared are done. A rank that left early would take its peers' connections with it."""
        if self._waits:
            return
        self.end()
        if not self._task.source and not self._together and self._session.progress.step < _APART * self._task.steps:
            return
        world = 1 if self._task.source else self._task.world
        if all((rank_folder(self._folder, rank) / "end.json").exists() for rank in range(world)):
            sys.stdout.flush()
            leave(0)
