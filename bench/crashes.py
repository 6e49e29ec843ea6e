"""Let one rank of an observed job fail in eleven ways, and see whether `paceline run` names it and its line.

    python bench/crashes.py [--runs 3] [--again]

Each run starts `paceline run` on 2 or 3 ranks, of which one fails at step 12 (`crash_program.py`). The finding of the
job must name that rank as the first to fail and the line that failed; no process may be left; all records must be
readable to the last step. Ways to end without a trace (os._exit, sys.exit, SIGKILL) have no line. Finished runs are
kept in the record, and are not repeated unless --again is given.

Cost: about 10 s a run on 2 cores, 6 minutes in all. Writes bench/records/<date>_crashes/.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import command_line, environment, record_folder, write_record
from interruptions import left_over
from paceline.records.findings import read_findings
from paceline.records.observed_rank import ObservedStep
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir

PROGRAM = Path(__file__).resolve().parent / "crash_program.py"
KINDS = (
    "forward",
    "backward hook",
    "data set",
    "loader worker",
    "assertion",
    "os._exit",
    "sys.exit",
    "SIGSEGV",
    "SIGKILL",
    "MemoryError",
    "before a collective",
)
TRACELESS = ("os._exit", "sys.exit", "SIGKILL")
AT = 12
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Crash:
    """The report of one run, and the processes that it left."""

    kind: str
    run: int
    world: int
    victim: int
    exit_code: int | None
    code: str
    rank: int | None
    right_rank: bool
    right_line: bool
    """None is right for ends without a trace."""
    left_over: int
    readable: bool
    """Records of all ranks have no damage and reach the step of the failure."""
    seconds: float

    @property
    def good(self) -> bool:
        """All is as it should be."""
        named = self.right_rank and self.right_line and self.exit_code not in (0, None)
        return named and self.readable and not self.left_over


def marked_line(kind: str) -> int | None:
    """The line that fails."""
    if kind in TRACELESS:
        return None
    lines = PROGRAM.read_text().splitlines()
    marks = [line.rpartition("# fails: ")[2].split(", ") if "# fails: " in line else [] for line in lines]
    return next(number for number, kinds in enumerate(marks, start=1) if kind in kinds)


def readable(run: RunDir, world: int) -> bool:
    """True if each rank's records are complete and end at the failing step, or one step beside it."""
    files = run.rank_events()
    if sorted(files) != list(range(world)):
        return False
    for path in files.values():
        stream = EventStream(path)
        steps = [event.step for event in stream if isinstance(event, ObservedStep)]
        if stream.notes or not steps or max(steps) < AT - 2:
            return False
    return True


def crash(kind: str, run: int, root: Path) -> Crash:
    """One run; the number of ranks and the rank that fails go round."""
    world = (2, 3, 2)[run % 3]
    victim = (world - 1, 1, 0)[run % 3]
    folder = root / f"{kind.replace(' ', '-')}-{run}"
    command = [sys.executable, "-m", "paceline", "run", "--nproc-per-node", str(world), "--run-dir", str(folder)]
    began = time.monotonic()
    with (root / "output.txt").open("wb") as output:
        process = subprocess.Popen([*command, str(PROGRAM), kind, str(victim)], stdout=output, stderr=output, cwd=root)
        try:
            code: int | None = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(PATIENCE_S)
            code = None
    seconds = time.monotonic() - began
    left = left_over(folder)
    for each in left:
        each.kill()
    found, notes = read_findings(RunDir(folder).findings)
    job = next((each for each in found if each.code in ("DP180", "DP181", "DP182")), None)
    named = job is not None and job.code == "DP180" and job.rank == victim
    line = job.line if job is not None else -1
    return Crash(
        kind=kind,
        run=run,
        world=world,
        victim=victim,
        exit_code=code,
        code=job.code if job is not None else "",
        rank=job.rank if job is not None else None,
        right_rank=named,
        right_line=line == marked_line(kind),
        left_over=len(left),
        readable=not notes and readable(RunDir(folder), world),
        seconds=round(seconds, 1),
    )


def summary(done: list[Crash]) -> str:
    """The figures in a sentence."""
    total = len(done)
    return (
        f"{sum(each.good for each in done)} of {total} as they should be: "
        f"the rank that failed first named in {sum(each.right_rank for each in done)}, its line right in "
        f"{sum(each.right_line for each in done)}, records readable in {sum(each.readable for each in done)}, "
        f"processes left by {sum(each.left_over > 0 for each in done)}; "
        f"median {statistics.median(each.seconds for each in done):.1f} s a run"
    )


def main() -> int:
    """Run what has not run yet, print a line each, write the record after each."""
    parser = argparse.ArgumentParser(description="let ranks fail, and see what is reported")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--again", action="store_true", help="repeat runs that the record has")
    options = parser.parse_args()
    folder, facts = record_folder("crashes"), environment()
    kept = folder / "result.json"
    done = (
        [] if options.again or not kept.exists() else [Crash(**each) for each in json.loads(kept.read_text())["runs"]]
    )
    with tempfile.TemporaryDirectory(prefix="crashes-", ignore_cleanup_errors=True) as root:
        for run in range(options.runs):  # all kinds once, then again
            for kind in KINDS:
                if any((each.kind, each.run) == (kind, run) for each in done):
                    continue
                done.append(crash(kind, run, Path(root)))
                print(f"{'good' if done[-1].good else 'BAD '} {done[-1]}", flush=True)
                result = {"command": command_line(), "environment": facts, "runs": [asdict(each) for each in done]}
                write_record(folder, result, f"# Ranks that fail\n\n{summary(done)}.\n")
    print(summary(done))
    return 0 if all(each.good for each in done) else 1


if __name__ == "__main__":
    sys.exit(main())
