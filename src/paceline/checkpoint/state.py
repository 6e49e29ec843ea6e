"""The content of a checkpoint: everything that a run needs to go on as if it had not stopped.

    model.safetensors   parameters and merged buffers, by the model's own names: loads without Paceline
    state.pt            optimizer, progress, and for each rank its random state and its own buffers

Batch-norm statistics differ between ranks until they are merged for an evaluation, so each rank's own are kept:
a resumed run has to go on from them, not from their mean.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor
from torch.utils import _pytree

from paceline.records.errors import PacelineError

MODEL_FILE, STATE_FILE = "model.safetensors", "state.pt"
_PAIRS = "complex128"


def capture_random() -> dict[str, Any]:
    """The state of Python's, numpy's and torch's global generators, as types that `weights_only=True` accepts."""
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    version, internal, gauss = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": [name, torch.from_numpy(np.array(keys, dtype=np.int64)), int(position), int(has_gauss), float(cached)],
        "python": [version, list(internal), gauss],
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_random(state: Mapping[str, Any]) -> None:
    """Set the generators to what `capture_random` returned."""
    torch.set_rng_state(state["torch"])
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def same_random(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether two random states from `capture_random` are equal."""
    common = first.keys() & second.keys()  # CUDA may have been initialized between the two
    pairs = zip(
        *(_pytree.tree_leaves([state[key] for key in sorted(common)]) for state in (first, second)), strict=True
    )
    return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)


def encode_model(state: Mapping[str, Tensor]) -> bytes:
    """A state dict as safetensors; every tensor on its own, contiguous, on the CPU.

    The format has no complex numbers of 128 bits: they are stored as pairs (..., 2) of float64, named in its metadata.
    """
    tensors = {name: t.detach().cpu().contiguous().clone() for name, t in state.items()}
    pairs = [name for name, t in tensors.items() if t.dtype == torch.complex128]
    tensors |= {name: torch.view_as_real(tensors[name]) for name in pairs}
    return safetensors.torch.save(tensors, {_PAIRS: json.dumps(pairs)} if pairs else None)


def encode_state(state: Mapping[str, Any]) -> memoryview:
    """`state.pt` in memory, so that a full disk is met by our own writer."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    return buffer.getbuffer()


def load_model(path: Path) -> dict[str, Tensor]:
    """The state dict of a checkpoint directory."""
    try:
        with safetensors.safe_open(path / MODEL_FILE, "pt") as file:
            pairs = json.loads((file.metadata() or {}).get(_PAIRS, "[]"))
        loaded: dict[str, Tensor] = safetensors.torch.load_file(path / MODEL_FILE)
        return loaded | {name: torch.view_as_complex(loaded[name]) for name in pairs}
    except Exception as error:
        raise PacelineError(f"{path / MODEL_FILE} cannot be read", why=_first_line(error)) from error


def load_state(path: Path) -> dict[str, Any]:
    """`state.pt` of a checkpoint directory, read without running any code from it."""
    try:
        loaded: dict[str, Any] = torch.load(path / STATE_FILE, map_location="cpu", weights_only=True)
    except Exception as error:
        raise PacelineError(f"{path / STATE_FILE} cannot be read", why=_first_line(error)) from error
    return loaded


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
