"""Runs a script as it is under `paceline run`, for the audits and for what a comparison of states cannot show."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from paceline.observe.parity.script_rank import ScriptJob
from paceline.pool.overlay_view import join
from paceline.pool.processes import fork_server
from paceline.records.findings import read_findings
from paceline.records.observation import read_observation
from paceline.records.rundir import RunDir
from paceline.records.schema import Finding
from paceline.verify.script_runs import protected

_END_S = 20.0
"""After Ctrl-C a launcher ends its ranks and writes its record."""


@dataclass(frozen=True)
class AuditedRun:
    """An unchanged run, as the audits saw it.

    Attributes:
        run: its records.
        findings: of the audits.
        missing: why the audits prove nothing; empty where they saw the script train.
    """

    run: RunDir
    findings: list[Finding]
    missing: str


def audited_run(job: ScriptJob, world: int, folder: Path, patience_s: float, *, allow_writes: bool) -> AuditedRun:
    """Run a script until it ends or its time is up.

    Args:
        job: the script.
        world: ranks.
        folder: of the records of the run; must not exist yet.
        patience_s: after which the run is interrupted; findings so far are kept.
        allow_writes: let it change files outside of that folder.

    Raises:
        PacelineError: its files cannot be protected.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "paceline", "run", "--nproc-per-node", str(world), "--run-dir", str(folder)]
    with (
        folder.with_suffix(".log").open("wb") as log,
        fork_server().session() as session,
        protected(session, folder.parent, allow_writes=allow_writes) as view,
    ):

        def enter() -> None:
            if view is not None:
                join(view)
            os.chdir(job.directory)

        # A session of its own: Ctrl-C comes to it once, from here.
        ranks = subprocess.Popen(
            [*command, *job.command], stdout=log, stderr=log, preexec_fn=enter, start_new_session=True
        )
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):  # findings so far are kept
                ranks.wait(patience_s)
        finally:
            _end(ranks)
    observed = read_observation(RunDir(folder))
    missing = "" if observed is not None and observed.steps else "the audits observed no training"
    return AuditedRun(RunDir(folder), read_findings(RunDir(folder).findings)[0], missing)


def _end(ranks: subprocess.Popen[bytes]) -> None:
    """End the launcher, which ends its ranks."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if ranks.poll() is not None:
            return
        ranks.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            ranks.wait(_END_S)
