"""The ledger of data loaders: which samples did the training loop receive, batch by batch, and who chose them?

An index counts when its batch is handed to the loop, not when a sampler names it or a worker reads it ahead. Data sets,
samplers and batches stay what they are. Indices are those of the root data set, below any Subset.
"""

from __future__ import annotations

import hashlib
import itertools
import time
import weakref
from array import array
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, Subset
from torch.utils.data import dataloader as machinery

from paceline.observe.call_site import user_place
from paceline.observe.dataset_facts import Content, RootIndices, content_of, length, sampler_facts, sampler_of
from paceline.observe.model_registry import ModelRegistry
from paceline.observe.schedule import has_digests
from paceline.observe.session import Probe, Session, Topic
from paceline.observe.tensor_digest import DIGITS, sampled_digest
from paceline.records.observed_rank import InputSeen, LoaderBegun, LoaderEnded
from paceline.records.place import Place
from paceline.records.ring import BATCHES

_AFTER_EVALUATION = 5
_PLACES = 1000
_INPUTS_PER_STEP = 4
_NOTE_S = 0.1


class DataLoaders(Probe):
    """Patches torch's DataLoader and its iterators.

    Args:
        models: whose forward passes tell training from evaluation.
        every_pass: hand the indices of all passes to the sink, not only of those that `schedule` chooses.
    """

    signal = "loaders"
    requires = (
        (DataLoader, "__iter__"),
        (machinery, "_BaseDataLoaderIter"),
        (machinery._BaseDataLoaderIter, "__next__"),
        (machinery._BaseDataLoaderIter, "_reset"),
    )

    def __init__(self, models: ModelRegistry, *, every_pass: bool = False) -> None:
        self._models, self._every_pass = models, every_pass
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._passes: dict[int, int] = {}
        self._open: dict[int, _Pass] = {}
        self._roots: dict[Any, tuple[int, Content]] = {}
        self._samplers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._attached: weakref.WeakSet[Any] = weakref.WeakSet()
        self._places: weakref.WeakKeyDictionary[Any, Place | None] = weakref.WeakKeyDictionary()
        self._epoch: int | None = None
        self._received_batches = 0

    def arm(self, session: Session) -> None:
        """Patch loaders, their iterators and DistributedSampler."""
        self._session = session
        self._counters = session.sink.counters
        iterator = machinery._BaseDataLoaderIter
        patch = session.patch
        patch(self, DataLoader, "__init__", after=lambda _, args, __: self._constructed(args[0]))
        patch(self, Subset, "__init__", after=lambda _, args, __: self._subset_made(args[0]))
        patch(self, DataLoader, "__iter__", after=lambda made, args, _: self._began(args[0], made))
        patch(self, iterator, "_reset", after=lambda _, args, __: _keep_choices(args[0]))
        patch(
            self,
            iterator,
            "__next__",
            before=self._wanted,
            after=self._received,
            raised=lambda error, args, _: self._stopped(args[0], error),
        )
        patch(self, DistributedSampler, "__init__", after=lambda _, args, __: self._samplers.add(args[0]))
        patch(self, DistributedSampler, "set_epoch", before=self._set_epoch)
        session.listen(self, Topic.SCRIPT_ENDS, self._script_ends)
        session.undo(self, self._note_all)
        self._listeners = session.listeners(Topic.BATCH_WANTED)

    def _set_epoch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._epoch = int(args[1] if len(args) > 1 else kwargs["epoch"])

    def _subset_made(self, subset: Any) -> None:
        if len(self._places) < _PLACES:
            self._places[subset] = user_place()

    def _constructed(self, loader: Any) -> None:
        sampler = sampler_of(loader)
        if isinstance(sampler, DistributedSampler):  # a sampler may as well be a list, which has no weak references
            self._attached.add(sampler)
        self._places[loader] = user_place()

    def _began(self, loader: Any, iterator: Any) -> None:
        number = self._numbers.setdefault(loader, len(self._passes))
        if number in self._open:
            self._end(self._open.pop(number), exhausted=False)
        pass_number = self._passes[number] = self._passes.get(number, -1) + 1
        progress = self._session.progress
        begun = _Pass(
            loader=number,
            number=pass_number,
            roots=RootIndices(loader.dataset),
            not_observed=_not_observed(loader),
            recorded=self._every_pass or has_digests(pass_number + 1),
            # Any other sampler may name batches by one list that it changes each time.
            patience_s=_NOTE_S if type(loader.batch_sampler) is BatchSampler else 0.0,
            step=progress.step,
            backwards=progress.backwards,
            wrapped_forwards=progress.wrapped_forwards,
        )
        if not begun.not_observed and isinstance(iterator, machinery._BaseDataLoaderIter):
            if "_paceline_chosen" not in vars(iterator):
                _keep_choices(iterator)
            begun.chosen = vars(iterator)["_paceline_chosen"]
        iterator._paceline_pass = self._open[number] = begun
        self._session.emit(self._event(loader, begun))
        begun.roots.root = None  # the script may drop its data set
        modes = [model.training for _, model in self._models.modules()]
        if not torch.is_grad_enabled() or (modes and not any(modes)):
            self._session.announce(Topic.EVALUATION_BEGINS)

    def _event(self, loader: Any, begun: _Pass) -> LoaderBegun:
        root = begun.roots.root
        key = (id(root), type(root), length(root))
        if key not in self._roots:
            self._roots[key] = (len(self._roots), content_of(root))
        data, content = self._roots[key]
        sampler = sampler_of(loader)
        unused = [each for each in self._samplers if each not in self._attached and each.dataset is loader.dataset]
        return LoaderBegun(
            loader=begun.loader,
            number=begun.number,
            step=self._session.progress.step,
            dataset=type(root).__name__,
            data=data,
            samples=length(loader.dataset),
            root_samples=length(root),
            iterable=loader._dataset_kind == machinery._DatasetKind.Iterable,
            batch_size=getattr(loader.batch_sampler, "batch_size", loader.batch_size),
            sampler=type(sampler).__name__,
            sampler_facts=sampler_facts(sampler),
            set_epoch=self._epoch,
            unused_samplers=len(unused),
            subset=begun.roots.digest,
            content=content.ordered,
            content_unordered=content.unordered,
            attributes=content.attributes,
            workers=loader.num_workers,
            persistent=loader.persistent_workers,
            loader_class=type(loader).__name__,
            subset_place=self._subset_place(loader.dataset),
            place=self._places.get(loader) or user_place(),
        )

    def _subset_place(self, dataset: Any) -> Place | None:
        subset = next((each for each in (dataset, getattr(dataset, "dataset", None)) if isinstance(each, Subset)), None)
        return self._places.get(subset) if subset is not None else None

    def _wanted(self, args: tuple[Any, ...], _: Any) -> None:
        if self._listeners and "_paceline_pass" in args[0].__dict__:
            self._session.announce(Topic.BATCH_WANTED, args[0])

    def _received(self, batch: Any, args: tuple[Any, ...], _: Any) -> None:
        current = args[0].__dict__.get("_paceline_pass")
        if current is None:
            return
        self._received_batches += 1
        self._counters[BATCHES] = self._received_batches
        progress = self._session.progress
        position = progress.position = (current.loader, current.number, current.batches)
        gradients = torch.is_grad_enabled()
        if gradients is not current.gradients:
            self._note(current)  # batches that were received under the other mode
            current.gradients = gradients
            current.with_gradients |= gradients
        current.batches += 1
        if not current.not_observed and (now := time.monotonic()) >= current.note_s:
            self._note(current)
            current.note_s = now + current.patience_s
        if current.not_observed:
            current.chosen.clear()
            self._count(current, rows_of(batch))
        if progress.recorded and gradients and not self._models.any_wrapped:
            self._note_input(position, batch)

    def _note(self, current: _Pass) -> None:
        """Take note of the samples in the batches since the last time: of many at once costs less."""
        for batch in range(current.noted, 0 if current.not_observed else current.batches):
            indices = current.take(batch)
            if indices is None:
                return
            self._count(current, len(indices))
            if current.recorded:
                self._session.sink.batch(current.loader, current.number, batch, indices)

    def _note_all(self) -> None:
        for each in self._open.values():
            self._note(each)

    def _count(self, current: _Pass, rows: int | None) -> None:
        current.noted += 1
        current.last_rows = rows
        current.countable &= rows is not None
        current.samples += rows or 0
        self._session.progress.samples += (rows or 0) if current.gradients else 0

    def _note_input(self, position: tuple[int, int, int], batch: Any) -> None:
        """Without a wrapped model, whose forward pass says what it is given, the batch itself is looked at."""
        window = self._session.progress.window
        if window.inputs >= _INPUTS_PER_STEP:
            return
        window.inputs += 1
        tensors = [each for each in _flat(batch) if isinstance(each, torch.Tensor) and each.numel()]
        if tensors:
            self._session.emit(
                InputSeen(
                    step=self._session.progress.step + 1,
                    forward=window.backwards,
                    rows=tensors[0].shape[0] if tensors[0].dim() else 1,
                    shape=list(tensors[0].shape),
                    digest="".join(sampled_digest(each) for each in tensors[:4]),
                    loader=position[0],
                    number=position[1],
                    batch=position[2],
                )
            )

    def _stopped(self, iterator: Any, error: BaseException) -> None:
        current = vars(iterator).pop("_paceline_pass", None)
        if current is None:
            return
        self._open.pop(current.loader, None)
        self._end(current, exhausted=isinstance(error, StopIteration))

    def _end(self, current: _Pass, *, exhausted: bool) -> None:
        self._note(current)
        progress = self._session.progress
        # Backward passes within compiled code are not seen; optimizer steps are.
        backwards = max(progress.backwards - current.backwards, progress.step - current.step)
        self._session.emit(
            LoaderEnded(
                loader=current.loader,
                number=current.number,
                step=progress.step,
                batches=current.batches,
                samples=current.samples if current.countable else None,
                exhausted=exhausted,
                backwards=backwards,
                wrapped_forwards=progress.wrapped_forwards - current.wrapped_forwards,
                with_gradients=current.with_gradients,
                order=None if current.not_observed else current.order.hexdigest()[:DIGITS],
                increasing=current.increasing,
                recorded=current.recorded and not current.not_observed,
                not_observed=current.not_observed,
            )
        )
        if backwards:
            self._session.announce(Topic.PASS_ENDS)
        elif current.batches:
            progress.after_evaluation = _AFTER_EVALUATION

    def _script_ends(self) -> None:
        for current in list(self._open.values()):
            self._end(current, exhausted=False)
        self._open.clear()


@dataclass
class _Pass:
    """One pass while it goes on; see LoaderBegun and LoaderEnded."""

    loader: int
    number: int
    roots: RootIndices
    not_observed: str
    recorded: bool
    step: int
    backwards: int
    wrapped_forwards: int
    patience_s: float
    """For how long batches may be received before their samples are noted."""
    batches: int = 0
    noted: int = 0
    """Of these, those whose samples are known."""
    note_s: float = 0.0
    """When the next ones are noted."""
    chosen: dict[int, Any] = field(default_factory=dict)
    """Indices that have not been noted, by batch; also of batches that workers read ahead."""
    samples: int = 0
    last_rows: int | None = None
    """Samples in the last batch that was noted."""
    gradients: bool = False
    """They were enabled when the last batch was received."""
    with_gradients: bool = False
    countable: bool = True
    increasing: bool = True
    last: int = -1
    order: Any = field(default_factory=hashlib.sha256)

    @property
    def rows(self) -> int | None:
        """Samples in the last batch."""
        index = self.chosen.get(self.batches - 1)
        return self.last_rows if index is None else len(self.roots.of(index))

    def take(self, batch: int) -> array[int] | None:
        """Root indices of a batch that was received; None where they are not known."""
        try:
            indices = self.roots.of(self.chosen.pop(batch))
        except (TypeError, ValueError, IndexError, KeyError):
            self.not_observed = "samples are not named by numbers"
            self.countable = batch == 0  # noted as soon as it is received, so it can be counted by what it holds
            return None
        self.order.update(indices.tobytes())
        if self.increasing and indices:
            self.increasing = self.last < indices[0] and sorted(indices) == list(indices)
            self.last = indices[-1]
        return indices


def _keep_choices(iterator: Any) -> None:
    """Keep what an iterator's sampler will choose, by batch, from before the first batch is asked for.

    The sampler is read through `map`, which costs no call of Python. Only the iterator holds it, so that it goes when
    the script drops the iterator.
    """
    vars(iterator).pop("_paceline_pass", None)  # an iterator with persistent workers begins again
    if iterator._dataset_kind != machinery._DatasetKind.Iterable and getattr(iterator, "_in_order", True):
        chosen: dict[int, Any] = {}
        iterator._paceline_chosen = chosen
        iterator._sampler_iter = map(chosen.setdefault, itertools.count(), iterator._sampler_iter)


def _not_observed(loader: Any) -> str:
    if loader._dataset_kind == machinery._DatasetKind.Iterable:
        return "an iterable data set has no sample indices"
    if not getattr(loader, "in_order", True):
        return "in_order=False: batches come in another order than they were asked for"
    return ""


def _flat(value: Any, depth: int = 0) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple) and depth < 4:
        return [leaf for each in value for leaf in _flat(each, depth + 1)]
    return [value]


def rows_of(batch: Any) -> int | None:
    """Samples in a batch: the first dimension of its first tensor."""
    for each in _flat(batch):
        if isinstance(each, torch.Tensor):
            return each.shape[0] if each.dim() else 1
    return len(batch) if isinstance(batch, list | tuple) else None
