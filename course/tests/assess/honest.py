"""An honest learner: trains all configurations in a folder, measures, and fills in answers.toml from what is there.

    python -m course.tests.assess.honest FOLDER

Everything is read from runs/*/log.csv, comm.csv, compute.csv and config.toml, by formulae of the labs. Only what
hang.txt shows is looked up, since reading it takes a person.
"""

from __future__ import annotations

import csv
import math
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from paceline_course.assess.accuracy import gradient_bytes
from paceline_course.assess.held import held, reached
from paceline_course.assess.planted import planted
from paceline_course.assess.rubric import load_rubric
from paceline_course.assess.task_folder import read_state

Row = dict[str, float]
_CHANGE = ("large", "large-longer", "epochs")


def torchrun(folder: Path, workers: int, *words: str) -> None:
    """As the task says it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, check=False, env=environment, capture_output=True, text=True)
    # gloo aborts a process now and then when all is done and written; the grader ends processes itself.
    if done.returncode and "terminate called without an active exception" not in done.stderr:
        raise RuntimeError(done.stderr[-2000:])


def rows_of(path: Path) -> list[Row]:
    """A table of numbers."""
    with path.open(newline="") as file:
        return [{k: float(v) for k, v in row.items() if v != "all_reduce"} for row in csv.DictReader(file)]


def train(folder: Path, name: str, workers: int, seed: int | None = None) -> list[float]:
    """The accuracy after each epoch of a configuration, trained where it is not there yet."""
    out = f"runs/{name}" if seed is None else f"more/{name}-{seed}"
    if not (folder / out / "log.csv").exists():
        words = ["train.py", "--config", "config.toml", "--name", name, "--out", out]
        torchrun(folder, workers, *words, *([] if seed is None else ["--seed", str(seed)]))
    return [row["right"] / row["counted"] for row in rows_of(folder / out / "log.csv")]


def solve(folder: Path) -> dict[str, dict[str, Any]]:
    """The answers."""
    rubric = load_rubric()
    config = tomllib.loads((folder / "config.toml").read_text())
    runs = {run["name"]: run for run in config["runs"]}
    chosen, target = config["chosen"], rubric.accuracy.target
    curves = {name: train(folder, name, run["workers"]) for name, run in runs.items()}
    needed = {name: at for name, curve in curves.items() if (at := reached(curve, target)) is not None}
    first, second = [
        [100 * held(train(folder, name, runs[name]["workers"], seed)) for seed in (0, 1, 2)]
        for name in (chosen, "large")
    ]
    spread = math.sqrt(np.var(first, ddof=1) / 3 + np.var(second, ddof=1) / 3)
    points = float(np.mean(first) - np.mean(second))
    factor = runs[chosen]["batch"] / rubric.task.base_batch
    shown = planted(read_state(folder).hang_seed)
    return {
        "rates": {
            "steps_an_epoch": math.ceil(rubric.task.samples / runs[chosen]["batch"]),
            "linear": rubric.task.base_rate * factor,
            "sqrt": rubric.task.base_rate * math.sqrt(factor),
        },
        "target": {"epoch": reached(curves[chosen], target) if chosen in needed else -1},
        "cheapest": {"run": min(needed, key=needed.__getitem__)},
        "bytes": {"gradient": gradient_bytes(), "ring": gradient_bytes() * 2 * 7 / 8},
        "forecast": forecast(folder),
        "evidence": {
            "first": chosen,
            "second": "large",
            "more_than_spread": "yes" if abs(points) > 4 * spread else "no",
            "points": points,
        },
        "hang": {"rank": shown.culprit, "cause": shown.cause},
        "change": dict(zip(("before", "after", "key"), _CHANGE, strict=True)),
    }


def forecast(folder: Path) -> dict[str, float]:
    """Lab 7: a line of least relative squares, and the cost of a ring."""
    if not (folder / "compute.csv").exists():
        torchrun(folder, 2, "measure.py", "--out", "comm.csv")
    messages = rows_of(folder / "comm.csv")
    seconds = np.array([row["seconds"] for row in messages])
    design = np.stack([1 / seconds, np.array([row["bytes"] for row in messages]) / seconds], axis=1)
    level, slope = np.linalg.lstsq(design, np.ones(len(seconds)), rcond=None)[0]
    alpha, beta = level / 2, 1 / slope
    compute = next(row["seconds"] for row in rows_of(folder / "compute.csv") if row["batch"] == 32)
    step = compute + 30 * (alpha + gradient_bytes() / (16 * beta))
    return {"alpha_s": alpha, "beta_bytes_per_s": beta, "compute_s": compute, "samples_per_s": 512 / step}


def write(folder: Path, answers: dict[str, dict[str, Any]]) -> None:
    """As TOML."""
    lines = []
    for table, values in answers.items():
        lines.append(f"[{table}]")
        lines += [f'{key} = "{v}"' if isinstance(v, str) else f"{key} = {v}" for key, v in values.items()]
    (folder / "answers.toml").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]), solve(Path(sys.argv[1])))
