"""Run a training with long pauses and no fault under `paceline run`, and count the alarms. None is right.

    python bench/no_false_alarm.py [--minutes 30] [--ranks 2]

`no_false_alarm_program.py` evaluates, writes checkpoints, and takes steps that vary tenfold. Counted are hangs in the
launcher's record, and findings of severity error or warning. Fails with code 1 if there is any.

Cost: the minutes, at less than a tenth of a core a rank. Writes bench/records/<date>_no_false_alarm/.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import command_line, environment, environment_lines, record_folder, write_record
from paceline.records.findings import read_findings
from paceline.records.launched import HangSeen
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir

PROGRAM = Path(__file__).resolve().parent / "no_false_alarm_program.py"


@dataclass(frozen=True)
class QuietRun:
    """One run, and what was reported."""

    exit_code: int
    ranks: int
    seconds: float
    steps: int
    evaluations: int
    checkpoints: int
    longest_pause_s: float
    """Between two optimizer steps of rank 0."""
    hangs: list[str]
    """Titles of the cards."""
    findings: list[str]
    """Errors and warnings."""

    @property
    def quiet(self) -> bool:
        """The job ended well, and nothing was reported."""
        return self.exit_code == 0 and not self.hangs and not self.findings


def measure(minutes: float, ranks: int = 2) -> QuietRun:
    """Run the program for so long."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        command = [sys.executable, "-m", "paceline", "run", "--nproc-per-node", str(ranks)]
        command += ["--run-dir", str(folder / "run"), str(PROGRAM), str(minutes), str(folder / "counts.json")]
        ended = subprocess.run(command, cwd=folder, check=False)
        path = folder / "counts.json"
        counts = json.loads(path.read_text()) if path.exists() else {}
        events = [each for path in (folder / "run" / "events").glob("launcher-*.jsonl") for each in EventStream(path)]
        found, _ = read_findings(RunDir(folder / "run").findings)
    return QuietRun(
        exit_code=ended.returncode,
        ranks=ranks,
        seconds=round(counts.get("seconds", 0.0), 1),
        steps=counts.get("steps", 0),
        evaluations=counts.get("evaluations", 0),
        checkpoints=counts.get("checkpoints", 0),
        longest_pause_s=round(counts.get("longest_pause_s", 0.0), 1),
        hangs=[each.title for each in events if isinstance(each, HangSeen)],
        findings=[f"{each.code}: {each.message}" for each in found if each.severity != "info"],
    )


def table(run: QuietRun) -> list[str]:
    """A line for each number."""
    alarms = [*run.hangs, *run.findings]
    return [
        f"ranks          {run.ranks}",
        f"time           {run.seconds / 60:.1f} min, exit code {run.exit_code}",
        f"steps          {run.steps}",
        f"evaluations    {run.evaluations}",
        f"checkpoints    {run.checkpoints}",
        f"longest pause  {run.longest_pause_s} s between two steps",
        f"alarms         {len(alarms)}",
        *(f"               {each}" for each in alarms),
    ]


def main() -> int:
    """Run, print, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    facts = environment(backend="gloo")
    run = measure(arguments.minutes, arguments.ranks)
    lines = table(run)
    print("\n".join(lines))
    command = command_line()
    text = [
        "# No false alarm",
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
    folder = record_folder("no_false_alarm")
    write_record(folder, {"command": command, "environment": facts, "run": asdict(run)}, "\n".join(text))
    return 0 if run.quiet else 1


if __name__ == "__main__":
    sys.exit(main())
