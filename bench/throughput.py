"""How many images a second: paceline's loop beside the limit, a tuned hand loop, the tutorial loop, two frameworks.

    python bench/throughput.py                  # about 17 minutes; leave the machine alone meanwhile
    python bench/throughput.py --quick          # a minute, to see that it works; its numbers mean nothing

All contestants live in the same rank processes and are measured in turn, in an order that is shuffled each round.
Reported are medians over rounds, and ratios of medians with a 95 % bootstrap interval. bench/README.md says more.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contestants import TABLE, missing
from datasets_here import REAL, real_root, synthetic_root
from harness import (
    RECORDS,
    command_line,
    environment,
    environment_lines,
    interleave,
    ratio_of_medians,
    record_folder,
    spread,
    steps_for,
    write_record,
)
from paceline.records.errors import PacelineError
from ranks import ALLOCATOR, RankError, Ranks

BATCHES, WORLDS = (64, 128, 512), (1, 2)
GATES = {"limit": 0.97, "hand": 0.99, "fabric": 1.0, "accelerate": 1.0, "tutorial-0": 3.0, "tutorial-2": 3.0}
"""What paceline's throughput over each other's must be, with 2 workers."""


@dataclass(frozen=True)
class Options:
    """How to measure.

    Attributes:
        names: rows of `contestants.TABLE`.
        rounds: blocks of each contestant.
        block_s: seconds that a block should take.
        fp32: measure all in fp32 instead of bf16 autocast.
    """

    names: tuple[str, ...]
    rounds: int
    block_s: float
    fp32: bool


def measure(ranks: Ranks, batch: int, root: Path, options: Options) -> dict[str, Any]:
    """One cell of the table: all contestants at one batch size and number of workers.

    Returns:
        name -> {steps, seconds (rounds,), images_per_s (rounds,), check}; or {not_run: why}.
    """
    found: dict[str, Any] = {}
    steps: dict[str, int] = {}
    for name in options.names:
        try:
            ranks.ask(op="setup", key=name, name=name, batch=batch, root=str(root), bf16=not options.fp32, overrides={})
        except RankError as error:
            raise RankError(f"{name}: {error}") from error
        trial = ranks.ask(op="block", key=name, steps=2)["seconds"] / 2
        steps[name] = steps_for(options.block_s, trial)

    def block(name: str) -> float:
        seconds: float = ranks.ask(op="block", key=name, steps=steps[name])["seconds"]
        return seconds

    def tick(number: int) -> None:
        if sys.stdout.isatty():
            print(f"\r  round {number + 1} of {options.rounds}", end="", flush=True)

    seconds = interleave(options.names, options.rounds, block, seed=batch, on_round=tick)
    if sys.stdout.isatty():
        print("\r" + " " * 30 + "\r", end="")
    for name in options.names:
        images = steps[name] * batch * ranks.world
        found[name] = {
            "steps": steps[name],
            "seconds": seconds[name],
            "images_per_s": [images / each for each in seconds[name]],
            "check": ranks.ask(op="check", key=name),
        }
        ranks.ask(op="close", key=name)
    _require_trained(found)
    return found


def _require_trained(found: dict[str, Any]) -> None:
    """A loop that does not train, or whose ranks drift apart, must not be compared."""
    for name, row in found.items():
        check = row["check"]
        if not (check["finite"] and check["moved"] > 0):
            raise RankError(f"{name} did not train: {check}")
        if check["synchronised"] and check["rank_difference"] != 0:
            raise RankError(f"the ranks of {name} have different weights: {check}")


def table(found: dict[str, Any], batch: int, world: int) -> list[str]:
    """Lines for people: images/s of all ranks, milliseconds a step, ratios."""
    lines = [
        f"{batch} samples a rank, {world} worker(s)",
        f"  {'':38}{'images/s':>10}{'quartiles':>17}{'ms/step':>9}  {'of the limit':22}{'of the hand loop':22}",
    ]
    for name, row in found.items():
        speeds = row["images_per_s"]
        low, high = spread(speeds)
        middle = statistics.median(speeds)
        step_ms = 1e3 * batch * world / middle
        ratios = [str(ratio_of_medians(speeds, found[to]["images_per_s"])) if to in found else "" for to in _TO]
        lines.append(
            f"  {TABLE[name].title:38}{middle:>10.0f}{f'{low:.0f}-{high:.0f}':>17}{step_ms:>9.2f}  "
            f"{ratios[0]:22}{ratios[1]:22}".rstrip()
        )
    return lines


_TO = ("limit", "hand")


def verdicts(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Paceline against each gate: met when the ratio is, sure when the whole interval is on that side."""
    if "paceline" not in found:
        return []
    rows = []
    for name, least in GATES.items():
        if name not in found:
            continue
        ratio = ratio_of_medians(found["paceline"]["images_per_s"], found[name]["images_per_s"])
        rows.append(
            {
                "against": name,
                "least": least,
                "ratio": ratio.value,
                "interval": [ratio.low, ratio.high],
                "met": ratio.value >= least,
                "sure": ratio.low >= least or ratio.high < least,
            }
        )
    return rows


def verdict_lines(cells: list[dict[str, Any]]) -> list[str]:
    """The gates as a table in Markdown."""
    lines = [
        "| workers | samples a rank | paceline over | ratio | 95 % interval | at least | |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        for row in cell["gates"]:
            word = ("met" if row["met"] else "NOT met") + ("" if row["sure"] else ", but within the noise")
            lines.append(
                f"| {cell['world']} | {cell['batch']} | {TABLE[row['against']].title} | {row['ratio']:.3f} "
                f"| {row['interval'][0]:.3f} to {row['interval'][1]:.3f} | {row['least']:.2f} | {word} |"
            )
    return lines


def readme(result: dict[str, Any]) -> str:
    """README.md of the record."""
    options, cells = result["options"], result["cells"]
    parts = [
        f"# Throughput, {result['environment']['measured_at'][:10]}",
        "",
        f"Command: `{' '.join(result['command'])}`. {options['rounds']} blocks of about {options['block_s']} s for "
        "each contestant, in shuffled turn; medians; ratios are of medians, with 95 % bootstrap intervals over rounds.",
        f"Data: {result['data']}. Finished: {'yes' if result['finished'] else 'no, cut short'}. "
        f"Duration: {result['duration_s']:.0f} s. "
        f"Left out, since not installed: {', '.join(result['left_out']) or 'nothing'}.",
        "",
    ]
    for cell in cells:
        parts += ["```", *cell["table"], "```", ""]
    parts += ["## Gates", "", "They are promised for 2 workers; those of 1 worker are for information.", ""]
    parts += [*verdict_lines(cells), "", "## Environment", "", *environment_lines(result["environment"]), ""]
    return "\n".join(parts)


def run(arguments: argparse.Namespace, root: Path, data: str) -> Path:
    """Measure all cells, writing the record after each."""
    left_out = missing(arguments.only or TABLE)
    names = tuple(name for name in arguments.only or TABLE if name not in left_out)
    options = Options(names, arguments.rounds, arguments.block_s, arguments.fp32)
    for name, package in left_out.items():
        print(f"left out: {TABLE[name].title}: {package} is not installed (pip install 'paceline[bench]')")
    folder = record_folder("throughput" + ("_quick" if arguments.quick else ""), arguments.records)
    started = time.monotonic()
    result: dict[str, Any] = {
        "command": command_line(),
        "data": data,
        "left_out": left_out,
        "options": {
            "contestants": list(options.names),
            "rounds": options.rounds,
            "block_s": options.block_s,
            "precision": "fp32" if options.fp32 else "bf16 autocast; the tutorial loops fp32",
            "batches": list(arguments.batches),
            "worlds": list(arguments.workers),
        },
        "environment": environment(allocator=ALLOCATOR, threads_per_rank=1, backend="gloo"),
        "cells": [],
        "finished": False,
    }
    print("\n".join(environment_lines(result["environment"])) + "\n")
    if result["environment"]["load_average_before"][0] > 0.5:
        print("warning: this machine is busy; the numbers will be noisy\n")
    for world in arguments.workers:
        with Ranks(world) as ranks:
            for batch in arguments.batches:
                began = time.monotonic()
                found = measure(ranks, batch, root, options)
                lines = table(found, batch, world)
                print("\n".join(lines) + f"\n  ({time.monotonic() - began:.0f} s)\n", flush=True)
                result["cells"].append(
                    {"world": world, "batch": batch, "contestants": found, "table": lines, "gates": verdicts(found)}
                )
                result["duration_s"] = time.monotonic() - started
                write_record(folder, result, readme(result))
    result["finished"] = True
    result["environment"]["load_average_after"] = list(os.getloadavg())
    write_record(folder, result, readme(result))
    print("\n".join(verdict_lines(result["cells"])))
    return folder


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORLDS))
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES), help="samples a rank")
    parser.add_argument("--rounds", type=int, default=15, help="blocks of each contestant")
    parser.add_argument("--block-s", type=float, default=1.2, help="seconds that a block should take")
    parser.add_argument("--only", nargs="+", choices=list(TABLE), help="contestants")
    parser.add_argument("--fp32", action="store_true", help="all in fp32 instead of bf16 autocast")
    parser.add_argument("--synthetic", action="store_true", help="noise of the same shape instead of Fashion-MNIST")
    parser.add_argument("--data-dir", type=Path, help="root of Fashion-MNIST in torchvision's layout")
    parser.add_argument("--records", type=Path, default=RECORDS, help="where the record is written")
    parser.add_argument("--quick", action="store_true", help="3 short blocks, one small batch, synthetic data")
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.rounds, arguments.block_s, arguments.batches, arguments.synthetic = 3, 0.05, [16], True
    if arguments.rounds < 3:
        parser.error("--rounds: an interval needs at least 3")
    return arguments


def main(argv: list[str] | None = None) -> None:
    """Find the data, measure, write."""
    arguments = parse(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="paceline-bench-") as scratch:
            if arguments.synthetic:
                samples = (2_000, 500) if arguments.quick else (60_000, 10_000)
                root, data = synthetic_root(Path(scratch), *samples), f"synthetic, {samples[0]:,} images of 28x28"
            else:
                root, data = real_root(arguments.data_dir), REAL
            folder = run(arguments, root, data)
    except (PacelineError, RankError) as error:
        sys.exit(str(error))
    print(f"\nwritten: {folder}")


if __name__ == "__main__":
    main()
