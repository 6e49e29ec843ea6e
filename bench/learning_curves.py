"""Do the intervals of `paceline plan data` hold what is measured at four times the data? Five real cases.

    python bench/learning_curves.py       # some 25 minutes on 2 cores

A curve is fitted to parts of the training set, up to a quarter of what is then measured, three seeds each; measured is
the mean of three trainings on four times as many samples, which no fit has seen. All take as many steps, those of the
task's own recipe: a curve is of the effect of data, and a first try with a quarter of the steps for the fitted sizes
promised too little (digits' loss 0.33 where 0.12 came out). Cases: digits and Fashion-MNIST, error and loss, and
Fashion-MNIST with a quarter of its images as the whole.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import command_line, environment, record_folder, write_record
from paceline.records.plan_results import DataResult, read_plan

SEEDS = 3


@dataclass(frozen=True)
class Case:
    """One curve.

    Attributes:
        task: its name.
        metric: accuracy or loss.
        whole: part of the training set that is predicted; fitted are up to a quarter of it.
        epochs: of the predicted size; four times as many of the largest fitted one, so that all take as many steps.
    """

    task: str
    metric: str
    whole: float
    epochs: int

    @property
    def fractions(self) -> list[float]:
        """That are fitted."""
        return [self.whole / 4 / 2**k for k in range(4, -1, -1)]


CASES = (
    Case("digits", "accuracy", 1.0, 30),
    Case("digits", "loss", 1.0, 30),
    Case("fashion-mnist", "accuracy", 1.0, 5),
    Case("fashion-mnist", "loss", 1.0, 5),
    Case("fashion-mnist", "accuracy", 0.25, 10),
)


def plan(case: Case, fractions: Sequence[float], folder: Path) -> DataResult:
    """A learning curve, made or gone on with where another metric was looked at before."""
    flags = ["--metric", case.metric, "--format", "json"]
    if folder.exists():
        arguments = ["--resume", str(folder), *flags]
    else:
        parts = ",".join(f"{part:.8g}" for part in fractions)
        arguments = [case.task, "--fractions", parts, "--seeds", str(SEEDS), "--epochs", str(4 * case.epochs)]
        arguments += ["--run-dir", str(folder), *flags]
    command = [sys.executable, "-m", "paceline", "plan", "data", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:])} ended with {done.returncode}\n{done.stderr[-2000:]}")
    result = read_plan(folder)
    assert isinstance(result, DataResult)
    return result


def measured(case: Case, samples: int, folder: Path) -> list[float]:
    """Errors of trainings on that many samples, of as many steps as those that were fitted."""
    values = []
    for seed in range(SEEDS):
        run = folder / f"{case.task}-{samples}-{seed}"
        if not run.exists():
            command = [sys.executable, "-m", "paceline", "train", case.task, "--train-samples", str(samples)]
            command += ["--epochs", str(case.epochs), "--seed", str(seed), "--eval-every", f"{case.epochs}ep"]
            command += ["--checkpoint-every", "100000ep", "--run-dir", str(run), "--format", "json"]
            subprocess.run(command, capture_output=True, text=True, check=True)
        values.append(_last(run, case.metric))
    return values


def _last(run: Path, metric: str) -> float:
    from paceline.report.run_record import load_run

    value = float(load_run(run).evaluations.value[metric][-1])
    return 1 - value if metric == "accuracy" else value


def judge(case: Case, folder: Path) -> dict[str, Any]:
    """One case: what was predicted, what was measured, whether the interval holds it."""
    place = folder / f"{case.task}-{case.whole:g}"
    result = plan(case, case.fractions, place)
    row = next(row for row in result.rows if row.beyond == 4)
    errors = measured(case, row.samples, folder)
    mean = statistics.fmean(errors)
    low, high = row.error.low, row.error.high
    inside = (low is None or low <= mean) and (high is None or mean <= high)
    return {
        "case": f"{case.task}, {result.metric}, {row.samples:,} samples from up to {row.samples // 4:,}",
        "predicted": row.error.value,
        "low": low,
        "high": high,
        "measured": mean,
        "runs": errors,
        "inside": inside,
        "law": {"scale": result.scale, "exponent": result.exponent, "floor": result.floor, "noise": result.noise},
        "points": [[point.samples, point.error] for point in result.points if point.error is not None],
        "beyond": row.samples,
        "held_out": [[held.what, held.measured, held.predicted] for held in result.evidence.held_out],
    }


def main() -> None:
    """Measure, print, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="tasks")
    options = parser.parse_args()
    facts = {"command": command_line(), "environment": environment()}  # before our own load is on the machine
    cases = [case for case in CASES if not options.only or case.task in options.only]
    lines = ["# Learning curves: predicted and measured at four times the data", ""]
    lines += ["| case | predicted [90 %] | measured (mean of 3) | error | inside |", "|---|---|---|---|---|"]
    found = []
    with tempfile.TemporaryDirectory(prefix="paceline-curves-") as scratch:
        for case in cases:
            one = judge(case, Path(scratch))
            found.append(one)
            ends = [f"{end:.4f}" if end is not None else "no end" for end in (one["low"], one["high"])]
            off = one["predicted"] / one["measured"] - 1
            shown = f"{one['predicted']:.4f} [{', '.join(ends)}]"
            lines.append(f"| {one['case']} | {shown} | {one['measured']:.4f} | {off:+.1%} | {one['inside']} |")
            print(lines[-1], flush=True)
    lines += ["", f"{sum(one['inside'] for one in found)} of {len(found)} inside."]
    print("\n".join(lines))
    folder = record_folder("learning_curves")
    write_record(folder, {**facts, "cases": found}, "\n".join(lines))
    print(f"written: {folder}")


if __name__ == "__main__":
    main()
