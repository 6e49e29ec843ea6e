"""`paceline landscape` beside the obvious single-process loop: a surface of the CNN, and the top 5 eigenvalues.

    python bench/landscape.py            # a 5 x 5 grid on 1,000 images, eigenvalues on 250, 3 rounds: some 10 minutes
    python bench/landscape.py --full     # 25 x 25 on 10,000 and 2,000: 90 minutes a round; leave the machine alone

Contestants, each one command in processes of its own, in an order shuffled anew each round: the tool with 1 and 2
workers (one thread each), and `plain_landscape.py` with 1 and 2 threads. All look at the same weights, samples, batches
and directions, and the numbers must agree, or the run fails. Reported are

- *all of it*: from the command to the numbers on disk, starting Python included; ours also draws the page and pictures
- *the work*: the surface and the eigenvalues alone; ours finds one weighted eigenvalue besides, which is left in

The small grid shows that everything works; starting takes a large part of it, so its first ratio means little. The full
one writes records/<date>_landscape, a file a measurement as they come, so that a stop loses one at most: the same call
goes on, `--folder` names a record of another day.

The loop is what a careful person writes first: contiguous memory, fp32, one process, nothing kept between points. A
good part of our gain is the memory's layout and not the workers (docs/decisions/0011): so one worker stands here too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datasets_here import REAL, real_root
from harness import command_line, environment, ratio_of_medians, record_folder, rounds_of, write_record
from paceline.records.rundir import write_atomic

BENCH = Path(__file__).resolve().parent
CONTESTANTS = {
    "paceline-1": "paceline landscape, 1 worker",
    "paceline-2": "paceline landscape, 2 workers",
    "loop-1": "obvious loop, 1 thread",
    "loop-2": "obvious loop, 2 threads",
}
GATES = (("paceline-2", "loop-1", 1.7), ("paceline-1", "loop-1", 1.0))
"""At least so many times as fast."""


@dataclass(frozen=True)
class Size:
    """How much is computed.

    Attributes:
        points: along each direction.
        samples, curvature_samples: training images.
        chunk: images at once.
        top, tolerance: eigenvalues and their relative accuracy.
    """

    points: int
    samples: int
    curvature_samples: int
    chunk: int = 250
    top: int = 5
    tolerance: float = 1e-3


SMALL, FULL = Size(5, 1_000, 250), Size(25, 10_000, 2_000)


@dataclass(frozen=True)
class Taken:
    """One measurement.

    Attributes:
        all_s: from the command to its end.
        surface_s, eigenvalues_s: these parts alone.
        loss: (points, points).
        eigenvalues: (top,) descending.
    """

    all_s: float
    surface_s: float
    eigenvalues_s: float
    loss: np.ndarray
    eigenvalues: np.ndarray

    @property
    def work_s(self) -> float:
        """Without what stands around the parts."""
        return self.surface_s + self.eigenvalues_s

    def write(self, path: Path) -> None:
        """As JSON."""
        body = dataclasses.asdict(self) | {"loss": self.loss.tolist(), "eigenvalues": self.eigenvalues.tolist()}
        write_atomic(path, json.dumps(body).encode() + b"\n")

    @classmethod
    def read(cls, path: Path) -> Taken:
        """What `write` wrote."""
        body = json.loads(path.read_text(encoding="utf-8"))
        return cls(**body | {"loss": np.array(body["loss"]), "eigenvalues": np.array(body["eigenvalues"])})


class Stage:
    """The weights and directions that all look at, and how each contestant is called.

    Args:
        folder: for everything that is written.
        data: root of Fashion-MNIST in torchvision's layout.
        size: how much is computed.
        steps: of the training that gives the weights; with fewer the Hessian has more eigenvalues of like size.
    """

    def __init__(self, folder: Path, data: Path, size: Size, steps: int = 469) -> None:
        self.folder, self.data, self.size = folder, data, size
        self._number = 0
        train = ["train", "fashion-mnist", "--steps", str(steps), "--data-dir", str(data)]
        paceline([*train, "--run-dir", str(folder / "run"), "--format", "json"])
        first = folder / "first"  # a line of two points: cheap, and it leaves the directions behind
        least = ["--measure", "line", "--points", "2", "--samples", "2", "--chunk", "2"]
        paceline([*self._landscape(1, first), *least])
        self.directions = first / "parts" / "directions.npy"
        (self.weights,) = (folder / "run" / "checkpoints").glob("*/model.safetensors")

    def _landscape(self, workers: int, run_dir: Path) -> list[str]:
        place = ["--run-dir", str(run_dir), "--data-dir", str(self.data), "--workers", str(workers)]
        return ["landscape", str(self.folder / "run"), *place, "--format", "json"]

    def measure(self, name: str) -> Taken:
        """One contestant, once."""
        kind, many = name.split("-")
        self._number += 1
        place = self.folder / f"{self._number}-{name}"
        return self._paceline(int(many), place) if kind == "paceline" else self._loop(int(many), place)

    def _paceline(self, workers: int, place: Path) -> Taken:
        size = self.size
        flags = ["--measure", "surface,eigenvalues", "--points", str(size.points), "--samples", str(size.samples)]
        flags += ["--curvature-samples", str(size.curvature_samples), "--chunk", str(size.chunk)]
        flags += ["--top", str(size.top), "--tolerance", str(size.tolerance)]
        began = time.perf_counter()
        paceline([*self._landscape(workers, place), *flags])
        all_s = time.perf_counter() - began
        result = json.loads((place / "result.json").read_text(encoding="utf-8"))
        if not result["eigenvalues"]["converged"]:
            raise RuntimeError(f"eigenvalues have not converged: {result['eigenvalues']['note']}")
        with np.load(place / "landscape.npz") as arrays:
            loss, values = arrays["surface_loss"], arrays["eigenvalues"]
        return Taken(all_s, result["seconds"]["surface"], result["seconds"]["eigenvalues"], loss, values)

    def _loop(self, threads: int, place: Path) -> Taken:
        size = self.size
        place.mkdir()
        job = {
            "weights": str(self.weights),
            "raw": str(self.data / "FashionMNIST" / "raw"),
            "directions": str(self.directions),
            "points": size.points,
            "span": 1.0,
            "samples": size.samples,
            "curvature_samples": size.curvature_samples,
            "batch": size.chunk,
            "top": size.top,
            "tolerance": size.tolerance,
            "out": str(place / "arrays.npz"),
        }
        (place / "job.json").write_text(json.dumps(job), encoding="utf-8")
        began = time.perf_counter()
        said = call([sys.executable, str(BENCH / "plain_landscape.py"), str(place / "job.json")], threads)
        all_s = time.perf_counter() - began
        seconds = json.loads(said)
        with np.load(place / "arrays.npz") as arrays:
            loss, values = arrays["surface_loss"], arrays["eigenvalues"]
        return Taken(all_s, seconds["surface"], seconds["eigenvalues"], loss, values)


def paceline(arguments: Sequence[str]) -> str:
    """Run the tool; what it printed."""
    return call([sys.executable, "-m", "paceline", *arguments], threads=1)


def call(command: Sequence[str], threads: int) -> str:
    """Run a command with so many threads a process, and with the system's own allocator settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    env = inherited | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} ... ended with {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def disagreement(taken: Mapping[str, Taken]) -> str:
    """Where contestants' numbers differ by more than fp32 and the tolerance explain; empty when nowhere.

    Losses may differ by 0.1 %, eigenvalues by 1 %: the loop stops at another estimate of its own error.
    """
    (first, one), *others = taken.items()
    for name, other in others:
        for what, limit in (("loss", 1e-3), ("eigenvalues", 1e-2)):
            here, there = getattr(one, what), getattr(other, what)
            if here.shape != there.shape:
                return f"{what} of {first} has the shape {here.shape}, of {name} {there.shape}"
            worst = float(np.max(np.abs(here - there) / np.abs(here)))
            if not worst <= limit:
                return f"{what} of {first} and {name} differ by {worst:.2g}, more than {limit:g}"
    return ""


def table(found: Mapping[str, Sequence[Taken]]) -> list[str]:
    """Medians of each contestant as lines of a Markdown table."""
    lines = ["| contestant | all of it, s | the work, s | surface, s | eigenvalues, s |", "|---|---|---|---|---|"]
    for name, many in found.items():
        columns = ("all_s", "work_s", "surface_s", "eigenvalues_s")
        shown = [f"{statistics.median(getattr(one, column) for one in many):.1f}" for column in columns]
        lines.append(f"| {CONTESTANTS[name]} | {' | '.join(shown)} |")
    return lines


def gate_lines(found: Mapping[str, Sequence[Taken]]) -> list[str]:
    """Whether each gate is met, by both times; with an interval where there are 3 rounds and more."""
    lines = []
    for fast, slow, least in GATES:
        if fast not in found or slow not in found:
            continue
        said = []
        for what, column in (("all of it", "all_s"), ("the work", "work_s")):
            top = [getattr(one, column) for one in found[slow]]
            bottom = [getattr(one, column) for one in found[fast]]
            ratio = statistics.median(top) / statistics.median(bottom)
            shown = str(ratio_of_medians(top, bottom)) if len(top) >= 3 else f"{ratio:.3f}"
            said.append(f"{what} {shown} {'meets' if ratio >= least else 'FALLS SHORT OF'} {least:g}")
        lines.append(f"{CONTESTANTS[fast]}, times as fast as the {CONTESTANTS[slow]}: {'; '.join(said)}")
    return lines


def as_record(found: Mapping[str, Sequence[Taken]]) -> dict[str, Any]:
    """Every measurement, arrays left out."""
    columns = ("all_s", "work_s", "surface_s", "eigenvalues_s")
    return {
        name: {column: [getattr(one, column) for one in many] for column in columns} for name, many in found.items()
    }


def carry_out(names: Sequence[str], rounds: int, folder: Path, stage: Callable[[], Stage]) -> dict[str, list[Taken]]:
    """Every contestant once a round, in an order shuffled anew; what stands in the folder already is read."""
    found: dict[str, list[Taken]] = {name: [] for name in names}
    made: list[Stage] = []
    for number, order in enumerate(rounds_of(names, rounds, seed=0)):
        for name in order:
            path = folder / "measurements" / f"{number}-{name}.json"
            if not path.exists():
                made = made or [stage()]
                made[0].measure(name).write(path)
            found[name].append(Taken.read(path))
            taken = found[name][-1]
            parts = f"surface {taken.surface_s:.1f} s, eigenvalues {taken.eigenvalues_s:.1f} s"
            print(f"  {CONTESTANTS[name]}: {taken.all_s:.1f} s ({parts})", flush=True)
        print(f"round {number + 1} of {rounds} done", flush=True)
    return found


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the size of the claim")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS), help="contestants")
    parser.add_argument("--folder", type=Path, help="of the measurements; with --full records/<date>_landscape")
    parser.add_argument("--data-dir", type=Path, help="where Fashion-MNIST is")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds has to be 1 or more")
    return options


def main() -> None:
    """Measure, check, print; write a record of the full size."""
    options = options_of()
    size = FULL if options.full else SMALL
    with tempfile.TemporaryDirectory(prefix="paceline-landscape-") as scratch:
        data = real_root(options.data_dir)
        facts = environment(data=REAL, rounds=options.rounds, size=dataclasses.asdict(size))
        folder = options.folder or (record_folder("landscape") if options.full else Path(scratch) / "record")
        try:
            found = carry_out(options.only, options.rounds, folder, lambda: Stage(Path(scratch), data, size))
        except RuntimeError as error:
            sys.exit(f"error: {error}\n  next: what was measured is in {folder}; the same call goes on")
    wrong = disagreement({name: many[-1] for name, many in found.items()})
    if wrong:
        sys.exit(f"error: the contestants do not compute the same: {wrong}")
    lines = [f"Rounds: {options.rounds}.", "", *table(found), "", *(f"- {line}" for line in gate_lines(found))]
    print("\n".join(lines))
    if options.full:
        result = {
            "command": command_line(),
            "environment": facts,
            "seconds": as_record(found),
            "gates": gate_lines(found),
        }
        write_record(folder, result, "\n".join(["# Landscape", "", *lines, ""]))
        print(f"written: {folder}")


if __name__ == "__main__":
    main()
