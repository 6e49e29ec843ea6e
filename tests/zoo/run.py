"""Runs the scripts of the zoo under observation and scores the findings: `python -m tests.zoo.run --help`.

A faulty script is *found* when a finding of any severity names one of its faults, or when an error or warning says that
something is wrong; it is *rightly named* when a finding names one of its faults. An error or a warning about a correct
script is a false alarm.
"""

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from paceline.audits.run_judge import RunJudge, judge_ledger
from paceline.check.script_findings import script_findings
from paceline.launch.output_compare import compare_output
from paceline.launch.ring_drain import RingDrain, make_rings_folder
from paceline.pool.processes import Surroundings, close_fork_server, fork_server
from paceline.pool.rank import rank_environment
from paceline.pool.store import start_store
from paceline.records.findings import read_findings
from paceline.records.ring import RINGS_VARIABLE
from paceline.records.rundir import RunDir
from paceline.records.schema import AnyEvent, Finding
from tests.zoo.catalog import Script, scripts

PATIENCE_S = 90.0
_LEAST_FOUND, _ENOUGH = 0.75, 20
"""Share of silent faults below which a run of so many scripts fails."""


@dataclass
class Result:
    """What was found in one script, and what was read in it."""

    script: Script
    exit_codes: list[int | None]
    findings: list[Finding]
    seconds: float
    not_observed: list[str] = field(default_factory=list)

    @functools.cached_property
    def read(self) -> list[Finding]:
        """Findings of `paceline check`."""
        return script_findings(self.script.path)[0]

    @property
    def named_together(self) -> bool:
        """A finding of either kind names one of the script's faults."""
        return any(set(each.faults) & set(self.script.faults) for each in (*self.findings, *self.read))

    @property
    def alarms(self) -> list[Finding]:
        """Errors and warnings."""
        return [each for each in self.findings if each.severity != "info"]

    @property
    def broken(self) -> bool:
        """The ranks did not end as the script does, so nothing can be said about the findings."""
        return any(code != 0 for code in self.exit_codes) != (self.script.ends != "done")

    @property
    def named(self) -> bool:
        """A finding names one of the script's faults."""
        return any(set(each.faults) & set(self.script.faults) for each in self.findings)

    @property
    def found(self) -> bool:
        """Something was found to be wrong."""
        return self.named or bool(self.alarms)

    @property
    def on_the_line(self) -> bool:
        """A finding names a line that carries the fault."""
        return any(each.line in self.script.fault_lines for each in self.findings)


class _Listener:
    def __init__(self) -> None:
        self.judge = RunJudge()
        self._decode = msgspec.json.Decoder(AnyEvent).decode

    def event(self, rank, line):
        self.judge.feed(rank, self._decode(line))

    def progress(self, ranks):
        pass


def run_script(script: Script, kept: Path) -> Result:
    """Run a script and judge it: on warm ranks, or with `paceline run` where a rank fails or the header asks for it."""
    began = time.monotonic()
    # The second attempt starts fresh processes. gloo sometimes aborts a rank that has done its work; with torch 2.9, a
    # rank that imported torch._dynamo first, as warm ones do, can deadlock when its model is freed after its group.
    for attempt in range(2):
        work = kept / f"{script.slug}-{attempt}"
        (work / "cwd").mkdir(parents=True)
        real = attempt or script.launcher == "real" or script.ends != "done"
        result = _real(script, work) if real else _warm(script, work)
        if not result.broken:
            break
    result.seconds = time.monotonic() - began
    return result


def _warm(script: Script, work: Path) -> Result:
    rings, listener = make_rings_folder(), _Listener()
    drain = RingDrain(rings, RunDir(work / "run"), listener)
    drain.start()
    codes: list[int | None] = []
    try:
        with fork_server().session() as session:
            port = start_store(session, script.world)
            pids = [_start(session, script, work, rank, port, rings) for rank in range(script.world)]
            deadline = time.monotonic() + PATIENCE_S
            while not all(pid in session.codes for pid in pids) and time.monotonic() < deadline:
                session.wait(0.05)
            codes = [session.codes.get(pid) for pid in pids]
    finally:
        drain.stop()
    judge_ledger(listener.judge, work / "run")
    compared = compare_output(work, list(range(script.world)))
    if compared is not None:
        listener.judge.feed(0, compared)
    listener.judge.finish()
    missing = [f"{each.what}: {each.why}" for each in listener.judge.not_observed()]
    return Result(script, codes, listener.judge.findings(), 0.0, missing)


def _start(session, script: Script, work: Path, rank: int, port: int, rings: Path) -> int:
    folder = work / str(rank)
    folder.mkdir()
    job = {"script": str(script.path), "args": script.args, "directory": str(work / "cwd"), "observe": True}
    env = {**os.environ, **rank_environment(rank, script.world, port), RINGS_VARIABLE: str(rings)}
    with (folder / "stdout.log").open("wb") as out, (folder / "stderr.log").open("wb") as err:
        within = Surroundings(env, name=f"zoo rank{rank}", path=[str(Path.cwd()), *sys.path])
        return session.start(
            "tests.zoo.zoo_rank:run", json.dumps(job).encode(), output=(out.fileno(), err.fileno()), within=within
        )


def _real(script: Script, work: Path) -> Result:
    command = [sys.executable, "-m", "paceline", "run", "--nproc-per-node", str(script.world)]
    command += ["--no-check"]
    command += ["--stop-on-hang"] if script.ends == "hang" else []
    command += ["--run-dir", str(work / "run"), str(script.path), *script.args]
    with (work / "output.log").open("wb") as output:
        done = subprocess.run(command, cwd=work / "cwd", stdout=output, stderr=output, timeout=3 * PATIENCE_S)
    found, _ = read_findings(RunDir(work / "run").findings)
    return Result(script, [done.returncode], found, 0.0)


def chosen(names: list[str], quick: bool) -> list[Script]:
    """The scripts that the command line asks for: by name, or all whose fault a run on CPU can show.

    Scripts that start their ranks themselves are left out: nothing observes those ranks.
    """
    found = [each for each in scripts() if each.needs is None or importlib.util.find_spec(each.needs)]
    found = [each for each in found if each.launcher != "python"]
    if names:
        found = [each for each in found if any(name in (each.slug, *each.faults) for name in names)]
    else:
        found = [each for each in found if each.observable]
    if quick:
        found = [each for each in found if each.launcher != "real" and each.ends == "done"][::3]
    return found


def show(result: Result, verbose: bool) -> None:
    """A line for a script, and its findings where they are not as they should be."""
    script = result.script
    if result.broken:
        verdict = "BROKEN"
    elif script.faulty:
        verdict = "named" if result.named else "found" if result.found else "MISSED"
        verdict += " " if not result.named or result.on_the_line else " (other line)"
    else:
        verdict = "FALSE ALARM" if result.alarms else "clean"
    ended = "" if not result.broken else f" exit codes {result.exit_codes}"
    print(f"{verdict:<20} {','.join(script.faults) or 'correct':<10} {script.slug:<44} {result.seconds:5.1f} s{ended}")
    if verbose or verdict.startswith(("BROKEN", "MISSED", "FALSE", "found")):
        for each in result.findings:
            place = f"{Path(each.path).name}:{each.line}" if each.path else ""
            print(f"    {each.severity} {each.code} {','.join(each.faults)} {place} step {each.step}: {each.message}")
        for text in result.not_observed if verbose else ():
            print(f"    not observed: {text}")
    sys.stdout.flush()


def score(results: list[Result]) -> dict:
    """Counts over all scripts."""
    broken = sum(each.broken for each in results)
    results = [each for each in results if not each.broken]
    faulty = [each for each in results if each.script.faulty and each.script.observable]
    silent = [each for each in faulty if each.script.silent]
    correct = [each for each in results if not each.script.faulty]
    return {
        "faulty": len(faulty),
        "silent": len(silent),
        "silent_found": sum(each.found for each in silent),
        "silent_named": sum(each.named for each in silent),
        "silent_alarms": sum(bool(each.alarms) for each in silent),
        "other_found": sum(each.found for each in faulty) - sum(each.found for each in silent),
        "on_the_line": sum(each.on_the_line for each in faulty),
        "correct": len(correct),
        "broken": broken,
        "false_alarms": sum(bool(each.alarms) for each in correct),
        "seconds": round(sum(each.seconds for each in results), 1),
        **together(results),
    }


def together(results: list[Result]) -> dict:
    """Counts of observing and reading together, over all silent faults of the zoo if all scripts were run."""
    ran = {each.script.slug for each in results}
    if any(each.slug not in ran for each in chosen([], quick=False)):
        return {}
    unobserved = [Result(each, [], [], 0.0) for each in scripts() if each.slug not in ran and each.faulty]
    silent = [each for each in (*results, *unobserved) if each.script.silent]
    alarms = [each for each in results if not each.script.faulty and any(one.severity != "info" for one in each.read)]
    return {
        "silent_together": len(silent),
        "silent_named_together": sum(each.named_together for each in silent),
        "false_alarms_read": len(alarms),
    }


def page(results: list[Result], counts: dict) -> str:
    """The table in Markdown."""
    silent = counts["silent"]
    lines = [
        "# The zoo",
        "",
        "Small training scripts of our own (`tests/zoo/`), faulty and correct ones, run on two ranks under",
        "observation. Made by `make zoo` (`python -m tests.zoo.run --page docs/zoo.md`). The scripts were written",
        "without knowledge of the audits, except those of F75, F78 to F82, F85 to F87, F90, F91, F127 and F130.",
        "",
        f"- silent faults found: {counts['silent_found']} of {silent} ({counts['silent_found'] / silent:.0%}),",
        f"  {counts['silent_alarms']} of them by an error or a warning",
        f"- rightly named: {counts['silent_named']} of {silent} ({counts['silent_named'] / silent:.0%})",
        f"- faults that crash, hang or print: {counts['other_found']} of {counts['faulty'] - silent} found",
        f"- correct scripts with an error or a warning: {counts['false_alarms']} of {counts['correct']}",
        *_together_lines(counts),
        "",
        "| script | fault | found | by | read by |",
        "|---|---|---|---|---|",
    ]
    for each in sorted(results, key=lambda one: one.script.slug):
        if each.script.faulty and not each.broken:
            verdict = "named" if each.named else "found, not named" if each.found else "**missed**"
            lines.append(
                f"| {each.script.slug} | {', '.join(each.script.faults)} | {verdict} | {_codes(each.findings)} "
                f"| {_codes(each.read)} |"
            )
    return "\n".join([*lines, ""])


def _together_lines(counts: dict) -> list[str]:
    if "silent_together" not in counts:
        return []
    named, silent = counts["silent_named_together"], counts["silent_together"]
    return [
        "",
        "`paceline run` reads the script as well ([what reading finds](zoo-check.md)). With the faults that a run",
        f"on a CPU cannot show, observing and reading together name {named} of {silent} silent faults",
        f"({named / silent:.0%}).",
    ]


def _codes(findings: list[Finding]) -> str:
    return ", ".join(dict.fromkeys(f"{one.code} ({one.severity})" for one in findings))


def main() -> int:
    """Run, show and score the scripts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="slugs or fault ids; all scripts by default")
    parser.add_argument("--quick", action="store_true", help="every third script, for CI")
    parser.add_argument("--verbose", action="store_true", help="show every finding")
    parser.add_argument("--page", type=Path, help="write the table as a page of the documentation")
    parser.add_argument("--json", type=Path, help="write the table as JSON")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        kept = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zoo-")))
        stack.callback(close_fork_server)
        results = []
        for script in chosen(args.names, args.quick):
            results.append(run_script(script, kept))
            show(results[-1], args.verbose)
    counts = score(results)
    print(json.dumps(counts, indent=2))
    if args.page:
        args.page.write_text(page(results, counts))
    if args.json:
        rows = [
            {
                "script": each.script.slug,
                "faults": each.script.faults,
                "silent": each.script.silent,
                "found": each.found,
                "named": each.named,
                "findings": [(one.code, one.severity, one.faults) for one in each.findings],
            }
            for each in results
        ]
        args.json.write_text(json.dumps({"score": counts, "scripts": rows}, indent=2) + "\n")
    too_few = counts["silent"] >= _ENOUGH and counts["silent_found"] < _LEAST_FOUND * counts["silent"]
    return int(counts["false_alarms"] > 0 or counts["broken"] > 0 or too_few)


if __name__ == "__main__":
    sys.exit(main())
