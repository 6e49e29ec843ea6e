"""Open IDX files, the format of the MNIST family.

The format (LeCun, Cortes, Burges, "The MNIST database"): two zero bytes, a type code, the number of dimensions,
one big-endian uint32 a dimension, then the elements in row-major order.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from paceline.records.errors import PacelineError

UINT8_CODE = 0x08
"""The only type code that is read here; images and labels of the whole family have it."""

MAX_DIMENSIONS = 32
"""What every numpy can hold; a larger number means that the file is no IDX file."""

_HINT = "fetch the data set again (`paceline data list` names them), or name another copy with --data-dir"


def open_idx(path: Path) -> np.ndarray:
    """The array in an IDX file, mapped into memory: nothing is read before it is used.

    All processes of a machine share the pages through the page cache. Writing into the array changes a private copy
    of the page, never the file.

    Returns:
        uint8, of the shape in the header: (samples, height, width) for images, (samples,) for labels.

    Raises:
        PacelineError: it cannot be read, is no IDX file of bytes, or is shorter or longer than its header says.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            shape = _shape(file.read(4 + 4 * MAX_DIMENSIONS), path)
        offset = 4 + 4 * len(shape)
        expected = offset + math.prod(shape)
        if size != expected:
            dimensions = " x ".join(str(length) for length in shape)
            raise PacelineError(
                f"{path} is {'truncated' if size < expected else 'longer than its header says'}",
                why=f"its header announces {dimensions} bytes, {expected:,} in all, and it has {size:,}",
                hint=_HINT,
            )
        # "c" (copy-on-write) counts as writable, so torch.from_numpy takes it without a warning or a copy.
        return np.asarray(np.memmap(path, dtype=np.uint8, mode="c", offset=offset, shape=shape))
    except OSError as error:
        raise PacelineError(f"cannot read {path}", why=error.strerror or str(error), hint=_HINT) from error


def _shape(header: bytes, path: Path) -> tuple[int, ...]:
    if len(header) < 4 or header[:3] != bytes((0, 0, UINT8_CODE)) or not 1 <= header[3] <= MAX_DIMENSIONS:
        found = header[:4].hex(" ") or "nothing"
        raise PacelineError(
            f"{path} is not an IDX file of bytes",
            why=f"it begins with {found}; 00 00 08 and a number of dimensions from 1 to {MAX_DIMENSIONS} are expected",
            hint=_HINT,
        )
    dimensions = header[3]
    if len(header) < 4 + 4 * dimensions:
        raise PacelineError(f"{path} is truncated", why="it ends within its header", hint=_HINT)
    return struct.unpack_from(f">{dimensions}I", header, 4)
