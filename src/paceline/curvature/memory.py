"""Running out of memory, told as what it is and with what helps.

torch has a class for it on CUDA devices; on a CPU it is a plain RuntimeError, as a missing derivative is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from paceline.records.errors import Exit, PacelineError

_ON_CPU = "can't allocate memory"


def is_out_of_memory(error: Exception) -> bool:
    """Whether that is why torch failed."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or _ON_CPU in str(error)


@contextlib.contextmanager
def enough_for(samples: int) -> Iterator[None]:
    """Work on a chunk of so many samples.

    Raises:
        PacelineError: there is not enough memory for it.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise PacelineError(
            f"there is not enough memory for {samples:,} samples at once",
            why=(str(error).strip().splitlines() or [type(error).__name__])[0],
            hint="fewer at once: paceline landscape --chunk; or free memory on this machine",
            exit_code=Exit.FAILED,
        ) from error
