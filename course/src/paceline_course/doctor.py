"""Does everything work here that the course needs? Each part is tried, not asked for."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paceline.parallel.placement import usable_cores
from paceline.pool.warm_ranks import RankFailure, RankTimeout, run_ranks
from paceline.records.errors import PacelineError
from paceline.tasks.data.obtain import whereabouts
from paceline_course.sandbox import quarantine
from paceline_course.sandbox.limits import Limits, free_user, gaps

_LIBRARIES = ("torch", "numpy", "jupyterlab", "jupytext", "nbclient", "ipykernel", "matplotlib")
_FREE_GIB = 2.0


@dataclass(frozen=True)
class Examined:
    """One part.

    Attributes:
        name: of the part.
        state: `ok`, `note` (works, with less), `no`.
        said: what was found.
    """

    name: str
    state: Literal["ok", "note", "no"]
    said: str


def examine() -> Iterator[Examined]:
    """Every part, one after the other; some take seconds."""
    yield Examined("python", "ok" if sys.version_info >= (3, 11) else "no", sys.version.split()[0])
    yield from _libraries()
    yield from _guarded("collectives", _collectives)
    yield from _guarded("ranks", _ranks)
    yield from _guarded("confinement", _confinement)
    yield from _guarded("quarantine", _quarantine)
    yield from _guarded("devices", _devices)
    yield from _guarded("data", _data)
    yield from _guarded("space", _space)


def _guarded(name: str, look: Callable[[], Examined]) -> Iterator[Examined]:
    try:
        yield look()
    except (RankFailure, RankTimeout, PacelineError, OSError) as error:
        yield Examined(name, "no", str(error).splitlines()[0])


def _libraries() -> Iterator[Examined]:
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        yield Examined("libraries", "no", f"missing: {', '.join(missing)}; pip install ./course")
        return
    shown = [f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES]
    yield Examined("libraries", "ok", ", ".join(shown))


def _collectives() -> Examined:
    from paceline.observe.probes.group_collectives import GroupCollectives

    if not GroupCollectives.missing():
        return Examined("collectives", "ok", "every collective can be watched")
    return Examined(
        "collectives",
        "no",
        "this torch does not tell of its collectives, which L3 and L4 count: pip install 'torch>=2.14'",
    )


def _ranks() -> Examined:
    run_ranks(_sum, 2, timeout_s=120)
    began = time.monotonic()
    if run_ranks(_sum, 2) != [1.0, 1.0]:
        return Examined("ranks", "no", "two ranks do not add up")
    took = time.monotonic() - began
    return Examined(
        "ranks", "ok", f"two processes over gloo on this machine, ready in {took:.1f} s; {usable_cores()} cores"
    )


def _sum() -> float:
    import torch
    import torch.distributed as dist

    value = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(value)
    return value.item()


def _confinement() -> Examined:
    with tempfile.TemporaryDirectory(prefix="paceline-doctor-") as folder:
        Path(folder).chmod(0o755)
        (user,) = run_ranks(os.getuid, 1, limits=Limits(Path(folder) / "work", user=free_user()))
    said = gaps()
    as_whom = f"answers run as user {user} in a folder of their own"
    alarming = free_user() is None
    return Examined("confinement", "note" if alarming else "ok", "; ".join([as_whom, *said]))


def _quarantine() -> Examined:
    missing = quarantine.gaps()
    if not missing:
        return Examined(
            "quarantine", "ok", "a grading has a network, processes and files of its own, which end with it"
        )
    return Examined("quarantine", "note", f"in a grading {'; '.join(missing)}")


def _devices() -> Examined:
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        return Examined("devices", "ok", "no GPU: all labs run on the CPU")
    names = {torch.cuda.get_device_name(index) for index in range(count)}
    return Examined("devices", "ok", f"{count} x {', '.join(sorted(names))}")


def _data() -> Examined:
    found = whereabouts("fashion-mnist").place
    if found is None:
        return Examined("data", "note", "no Fashion-MNIST: labs use drawn shapes; paceline data fetch fashion-mnist")
    return Examined("data", "ok", f"Fashion-MNIST: {found}")


def _space() -> Examined:
    free = shutil.disk_usage(Path.cwd()).free / 2**30
    enough = free >= _FREE_GIB
    return Examined(
        "space",
        "ok" if enough else "no",
        f"{free:.1f} GiB free here" + ("" if enough else f"; {_FREE_GIB:g} are needed"),
    )
