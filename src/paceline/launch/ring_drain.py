"""Moves the records of ranks from their rings to the run directory, while they run and after they have died.

One thread of the launcher reads all rings every 0.25 s. Events become lines of `events/rank-<r>.jsonl`, sample indices
become the ledger.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from array import array
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psutil

from paceline.records.errors import PacelineError
from paceline.records.ledger import LedgerWriter
from paceline.records.ring import (
    AGENT_VARIABLE,
    OBSERVE_VARIABLE,
    RINGS_VARIABLE,
    Kind,
    Progress,
    RingReader,
    unpack_batch,
)
from paceline.records.rundir import RunDir, make_dirs

_EVERY_S = 0.25
"""Each pass costs as much for the caches it fills as for the records: twice as many passes take twice as long."""
_LOOK_EVERY = 2
_SHARED = Path("/dev/shm")
_PREFIX = "paceline-rings-"
BOOTSTRAP = Path(__file__).resolve().parents[1] / "observe" / "bootstrap"
"""The folder whose `sitecustomize` attaches the observer; named by path, since launch does not import observe."""


class Listener(Protocol):
    """Follows an observed run while it goes on."""

    def event(self, rank: int, line: bytes) -> None:
        """One event of a rank, as JSON."""

    def progress(self, ranks: dict[int, Progress]) -> None:
        """How far each rank of the last attempt is."""


def make_rings_folder() -> Path:
    """A folder for rings, in shared memory where there is some."""
    parent = _SHARED if os.access(_SHARED, os.W_OK) else Path(tempfile.gettempdir())
    _remove_leftovers(parent)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))


def _remove_leftovers(parent: Path) -> None:
    """Remove the folders of this user's launchers that were killed."""
    for folder in parent.glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            if owner.isdecimal() and folder.stat().st_uid == os.getuid() and not psutil.pid_exists(int(owner)):
                shutil.rmtree(folder, ignore_errors=True)


def observed_environment(rings: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables with which ranks are observed.

    Args:
        rings: their folder.
        environment: of the launcher.
    """
    path = os.pathsep.join([str(BOOTSTRAP), *filter(None, [environment.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, RINGS_VARIABLE: str(rings), AGENT_VARIABLE: str(os.getpid())}


def observation_off(environment: Mapping[str, str]) -> bool:
    """True if the user asked for plain torchrun."""
    return environment.get(OBSERVE_VARIABLE, "") == "0"


class RingDrain:
    """Reads the rings of a folder until `stop`.

    Args:
        folder: of the rings; removed by `stop`.
        run: where records go.
        listener: follows them live.
        watch: is told how far ranks are; raises no exception.

    Attributes:
        seen: ranks that had a ring.
        notes: by rank, why it is not observed, or not to the end.
        trouble: why records could not be written; empty while all is well.
        unheard: the exception of a listener that was given up; empty while all is well.
    """

    def __init__(
        self,
        folder: Path,
        run: RunDir,
        listener: Listener | None = None,
        watch: Callable[[dict[int, Progress]], None] | None = None,
    ) -> None:
        self.seen: set[int] = set()
        self.notes: dict[int, str] = {}
        self.trouble = self.unheard = ""
        self._folder, self._run, self._listener, self._watch = folder, run, listener, watch
        self._readers: dict[Path, RingReader] = {}
        self._ledger = LedgerWriter(run)
        self._looks = 0
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._loop, name="paceline-rings", daemon=True)

    def start(self) -> None:
        """Read from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Read what is left, also of ranks that were killed, and remove the rings."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self.drain()
        for reader in self._readers.values():
            if reader.dropped:
                self.notes.setdefault(reader.rank, f"{reader.dropped} records found no room in the ring")
            reader.close()
        self._readers.clear()
        for note in self._folder.glob("*.not-observed"):
            self.notes[int(note.name.partition(".")[0])] = note.read_text(errors="replace")
        shutil.rmtree(self._folder, ignore_errors=True)

    def drain(self) -> None:
        """Read all rings once."""
        with self._lock:
            self._find()
            for reader in self._readers.values():
                self._move(reader)
            if self._readers:
                last = max(each.attempt for each in self._readers.values())
                now = {each.rank: each.progress for each in self._readers.values() if each.attempt == last}
                self._tell("progress", now)
                if self._watch is not None:
                    self._watch(now)

    def _loop(self) -> None:
        while not self._ending.wait(_EVERY_S):
            self.drain()

    def _find(self) -> None:
        self._looks += 1
        if self._readers and self._looks % _LOOK_EVERY and not self._ending.is_set():  # further ranks come seldom
            return
        for path in sorted(self._folder.glob("*.ring")):
            if path not in self._readers:
                try:
                    self._readers[path] = reader = RingReader(path)
                except (OSError, ValueError):  # being made right now
                    continue
                self.seen.add(reader.rank)

    def _move(self, reader: RingReader) -> None:
        lines = []
        passes: dict[tuple[int, int], list[tuple[int, array[int]]]] = {}
        try:
            records = reader.read()
        except ValueError as error:
            self.notes[reader.rank] = str(error)
            return
        for kind, payload in records:
            if kind is Kind.EVENT:
                lines.append(payload)
                self._tell("event", reader.rank, payload)
                continue
            loader, number, batch, content = unpack_batch(payload)
            passes.setdefault((loader, number), []).append((batch, array("q", content)))
        for at, batches in passes.items():
            self._write(partial(self._ledger.add, reader.rank, reader.attempt, at, batches))
        if lines:
            self._write(lambda: _append(self._run.events(reader.rank), b"\n".join([*lines, b""])))

    def _tell(self, what: str, *args: Any) -> None:
        """Call the listener; one that fails is given up, and the records are still written."""
        if self._listener is None:
            return
        try:
            getattr(self._listener, what)(*args)
        except Exception as error:  # noqa: BLE001
            self._listener = None
            self.unheard = f"{type(error).__name__}: {error}"

    def _write(self, write: Callable[[], None]) -> None:
        if self.trouble:
            return
        try:
            write()
        except (OSError, PacelineError) as error:  # a full disk does not end the job
            self.trouble = str(error)


def _append(path: Path, content: bytes) -> None:
    make_dirs(path.parent)
    with path.open("ab") as file:
        file.write(content)
