"""Seconds and samples to 0.90 and 0.92 test accuracy: `paceline train` beside the tutorial loop, 2 workers, 5 seeds.

    python bench/time_to_accuracy.py            # about 26 minutes; leave the machine alone meanwhile

Both evaluate once an epoch, so times are known to an epoch. A run that has not reached a target after `--epochs` is
censored: it counts as later than all others. Each (contestant, seed) is one file, and a second call goes on where the
first one stopped. bench/README.md says what is counted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from datasets_here import real_root
from harness import RECORDS, command_line, environment, environment_lines, record_folder, write_record
from paceline.records.errors import PacelineError
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir, write_atomic
from paceline.records.schema import AnyEvent, Checkpoint, Evaluation

BENCH = Path(__file__).resolve().parent
TARGETS = (0.90, 0.92)
CONTESTANTS = {"paceline": "paceline train", "tutorial": "tutorial loop"}


@dataclass(frozen=True)
class Settings:
    """What all cells of a record have in common.

    Attributes:
        global_batch: samples a step over all workers.
        epochs: the cut-off; also the length of paceline's learning rate schedule.
        lr: peak of ours, constant rate of the tutorial loop.
        loader_workers: of the tutorial loop, a rank.
    """

    workers: int = 2
    global_batch: int = 128
    epochs: int = 6
    lr: float = 0.05
    loader_workers: int = 0


@dataclass(frozen=True)
class Point:
    """A run after one evaluation.

    Attributes:
        samples: trained on so far, over all ranks.
        train_s: seconds so far without evaluations and checkpoints.
        total_s: with both.
    """

    samples: int
    train_s: float
    total_s: float
    accuracy: float


def points_of_events(events: Iterable[AnyEvent]) -> list[Point]:
    """The evaluations of one of our runs (of rank 0's events)."""
    points: list[Point] = []
    aside_s = 0.0
    for event in events:
        if isinstance(event, Checkpoint):
            aside_s += event.duration_s
        elif isinstance(event, Evaluation):
            aside_s += event.duration_s
            accuracy = event.metrics["accuracy"].value
            points.append(Point(event.samples, event.elapsed_s - aside_s, event.elapsed_s, accuracy))
    return points


def points_of_lines(text: str) -> list[Point]:
    """The epochs of a tutorial run (its JSON lines)."""
    points: list[Point] = []
    train_s = total_s = 0.0
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        epoch = json.loads(line)
        train_s += epoch["train_s"]
        total_s += epoch["train_s"] + epoch["evaluation_s"]
        points.append(Point(epoch["samples"], train_s, total_s, epoch["accuracy"]))
    return points


def first_at(points: Sequence[Point], target: float) -> Point | None:
    """Where `target` was reached first; None: censored."""
    return next((point for point in points if point.accuracy >= target), None)


def median_with_censored(values: Sequence[float | None]) -> float:
    """Median (the upper one of an even number) where None is later than any number; infinite when most are None."""
    return statistics.median_high([math.inf if value is None else value for value in values])


def run_paceline(settings: Settings, seed: int, root: Path) -> list[Point]:
    """One run of ours, as a user starts it."""
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as scratch:
        run = RunDir(Path(scratch) / "run")
        command = [
            str(Path(sys.executable).with_name("paceline")),
            *("train", "fashion-mnist", "--workers", str(settings.workers)),
            *("--global-batch", str(settings.global_batch), "--epochs", str(settings.epochs)),
            *("--lr", str(settings.lr), "--target", f"accuracy={max(TARGETS)}", "--seed", str(seed)),
            *("--data-dir", str(root), "--run-dir", str(run.path), "--format", "json"),
        ]
        _call(command, dict(os.environ))
        return points_of_events(EventStream(run.events()))


def run_tutorial(settings: Settings, seed: int, root: Path) -> list[Point]:
    """One run of the tutorial loop, as a user starts it: torchrun and nothing set but its one thread a rank."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(settings.workers)),
        *(str(BENCH / "tutorial_run.py"), "--data-dir", str(root), "--epochs", str(settings.epochs)),
        *("--batch", str(settings.global_batch // settings.workers), "--lr", str(settings.lr)),
        *("--seed", str(seed), "--target", str(max(TARGETS)), "--loader-workers", str(settings.loader_workers)),
    ]
    return points_of_lines(_call(command, {**os.environ, "OMP_NUM_THREADS": "1"}))


RUN = {"paceline": run_paceline, "tutorial": run_tutorial}


def _call(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PacelineError(
            f"{Path(command[0]).name} {command[1]} ended with exit code {done.returncode}",
            why=done.stderr.strip()[-1500:],
            hint="finished cells are kept; the same command goes on with this one",
        )
    return done.stdout


def cell_file(folder: Path, contestant: str, seed: int) -> Path:
    """Where a cell is kept."""
    return folder / "cells" / f"{contestant}_seed{seed}.json"


def read_cell(path: Path, settings: Settings) -> list[Point] | None:
    """A finished cell, None when there is none.

    Raises:
        PacelineError: it was measured with other settings, so it cannot stand in the same table.
    """
    if not path.exists():
        return None
    cell = json.loads(path.read_text(encoding="utf-8"))
    if cell["settings"] != asdict(settings):
        raise PacelineError(
            f"{path.parent.parent.name} holds cells with other settings",
            why=f"{path.name}: {cell['settings']}",
            hint="choose another folder with --folder",
        )
    return [Point(**point) for point in cell["points"]]


def measure(folder: Path, settings: Settings, seeds: int, root: Path) -> dict[str, list[list[Point]]]:
    """All cells, the two contestants in turn, those that are there already read: contestant -> seeds -> points."""
    found: dict[str, list[list[Point]]] = {name: [] for name in CONTESTANTS}
    for seed in range(seeds):
        for name in CONTESTANTS:
            path = cell_file(folder, name, seed)
            points = read_cell(path, settings)
            word = "kept"
            if points is None:
                points, word = RUN[name](settings, seed, root), "measured"
                content = {"settings": asdict(settings), "points": [asdict(point) for point in points]}
                write_atomic(path, json.dumps(content, indent=2).encode() + b"\n")
            found[name].append(points)
            print(f"seed {seed}  {CONTESTANTS[name]:16}{word:10}{_describe(points)}", flush=True)
    return found


def _describe(points: Sequence[Point]) -> str:
    parts = []
    for target in TARGETS:
        point = first_at(points, target)
        parts.append(f"{target}: " + (f"{point.train_s:.1f} s" if point else "not reached"))
    best = max((point.accuracy for point in points), default=math.nan)
    return f"{', '.join(parts)}; best {best:.4f}"


def summarise(found: dict[str, list[list[Point]]], epochs: int) -> list[dict[str, Any]]:
    """A row a target and contestant: how many seeds reached it, medians, and all values (None: censored)."""
    rows = []
    for target in TARGETS:
        for name, cells in found.items():
            hits = [first_at(points, target) for points in cells]
            row: dict[str, Any] = {
                "target": target,
                "contestant": name,
                "seeds": len(cells),
                "reached": sum(hit is not None for hit in hits),
                "cut_off_epochs": epochs,
            }
            for field in ("train_s", "total_s", "samples"):
                values = [None if hit is None else getattr(hit, field) for hit in hits]
                middle = median_with_censored(values)
                row[field] = {"median": None if math.isinf(middle) else middle, "values": values}
            rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The summary in Markdown."""
    lines = [
        "| accuracy | | reached | training only, s | with evaluation, s | samples |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['target']:.2f} | {CONTESTANTS[row['contestant']]} | {row['reached']} of {row['seeds']} "
            f"| {_cell(row['train_s'], '.1f')} | {_cell(row['total_s'], '.1f')} | {_cell(row['samples'], ',.0f')} |"
        )
    for target in TARGETS:
        ours, theirs = (next(r for r in rows if r["target"] == target and r["contestant"] == n) for n in CONTESTANTS)
        for field, words in (("train_s", "training only"), ("total_s", "with evaluation")):
            lines.append(f"\n{target:.2f}, {words}: " + _speedup(ours[field], theirs[field]))
    return lines


def _cell(entry: dict[str, Any], form: str) -> str:
    known = [value for value in entry["values"] if value is not None]
    if entry["median"] is None:
        return "not reached by most"
    return f"{entry['median']:{form}} ({min(known):{form}} to {max(known):{form}})"


def _speedup(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    if ours["median"] is None or theirs["median"] is None:
        return "no ratio, since most runs of one side were cut off."
    pairs = [b / a for a, b in zip(ours["values"], theirs["values"], strict=True) if a is not None and b is not None]
    text = f"the tutorial loop needs {theirs['median'] / ours['median']:.2f} times as long (medians)"
    return text + (f"; by seed {min(pairs):.2f} to {max(pairs):.2f}, {len(pairs)} pair(s)." if pairs else ".")


def readme(result: dict[str, Any]) -> str:
    """README.md of the record."""
    settings = result["settings"]
    return "\n".join(
        [
            f"# Time to accuracy, {result['environment']['measured_at'][:10]}",
            "",
            f"Command: `{' '.join(result['command'])}`. Fashion-MNIST, {settings['workers']} workers, global batch "
            f"{settings['global_batch']}, cut off after {settings['epochs']} epochs; one evaluation an epoch.",
            "Medians over seeds, with the least and the most of those that reached the target in brackets. A run that "
            "was cut off counts as later than all others.",
            "",
            *table(result["summary"]),
            "",
            "## Environment",
            "",
            *environment_lines(result["environment"]),
            "",
        ]
    )


def main(argv: list[str] | None = None) -> None:
    """Measure what is missing, summarise, write."""
    plain = Settings()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=plain.epochs, help="cut-off")
    parser.add_argument("--workers", type=int, default=plain.workers)
    parser.add_argument("--global-batch", type=int, default=plain.global_batch)
    parser.add_argument("--lr", type=float, default=plain.lr)
    parser.add_argument("--loader-workers", type=int, default=plain.loader_workers, help="of the tutorial loop")
    parser.add_argument("--data-dir", type=Path, help="root of Fashion-MNIST in torchvision's layout")
    parser.add_argument("--folder", type=Path, help="the record to write or to go on with (default: today's)")
    arguments = parser.parse_args(argv)
    settings = Settings(
        arguments.workers, arguments.global_batch, arguments.epochs, arguments.lr, arguments.loader_workers
    )
    folder = arguments.folder or record_folder("time_to_accuracy", RECORDS)
    try:
        root = real_root(arguments.data_dir)
        before = environment()
        print("\n".join(environment_lines(before)) + "\n")
        found = measure(folder, settings, arguments.seeds, root)
        result = {
            "command": command_line(),
            "environment": before,
            "settings": asdict(settings),
            "summary": summarise(found, settings.epochs),
        }
        write_record(folder, result, readme(result))
    except PacelineError as error:
        sys.exit(str(error))
    print("\n" + "\n".join(table(result["summary"])) + f"\n\nwritten: {folder.name}")


if __name__ == "__main__":
    main()
