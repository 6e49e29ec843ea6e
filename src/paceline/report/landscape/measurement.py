"""A measurement of `paceline landscape` as it stands on disk: run.json, result.json and landscape.npz."""

from __future__ import annotations

import shlex
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paceline.records.errors import PacelineError
from paceline.records.landscape import LandscapeResult, arrays_path, read_result
from paceline.records.rundir import RunDir, read_info
from paceline.records.schema import RunInfo

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Landscape:
    """What a measurement left behind.

    Attributes:
        path: its run directory.
        info: run.json.
        result: result.json.
        arrays: landscape.npz; names and shapes are listed in docs/reference/landscape.md.
    """

    path: Path
    info: RunInfo
    result: LandscapeResult
    arrays: dict[str, Floats]

    def columns(self, prefix: str, axes: tuple[str, ...]) -> dict[str, Floats]:
        """The loss and the metrics of a slice by name, the loss first: arrays `prefix_*` that are none of its axes."""
        start = f"{prefix}_"
        found = {name[len(start) :]: array for name, array in self.arrays.items() if name.startswith(start)}
        named = {name: found[name] for name in sorted(found) if name not in axes and name != "loss"}
        return ({"loss": found["loss"]} if "loss" in found else {}) | named


def load_landscape(path: Path | str) -> Landscape:
    """Read a measurement.

    Raises:
        PacelineError: not a run directory of this verb, without a result, damaged, or of a newer schema.
    """
    run = RunDir(path)
    info = read_info(run.path)
    if info.verb != "landscape":
        raise PacelineError(f"{path} is a run of paceline {info.verb}, not of paceline landscape")
    result = read_result(run)
    return Landscape(run.path, info, result, _read_arrays(run))


_AXES = {
    "surface": ("surface_y", "surface_x"),
    "line": ("line_t",),
    "interpolation": ("interpolation_t",),
    "trajectory": ("trajectory_step",),
    "density": ("density_grid",),
}
"""Of each group of arrays, those that give its shape."""


_UNREADABLE = (OSError, ValueError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)
"""What numpy and zipfile raise over a file that is damaged somewhere; sizes may be wrong, too."""


def _read_arrays(run: RunDir) -> dict[str, Floats]:
    path = arrays_path(run)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name], dtype=np.float64) for name in file.files}
    except _UNREADABLE as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise PacelineError(
            f"{path} cannot be read",
            why=reason,
            hint=f"paceline landscape --resume {shlex.quote(str(run.path))} writes it again from what is kept",
        ) from error
    for group, axes in _AXES.items():
        _check_group(path, group, axes, arrays)
    return arrays


def _check_group(path: Path, group: str, axes: tuple[str, ...], arrays: dict[str, Floats]) -> None:
    if f"{group}_loss" not in arrays and f"{group}_value" not in arrays:
        return
    shape = tuple(arrays[axis].shape[0] if axis in arrays and arrays[axis].ndim == 1 else -1 for axis in axes)
    own = {f"{group}_xy": (*shape, 2)}
    for name, array in arrays.items():
        if not name.startswith(f"{group}_") or name in axes or name == "trajectory_variance":
            continue
        if array.shape != own.get(name, shape):
            raise PacelineError(f"{path} is damaged", why=f"{name} has the shape {array.shape}, not {shape}")
