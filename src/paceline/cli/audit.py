"""`paceline audit`: judge a saved run of `paceline run` again."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.output_format import FailOnOption, Format, OutputFormat

if TYPE_CHECKING:
    from paceline.records.observation import ObservedRun
    from paceline.records.rundir import RunDir


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of paceline run.")],
    fail_on: FailOnOption = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Judge a saved run of paceline run again: faults of its ranks, and what was not observed.

    The result replaces the run's observation.json, which paceline report shows; findings.jsonl is not changed.
    """
    from paceline.audits.run_judge import judge_run
    from paceline.cli.observation import observation_card, observed_run
    from paceline.records.errors import Exit, PacelineError
    from paceline.records.findings import read_again, read_and_observed, read_findings
    from paceline.records.observation import Unseen, encode_observation
    from paceline.records.rundir import RunDir, read_info

    if (verb := read_info(run).verb) != "run":
        raise PacelineError(
            f"{run} is a run of paceline {verb}, which has no observed ranks", hint="name a run of paceline run"
        )
    judge = judge_run(run)
    written, notes = read_findings(RunDir(run).findings)
    for note in notes:
        sys.stderr.write(f"paceline: {note}\n")
    kept = [each for each in written if each.code.startswith(("DP18", "DP40"))]
    read = [each for each in written if each.code.startswith("DP0")]
    findings = read_again(written, read_and_observed(read, [*kept, *judge.findings()]))
    exit_code = Exit.FAILED if fail_on is not None and fail_on.fails(findings) else Exit.OK
    before = _earlier(RunDir(run))
    missing = [each for each in before.not_observed if each.by_launcher] if before else []
    if not judge.ranks and not missing:
        missing = [Unseen(what="everything", why="the run directory has no events of ranks")]
    speed = (before.steps_per_s, before.samples_per_s) if before else (None, None)
    record = observed_run(judge, findings, run=run, exit_code=exit_code, missing=missing, speed=speed)
    _keep(RunDir(run), record)
    if output_format is Format.JSON:
        sys.stdout.write(encode_observation(record).decode())
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write(observation_card(judge, findings, run=run, missing=missing, width=width) + "\n")
    if exit_code:
        raise typer.Exit(exit_code)


def _earlier(run: RunDir) -> ObservedRun | None:
    from paceline.records.errors import PacelineError
    from paceline.records.observation import read_observation

    try:
        return read_observation(run)
    except PacelineError:  # damaged, and written anew
        return None


def _keep(run: RunDir, record: ObservedRun) -> None:
    from paceline.records.errors import PacelineError
    from paceline.records.observation import write_observation

    try:
        write_observation(run, record)
    except PacelineError as error:  # a run in a read-only directory can be judged
        sys.stderr.write(f"paceline: observation.json was not written: {error.why or error.what}\n")
