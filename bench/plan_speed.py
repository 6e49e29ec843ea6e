"""Are predictions of `paceline plan speed` right? Settings that the fit has not seen, against measured step times.

    python bench/plan_speed.py            # some 25 minutes on 2 cores; leave the machine alone

Computing is emulated by sleeping (bench/tasks/emulated.py), so that 8 ranks can be timed on 2 cores; processes, DDP,
gloo and loopback are real, and so are the few milliseconds a step that each rank computes. Fitted are 1, 2 and 4
workers at 16, 64 and 256 samples each, and a probe with up to 4 ranks; predicted are 3, 6 and 8 workers, and 1, 2 and 4
with up to 8 times the samples that any fitted run had. What is compared is what `plan speed` predicts, with its 80 %
interval; every error is printed. Beside it stand two simpler predictors from the same runs: perfect scaling (the step
of one worker), and Pollux's form, fitted likewise.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy.optimize import least_squares

from harness import BENCH, command_line, environment, record_folder, write_record
from paceline.plan.rows import timing_of
from paceline.plan.speed import model_of, step_interval
from paceline.plan.step_time import Observed, Setting
from paceline.records.plan import SpeedResult, read_plan
from paceline.records.rundir import RunDir
from paceline.studies.trainings import ended

TASK = BENCH / "tasks" / "emulated.py"
FITTED = [(k, b) for k in (1, 2, 4) for b in (16, 64, 256)]
UNSEEN = [(k, b) for k in (3, 6, 8) for b in (16, 64, 256)] + [(k, b) for b in (512, 1024, 2048) for k in (1, 2, 4)]
SCENES = {
    "8 ms + 0.5 ms a sample, 4 MB": "8,0.5,1000000",
    "20 ms + 0.2 ms a sample, 32 MB": "20,0.2,8000000",
}
STEPS = 50


@dataclass(frozen=True)
class Row:
    """One unseen setting."""

    workers: int
    micro: int
    measured: float
    predicted: float
    low: float
    high: float
    perfect: float
    pollux: float

    def error(self, by: str) -> float:
        """Relative, of the predictor of that name."""
        return getattr(self, by) / self.measured - 1


def train(scene: str, workers: int, micro: int, run: Path) -> Observed:
    """Train a setting unless that was done, and its times."""
    command = [sys.executable, "-m", "paceline", "train", str(TASK), "--workers", str(workers)]
    command += ["--global-batch", str(workers * micro), "--steps", str(STEPS), "--lr", "0", "--format", "json"]
    command += ["--eval-every", "100000", "--checkpoint-every", "100000", "--noise-every", "0", "--run-dir", str(run)]
    if ended(RunDir(run)) != "finished":
        shutil.rmtree(run, ignore_errors=True)
        call(command, {"PACELINE_EMULATED": scene})
    return timing_of(run).observed


def call(command: Sequence[str], env: dict[str, str]) -> None:
    """Run it, or say what it said."""
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:5])} ended with {done.returncode}\n{done.stderr[-2000:]}")


def pollux(fitted: Sequence[Observed]) -> Any:
    """Pollux's step time (adaptdl's goodput.py) fitted to the same runs: a + b x, alpha + beta (k - 2), a p-norm."""
    rows = [(o.setting.workers, o.setting.micro, o.step_s) for o in fitted]

    def predict(x: np.ndarray, workers: int, micro: float) -> float:
        a, b, alpha, beta = np.exp(x[:4])
        p = 1 + 9 / (1 + np.exp(-x[4]))
        network = alpha + beta * max(workers - 2, 1e-3) if workers > 1 else 0.0
        return float(((a + b * micro) ** p + network**p) ** (1 / p))

    def residuals(x: np.ndarray) -> list[float]:
        return [np.log(predict(x, k, b)) - np.log(t) for k, b, t in rows]

    start = np.array([np.log(0.01), np.log(5e-4), np.log(1e-3), np.log(1e-4), 0.0])
    found = least_squares(residuals, start, bounds=(-25, 10)).x
    return lambda workers, micro: predict(found, workers, micro)


def scene_rows(scene: str, folder: Path, plan: Path) -> tuple[SpeedResult, list[Row]]:
    """Fit one scene, and compare with what was not fitted."""
    fitted = {(k, b): train(scene, k, b, folder / f"fit-{k}-{b}") for k, b in FITTED}
    runs = [str(folder / f"fit-{k}-{b}") for k, b in FITTED]
    command = [sys.executable, "-m", "paceline", "plan", "speed", *runs, "--probe", "--probe-workers", "4"]
    call([*command, "--workers", "1,2,4,8", "--format", "json", "--run-dir", str(plan)], {})
    result = read_plan(plan)
    assert isinstance(result, SpeedResult)
    model = model_of(result)
    other = pollux(list(fitted.values()))
    rows = []
    for workers, micro in UNSEEN:
        seen = train(scene, workers, micro, folder / f"unseen-{workers}-{micro}")
        found = step_interval(result, seen.setting)
        alone = model.step_s(Setting(1, micro))
        row = Row(workers, micro, seen.step_s, found.value, found.low, found.high, alone, other(workers, micro))
        rows.append(row)
        print(
            f"  {workers} x {micro}: measured {1e3 * row.measured:.1f} ms, predicted {1e3 * row.predicted:.1f} "
            f"({row.error('predicted'):+.1%})",
            flush=True,
        )
    return result, rows


def summary(rows: Sequence[Row]) -> list[str]:
    """Median and largest errors of each predictor, and how many times lie in the interval."""
    lines = ["| predictor | median error | 90th percentile | largest |", "|---|---|---|---|"]
    names = {"predicted": "paceline plan speed", "pollux": "Pollux's form", "perfect": "perfect scaling"}
    for by, name in names.items():
        errors = [abs(row.error(by)) for row in rows]
        numbers = statistics.median(errors), float(np.quantile(errors, 0.9)), max(errors)
        lines.append(f"| {name} | {' | '.join(f'{number:.1%}' for number in numbers)} |")
    inside = sum(row.low <= row.measured <= row.high for row in rows)
    return [*lines, "", f"{inside} of {len(rows)} measured times lie in the 80 % interval of `plan speed`."]


def table(rows: Sequence[Row]) -> list[str]:
    """Every setting."""
    lines = ["| workers | samples each | measured, ms | predicted, ms [80 %] | error |", "|---|---|---|---|---|"]
    for row in rows:
        measured, predicted, low, high = (1e3 * value for value in (row.measured, row.predicted, row.low, row.high))
        lines.append(
            f"| {row.workers} | {row.micro} | {measured:.1f} | {predicted:.1f} [{low:.1f}, {high:.1f}] | "
            f"{row.error('predicted'):+.1%} |"
        )
    return lines


def main() -> None:
    """Measure, print, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the runs there, and use those that are there")
    options = parser.parse_args()
    facts = {"command": command_line(), "environment": environment()}  # before our own load is on the machine
    found: dict[str, Any] = {}
    lines: list[str] = []
    everything: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="paceline-speed-") as scratch:
        for number, (name, scene) in enumerate(SCENES.items()):
            print(name, flush=True)
            folder = (options.keep or Path(scratch)) / f"scene-{number}"
            result, rows = scene_rows(scene, folder, Path(scratch) / f"plan-{number}")
            everything += rows
            found[name] = {
                "network": msgspec.to_builtins(result.network),
                "coefficients": result.coefficients,
                "rows": [row.__dict__ for row in rows],
            }
            lines += [f"## {name}", "", *summary(rows), "", *table(rows), ""]
    lines = ["# Predicted step times", "", "## Both scenes", "", *summary(everything), "", *lines]
    print("\n".join(lines))
    folder = record_folder("plan_speed")
    write_record(folder, {**facts, "scenes": found}, "\n".join(lines))
    print(f"written: {folder}")


if __name__ == "__main__":
    main()
