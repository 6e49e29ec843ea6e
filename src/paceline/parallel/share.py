"""One copy of the data on a machine, whatever the number of ranks.

Every rank builds a task's arrays by itself; without this a machine with eight ranks would hold them eight times. The
first rank of each machine puts its arrays into anonymous memory (memfd), which the others map; there is no file that
a killed run could leave behind. Mappings are private: a rank that writes gets its own copy of the page.
"""

from __future__ import annotations

import mmap
import os
import sys

import torch
from torch import Tensor

from paceline.parallel.placement import RankEnv
from paceline.parallel.reduce import all_objects

WORTH_BYTES = 8 * 1024 * 1024
"""Less than this is not worth the trouble."""


def share_on_machine(tensors: list[Tensor], env: RankEnv) -> list[Tensor]:
    """The same values, in memory that all ranks of a machine share; every rank of the job calls this together.

    Where that is not possible (not Linux, no access to the first rank's memory) every rank keeps its own.

    Args:
        tensors: on the CPU, equal on all ranks of a machine.
        env: this rank's place.
    """
    if env.local_world == 1:
        return tensors
    leads = env.local_rank == 0
    files = _publish(tensors) if leads else []
    pid, numbers = all_objects((os.getpid(), files))[env.rank - env.local_rank]
    mapped: list[Tensor] | None
    try:
        mapped = [_map(f"/proc/{pid}/fd/{number}", tensor) for number, tensor in zip(numbers, tensors, strict=True)]
    except (OSError, ValueError):
        mapped = None
    outcomes = all_objects(mapped is not None)  # also: nobody closes before everybody has mapped
    for file in files:
        os.close(file)
    return mapped if mapped is not None and all(outcomes) else tensors


def _publish(tensors: list[Tensor]) -> list[int]:
    if sys.platform != "linux":
        return []
    files: list[int] = []
    try:
        for tensor in tensors:
            file = os.memfd_create("paceline-data", os.MFD_CLOEXEC)
            files.append(file)
            raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
            os.ftruncate(file, raw.nbytes)
            with mmap.mmap(file, raw.nbytes) as target:
                target[:] = raw.data
    except OSError:  # no memory for a second copy, however short
        for file in files:
            os.close(file)
        return []
    return files


def _map(path: str, like: Tensor) -> Tensor:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        memory = mmap.mmap(handle, like.numel() * like.element_size(), access=mmap.ACCESS_COPY)
    finally:
        os.close(handle)
    return torch.frombuffer(memory, dtype=like.dtype).view(like.shape)
