"""The run directory: one agreed place for everything that a run leaves behind.

The process that starts a job chooses the directory and hands its path to every rank, so all ranks agree on it
without talking. A live run holds a lock on `run.lock`; the kernel drops it when its holder dies, however it dies.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from paceline.records.errors import ELSEWHERE, Exit, PacelineError
from paceline.records.schema import SCHEMA, RunInfo

DEFAULT_ROOT = Path("runs")
T = TypeVar("T")


class RunDir:
    """Names of what stands in a run directory. Makes nothing by itself.

    Attributes:
        info: run.json.
        checkpoints: one directory a checkpoint below it.
        logs: below it torchrun's layout: <id>/attempt_<k>/<local_rank>/{stdout.log,stderr.log,error.json}.
        findings: findings.jsonl.
        observation: observation.json of an observed run.
        report: report.html.
        lock_file: locked while the run lives.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.info = self.path / "run.json"
        self.checkpoints = self.path / "checkpoints"
        self.logs = self.path / "logs"
        self.findings = self.path / "findings.jsonl"
        self.observation = self.path / "observation.json"
        self.report = self.path / "report.html"
        self.lock_file = self.path / "run.lock"

    def events(self, rank: int = 0) -> Path:
        """The event file of one rank."""
        return self.path / "events" / f"rank-{rank:05d}.jsonl"

    def launcher_events(self, node: str) -> Path:
        """The event file of a launcher on one machine."""
        return self.path / "events" / f"launcher-{slug(node)}.jsonl"

    def rank_events(self) -> dict[int, Path]:
        """The event files that ranks left, by rank; files with other names are left out."""
        files = sorted(self.path.glob("events/rank-*.jsonl"))
        return {int(number): file for file in files if (number := file.stem.removeprefix("rank-")).isdecimal()}

    def ledger(self, loader: int, number: int, rank: int, attempt: int = 1) -> Path:
        """Sample indices that a rank received in pass `number` over a loader; each restart has files of its own."""
        restart = f".attempt-{attempt}" if attempt > 1 else ""
        return self.path / "ledger" / f"loader-{loader}" / f"epoch-{number:04d}" / f"rank-{rank:05d}{restart}.npy"

    def exists(self) -> bool:
        """True if a run was ever started here."""
        return self.info.exists()


def run_dir_name(name: str, now: datetime.datetime | None = None) -> str:
    """`<date>_<time>_<name>`."""
    return f"{now or datetime.datetime.now():%Y-%m-%d_%H-%M-%S}_{slug(name)}"


def new_run_dir(name: str, root: Path = DEFAULT_ROOT, now: datetime.datetime | None = None) -> RunDir:
    """Make `root/<date>_<time>_<name>`; a number is appended when two runs start in one second."""
    return make_run_dir(root / run_dir_name(name, now))


def make_run_dir(planned: Path) -> RunDir:
    """Make a directory of that name, or of that name with a number appended."""
    for attempt in range(1000):
        path = planned if attempt == 0 else planned.with_name(f"{planned.name}-{attempt + 1}")
        try:
            make_dirs(path, exist_ok=False)
        except FileExistsError:
            continue
        return RunDir(path)
    raise PacelineError(f"no free run directory name below {planned.parent}", hint="name one with --run-dir")


def slug(name: str) -> str:
    """`name` as it may stand in a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"


def make_dirs(path: Path, *, exist_ok: bool = True) -> None:
    """Make a directory, or say in one message why it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=exist_ok)
    except FileExistsError:
        if exist_ok:  # then it exists and is no directory
            raise PacelineError(
                f"{path} is a file, not a directory", hint="choose another directory, or move that file away"
            ) from None
        raise
    except OSError as error:
        raise write_error(path, error) from error


def write_error(path: Path, error: OSError) -> PacelineError:
    """The message for a write that failed, whatever was written."""
    return PacelineError(
        f"cannot write {path}",
        why=error.strerror or str(error),
        hint=f"free some space, or {ELSEWHERE}; what was complete before is untouched",
        exit_code=Exit.CANNOT_WRITE,
    )


def fsync_dir(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: Path, content: bytes) -> None:
    """Write a whole file or nothing: beside it, to disk, then renamed into place.

    Raises:
        PacelineError: it cannot be written; an older file of that name is untouched.
    """
    make_dirs(path.parent)
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
        fsync_dir(path.parent)
    except BaseException as error:  # Ctrl-C as well leaves nothing half-written
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        if isinstance(error, OSError):
            raise write_error(path, error) from error
        raise


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current


def write_info(run: RunDir, info: RunInfo) -> None:
    """Write run.json."""
    write_atomic(run.info, msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n")


def read_info(path: Path | str) -> RunInfo:
    """Read run.json of the run directory `path`.

    Raises:
        PacelineError: not a run directory, damaged, or of a newer schema than this version knows.
    """
    run = RunDir(path)
    try:
        raw = run.info.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise PacelineError(
            f"{path} is not a run directory",
            why="it has no run.json" if run.path.exists() else "there is no such directory",
            hint=f"runs stand below {DEFAULT_ROOT}/ unless --run-dir said otherwise",
        ) from None
    except OSError as error:
        raise PacelineError(f"cannot read {run.info}", why=error.strerror or str(error)) from error
    hint = "start a new run; checkpoints of this one can still be read from its checkpoints/ directory"
    return decode_record(run.info, raw, RunInfo, schema=SCHEMA, hint=hint)


def decode_record(path: Path, raw: bytes, kind: type[T], *, schema: int, hint: str = "") -> T:
    """Decode a JSON file with a schema number.

    Args:
        path: named in messages.
        raw: the content of the file.
        kind: of struct.
        schema: the greatest that this version knows.
        hint: what to do about a damaged file.

    Raises:
        PacelineError: damaged, or of a newer schema.
    """
    try:
        head = msgspec.json.decode(raw)
        found = head.get("schema") if isinstance(head, dict) else None
        if isinstance(found, int) and found > schema:
            raise PacelineError(
                f"{path} was written by a newer Paceline",
                why=f"it has schema {found}, and this version reads up to schema {schema}",
                hint="pip install --upgrade paceline",
            )
        return msgspec.convert(head, kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PacelineError(f"{path} is damaged", why=str(error), hint=hint) from error


def _lock(handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(0.05)  # `is_live` of a report may have it for a moment
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_live(run: RunDir) -> bool | None:
    """True if a process holds the run's lock; None where there is no lock, or it cannot be asked."""
    try:
        handle = os.open(run.lock_file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)
    return False


@contextlib.contextmanager
def run_lock(run: RunDir) -> Iterator[None]:
    """Hold the run's lock for as long as the block runs.

    Raises:
        PacelineError: another live process holds it.
    """
    make_dirs(run.path)
    try:
        handle = os.open(run.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise write_error(run.lock_file, error) from error
    try:
        try:
            _lock(handle)
        except BlockingIOError:
            holder = os.pread(handle, 64, 0).decode(errors="replace").strip() or "unknown"
            raise PacelineError(
                f"{run.path} is in use by a run that is still going on",
                why=f"process {holder} holds its lock",
                hint="wait for it, stop it, or choose another --run-dir",
            ) from None
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise write_error(run.lock_file, error) from error
        yield
    finally:
        os.close(handle)
