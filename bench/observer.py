"""What `paceline run` costs a training: steps observed, beside the same steps unobserved.

    python bench/observer.py [--steps-ms 20 5 1] [--rounds 20]

Each round runs a small DDP training three times on two ranks, in an order shuffled anew: observed, unobserved, and
unobserved once more as a control. Ranks are forked from the fork server; observed ones attach the observer as those of
`paceline run` do, and this process reads their rings and judges, as the launcher does. Compared are the medians of a
round's steps; results are medians over rounds of the ratio, with a 95 % bootstrap interval.

The gate is a ratio of 1.005 at steps of 20 ms and 1.01 at 5 ms. Where the control's interval is wider than the gate
allows, the machine is too noisy for it, and the processor time of the ranks is judged instead; where that varies as
much, the result is inconclusive. Memory is the growth of
a rank's peak. Writes bench/records/<date>_observer/.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import command_line, environment, environment_lines, ratio_of_medians, record_folder, write_record
from paceline.cli.observation import LiveJudge
from paceline.launch.ring_drain import RingDrain, make_rings_folder
from paceline.pool.processes import Surroundings, close_fork_server, fork_server
from paceline.pool.rank import rank_environment
from paceline.pool.store import start_store
from paceline.records.ring import RINGS_VARIABLE
from paceline.records.rundir import RunDir
from paceline.stats.intervals import Interval

HERE = Path(__file__).resolve().parent
WORLD = 2
GATES = {20: 1.005, 5: 1.01, 1: None}
"""Highest ratio by length of a step in ms; None is reported only."""
MEMORY_BYTES = 30 * 2**20
KINDS = ("observed", "unobserved", "control")


def run_block(step_ms: int, steps: int, *, observe: bool, scratch: Path) -> dict[str, float]:
    """Run one training on two ranks. Returns the median step, processor time a step and the peak memory of a rank."""
    output = scratch / "times"
    rings = make_rings_folder()
    drain = RingDrain(rings, RunDir(scratch / "run"), LiveJudge(lambda _: None) if observe else None)
    drain.start()
    job = {
        "script": str(HERE / "observer_program.py"),
        "args": [str(step_ms), str(steps), str(output)],
        "directory": str(scratch),
        "observe": observe,
    }
    try:
        with fork_server().session() as session, Path(os.devnull).open("w") as nowhere:
            port = start_store(session, WORLD)
            pids = []
            for rank in range(WORLD):
                env = {**os.environ, **rank_environment(rank, WORLD, port), RINGS_VARIABLE: str(rings)}
                within = Surroundings(env, path=[str(HERE.parent), *sys.path])
                out = (nowhere.fileno(), nowhere.fileno())
                pids.append(
                    session.start("tests.zoo.zoo_rank:run", json.dumps(job).encode(), output=out, within=within)
                )
            while not all(pid in session.codes for pid in pids):
                session.wait(0.2)
            if any(session.codes[pid] for pid in pids):
                raise SystemExit(f"a rank ended with {session.codes}")
    finally:
        drain.stop()
    ranks = [json.loads(Path(f"{output}.{rank}").read_text()) for rank in range(WORLD)]
    return {
        "step_s": statistics.median(each for rank in ranks for each in rank["durations_s"]),
        "cpu_s": sum(rank["cpu_s"] for rank in ranks) / WORLD / steps,
        "peak_bytes": max(rank["peak_bytes"] for rank in ranks),
    }


def measure(step_ms: int, rounds: int) -> dict[str, Any]:
    """All rounds for one length of steps."""
    steps = max(60, 1500 // step_ms)
    blocks: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        for kind in random.sample(KINDS, len(KINDS)):
            with tempfile.TemporaryDirectory() as scratch:
                blocks[kind].append(run_block(step_ms, steps, observe=kind == "observed", scratch=Path(scratch)))
        print(f"\rsteps of {step_ms} ms: round {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return {kind: {name: [each[name] for each in found] for name in found[0]} for kind, found in blocks.items()}


def judge(step_ms: int, found: dict[str, Any]) -> tuple[list[str], bool]:
    """Lines about one length of steps, and whether it holds the gate."""
    gate = GATES[step_ms]
    lines = [f"step {statistics.median(found['unobserved']['step_s']) * 1e3:.2f} ms unobserved"]
    ratios = {}
    for name, label in (("step_s", "duration"), ("cpu_s", "processor time")):
        for kind in ("observed", "control"):
            ratio = ratios[kind, name] = ratio_of_medians(found[kind][name], found["unobserved"][name])
            lines.append(f"  {label:<15} {kind:<9} {ratio.value:.4f} [{ratio.low:.4f}, {ratio.high:.4f}]")
    memory = statistics.median(found["observed"]["peak_bytes"]) - statistics.median(found["unobserved"]["peak_bytes"])
    lines.append(f"  peak memory of a rank +{memory / 2**20:.1f} MB")
    holds = memory <= MEMORY_BYTES
    if gate is not None:
        quiet = [name for name in ("step_s", "cpu_s") if _wide(ratios["control", name]) <= gate - 1]
        if not quiet:
            lines.append(f"  gate {gate}: inconclusive, the control varies more than the gate allows")
        else:
            passed = ratios["observed", quiet[0]].value <= gate
            holds &= passed
            what = "duration" if quiet[0] == "step_s" else "processor time"
            lines.append(f"  gate {gate}: {'holds' if passed else 'FAILS'} by {what}")
    return lines, holds


def _wide(ratio: Interval) -> float:
    """How far an interval reaches from 1."""
    return max(ratio.high - 1, 1 - ratio.low)


def main() -> int:
    """Measure, print and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps-ms", type=int, nargs="+", choices=sorted(GATES), default=[20, 5, 1])
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    began = time.time()
    results, lines, holds = {}, [], True
    for step_ms in arguments.steps_ms:
        results[step_ms] = measure(step_ms, arguments.rounds)
        found, passed = judge(step_ms, results[step_ms])
        lines += found
        holds &= passed
        print("\n".join(found), flush=True)
    close_fork_server()
    folder = record_folder("observer")
    print(f"{time.time() - began:.0f} s; record {folder}")
    facts = environment(threads_per_rank=1, backend="gloo", ranks=WORLD)
    command = command_line()
    text = [
        "# Cost of observation",
        "",
        f"`{' '.join(command)}`",
        "",
        "```",
        *lines,
        "```",
        "",
        *environment_lines(facts),
        "",
    ]
    write_record(folder, {"command": command, "environment": facts, "results": results}, "\n".join(text))
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
