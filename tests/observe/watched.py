"""Watches code in this process with all probes, and keeps what they say in memory."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import nn

from paceline.observe.attach import all_probes
from paceline.observe.session import Progress, Session
from paceline.observe.sinks import MemorySink
from paceline.records.event import Event

E = TypeVar("E", bound=Event)


class Watched:
    """What was seen.

    Attributes:
        session: with all probes.
        sink: where their events are.
    """

    def __init__(self) -> None:
        self.sink = MemorySink()
        self.session = Session(self.sink, all_probes())

    def of(self, kind: type[E]) -> list[E]:
        """Events of a kind, in order."""
        return [each for each in self.sink.events if isinstance(each, kind)]

    def ends(self) -> None:
        """As at the end of a script."""
        groups = self.session.probes[0]
        self.session.run(groups, groups.script_ends)

    @property
    def progress(self) -> Progress:
        """How far the code is."""
        return self.session.progress


@contextlib.contextmanager
def watching() -> Iterator[Watched]:
    """Until the end of the block; no probe may fail.

    Probes look for models among all objects, of which a test session has many: only those made in the block count.
    """
    watched = Watched()
    gc.freeze()
    try:
        with watched.session:
            yield watched
    finally:
        gc.unfreeze()
    assert watched.session.failed == {}


@contextlib.contextmanager
def group_of_one(folder: Path) -> Iterator[None]:
    """A gloo group with this process alone."""
    store = dist.FileStore(str(folder / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def backward(model: nn.Module, rows: int = 2) -> torch.Tensor:
    """A forward and a backward pass; gives the loss."""
    loss = model(torch.ones(rows, 4)).square().mean()
    loss.backward()
    return loss


def line_of(text: str, path: str) -> int:
    """The line of a file that ends in a comment `# <text>`."""
    lines = Path(path).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return found
