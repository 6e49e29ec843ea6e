"""Scenes for bench/plan_speed.py, and how their steps are timed: by the product's own training loop in warm ranks.

A scene is a training whose computing is emulated by sleeping (bench/tasks/emulated.py), the runs that a user would make
to plan it, and settings that those runs do not cover. Scenes are drawn at random from a seed, so nobody chose them to
suit the model. Every setting is timed in two rounds, in random order, so that a slow minute of the machine does not
fall on one setting alone.

`paceline train` starts processes for every run, about 4 s each. Here ranks are forked from a warm server, and one group
of them goes through all settings with its number of workers; each run is `train.setup.build` and the training loop, and
its step times are read from the run directory, as `paceline plan speed` reads them.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.plan.rows import timing_of
from paceline.pool.warm_ranks import run_ranks
from paceline.studies.probe import SIZES

TASK = Path(__file__).resolve().parent / "tasks" / "emulated.py"
SETS = {"calibration": (1, 14), "first": (2, 18), "unseen": (3, 15)}
"""Seed and number of scenes of each set. The error term was made from `calibration`. Its first test was `first`; what
that showed widened intervals of workers that take turns where no run's did. Nothing was made from `unseen`."""
ROUNDS = 2
STEPS = 35
"""Steps per run; the first 10 are discarded, as in `paceline plan speed`."""
PROBE_S = 10.0
PROBED = (2, 3, 4)
MOST = 8
REALTIME = "PACELINE_BENCH_REALTIME"
"""Set: ranks are scheduled before all other processes (SCHED_RR), so that a shared machine can be measured on."""
_DESIGNS = (((1, 2, 4), 0.5), ((1, 2), 0.35), ((1, 2, 3), 0.15))
"""Numbers of workers that are fitted, and how often; 3 and more take turns on 2 cores."""


@dataclass(frozen=True)
class Scene:
    """A training to be planned.

    Attributes:
        name: of its record.
        fixed_ms, sample_ms: computing of a micro-batch, and of each sample of it.
        parameters: of the model, four bytes each.
        fitted: (workers, samples of each) of the runs that a plan is made from.
        unseen: likewise, of the settings that are predicted.
    """

    name: str
    fixed_ms: float
    sample_ms: float
    parameters: int
    fitted: list[tuple[int, int]]
    unseen: list[tuple[int, int]]

    @property
    def emulated(self) -> str:
        """For the task, in PACELINE_EMULATED."""
        return f"{self.fixed_ms:g},{self.sample_ms:g},{self.parameters}"


def scenes(kind: str) -> list[Scene]:
    """All scenes of a set."""
    seed, count = SETS[kind]
    generator = random.Random(seed)
    return [_drawn(f"{kind}-{number:02d}", generator) for number in range(count)]


def _drawn(name: str, generator: random.Random) -> Scene:
    def between(low: float, high: float) -> float:
        return float(low * (high / low) ** generator.random())

    fixed, sample, parameters = between(3, 30), between(0.05, 0.8), int(between(2e5, 1e7))
    smallest = generator.choice([b for b in (2, 4, 8, 16) if 16 * b * sample <= 100])
    workers = generator.choices([w for w, _ in _DESIGNS], [often for _, often in _DESIGNS])[0]
    micros = [smallest, 4 * smallest, 16 * smallest]
    between_them = [(k, b * smallest) for k in range(1, max(workers) + 1) for b in (2, 8)]
    more = [(k, b * smallest) for k in range(max(workers) + 1, MOST + 1) for b in (1, 2, 4, 8, 16)]
    larger = [(k, b * smallest) for k in workers for b in (32, 64)]
    unseen = generator.sample(between_them, 2) + generator.sample(more, 3) + generator.sample(larger, 2)
    return Scene(
        name, round(fixed, 2), round(sample, 3), parameters, [(k, b) for k in workers for b in micros], sorted(unseen)
    )


def measure(scene: Scene, seed: int) -> dict[str, Any]:
    """Time all settings of a scene, and all-reduces.

    Returns:
        The scene's record: what it is, `runs` with the times of single steps, `probed` all-reduces, and the load.
    """
    began = time.time()
    load = Load()
    probed = [row for workers in PROBED for row in _probed(workers)]
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="paceline-speed-", dir=_memory()) as scratch:
        for number, workers, micros in _blocks(scene, seed):
            folders = [Path(scratch) / f"{number}-{workers}-{micro}" for micro in micros]
            told = [(micro, str(folder)) for micro, folder in zip(micros, folders, strict=True)]
            run_ranks(trained, workers, scene.emulated, told, timeout_s=600.0)
            for folder in folders:
                runs.append({"round": number, **_times(folder)})
                shutil.rmtree(folder)
    return {
        "scene": asdict(scene),
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(began)),
        "took_s": round(time.time() - began, 1),
        "load": load.so_far(),
        "probed": probed,
        "runs": runs,
    }


def _blocks(scene: Scene, seed: int) -> Iterator[tuple[int, int, list[int]]]:
    """Round, workers, and samples of each: every setting once a round, in random order."""
    generator = random.Random(seed)
    settings = [*scene.fitted, *scene.unseen]
    for number in range(ROUNDS):
        groups = sorted({workers for workers, _ in settings})
        generator.shuffle(groups)
        for workers in groups:
            micros = [micro for k, micro in settings if k == workers]
            generator.shuffle(micros)
            yield number, workers, micros


def _times(folder: Path) -> dict[str, Any]:
    timing = timing_of(folder)
    setting = timing.setting
    return {
        "workers": setting.workers,
        "micro": setting.micro,
        "size_bytes": timing.size_bytes,
        "step_s": timing.step_s,
        "spread": timing.spread,
        "times": None if setting.workers > 1 else np.round(timing.times, 6).tolist(),
    }


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # checkpoints are not what is timed


# ---- on the ranks


def trained(emulated: str, runs: Sequence[tuple[int, str]]) -> None:
    """Train each setting in turn: (samples of each worker, run directory)."""
    import torch.distributed as dist

    from paceline.parallel.rank_context import StopRequest, init_rank_context
    from paceline.records.rundir import RunDir
    from paceline.train.config import TrainConfig
    from paceline.train.setup import build
    from paceline.train.worker import finish

    os.environ["PACELINE_EMULATED"] = emulated
    context = init_rank_context(["bench/plan_speed.py"])
    for micro, folder in runs:
        config = TrainConfig(
            task=str(TASK), workers=str(context.env.world), global_batch=context.env.world * micro, steps=STEPS, lr=0.0,
            eval_every="100000", checkpoint_every="100000", noise_every=0,
        )  # fmt: skip
        finish(build(config, context, RunDir(folder), StopRequest()), None)
        dist.barrier()


def _probed(workers: int) -> list[tuple[int, int, float]]:
    medians = run_ranks(probed, workers, PROBE_S / len(PROBED), timeout_s=120.0)[0]
    return [(workers, size, seconds) for size, seconds in sorted(medians.items())]


def probed(seconds: float) -> dict[int, float]:
    """Medians of timed all-reduces by their size, as the probe of `paceline plan speed` takes them."""
    import statistics

    from paceline.parallel.rank_context import StopRequest, init_rank_context
    from paceline.studies.probe_worker import measure as all_reduces

    times = all_reduces(list(SIZES), seconds, init_rank_context(["bench/plan_speed.py"]), StopRequest())
    return {size: statistics.median(each) for size, each in times.items()}


# ---- the machine's load


def step_ahead() -> None:
    """Let other processes of the machine wait for this one and for what it starts: else their load would be timed.

    Ranks inherit it with all their threads, those of gloo among them, which it would be too late for later.

    Raises:
        PermissionError: that takes root.
    """
    os.environ[REALTIME] = "1"
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


class Load:
    """CPU use of the whole machine from now on, in cores."""

    def __init__(self) -> None:
        self._began, self._ticks, self._own = time.monotonic(), _ticks(), sum(os.times()[:4])

    def so_far(self) -> dict[str, Any]:
        """Busy cores of all processes, and those of ours (ranks are not counted before they ended)."""
        spent = time.monotonic() - self._began
        busy, steal = (now - then for now, then in zip(_ticks(), self._ticks, strict=True))
        second = os.sysconf("SC_CLK_TCK")
        return {
            "load_average": list(os.getloadavg()),
            "busy_cores": round(busy / second / spent, 2),
            "stolen_cores": round(steal / second / spent, 3),
            "realtime": bool(os.environ.get(REALTIME)),
        }


def _ticks() -> tuple[int, int]:
    """Of processors, busy and stolen; zeros where that is not Linux."""
    try:
        fields = [int(each) for each in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
    except OSError:
        return 0, 0
    return sum(fields) - fields[3] - fields[4], fields[7]
