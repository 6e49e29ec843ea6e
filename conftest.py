"""The command line as users call it: in a process of its own, in a directory of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from paceline.landscape.choices import RANK_MODULES as LANDSCAPE
from paceline.launch.local_machine import job_environment
from paceline.pool.processes import TORCH, ForkServer, fork_server
from paceline.train.handover import RANK_MODULES

# The same examples each time: whoever runs the tests to see whether a change broke something isn't told by chance.
# `pytest --hypothesis-profile=search` looks for new ones.
settings.register_profile("repeat", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("repeat")

Paceline = Callable[..., subprocess.CompletedProcess[str]]


def pytest_configure() -> None:
    """Tests that send signals work in the background as well, where shells start programs that ignore them.

    Commands and functions on ranks find the same settings of the allocator, so that one fork server does for all.
    """
    os.environ.update(job_environment("cpu"))
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Load what ranks need while tests are collected; a process that only hands tests out needs no server."""
    if hasattr(session.config, "workerinput") or not session.config.getoption("numprocesses", None):
        rank_server()


@pytest.fixture
def paceline(tmp_path: Path) -> Paceline:
    """Run `paceline ...` in `tmp_path`, with the fork server of this process; environment variables may be added.

    What `before` does to the command is to reach its ranks too, so it has a fork server of its own.
    """

    def run(*arguments: str, timeout_s: float = 120.0, env: dict[str, str] | None = None, before=None):
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        with rank_server().lent() if before is None else contextlib.nullcontext(({}, ())) as (lent, handles):
            return subprocess.run(
                [sys.executable, "-m", "paceline", *arguments],
                cwd=tmp_path,
                env=environment | lent | (env or {}),
                capture_output=True,
                text=True,
                timeout=timeout_s,
                preexec_fn=before,
                check=False,
                pass_fds=handles,
            )

    return run


def rank_server() -> ForkServer:
    """The fork server of this process, with everything loaded that ranks and functions on ranks need."""
    return fork_server(None, (TORCH, "paceline.pool.rank", "paceline.pool.store", *RANK_MODULES, *LANDSCAPE))
