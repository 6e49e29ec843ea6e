"""Environment that makes workers on CPUs faster and changes no result: one thread each, and a malloc that keeps memory.

glibc gives big blocks back to the kernel as soon as they are freed: each above the mmap threshold by itself, and the
top of the heap by trimming. A training step frees and asks for the same activations every few milliseconds, so the
kernel takes the pages away, clears them and hands them out again: tens of thousands of page faults a step.

Measured with bench/allocator.py (2026-11-28: AMD EPYC, 2 cores, glibc 2.36, torch 2.14.1+cu130; FashionCNN,
bf16, channels_last, one thread; processor time of a step by default, then speed against that; medians of 5
interleaved rounds on a busy machine, so the second digit is noise):

  batch   default   trim only   trim + mmap threshold   trim + mmap max 0   page faults a step
     64     26 ms        0.69                    1.37                1.43     3254 -> 0
    128     56 ms        0.69                    1.57                1.46     7920 -> 0
    512    190 ms        0.64                    1.36                1.32    18866 -> 0
   1024    478 ms        0.82                    1.75                1.79    90577 -> 0

**All or nothing.** Any of these variables switches off glibc's own adaptation of its thresholds (mallopt(3)), so that
one alone can be slower than none: where the user has set a malloc variable, or brings another allocator, we set none.
`MALLOC_MMAP_MAX_=0` is preferred to `MALLOC_MMAP_THRESHOLD_`, whose documented limit is 32 MiB: a block above it that
finds no room in the heap goes back to the kernel at every use. `MALLOC_ARENA_MAX=1` showed no difference beyond noise:
on a CPU the backward pass runs in the thread that called it.

The price: memory that is freed stays with the process until it ends, and its peak was up to 10 % higher.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

TRIM_NEVER = 1 << 36
"""Bytes of free heap top (64 GiB) that are kept; the type is size_t, so this is legal on 64 bits."""

_MALLOC = (
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_MMAP_MAX_",
    "MALLOC_TOP_PAD_",
    "MALLOC_ARENA_MAX",
    "MALLOC_ARENA_TEST",
)
_OTHER_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc", "tbbmalloc", "hoard", "snmalloc")


@dataclass(frozen=True)
class Setting:
    """One environment variable for workers."""

    name: str
    value: str
    why: str


def cpu_settings(
    environment: Mapping[str, str],
    *,
    threads: int | None = 1,
    allocator: bool = True,
    system: str = sys.platform,
    libc: str | None = None,
) -> tuple[Setting, ...]:
    """Return variables to add to the environment of workers on CPUs; a variable that the user has set stays as it is.

    Args:
        environment: the user's.
        threads: OpenMP threads of a worker, 1 or more; None leaves the number to torch.
        allocator: False leaves malloc alone (training on accelerators gains nothing from it).
        system: `sys.platform` of the workers' machine.
        libc: the C library's name, "glibc" for glibc; None asks this machine.

    Returns:
        The settings; the variables' names are distinct.
    """
    settings = []
    if threads is not None and "OMP_NUM_THREADS" not in environment:
        settings.append(
            Setting("OMP_NUM_THREADS", str(threads), "so that workers do not fight for the cores of the machine")
        )
    if allocator and system == "linux" and _is_glibc(libc) and not _user_chose_malloc(environment):
        why = "so that big tensors' memory is kept instead of returned to the kernel at each step"
        settings.append(Setting("MALLOC_TRIM_THRESHOLD_", str(TRIM_NEVER), why))
        settings.append(Setting("MALLOC_MMAP_MAX_", "0", why))
    return tuple(settings)


def describe(settings: Iterable[Setting]) -> str:
    """The settings in one line, as a shell would set them; "none" when there are none."""
    return " ".join(f"{each.name}={each.value}" for each in settings) or "none"


@contextlib.contextmanager
def temporary_environment(added: Mapping[str, str]) -> Iterator[None]:
    """Add variables within the block; afterwards the environment is as before, whatever was set meanwhile."""
    before = dict(os.environ)
    os.environ.update(added)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


def _is_glibc(libc: str | None) -> bool:
    return (platform.libc_ver()[0] if libc is None else libc) == "glibc"


def _user_chose_malloc(environment: Mapping[str, str]) -> bool:
    preloaded = environment.get("LD_PRELOAD", "")
    return (
        any(name in environment for name in _MALLOC)
        or "glibc.malloc." in environment.get("GLIBC_TUNABLES", "")
        or any(name in preloaded for name in _OTHER_ALLOCATORS)
    )
