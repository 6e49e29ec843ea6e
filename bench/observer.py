"""What `paceline run` costs a training: blocks of steps that are observed, between blocks that are not.

    python bench/observer.py [--steps-ms 20 5 1] [--rounds 200]

Two DDP ranks, forked from the fork server, train one model without a pause. Each round is three blocks in an order
shuffled anew: observed, unobserved, and unobserved once more as a control. Between blocks the ranks arm and disarm the
observer of `paceline run`, which patches torch and takes the patches back, so blocks differ in nothing else: not in
memory layout, sockets or processors. Meanwhile this process reads the rings and judges, as the launcher does. Results
are ratios of medians over single steps, of observed to unobserved blocks and of the control, with 95 % bootstrap
intervals over rounds. Steps that the observer records cost more than others, and are fewer the longer a run is: the
cost of a run weighs both as in one of 10,000 steps.

The gate is a ratio of 1.005 at steps of 20 ms and 1.01 at 5 ms. Where the control's interval is wider than the gate
allows, the machine is too noisy for it, and the processor time of the ranks is judged instead; where that varies as
much, the result is inconclusive. Memory is the difference of the peaks of a run under observation and one without.
Writes bench/records/<date>_observer/.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness import command_line, environment, environment_lines, record_folder, write_record
from observer_program import KINDS
from paceline.cli.observation import LiveJudge
from paceline.launch.ring_drain import RingDrain, make_rings_folder
from paceline.observe.schedule import is_recorded
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
RUN = 10_000
"""Steps of the run whose cost is stated."""
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
            "step_s": np.max([rank[kind]["step_s"] for rank in ranks], axis=0),
            "cpu_s": np.sum([rank[kind]["cpu_s"] for rank in ranks], axis=0),
            "recorded": np.array(ranks[0][kind]["recorded"]),
        }
        for kind in KINDS
    }


def cost(found: dict[str, Any], name: str) -> dict[str, Interval]:
    """Ratios of medians over steps, with 95 % bootstrap intervals over rounds.

    Returns:
        "unrecorded", "recorded": steps of observed blocks to those of both others. "run": both, weighted as in a run
        of RUN steps. "control": one kind of unobserved blocks to the other.
    """
    watched, recorded = found["observed"][name], found["observed"]["recorded"]
    plain, control = found["unobserved"][name], found["control"][name]
    share = sum(map(is_recorded, range(RUN))) / RUN
    rounds = len(watched)
    samples: dict[str, list[float]] = {}
    draws = np.random.default_rng(0).integers(rounds, size=(1000, rounds))
    for chosen in [np.arange(rounds), *draws]:
        rest = np.median(np.concatenate([plain[chosen], control[chosen]]))
        kinds = {kind: watched[chosen][recorded[chosen] == flag] for kind, flag in (("unrecorded", 0), ("recorded", 1))}
        ratios = {kind: np.median(each) / rest if each.size else np.nan for kind, each in kinds.items()}
        ratios["run"] = (1 - share) * ratios["unrecorded"] + share * np.nan_to_num(ratios["recorded"], nan=1.0)
        ratios["control"] = np.median(control[chosen]) / np.median(plain[chosen])
        for kind, ratio in ratios.items():
            samples.setdefault(kind, []).append(float(ratio))
    return {
        kind: Interval(each[0], *(float(edge) for edge in np.nanquantile(each[1:], [0.025, 0.975])))
        for kind, each in samples.items()
    }


def judge(step_ms: int, found: dict[str, Any], memory: int) -> tuple[list[str], bool]:
    """Lines about one length of steps, and whether it holds the gates."""
    gate = GATES[step_ms]
    median = float(np.median(found["unobserved"]["step_s"]))
    lines = [f"step {median * 1e3:.2f} ms unobserved"]
    ratios = {}
    for name, label in (("step_s", "duration"), ("cpu_s", "processor time")):
        ratios[name] = cost(found, name)
        for kind, ratio in ratios[name].items():
            lines.append(f"  {label:<15} {kind:<10} {ratio.value:.4f} [{ratio.low:.4f}, {ratio.high:.4f}]")
    added = (ratios["step_s"]["unrecorded"].value - 1) * median
    lines.append(f"  added to a step that is not recorded: {added * 1e6:.0f} us")
    lines.append(f"  peak memory of a rank +{memory / 2**20:.1f} MB")
    holds = memory <= MEMORY_BYTES
    if gate is not None:
        quiet = [name for name in ratios if _wide(ratios[name]["control"]) <= gate - 1]
        if not quiet:
            lines.append(f"  gate {gate}: inconclusive, the control varies more than the gate allows")
        else:
            passed = ratios[quiet[0]]["run"].value <= gate
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
        found = run(step_ms, arguments.rounds, observe=True)
        text, passed = judge(step_ms, found, peaks[0] - peaks[1])
        results[step_ms] = {
            "memory_bytes": peaks[0] - peaks[1],
            "median_step_s": float(np.median(found["unobserved"]["step_s"])),
            **{
                name: {kind: [each.value, each.low, each.high] for kind, each in cost(found, name).items()}
                for name in ("step_s", "cpu_s")
            },
        }
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
