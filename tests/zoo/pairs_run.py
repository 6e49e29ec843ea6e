"""Verifies NEW against OLD for each pair, right and wrong: `python -m tests.zoo.pairs_run --help`.

A wrong NEW is *told* when its verdict is fail, or when an audit's error names its fault. A right one has to pass.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

from paceline.observe.parity.script_rank import ScriptJob
from paceline.pool.processes import close_fork_server
from paceline.records.parity import ParityResult
from paceline.verify.script_parity import Question, verify_script
from tests.zoo.pairs.catalog import PAIRS_OF_SCRIPTS, Pair

STEPS = 12
_PATIENCE_S = 150.0
"""For each run: other work may slow the machine."""


def verified(pair: Pair, *, right: bool, steps: int, keep: Path | None = None) -> ParityResult:
    """Verify one NEW against OLD, on a copy of the pair and in an empty working directory."""
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        folder, directory = Path(scratch) / pair.slug, Path(scratch) / "cwd"
        shutil.copytree(pair.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
        directory.mkdir()
        if not right:
            (folder / "new.py").write_text(pair.wrong(), encoding="utf-8")
        old, new = (
            ScriptJob(script=str(folder / name), arguments=list(pair.args), directory=str(directory))
            for name in ("old.py", "new.py")
        )
        runs = keep or Path(scratch) / "runs"
        return verify_script(Question(new, pair.world, steps, runs, patience_s=_PATIENCE_S, before=old))


def row(pair: Pair, result: ParityResult, *, right: bool) -> dict:
    """What is kept of a result."""
    audits = [fault for each in result.findings if each.severity == "error" for fault in each.faults]
    named = {*result.faults, *(fault for each in result.findings for fault in each.faults)}
    return {
        "pair": pair.slug,
        "right": right,
        "faults": [] if right else pair.faults,
        "verdict": result.verdict,
        "reason": result.reason,
        "named": result.faults,
        "audits": [f"{each.severity} {each.code} {','.join(each.faults)}" for each in result.findings],
        "told": result.verdict == "pass" if right else result.verdict == "fail" or bool({*audits} & {*pair.faults}),
        "rightly_named": not right and bool(named & {*pair.faults}),
        "seconds": result.seconds,
    }


def score(rows: list[dict]) -> dict:
    """Counts over all pairs."""
    right, wrong = ([each for each in rows if each["right"] is kind] for kind in (True, False))
    return {
        "right": len(right),
        "passed": sum(each["told"] for each in right),
        "false_alarms": sum(each["verdict"] == "fail" for each in right),
        "wrong": len(wrong),
        "told": sum(each["told"] for each in wrong),
        "rightly_named": sum(each["rightly_named"] for each in wrong),
        "slowest_s": max((each["seconds"] for each in rows), default=0.0),
    }


def main() -> int:
    """Verify, show and score the pairs that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="slugs; all pairs by default")
    parser.add_argument("--only", choices=("right", "wrong"))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--record", type=Path, help="JSON lines of results; those that are in it are not run again")
    parser.add_argument("--keep", type=Path, help="keep the records of all runs below this directory")
    args = parser.parse_args()
    done = {}
    if args.record and args.record.exists():
        done = {(each["pair"], each["right"]): each for each in map(json.loads, args.record.read_text().splitlines())}
    rows = []
    chosen = [each for each in PAIRS_OF_SCRIPTS if not args.names or each.slug in args.names]
    for pair, right in [(each, kind) for each in chosen for kind in (True, False)]:
        if args.only and right != (args.only == "right"):
            continue
        found = done.get((pair.slug, right))
        if found is None:
            keep = args.keep / f"{pair.slug}-{'right' if right else 'wrong'}" if args.keep else None
            found = row(pair, verified(pair, right=right, steps=args.steps, keep=keep), right=right)
            if args.record:
                with args.record.open("ab") as file:
                    file.write(msgspec.json.encode(found) + b"\n")
        rows.append(found)
        kind = "right" if right else ",".join(pair.faults)
        told = "    " if found["told"] else "NOT "
        print(
            f"{told}{found['verdict']:<12} {kind:<12} {pair.slug:<22} {found['seconds']:5.1f} s "
            f"{','.join(found['named']):<8} {found['reason'][:160]}"
        )
        sys.stdout.flush()
    close_fork_server()
    counts = score(rows)
    print(json.dumps(counts, indent=2))
    return int(counts["passed"] + counts["told"] < len(rows))


if __name__ == "__main__":
    sys.exit(main())
