"""`paceline plan batch` on Fashion-MNIST: what it predicts from short runs, beside runs that it has never seen.

    python bench/plan_fashion.py          # some 25 minutes on 2 cores; leave the machine alone

Short is 0.88 accuracy, less than two epochs at the task's own batch. Steps to it are fitted at four batch sizes, three
seeds each, and predicted for three others, of which one is twice the largest; seconds of training steps come from
`paceline plan speed` of 60-step runs at other batches. Beside it stand what a single run's gradient noise says of the
same batches, and two simpler predictors: linear scaling (as many samples as the smallest batch took), and no gain at
all (as many steps).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import command_line, environment, record_folder, write_record
from paceline.plan.batch_config import BatchConfig
from paceline.plan.rows import reached_of, timing_of
from paceline.records.plan_results import BatchPoint, BatchResult, BatchRow, Estimate, read_plan
from paceline.studies.batch_sweep import sweep
from paceline.studies.trainings import carry_out

TASK, TARGET, WORKERS = "fashion-mnist", 0.88, 2
BATCHES, UNSEEN, SEEDS = (32, 128, 512, 1024), (64, 256, 2048), 3
RECIPE = ("--lr-rule", "sqrt", "--warmup", "0.5ep", "--epochs", "20")
TIMED = [(k, b) for k in (1, 2) for b in (16, 64, 256)]


@dataclass(frozen=True)
class Row:
    """One batch size that no fit has seen.

    Attributes:
        steps, low, high, seconds: predicted.
        noise: steps, guessed from the noise of one run; None below that run's own batch, where a plan has no row.
        linear, none: steps, by the simpler predictors.
        measured: (seeds,) steps.
        measured_s: (seeds,) seconds of training steps.
    """

    batch: int
    steps: float
    low: float | None
    high: float | None
    seconds: float
    noise: float | None
    linear: float
    none: float
    measured: list[float]
    measured_s: list[float]

    def error(self, by: str) -> str:
        """Relative, of the predictor of that name, against the mean over seeds; a dash where it predicts nothing."""
        measured = self.measured_s if by == "seconds" else self.measured
        predicted = getattr(self, by)
        return "–" if predicted is None else f"{predicted / statistics.fmean(measured) - 1:+.0%}"

    @property
    def inside(self) -> bool:
        """Whether the interval holds the mean over seeds."""
        mean = statistics.fmean(self.measured)
        return (self.low is None or self.low <= mean) and (self.high is None or mean <= self.high)


def paceline(*arguments: str) -> None:
    """Run the tool, or say what it said."""
    done = subprocess.run([sys.executable, "-m", "paceline", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"paceline {' '.join(arguments[:4])} ended with {done.returncode}\n{done.stderr[-2000:]}")


def speed_plan(folder: Path) -> Path:
    """A plan of speed, from runs of 60 steps."""
    runs = []
    for workers, micro in TIMED:
        run = folder / f"speed-{workers}-{micro}"
        flags = ["--workers", str(workers), "--global-batch", str(workers * micro), "--steps", "60"]
        flags += ["--eval-every", "100000", "--checkpoint-every", "100000", "--run-dir", str(run), "--format", "json"]
        paceline("train", TASK, *flags)
        runs.append(str(run))
    plan = folder / "speed"
    paceline("plan", "speed", *runs, "--probe", "--workers", "1,2", "--run-dir", str(plan), "--format", "json")
    return plan


def batch_plan(folder: Path, *targets: str, speed: Path) -> BatchResult:
    """A plan of batches, of a task or of one run."""
    asked = ["--target", f"accuracy={TARGET}", "--workers", f"1,{WORKERS}", "--speed", str(speed)]
    paceline("plan", "batch", *targets, *asked, "--run-dir", str(folder), "--format", "json")
    found = read_plan(folder)
    assert isinstance(found, BatchResult)
    return found


def unseen_runs(folder: Path) -> dict[int, list[Path]]:
    """Runs to the target at the batch sizes that no fit sees."""
    recipe = dict(zip(RECIPE[::2], RECIPE[1::2], strict=True))
    wanted = BatchConfig(
        targets=[TASK], target=f"accuracy={TARGET}", seeds=SEEDS, lr_rule=recipe["--lr-rule"],
        epochs=int(recipe["--epochs"]), warmup=recipe["--warmup"],
    )  # fmt: skip
    trainings = sweep(wanted, UNSEEN)
    runs = carry_out(
        trainings.values(), folder, TASK, ("--workers", str(WORKERS)),
        tell=lambda done, many, name: print(f"  unseen runs: {done} of {many} {name}", flush=True),
    )  # fmt: skip
    found: dict[int, list[Path]] = {}
    for (batch, _), training in trainings.items():
        found.setdefault(batch, []).append(runs[training.name].path)
    return found


def _row_of(result: BatchResult, batch: int) -> BatchRow | None:
    return next((row for row in result.table if row.batch == batch and row.workers == WORKERS), None)


def _value(of: Estimate | None) -> float:
    assert of is not None
    assert of.value is not None
    return of.value


def compare(result: BatchResult, noise: BatchResult, runs: dict[int, list[Path]]) -> list[Row]:
    """Predicted and measured."""
    smallest = [point.steps for point in result.points if point.batch == min(BATCHES) and point.steps is not None]
    base = statistics.fmean(smallest)
    rows = []
    for batch, paths in runs.items():
        predicted, guessed = _row_of(result, batch), _row_of(noise, batch)
        assert predicted is not None
        reached = [_reached(path) for path in paths]
        each_s = [timing_of(path).step_s for path in paths]
        rows.append(
            Row(
                batch=batch,
                steps=_value(predicted.steps),
                low=predicted.steps.low,
                high=predicted.steps.high,
                seconds=_value(predicted.time_s),
                noise=None if guessed is None else _value(guessed.steps),
                linear=base * min(BATCHES) / batch,
                none=base,
                measured=reached,
                measured_s=[steps * step_s for steps, step_s in zip(reached, each_s, strict=True)],
            )
        )
    return rows


def _reached(path: Path) -> float:
    found: BatchPoint = reached_of(path, "accuracy", TARGET, rising=True)
    if found.steps is None:
        raise RuntimeError(f"{path} did not reach {TARGET}: there is nothing to compare with")
    return found.steps


def lines_of(rows: Sequence[Row], result: BatchResult, noise: BatchResult) -> list[str]:
    """The tables."""
    lines = [
        f"Steps to an accuracy of {TARGET} on {WORKERS} workers, fitted at batches of {', '.join(map(str, BATCHES))}.",
        "",
        "| batch | predicted steps [90 %] | measured (mean of 3; range) | error | inside | predicted s | measured s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ends = " to ".join("no end" if end is None else f"{end:,.0f}" for end in (row.low, row.high))
        seen = f"{statistics.fmean(row.measured):,.0f} ({min(row.measured):,.0f} to {max(row.measured):,.0f})"
        seconds = f"{row.seconds:.1f} | {statistics.fmean(row.measured_s):.1f} ({row.error('seconds')})"
        lines.append(
            f"| {row.batch:,} | {row.steps:,.0f} [{ends}] | {seen} | {row.error('steps')} | "
            f"{'yes' if row.inside else 'no'} | {seconds} |"
        )
    names = {"steps": "plan batch, of runs", "noise": "plan batch, of one run's noise"}
    names |= {"linear": "linear scaling", "none": "no gain"}
    lines += ["", "| predictor of steps | " + " | ".join(f"batch {row.batch:,}" for row in rows) + " |"]
    lines += ["|---" * (len(rows) + 1) + "|"]
    for by, name in names.items():
        lines.append(f"| {name} | " + " | ".join(row.error(by) for row in rows) + " |")
    critical = result.critical
    assert critical is not None
    shown = f"{_value(critical):,.0f} [{critical.low or 0:,.0f}, {critical.high or float('inf'):,.0f}]"
    last = noise.noise[-1].noise_scale
    lines += ["", f"Critical batch {shown}; noise scale at the end of one run at batch 128 {_value(last):,.0f}."]
    return lines


def main() -> None:
    """Measure, print, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="keep runs there, and go on with what it holds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="paceline-plan-") as scratch:
        folder = options.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        facts = environment()
        speed = folder / "speed"
        if not speed.exists():
            speed_plan(folder)
        print("times are planned", flush=True)
        plan = folder / "batch"
        sizes = ["--batches", ",".join(map(str, BATCHES)), "--seeds", str(SEEDS)]
        again = ["--resume", str(plan)] if plan.exists() else [TASK, *sizes, *RECIPE, "--train-workers", str(WORKERS)]
        result = read_plan(plan) if (plan / "result.json").exists() else batch_plan(plan, *again, speed=speed)
        assert isinstance(result, BatchResult)
        print("batches are planned", flush=True)
        noise_dir = folder / "noise"
        one_run = str(plan / "runs" / "batch-128-seed-0")
        noise = read_plan(noise_dir) if noise_dir.exists() else batch_plan(noise_dir, one_run, speed=speed)
        assert isinstance(noise, BatchResult)
        rows = compare(result, noise, unseen_runs(folder / "unseen"))
    lines = ["# Steps and seconds to a target: predicted and measured", "", *lines_of(rows, result, noise)]
    print("\n".join(lines))
    record = record_folder("plan_fashion")
    body: dict[str, Any] = {"command": command_line(), "environment": facts, "rows": [asdict(row) for row in rows]}
    body["recommendation"] = result.recommendation.command if result.recommendation else None
    write_record(record, body, "\n".join(lines) + "\n")
    print(f"written: {record}")


if __name__ == "__main__":
    main()
