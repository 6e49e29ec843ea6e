"""What one device gives: measured over fresh seeds, for the target and for the learner's `baseline/`.

    python -m course.tests.proof.spread [--seeds 20] [--record DIR]

Runs the given train.py as it is, in one process, for each seed on data and weights of its own, and evaluates the saved
weights on samples that no program saw, as the grader does. Prints what belongs into rubric.toml, and writes
`course/assessment/kit/baseline/` (log.csv and report.md of the learner's own data) and, with --record, all numbers.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from paceline.records.rundir import write_atomic
from paceline_course.assess.box import read_weights
from paceline_course.assess.grader import OWN_DATA, machine
from paceline_course.assess.held import held
from paceline_course.assess.kit import JUDGED_SEED, kit_folder
from paceline_course.assess.oracle import right_answers
from paceline_course.assess.rubric import Rubric, load_rubric

_FIRST_DATA = 700_000
"""The first seed of data: far from the one that learners have."""


def train(arguments: Sequence[str], out: Path) -> None:
    """The given train.py, one process, one thread."""
    words = [sys.executable, str(kit_folder() / "train.py"), *arguments, "--out", str(out)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def levels(rubric: Rubric, batch: int, seeds: int) -> list[list[float]]:
    """Accuracy on judged samples after each epoch, for each seed, at the base rate and length.

    Args:
        rubric: sizes.
        batch: of one step.
        seeds: how many.
    """
    task = rubric.task
    found = []
    for seed in range(seeds):
        data_seed = _FIRST_DATA + seed
        flags = f"--batch {batch} --lr {task.base_rate} --epochs {task.base_epochs} --seed {1000 + seed}"
        with tempfile.TemporaryDirectory() as folder:
            train([*flags.split(), "--data-seed", str(data_seed)], Path(folder))
            curve = []
            for epoch in range(task.base_epochs):
                state = read_weights(Path(folder) / f"epoch-{epoch}.pt")
                if isinstance(state, str):
                    raise RuntimeError(state)
                right = right_answers("plain", state, task.judged_samples, data_seed + JUDGED_SEED)
                curve.append(right / task.judged_samples)
        found.append(curve)
        sys.stderr.write(f"\rbatch {batch}: {seed + 1} of {seeds} seeds, held {held(curve):.3f} ")
        sys.stderr.flush()
    sys.stderr.write("\n")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--record", type=Path, help="a folder for record.json")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rubric = load_rubric()
    small = levels(rubric, rubric.task.base_batch, options.seeds)
    large = levels(rubric, rubric.task.least_batch, options.seeds)
    found: dict[str, Any] = {
        "measured_at": f"{datetime.date.today()}",
        "command": f"python -m course.tests.proof.spread --seeds {options.seeds}",
        "machine": machine(),
        "small": _summary(small, rubric.task.base_batch),
        "large": _summary(large, rubric.task.least_batch),
    }
    print(f"[accuracy]\nmean = {found['small']['mean']}\ndeviation = {found['small']['deviation']}")  # noqa: T201
    print(f"seeds = {options.seeds}")  # noqa: T201
    if options.record is not None:
        options.record.mkdir(parents=True, exist_ok=True)
        write_atomic(options.record / "record.json", msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    write_baseline(kit_folder() / "baseline", rubric, found)


def _summary(curves: list[list[float]], batch: int) -> dict[str, Any]:
    values = [held(curve) for curve in curves]
    return {
        "batch": batch,
        "mean": round(statistics.mean(values), 4),
        "deviation": round(statistics.stdev(values), 4),
        "held": [round(value, 4) for value in values],
        "accuracy": [[round(value, 4) for value in curve] for curve in curves],
    }


def write_baseline(folder: Path, rubric: Rubric, found: dict[str, Any]) -> None:
    """What the given training does on the learner's own data: its log, and what it says."""
    task = rubric.task
    with tempfile.TemporaryDirectory() as scratch:
        train(["--data-seed", str(OWN_DATA)], Path(scratch))
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(scratch) / "log.csv", folder / "log.csv")
    with (folder / "log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    small, large = found["small"], found["large"]
    target = small["mean"] - rubric.accuracy.below * small["deviation"]
    lines = [
        "# What one device gives",
        "",
        f"`python train.py`: {task.samples:,} signals, batch {task.base_batch}, rate {task.base_rate}, "
        f"{task.base_epochs} epochs, one process with one thread ({found['machine']['processor']}).",
        "",
        f"| epoch | samples | loss | right of {task.eval_samples:,} | accuracy | seconds |",
        "|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {row['epoch']} | {int(row['samples']):,} | {float(row['loss']):.3f} | {row['right']} "
            f"| {int(row['right']) / int(row['counted']):.3f} | {float(row['seconds']):.1f} |"
            for row in rows
        ),
        "",
        f"Over {len(small['held'])} seeds, each with data of its own and judged on {task.judged_samples:,} others, the "
        f"accuracy that two epochs running hold is {_with_spread(small)}; with batch {large['batch']} and nothing else "
        f"changed it is {_with_spread(large)}.",
        "",
        f"Your chosen configuration has to hold {target:.3f}, the mean of one device less {rubric.accuracy.below:g} "
        "standard deviations.",
        "",
    ]
    write_atomic(folder / "report.md", "\n".join(lines).encode())


def _with_spread(found: dict[str, Any]) -> str:
    return f"{found['mean']:.3f} with a standard deviation of {found['deviation']:.3f}"


if __name__ == "__main__":
    main()
