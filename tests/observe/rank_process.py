"""Starts a script as the launcher would start a rank, with this process as the launcher."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.launch.ring_drain import RingDrain, make_rings_folder, observed_environment
from paceline.pool.rank import rank_environment
from paceline.records.rundir import RunDir

FAKE_TORCH = "VALUE = 1\n"
"""A package that no observer can attach to: it leaves a note, which shows that it was to be attached."""


def plain_environment(python_path: str | None = None, **added: str) -> dict[str, str]:
    """That of a rank of torchrun: this process's own, without what belongs to another rank."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE", "PYTHON"))}
    found |= {"PYTHONPATH": os.environ.get("PYTHONPATH", "")} if python_path is None else {"PYTHONPATH": python_path}
    return {name: value for name, value in {**found, **rank_environment(0, 1, 1), **added}.items() if value}


@dataclass
class Ended:
    """A rank that has ended.

    Attributes:
        code: its exit code.
        out: its stdout.
        err: its stderr.
        rings: names of the rings that were made.
        notes: why it was not observed, by rank.
        run: its records.
        pid: of the process that was started.
    """

    code: int
    out: str
    err: str
    rings: list[str] = field(default_factory=list)
    notes: dict[int, str] = field(default_factory=dict)
    run: RunDir | None = None
    pid: int = 0

    def events(self) -> list[dict[str, Any]]:
        """Of rank 0, as plain data."""
        path = self.run.events(0) if self.run else Path()
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def said(self) -> Any:
        """The last line of stdout, as JSON."""
        return json.loads(self.out.splitlines()[-1])


def run_plain(command: Sequence[str], cwd: Path, environment: dict[str, str]) -> Ended:
    """Start it as torchrun does."""
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def run_observed(command: Sequence[str], cwd: Path, environment: dict[str, str], agent: int | None = None) -> Ended:
    """Start it as `paceline run` does.

    Args:
        command: of the rank.
        cwd: its working directory.
        environment: of the rank under torchrun.
        agent: the launcher's process id where it is not this process.
    """
    rings = make_rings_folder()
    run = RunDir(cwd / "run")
    drain = RingDrain(rings, run)
    added = observed_environment(rings, environment)
    if agent is not None:
        added["PACELINE_AGENT"] = str(agent)
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment | added,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        out, err = process.communicate(timeout=120)
        names = sorted(each.name for each in rings.glob("*.ring"))
    finally:
        drain.stop()
    return Ended(process.returncode, out, err, names, drain.notes, run, process.pid)


def python(*arguments: str) -> list[str]:
    """A command that runs this Python."""
    return [sys.executable, *arguments]
