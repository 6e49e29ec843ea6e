"""What `paceline run` costs a training: blocks of steps that are observed, between blocks that are not.

    python bench/observer.py [--steps-ms 20 5 1] [--rounds 200]

Two DDP ranks, forked from the fork server, train one model without a pause. Each round is three blocks in an order
shuffled anew: observed, unobserved, and unobserved once more as a control. Between blocks the ranks arm and disarm the
observer of `paceline run`, which patches torch and takes the patches back, so blocks differ in nothing else: not in
memory layout, sockets or processors. Meanwhile this process reads the rings and judges, as the launcher does. Results
are medians over rounds of the ratio of observed to unobserved, and of the control, with a 95 % bootstrap interval.

The gate is a ratio of 1.005 at steps of 20 ms and 1.01 at 5 ms. Where the control's interval is wider than the gate
allows, the machine is too noisy for it, and the processor time of the ranks is judged instead; where that varies as
much, the result is inconclusive. Memory is the difference of the peaks of a run under observation and one without.
Writes bench/records/<date>_observer/.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness import command_line, environment, environment_lines, ratio_of_medians, record_folder, write_record
from observer_program import KINDS
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
BLOCK_MS = {20: 200, 5: 100, 1: 40}


def run(step_ms: int, rounds: int, *, observe: bool) -> dict[str, Any]:
    """Train on two ranks. Returns seconds of a step in each block by kind, and the peak memory of a rank."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        rings = make_rings_folder()
        drain = RingDrain(rings, RunDir(scratch / "run"), LiveJudge(lambda _: None) if observe else None)
        drain.start()
        output = scratch / "blocks"
        job = {"step_ms": step_ms, "rounds": rounds, "steps": BLOCK_MS[step_ms] // step_ms, "observe": observe}
        given = json.dumps(job | {"output": str(output)}).encode()
        try:
            with fork_server().session() as session:
                port = start_store(session, WORLD)
                pids = []
                for rank in range(WORLD):
                    env = {**os.environ, **rank_environment(rank, WORLD, port), RINGS_VARIABLE: str(rings)}
                    within = Surroundings(env, path=[str(HERE), *sys.path])
                    pids.append(session.start("observer_program:run", given, within=within))
                while not all(pid in session.codes for pid in pids):
                    session.wait(0.2)
                if any(session.codes[pid] for pid in pids):
                    raise SystemExit(f"a rank ended with {session.codes}")
        finally:
            drain.stop()
        ranks = [json.loads(Path(f"{output}.{rank}").read_text()) for rank in range(WORLD)]
    # The slowest rank sets the pace; processor time is that of both.
    return {"peak_bytes": max(rank["peak_bytes"] for rank in ranks)} | {
        kind: {
            "step_s": [max(each) for each in zip(*(rank[kind]["step_s"] for rank in ranks), strict=True)],
            "cpu_s": [sum(each) for each in zip(*(rank[kind]["cpu_s"] for rank in ranks), strict=True)],
        }
        for kind in KINDS
    }


def judge(step_ms: int, found: dict[str, Any], memory: int) -> tuple[list[str], bool]:
    """Lines about one length of steps, and whether it holds the gates."""
    gate = GATES[step_ms]
    lines = [f"step {statistics.median(found['unobserved']['step_s']) * 1e3:.2f} ms unobserved"]
    ratios = {}
    for name, label in (("step_s", "duration"), ("cpu_s", "processor time")):
        watched, plain, control = (np.array(found[kind][name]) for kind in KINDS)
        rest = (plain + control) / 2
        for kind, ratio_by_round in (("observed", watched / rest), ("control", control / plain)):
            ratio = ratios[kind, name] = ratio_of_medians(ratio_by_round, np.ones(len(rest)))
            lines.append(f"  {label:<15} {kind:<9} {ratio.value:.4f} [{ratio.low:.4f}, {ratio.high:.4f}]")
        lines.append(f"  {label:<15} added     {np.median(watched - rest) * 1e6:.0f} us a step")
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
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    began = time.time()
    results, lines, holds = {}, [], True
    for step_ms in arguments.steps_ms:
        peaks = [run(step_ms, 3, observe=observe)["peak_bytes"] for observe in (True, False)]
        results[step_ms] = found = run(step_ms, arguments.rounds, observe=True)
        found["memory_bytes"] = peaks[0] - peaks[1]
        text, passed = judge(step_ms, found, found["memory_bytes"])
        lines += text
        holds &= passed
        print("\n".join(text), flush=True)
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
