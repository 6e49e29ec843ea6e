"""Let a training hang in twelve ways, and see whether `paceline run` names the rank and the line, and how soon.

    python bench/hangs.py [--runs 1] [--ranks 2 3] [--kinds sleep lock ...]

Each case runs `hangs_program.py`, whose last rank hangs after 40 steps of about 60 ms, until `--stop-on-hang` ends it.
The rank is right if the card names the rank that hangs, and for collectives that do not match each rank. The line is
right if the card has the line at which the rank that hangs stands; for collectives that do not match, the lines of all
ranks. Seconds count from the last step of any rank to the card. A case that was measured is not measured again today:
one that was interrupted goes on. A stopped process has no line without py-spy.

Cost: 30 s a case on 2 cores. Writes bench/records/<date>_hangs/.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import command_line, environment, environment_lines, record_folder, write_record
from paceline.records.launched import HangSeen
from paceline.records.reader import EventStream

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "hangs_program.py"
BOTH = ("missing", "mismatch", "wrong-barrier")
"""Kinds in which ranks wait for each other: each of them is named."""
KINDS = ("sleep", "loop", "gil", "nogil", "lock", "subprocess", *BOTH, "receive", "worker", "sigstop")
LIMIT_S = 120.0
CARDS = ("-- paceline: hang: ", "-- paceline: no progress: ")


@dataclass(frozen=True)
class Case:
    """One hang, and how it was reported."""

    kind: str
    ranks: int
    run: int
    right_rank: bool = False
    right_line: bool | None = None
    """None where no line can be known."""
    seconds: float | None = None
    """From the last step to the card; None without one."""
    title: str = ""


def expected_lines(kind: str) -> set[int]:
    """Lines of the program that are marked with a kind."""
    found = set()
    for number, text in enumerate(PROGRAM.read_text().splitlines(), 1):
        _, _, marked = text.partition("# here: ")
        if kind in marked.split(", "):
            found.add(number)
    return found


def measure(kind: str, ranks: int, run: int) -> Case:
    """Run one case."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        command = [sys.executable, "-m", "paceline", "run", "--nproc-per-node", str(ranks), "--stop-on-hang"]
        command += ["--run-dir", str(folder / "run"), str(PROGRAM), kind, str(folder / "beat")]
        shown_s = None
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=HERE, env=environment) as process:
            assert process.stderr is not None
            began = time.time()
            for line in process.stderr:
                if shown_s is None and line.startswith(CARDS):
                    shown_s = time.time()
                if time.time() - began > LIMIT_S:
                    process.terminate()
                    break
        last_s = max(float(path.read_text()) for path in folder.glob("beat.*"))
        hang = next(
            (
                each
                for path in (folder / "run" / "events").glob("launcher-*.jsonl")
                for each in EventStream(path)
                if isinstance(each, HangSeen)
            ),
            None,
        )
    return judge(Case(kind, ranks, run, seconds=None if shown_s is None else shown_s - last_s), hang)


def judge(case: Case, hang: HangSeen | None) -> Case:
    """Compare a card with what happened."""
    if hang is None:
        return case
    culprit = case.ranks - 1
    right = set(hang.culprits) == set(range(case.ranks)) if case.kind in BOTH else hang.culprits == [culprit]
    at = {each.rank: each.line for each in hang.ranks if Path(each.path or "").name == PROGRAM.name}
    expected = expected_lines(case.kind)
    if case.kind == "sigstop":
        line = None
    elif case.kind in BOTH:
        line = expected <= set(at.values()) if case.kind != "missing" else at.get(culprit) in expected
    else:
        line = at.get(culprit) in expected
    return Case(case.kind, case.ranks, case.run, right, line, case.seconds, hang.title)


def table(cases: Iterable[Case]) -> list[str]:
    """A line for each kind, and the sums."""
    cases = list(cases)
    lines = [f"{'kind':<14} {'runs':>4} {'rank':>5} {'line':>6} {'seconds to the card':>20}"]
    for name in (*KINDS, "all"):
        group = [each for each in cases if name in (each.kind, "all")]
        times = sorted(each.seconds for each in group if each.seconds is not None)
        lined = [each.right_line for each in group if each.right_line is not None]
        if group:
            span = f"{times[0]:.1f} to {times[-1]:.1f}" if times else "none"
            right = f"{sum(lined)}/{len(lined)}" if lined else "-"
            lines.append(
                f"{name:<14} {len(group):>4} {sum(each.right_rank for each in group):>5} {right:>6} {span:>20}"
            )
    return lines


def main() -> int:
    """Measure what is missing, print, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments = parser.parse_args()
    folder = record_folder("hangs")
    known = folder / "cases.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    done = [Case(**json.loads(line)) for line in known.read_text().splitlines()] if known.exists() else []
    with known.open("a") as file:
        for run in range(arguments.runs):
            for ranks in arguments.ranks:
                for kind in arguments.kinds:
                    if any((each.kind, each.ranks, each.run) == (kind, ranks, run) for each in done):
                        continue
                    done.append(measure(kind, ranks, run))
                    file.write(json.dumps(asdict(done[-1])) + "\n")
                    file.flush()
                    print(done[-1], flush=True)
    lines = table(done)
    print("\n".join(lines))
    facts = environment(backend="gloo")
    command = command_line()
    text = ["# Hangs", "", f"`{' '.join(command)}`", "", "```", *lines, "```", "", *environment_lines(facts), ""]
    cases = [asdict(each) for each in done]
    write_record(folder, {"command": command, "environment": facts, "cases": cases}, "\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
