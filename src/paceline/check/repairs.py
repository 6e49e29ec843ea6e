"""`--diff` and `--fix`: safe repairs, applied until none is left."""

from __future__ import annotations

import difflib
import io
import os
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.check.check_files import CheckResult, joined
from paceline.check.edits import Edit, apply
from paceline.check.file_check import FileCheck, FileChecker
from paceline.check.rule import Rule
from paceline.check.selection import Selection
from paceline.check.suppressions import ignores_in
from paceline.records.rundir import write_atomic
from paceline.syntax.source_files import Source, parse, read_bytes

MAX_PASSES = 10
"""A repair can make place for another one."""


@dataclass
class Repaired:
    """A file before and after.

    Attributes:
        path: absolute.
        shown: as it was named.
        encoding: in which it is written.
    """

    path: str
    shown: str
    before: str
    after: str
    encoding: str

    def apply(self, edits: Iterable[Edit]) -> bool:
        """Apply edits, unless the result would not parse. Returns whether the text changed."""
        after = apply(self.after, edits)
        if after == self.after or not isinstance(parse(Path(self.path), after.encode()), Source):
            return False
        self.after = after
        return True

    def diff(self) -> str:
        """Unified."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), self.shown, self.shown
        )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def write(self) -> None:
        """Replace the file, whole or not at all.

        Raises:
            PacelineError: it cannot be written.
        """
        path = Path(os.path.realpath(self.path))  # a link stays one
        mode = path.stat().st_mode
        write_atomic(path, self.after.encode(self.encoding))
        path.chmod(mode)


@dataclass(frozen=True)
class Repairs:
    """Repairs that can be made, and the findings that are left.

    Attributes:
        files: that change.
        left: the result of checking the repaired files.
        notebooks: with repairs that are not made, as they were named.
    """

    files: list[Repaired]
    left: CheckResult
    notebooks: list[str]


def repair(
    checks: dict[str, FileCheck], shown: dict[str, str], selection: Selection, rules: Sequence[type[Rule]]
) -> Repairs:
    """Repair files in memory.

    Args:
        checks: of all files, by absolute path.
        shown: how each file is shown, by absolute path.
        selection: of rules; what comments and settings accept is not repaired.
        rules: that ran.
    """
    checks = dict(checks)
    files: dict[str, Repaired] = {}
    result = joined(checks, shown, selection)
    for _ in range(MAX_PASSES):
        changed = set()
        for path, edits in result.edits.items():
            if path.endswith(".ipynb"):
                continue
            file = files.get(path) or _opened(path, shown[path])
            if file is not None and file.apply(edits):
                files[path] = file
                changed.add(path)
        if not changed:
            break
        _check_again(checks, changed, files, rules)
        result = joined(checks, shown, selection)
    notebooks = sorted(shown[path] for path in result.edits if path.endswith(".ipynb"))
    return Repairs([files[path] for path in sorted(files)], result, notebooks)


def _opened(path: str, shown: str) -> Repaired | None:
    content = read_bytes(Path(path))
    if not isinstance(content, bytes):
        return None
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    text = content.decode(encoding)
    return Repaired(path, shown, text, text, encoding)


def _check_again(
    checks: dict[str, FileCheck], changed: set[str], files: dict[str, Repaired], rules: Sequence[type[Rule]]
) -> None:
    """Check the scripts that changed files belong to, with their new texts."""
    checker = FileChecker(rules)
    for path, file in files.items():
        source = parse(Path(path), file.after.encode())
        if isinstance(source, Source):
            checker.files.keep(source)
    for path, check in checks.items():
        if not changed.isdisjoint(check.inputs):
            again = checker.files.source(Path(path))
            if again is not None:
                checks[path] = checker.check_source(again)
                checks[path].ignores = ignores_in(again)
