"""Verifies the scripts of the zoo on two ranks and scores the verdicts: `python -m tests.zoo.parity --help`.

A faulty script is *caught* when its verdict is fail, or when an audit names one of its faults. Faults of files, output
and evaluation do not change what is trained: an audit has to name those. A fail of a correct script is a false alarm.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import msgspec

from paceline.observe.parity.script_rank import ScriptJob
from paceline.pool.processes import close_fork_server
from paceline.records.parity import ParityResult
from paceline.verify.script_parity import Question, verify_script
from tests.zoo.catalog import Script
from tests.zoo.run import chosen, run_script

STEPS = 12
AUDITS = "under paceline run (default, slowest), on forked ranks, or none (fastest)"


def verified(script: Script, steps: int, audits: str = "run") -> ParityResult:
    """The result of one script, in an empty working directory.

    Args:
        script: of the zoo.
        steps: to compare.
        audits: "run" as `paceline verify` does, "warm" on forked ranks, which takes a third of the time, or "none".
    """
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        directory = Path(folder) / "cwd"
        directory.mkdir()
        findings = run_script(script, Path(folder)).findings if audits == "warm" else None
        job = ScriptJob(script=str(script.path), arguments=list(script.args), directory=str(directory))
        runs = Path(folder) / "runs"
        return verify_script(Question(job, script.world, steps, runs, audit=audits == "run", findings=findings))


def row(script: Script, result: ParityResult) -> dict:
    """What is kept of a result."""
    named = [fault for each in result.findings for fault in each.faults]
    return {
        "script": script.slug,
        "faulty": script.faulty,
        "faults": script.faults,
        "verdict": result.verdict,
        "reason": result.reason,
        "given": result.faults,
        "named": bool({*result.faults, *named} & set(script.faults)),
        "audited": sorted(set(named)),
        "seconds": result.seconds,
        "worst": result.compared.worst if result.compared else None,
    }


def score(rows: list[dict]) -> dict:
    """Counts over all scripts."""
    faulty, correct = ([each for each in rows if each["faulty"] is kind] for kind in (True, False))
    return {
        "faulty": len(faulty),
        "caught": sum(each["verdict"] == "fail" or each["named"] for each in faulty),
        "named": sum(each["named"] for each in faulty),
        "correct": len(correct),
        "passed": sum(each["verdict"] == "pass" for each in correct),
        "inconclusive": sum(each["verdict"] == "inconclusive" for each in correct),
        "false_alarms": sum(each["verdict"] == "fail" for each in correct),
        "slowest_s": max((each["seconds"] for each in rows), default=0.0),
    }


def main() -> int:
    """Verify, show and score the scripts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="slugs or fault ids; all scripts by default")
    parser.add_argument("--quick", action="store_true", help="every third script")
    parser.add_argument("--audits", default="run", choices=["run", "warm", "none"], help=AUDITS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--record", type=Path, help="JSON lines of results; scripts that are in it are not run again")
    args = parser.parse_args()
    done = {}
    if args.record and args.record.exists():
        done = {each["script"]: each for each in map(json.loads, args.record.read_text().splitlines())}
    rows = []
    for script in chosen(args.names, args.quick):
        found = done.get(script.slug)
        if found is None:
            found = row(script, verified(script, args.steps, args.audits))
            if args.record:
                with args.record.open("ab") as file:
                    file.write(msgspec.json.encode(found) + b"\n")
        rows.append(found)
        kind = ",".join(script.faults) or "correct"
        print(f"{found['verdict']:<13} {kind:<12} {script.slug:<42} {found['seconds']:5.1f} s  {found['reason'][:120]}")
        sys.stdout.flush()
    close_fork_server()
    counts = score(rows)
    print(json.dumps(counts, indent=2))
    return int(counts["false_alarms"] > 0)


if __name__ == "__main__":
    sys.exit(main())
