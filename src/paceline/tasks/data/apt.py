"""Get the content of a Debian package without installing it: `apt-get download`, then `dpkg-deb -x`."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paceline.tasks.data.fetched_files import Progress, SourceError, Tell, write_error

UPDATE_LIMIT_S = 120.0
DOWNLOAD_LIMIT_S = 600.0
UNPACK_LIMIT_S = 120.0
_POLL_S = 0.2
_APT = (
    "apt-get",
    "-q",
    "-o",
    "Acquire::http::Timeout=20",
    "-o",
    "Acquire::https::Timeout=20",
    "-o",
    "Acquire::Retries=1",
)
_LISTS_ARE_STALE = ("Unable to locate package", "No packages found", "Can't select candidate version", "404")


@dataclass(frozen=True)
class _Result:
    code: int
    output: str

    @property
    def reason(self) -> str:
        """The last line in which the tool says what is wrong, else its last line."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("E:", "dpkg-deb: error"))]
        return (errors or lines or [f"exit code {self.code}"])[-1].removeprefix("E: ")


def unpack_package(package: str, scratch: Path, tell: Tell) -> Path:
    """Fetch `package` and unpack it below `scratch`; works without root where apt's package lists are there.

    Where they are not, and we are root, `apt-get update` is tried once.

    Returns:
        the directory that stands for `/`.

    Raises:
        SourceError: the tools are not here, or fail, or take too long.
    """
    missing = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if missing:
        raise SourceError(f"{' and '.join(missing)} not found: this is no Debian or Ubuntu system")
    archive = _download(package, scratch, tell)
    unpacked = scratch / "unpacked"
    result = _run(["dpkg-deb", "-x", str(archive), str(unpacked)], scratch, UNPACK_LIMIT_S, lambda: None)
    if result.code != 0:
        raise SourceError(f"dpkg-deb: {result.reason}")
    return unpacked


def _download(package: str, scratch: Path, tell: Tell) -> Path:
    command = [*_APT, "download", package]

    def told() -> None:
        done = 0
        with contextlib.suppress(OSError):  # apt may rename the file just now
            done = sum(file.stat().st_size for file in scratch.glob("*.deb*"))
        tell(Progress(f"fetching Debian's package {package} with apt", done))

    result = _run(command, scratch, DOWNLOAD_LIMIT_S, told)
    if result.code != 0 and any(sign in result.output for sign in _LISTS_ARE_STALE):
        if os.geteuid() != 0:
            raise SourceError(f"{result.reason} (`sudo apt-get update` may help: apt's package lists are empty or old)")
        update = _run([*_APT, "update"], scratch, UPDATE_LIMIT_S, lambda: tell(Progress("getting apt's package lists")))
        if update.code != 0:
            raise SourceError(f"{result.reason}, and apt-get update failed: {update.reason}")
        result = _run(command, scratch, DOWNLOAD_LIMIT_S, told)
    if result.code != 0:
        raise SourceError(f"apt-get download: {result.reason}")
    archives = list(scratch.glob("*.deb"))
    if not archives:
        raise SourceError("apt-get download said that all went well, and left no package")
    return archives[0]


def _run(command: list[str], cwd: Path, limit_s: float, tick: Callable[[], None]) -> _Result:
    """Run a tool without a terminal, for `limit_s` seconds at most; `tick` is called while it runs.

    Raises:
        SourceError: it cannot be started, or takes too long; it and its children are gone then.
        PacelineError: the disk is full.
    """
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        # A session of its own, so that apt's download helpers can be ended together with it.
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise SourceError(f"{command[0]} cannot be started: {error.strerror or error}") from error
    deadline = time.monotonic() + limit_s
    output: bytes | None = None
    try:
        while output is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                output, _ = process.communicate(timeout=_POLL_S)
            if output is None and time.monotonic() > deadline:
                raise SourceError(f"{command[0]} took longer than {limit_s:.0f} s")
            tick()
    finally:
        if output is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    result = _Result(process.returncode, output.decode(errors="replace"))
    if result.code != 0 and os.strerror(errno.ENOSPC) in result.output:
        raise write_error(cwd, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    return result
