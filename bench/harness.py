"""What every benchmark here shares: blocks in turn, an interval on a ratio, the environment, and the record."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.records.rundir import write_atomic

BENCH = Path(__file__).resolve().parent
RECORDS = BENCH / "records"
PACKAGES = ("torch", "torchvision", "numpy", "lightning-fabric", "accelerate", "paceline")


@dataclass(frozen=True)
class Interval:
    """A value and a 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def ratio_of_medians(
    top: Sequence[float], bottom: Sequence[float], *, resamples: int = 4000, seed: int = 0
) -> Interval:
    """median(top) / median(bottom) with a percentile bootstrap interval (Efron and Tibshirani 1993, chapter 13).

    Args:
        top, bottom: (blocks,) each, of the same rounds: top[i] and bottom[i] were measured one after the other, so
            rounds are resampled as pairs and slow stretches of the machine cancel.
        resamples: bootstrap samples.

    Raises:
        ValueError: different lengths, fewer than 3 blocks, or a value that is not above 0.
    """
    pairs = np.array([top, bottom], dtype=np.float64) if len(top) == len(bottom) else np.empty((2, 0))
    if pairs.shape[1] < 3 or not (pairs > 0).all():
        raise ValueError("an interval needs at least 3 pairs of positive numbers")
    chosen = np.random.default_rng(seed).integers(pairs.shape[1], size=(resamples, pairs.shape[1]))
    ratios = np.median(pairs[0][chosen], axis=1) / np.median(pairs[1][chosen], axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return Interval(float(np.median(pairs[0]) / np.median(pairs[1])), float(low), float(high))


def rounds_of(names: Sequence[str], rounds: int, seed: int) -> Iterator[list[str]]:
    """All names once a round, in an order that is shuffled anew each round, the same for the same seed."""
    generator = random.Random(seed)
    for _ in range(rounds):
        order = list(names)
        generator.shuffle(order)
        yield order


def steps_for(seconds: float, step_s: float) -> int:
    """Steps that fill a block of `seconds`, at least 2."""
    return max(2, round(seconds / step_s))


def interleave(
    names: Sequence[str],
    rounds: int,
    measure: Callable[[str], float],
    *,
    seed: int = 0,
    on_round: Callable[[int], None] | None = None,
) -> dict[str, list[float]]:
    """Measure every name once a round.

    Returns:
        name -> (rounds,) what `measure` returned, in the order of rounds.
    """
    found: dict[str, list[float]] = {name: [] for name in names}
    for number, order in enumerate(rounds_of(names, rounds, seed)):
        for name in order:
            found[name].append(measure(name))
        if on_round is not None:
            on_round(number)
    return found


def spread(values: Sequence[float]) -> tuple[float, float]:
    """First and third quartile; the value itself twice when there is only one."""
    if len(values) < 2:
        return values[0], values[0]
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, third


def _first(path: str, key: str) -> str | None:
    try:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            if line.startswith(key):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass  # not Linux
    return None


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=BENCH, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def environment(**facts: Any) -> dict[str, Any]:
    """On what and with what it is measured."""
    flags = set((_first("/proc/cpuinfo", "flags") or "").split())
    memory = _first("/proc/meminfo", "MemTotal")
    return {
        "measured_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": _first("/proc/cpuinfo", "model name") or platform.processor(),
        "cpu_family_model": [_first("/proc/cpuinfo", "cpu family"), _first("/proc/cpuinfo", "model\t")],
        "cpu_flags": sorted(flags & {"avx2", "avx512f", "avx512_bf16", "amx_bf16", "hypervisor"}),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": memory,
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in PACKAGES},
        "load_average_before": list(os.getloadavg()),
        "git_commit": _git("rev-parse", "HEAD"),
        "git_dirty": bool(_git("status", "--porcelain")),
        **facts,
    }


def environment_lines(found: Mapping[str, Any]) -> list[str]:
    """The environment as a list for README.md."""
    return [f"- {name}: {value}" for name, value in found.items()]


def record_folder(name: str, root: Path = RECORDS) -> Path:
    """`<root>/<today>_<name>`; made when something is written into it."""
    return root / f"{datetime.date.today()}_{name}"


def write_record(folder: Path, result: Mapping[str, Any], readme: str) -> None:
    """result.json and README.md, each whole or not at all."""
    write_atomic(folder / "result.json", json.dumps(result, indent=2).encode() + b"\n")
    write_atomic(folder / "README.md", readme.encode())


def command_line(module: str | None = None) -> list[str]:
    """How this benchmark was called, without this machine's paths; `module` where it was called with -m."""
    options = ["DIR" if Path(option).is_absolute() else option for option in sys.argv[1:]]
    called = ["-m", module] if module is not None else [f"bench/{Path(sys.argv[0]).name}"]
    return ["python", *called, *options]
