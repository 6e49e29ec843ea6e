"""Is this checkout slower than an earlier revision? Training and start-up of both, in turn.

    python bench/against_revision.py REVISION               # about 12 minutes on 2 cores; leave the machine alone
    python bench/against_revision.py REVISION --restarts 12 --commands 0

Training: blocks of the loop of `paceline train` on the Fashion-MNIST CNN. Both revisions live in the same ranks, and
each round runs one block of each (see ranks.py). Start-up: `paceline train digits --epochs 5` as a whole command.
Ratios are of speeds, this checkout over REVISION, medians with 95 % bootstrap intervals over rounds: above 1 is faster.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from datasets_here import real_root
from harness import (
    BENCH,
    Interval,
    command_line,
    environment,
    environment_lines,
    interleave,
    ratio_of_medians,
    record_folder,
    steps_for,
    write_record,
)
from ranks import ALLOCATOR, Ranks

LEAST = 0.98
"""A lower bound of the ratio below this is a slowdown."""
QUIET: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
COMMAND = ("train", "digits", "--epochs", "5", "--workers", "2")


def training(trees: dict[str, Path], world: int, options: argparse.Namespace, root: Path) -> dict[str, list[float]]:
    """Images a second in each round, by the name of the tree.

    Both revisions are loaded into the same ranks: a process is up to two percent faster or slower than another of the
    same code for its whole life, by where its memory lies. For the same reason ranks are started anew several times,
    and the revision that is loaded first changes.
    """
    found: dict[str, list[float]] = {name: [] for name in trees}
    for restart in range(options.restarts):
        with Ranks(world) as ranks:
            facts = {"batch": options.batch, "root": str(root), "bf16": not options.fp32, "overrides": {}}
            for name in list(trees)[:: 1 if restart % 2 else -1]:
                ranks.ask(op="setup", key=name, name="paceline", tree=str(trees[name]), **facts)
            steps = steps_for(0.5, ranks.ask(op="block", key="after", steps=10)["seconds"] / 10)

            def block(name: str, ranks: Ranks = ranks, steps: int = steps) -> float:
                seconds: float = ranks.ask(op="block", key=name, steps=steps)["seconds"]
                return steps * options.batch * world / seconds

            for name, speeds in interleave(list(trees), options.rounds, block, seed=restart).items():
                found[name] += speeds
    return found


def start_up(trees: dict[str, Path], rounds: int, folder: Path) -> dict[str, dict[str, list[float]]]:
    """Wall and processor seconds of the whole command in each round, by what and by the name of the tree."""
    found: dict[str, dict[str, list[float]]] = {what: {name: [] for name in trees} for what in ("wall_s", "cpu_s")}

    def command(name: str) -> float:
        environment = os.environ | {"PYTHONPATH": str(trees[name] / "src"), "OMP_NUM_THREADS": "1"}
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "paceline", *COMMAND], cwd=scratch, env=environment, check=True, **QUIET
            )
            wall = time.perf_counter() - began
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        found["wall_s"][name].append(wall)
        found["cpu_s"][name].append(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)
        return wall

    interleave(list(trees), rounds, command)
    return found


def line(what: str, ratio: Interval, before: float, after: float) -> str:
    """A row of the table."""
    verdict = "not slower" if ratio.low >= LEAST else "SLOWER" if ratio.high < LEAST else "not certain"
    return f"| {what} | {before:.4g} | {after:.4g} | {ratio} | {verdict} |"


def measure(trees: dict[str, Path], arguments: argparse.Namespace, scratch: Path) -> tuple[dict[str, Any], list[str]]:
    """Every figure, and the table's rows."""
    found: dict[str, Any] = {}
    rows = ["| what | before | after | speed after / before | |", "|---|---|---|---|---|"]
    root = real_root(None)
    for world in arguments.workers:
        speeds = training(trees, world, arguments, root)
        found[f"images_per_s, {world} workers"] = speeds
        ratio = ratio_of_medians(speeds["after"], speeds["before"])
        rows.append(line(f"images/s, {world} worker(s)", ratio, *(statistics.median(speeds[n]) for n in trees)))
        print(rows[-1], flush=True)
    if arguments.commands:
        for what, seconds in start_up(trees, arguments.commands, scratch).items():
            found[f"command, {what}"] = seconds
            ratio = ratio_of_medians(seconds["before"], seconds["after"])  # of speeds
            rows.append(line(f"command, {what}", ratio, *(statistics.median(seconds[n]) for n in trees)))
            print(rows[-1], flush=True)
    return found, rows


def main() -> None:
    """Check the revision out beside this tree, measure, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, default=64, help="samples a rank")
    parser.add_argument("--fp32", action="store_true", help="fp32 instead of bf16 autocast, for CPUs without bf16")
    parser.add_argument("--restarts", type=int, default=8, help="how often the ranks are started anew")
    parser.add_argument("--rounds", type=int, default=20, help="pairs of training blocks of half a second, each time")
    parser.add_argument("--commands", type=int, default=20, help="pairs of whole commands; 0: none")
    arguments = parser.parse_args()
    facts = environment(allocator=ALLOCATOR, threads_per_rank=1, backend="gloo")
    git = ["git", "-C", str(BENCH.parent), "worktree"]
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as scratch:
        before = Path(scratch) / "before"
        subprocess.run([*git, "add", "--quiet", "--detach", str(before), arguments.revision], check=True)
        try:
            found, rows = measure({"before": before, "after": BENCH.parent}, arguments, Path(scratch))
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)
    text = [
        f"# Against {arguments.revision}",
        "",
        f"`{' '.join(command_line())}`",
        "",
        *rows,
        "",
        *environment_lines(facts),
    ]
    folder = record_folder("against_revision")
    result = {"command": command_line(), "revision": arguments.revision, "environment": facts, "found": found}
    write_record(folder, result, "\n".join([*text, ""]))
    print(f"written: {folder.name}")


if __name__ == "__main__":
    main()
