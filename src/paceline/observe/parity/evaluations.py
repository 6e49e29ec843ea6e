"""Evaluations of a rank: samples, output, and the files that it saves."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch

from paceline.observe.call_site import user_place
from paceline.observe.parity import snapshots
from paceline.records.parity import EvaluationSeen, SavedFile

_NAMES = 5000
_DEPTH = 4


class EvaluationLog:
    """Writes one line for each evaluation, and one for each file that `torch.save` writes.

    Args:
        folder: of the rank.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: EvaluationSeen | None = None
        self._pass: Any = None
        self._batch_at = 0

    def batch(self, step: int, samples: int, taken_from: Any) -> None:
        """A batch is evaluated after a step; what is printed from here on belongs to the evaluation.

        Args:
            step: of the training.
            samples: in the batch.
            taken_from: the pass over a loader.
        """
        if self._pass is taken_from:
            self._progress()
        if self._open is None:
            snapshots.write_tensors(self._folder / "evaluated.safetensors", snapshots.all_models())
        seen = self._open or EvaluationSeen(step=step, samples=0, printed_from=_printed(), printed_to=0)
        self._open = msgspec.structs.replace(seen, samples=seen.samples + samples)
        self._pass, self._batch_at = taken_from, _printed()

    def pass_ends(self) -> None:
        """The loader has no further batch."""
        if self._pass is not None:
            self._progress()
        self._pass = None

    def _progress(self) -> None:
        """Count output since the last batch as progress."""
        now = _printed()
        if self._open is not None and now > self._batch_at:
            self._open = msgspec.structs.replace(self._open, progress=[*self._open.progress, (self._batch_at, now)])

    def draw(self) -> None:
        """A random number is drawn that belongs to no training step."""
        if self._open is not None and not self._open.random:
            self._open = msgspec.structs.replace(self._open, random=True)

    def close(self) -> None:
        """Training goes on, or the script ends."""
        if self._open is not None:
            self._append("evaluations.jsonl", msgspec.structs.replace(self._open, printed_to=_printed()))
            self._open = self._pass = None

    def saved(self, step: int, saved: Any, path: Any) -> None:
        """`torch.save` is called."""
        if isinstance(path, str | os.PathLike):
            names = [name for name, _ in zip(tensor_names(saved), range(_NAMES), strict=False)]
            self._append("saved.jsonl", SavedFile(step=step, path=os.fspath(path), names=names, place=user_place()))

    def _append(self, name: str, line: msgspec.Struct) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / name).open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")


def tensor_names(value: Any, prefix: str = "", depth: int = 0) -> Iterator[str]:
    """Keys under which nested mappings hold tensors, joined by "/"."""
    if isinstance(value, torch.Tensor):
        yield prefix
    elif isinstance(value, torch.nn.Module):
        yield from tensor_names(value.state_dict(), prefix, depth)
    elif isinstance(value, Mapping) and depth < _DEPTH:
        for key, each in value.items():
            yield from tensor_names(each, f"{prefix}/{key}" if prefix else str(key), depth + 1)


def _printed() -> int:
    """Bytes on stdout so far, which is a file."""
    sys.stdout.flush()
    return os.fstat(1).st_size
