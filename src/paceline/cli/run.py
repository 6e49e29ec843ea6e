"""`paceline run`: launch a script as torchrun does."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from typing import IO, TYPE_CHECKING

from paceline.launch.flags import flags_before_script, help_text
from paceline.records.wrap import columns, text_card

if TYPE_CHECKING:
    from paceline.launch.plan import LaunchPlan


def run_command(argv: list[str]) -> int:
    """Run a script on workers; every flag of torchrun is accepted.

    Args:
        argv: what follows `paceline run` on the command line.

    Returns:
        The exit code.
    """
    if not argv or any(flag in ("-h", "--help") for flag in flags_before_script(argv)):
        print(help_text(min(columns(), 100)))
        return 0
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)  # as under torchrun; --signals-to-handle says otherwise
    # They need torch, which takes seconds: --help does not.
    from paceline.audits.cause_card import cause_of
    from paceline.audits.job_findings import explained, job_findings
    from paceline.cli.observed_job import observed_job
    from paceline.cli.output_format import FailOn
    from paceline.cli.script_reading import ScriptReading
    from paceline.launch.execute import execute, recorded_run
    from paceline.launch.plan import plan_launch
    from paceline.launch.tuning import describe
    from paceline.records.errors import Exit, PacelineError
    from paceline.records.findings import append_findings, read_and_observed
    from paceline.records.observation import encode_observation, write_observation
    from paceline.records.rundir import RunDir

    plan = plan_launch(argv)
    if plan.flags["dry_run"]:
        print(_as_text(plan))
        return 0
    as_json = plan.flags["format"] == "json"
    document = _stdout_to_stderr() if as_json else None
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    with recorded_run(plan) as plan:
        run = RunDir(plan.run_dir)
        off = " (--no-tuning leaves them out)" if plan.settings else ""
        _say(f"paceline: run directory {plan.run_dir}; settings {describe(plan.settings)}{off}")
        os.environ.update(plan.added_environment)  # workers inherit it
        reading = ScriptReading(plan)
        patience_s, stop = plan.flags["hang_patience"], plan.flags["stop_on_hang"]
        with observed_job(run, _say, hang_patience_s=patience_s, stop_on_hang=stop, width=width) as observation:
            outcome = execute(plan, _say, cause_of, observation.hangs)
    observed = observation.findings()
    failures = job_findings(outcome.attempts, observation.positions)
    findings = read_and_observed(reading.findings(), [*failures, *observed])
    observation.not_read = reading.missing()
    exit_code = outcome.exit_code
    fail_on = plan.flags["fail_on"]
    if exit_code == Exit.OK and fail_on and FailOn(fail_on).fails(findings):
        exit_code = Exit.FAILED
    record = observation.record(findings, exit_code)
    try:
        append_findings(run.findings, findings)
        write_observation(run, record)
    except PacelineError as error:  # a full disk does not change how the job ended
        _say(f"paceline: the findings were not written: {error.what}")
    if outcome.message:
        _say(outcome.message)
    if outcome.cause is not None:
        cause, attempts = outcome.cause, outcome.attempts
        if attempts and attempts[-1].cause is cause:
            cause = explained(cause, attempts[-1], observation.positions(attempts[-1].attempt))
        _say(text_card(cause.title, cause.rows, width=width))
    if text := observation.card(findings, width):
        _say(text)
    if document is not None:
        document.write(encode_observation(record))
        document.close()
    return exit_code


def _stdout_to_stderr() -> IO[bytes]:
    """Let everything that is printed from now on, by ranks too, go to stderr. Returns what was stdout."""
    sys.stdout.flush()
    document = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return document


def _say(text: str) -> None:
    """To people, beside the workers' own output."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _as_text(plan: LaunchPlan) -> str:
    """The plan as lines of text."""
    from paceline.launch.plan import RUN_DIR_VARIABLE

    entry = plan.entrypoint if isinstance(plan.entrypoint, str) else "in the worker's own interpreter:"
    config = plan.config
    least, most = plan.nodes
    rows = [
        ("command", shlex.join([entry, *map(str, plan.arguments)])),
        ("workers", f"{plan.workers} on {'this machine' if most == 1 else f'each of {least} to {most} machines'}"),
        ("meeting point", f"{config.rdzv_backend} {config.rdzv_endpoint or 'chosen at the start'}, id {config.run_id}"),
        ("restarts", f"{config.max_restarts} at most"),
        ("run directory", str(plan.run_dir)),
        ("logs", plan.log_dir),
    ]
    reasons = {each.name: each.why for each in plan.settings} | {RUN_DIR_VARIABLE: "where the run is recorded"}
    for name, value in plan.added_environment.items():
        rows.append(("environment", f"{name}={value} ({reasons.get(name, 'as torchrun sets it')})"))
    return "\n".join(f"{label:<14} {text}".rstrip() for label, text in rows)
