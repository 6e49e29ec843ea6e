"""Results of earlier checks, kept for files that did not change."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import msgspec

import paceline
from paceline.check.file_check import FileCheck
from paceline.check.rule import Rule
from paceline.records.errors import PacelineError
from paceline.records.rundir import write_atomic
from paceline.syntax.local_imports import Signature, file_signature

_KEPT_S = 30 * 86_400
"""Files of the cache that were not used for this long are removed."""


class _Entry(msgspec.Struct, array_like=True):
    """A result.

    Attributes:
        check: without `inputs`.
        inputs: numbers of the paths that it depends on, its own file first.
    """

    check: FileCheck
    inputs: list[int]


class _Content(msgspec.Struct):
    """A file of the cache.

    Attributes:
        paths: that results depend on.
        signatures: of the paths when the results were computed; None for paths at which no file was.
        entries: by absolute path.
    """

    paths: list[str] = []
    signatures: list[Signature | None] = []
    entries: dict[str, _Entry] = {}


class ResultCache:
    """Results for the files of one folder.

    Args:
        folder: below which files are checked; each has a file of its own in the cache.
        rules: that run.
    """

    def __init__(self, folder: Path, rules: Sequence[type[Rule]]) -> None:
        codes = ",".join(rule.code for rule in rules)
        key = "\0".join([_sources_digest(), codes, str(folder), sys.version])
        self._path = cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
        self._content = self._read()
        self._now = [file_signature(path) for path in self._content.paths]
        before = self._content.signatures
        changed = {number for number, now in enumerate(self._now) if now != before[number]}
        self._valid = {path: each for path, each in self._content.entries.items() if changed.isdisjoint(each.inputs)}

    def _read(self) -> _Content:
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=_Content)
        except (OSError, msgspec.MsgspecError, ValueError):  # not there, or damaged
            return _Content()
        numbers = {number for each in found.entries.values() for number in each.inputs}
        consistent = len(found.paths) == len(found.signatures) and numbers <= set(range(len(found.paths)))
        return found if consistent else _Content()

    def known(self, paths: Iterable[str]) -> dict[str, FileCheck]:
        """Results that still hold."""
        found = {}
        for path in paths:
            if (entry := self._valid.get(path)) is not None:
                inputs = {self._content.paths[number]: self._now[number] for number in entry.inputs}
                found[path] = msgspec.structs.replace(entry.check, inputs=inputs)
        return found

    def keep(self, checks: dict[str, FileCheck]) -> None:
        """Add new results, and write all that hold if that is possible."""
        content = _Content()
        numbers: dict[str, int] = {}
        for path, check in (*checks.items(), *self.known(set(self._valid) - set(checks)).items()):
            if any(content.signatures[numbers[each]] != now for each, now in check.inputs.items() if each in numbers):
                continue  # a file changed in between
            for each, now in check.inputs.items():
                if each not in numbers:
                    numbers[each] = len(content.paths)
                    content.paths.append(each)
                    content.signatures.append(now)
            inputs = [numbers[each] for each in check.inputs]
            content.entries[path] = _Entry(msgspec.structs.replace(check, inputs={}), inputs)
        with contextlib.suppress(PacelineError, OSError, TypeError):  # a result that is not kept is computed again
            write_atomic(self._path, msgspec.json.encode(content))
            _remove_old(self._path)


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/paceline/check`, by default below `~/.cache`."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = configured if configured.is_absolute() else Path(os.path.expanduser("~/.cache"))  # noqa: PTH111
    return base / "paceline" / "check"


@cache
def _sources_digest() -> str:
    """A digest of the code that results depend on, by time and size of its files."""
    digest = hashlib.sha256(paceline.__version__.encode())
    folder = Path(paceline.__file__).parent
    for file in sorted([*(folder / "check").rglob("*.py"), *(folder / "syntax").glob("*.py")]):
        found = file.stat()
        digest.update(f"{file.name} {found.st_mtime_ns} {found.st_size}\n".encode())
    return digest.hexdigest()


def _remove_old(kept: Path) -> None:
    """Remove files of the cache that nobody used for long."""
    oldest = kept.stat().st_mtime - _KEPT_S
    for file in kept.parent.glob("*.json"):
        if file != kept and file.stat().st_mtime < oldest:
            file.unlink(missing_ok=True)
