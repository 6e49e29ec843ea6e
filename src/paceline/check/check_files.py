"""Checks all files below some paths, in several processes, and joins what was found."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec

from paceline.check.edits import Edit
from paceline.check.file_check import FileCheck, FileChecker, Located
from paceline.check.result_cache import ResultCache
from paceline.check.rule import Rule
from paceline.check.selection import Selection
from paceline.check.suppressions import Ignore, unused_ignore
from paceline.records.findings import by_severity
from paceline.records.schema import Finding
from paceline.syntax.source_files import python_files

PARALLEL_FROM = 30
"""Fewer files are checked faster in one process."""
LONGEST_CHUNK = 24
"""Files of one folder stay together, since they import each other."""
_RARELY = (200_000, 10, 100)
"""Thresholds of the garbage collector: syntax trees are many objects, and with its own it takes 40 % of the time."""
Progress = Callable[[int, int], None]
"""Called with the number of files checked so far, and of all files."""


@dataclass
class CheckResult:
    """The findings below some paths, and which files were looked at.

    Attributes:
        findings: in the order of path, line, column and code.
        distributed: files on which the rules ran, as they were named.
        not_distributed: likewise, scripts of one process.
        without_torch: likewise, not parsed.
        unreadable: likewise, with the reason.
        edits: safe repairs of the findings, by file.
    """

    findings: list[Finding] = field(default_factory=list)
    distributed: list[str] = field(default_factory=list)
    not_distributed: list[str] = field(default_factory=list)
    without_torch: list[str] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    edits: dict[str, list[Edit]] = field(default_factory=dict)

    @property
    def files(self) -> int:
        """All files that were looked at."""
        return len(self.distributed) + len(self.not_distributed) + len(self.without_torch) + len(self.unreadable)

    @property
    def read(self) -> int:
        """Files that were parsed."""
        return len(self.distributed) + len(self.not_distributed)


def files_below(paths: Iterable[Path], exclude: Iterable[str] = ()) -> dict[str, str]:
    """Files to check: as they are shown, by absolute path."""
    found: dict[str, str] = {}
    for path in python_files(paths, exclude=exclude):
        found.setdefault(os.path.abspath(path), str(path))  # noqa: PTH100  # `absolute` keeps `..`
    return found


def check_all(
    paths: Sequence[str],
    rules: Sequence[type[Rule]],
    *,
    workers: int | None = None,
    cache: ResultCache | None = None,
    progress: Progress | None = None,
) -> dict[str, FileCheck]:
    """Check files as scripts.

    Args:
        paths: absolute.
        rules: to run.
        workers: processes; None takes one for each processor if there are many files.
        cache: of earlier results, for these rules; new ones are added.
        progress: called while files are checked.
    """
    found = cache.known(paths) if cache else {}
    left = sorted(path for path in paths if path not in found)
    if workers is None:
        workers = (os.cpu_count() or 1) if len(left) > PARALLEL_FROM else 1
    new: dict[str, FileCheck] = {}
    if workers > 1:
        for part in _in_processes(left, rules, workers):
            new.update(part)
            if progress:
                progress(len(found) + len(new), len(paths))
    for path, check in _checked([path for path in left if path not in new], rules):  # what no process answered for
        new[path] = check
        if progress:
            progress(len(found) + len(new), len(paths))
    if cache and new:
        cache.keep(new)
    found.update(new)
    return {path: found[path] for path in sorted(paths)}


def _in_processes(paths: list[str], rules: Sequence[type[Rule]], workers: int) -> Iterator[dict[str, FileCheck]]:
    size = max(1, min(LONGEST_CHUNK, len(paths) // (workers * 4)))
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else None)
    chunks = [paths[at : at + size] for at in range(0, len(paths), size)]
    try:
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            for done in as_completed([pool.submit(_check_chunk, chunk, tuple(rules)) for chunk in chunks]):
                yield done.result()
    except (BrokenProcessPool, OSError):  # a process was killed, or none can be started
        return


def _check_chunk(paths: list[str], rules: tuple[type[Rule], ...]) -> dict[str, FileCheck]:
    gc.set_threshold(*_RARELY)  # for good: collecting between chunks would walk all files that are kept
    checker = _checker_of_process(rules)
    return {path: checker.check(Path(path)) for path in paths}


@cache
def _checker_of_process(rules: tuple[type[Rule], ...]) -> FileChecker:
    """One for all chunks of a worker process: scripts of several chunks import the same files."""
    return FileChecker(rules)


def _checked(paths: Sequence[str], rules: Sequence[type[Rule]]) -> Iterator[tuple[str, FileCheck]]:
    """Check files in this process."""
    checker = FileChecker(rules)
    before = gc.get_threshold()
    gc.set_threshold(*_RARELY)
    try:
        for path in paths:
            yield path, checker.check(Path(path))
    finally:
        gc.set_threshold(*before)


def joined(checks: dict[str, FileCheck], shown: dict[str, str], selection: Selection) -> CheckResult:
    """The results of all files as one.

    Findings of several scripts in one file that they share are one finding; findings in files that were not named, and
    those that settings or comments accept, are left out; comments that accept nothing are reported.

    Args:
        checks: by absolute path.
        shown: how each file is shown, by absolute path.
        selection: of rules.
    """
    result = CheckResult()
    for path, check in checks.items():
        if check.state == "unreadable":
            result.unreadable.append((shown[path], check.reason))
        else:
            states = {"distributed": result.distributed, "not distributed": result.not_distributed}
            states.get(check.state, result.without_torch).append(shown[path])
    kept = _unsuppressed(checks, shown, selection)
    for each in sorted(kept, key=lambda each: _order(each.finding, shown)):
        path = each.finding.path or ""
        result.findings.append(msgspec.structs.replace(each.finding, path=shown[path]))
        if each.edits:
            result.edits.setdefault(path, []).extend(each.edits)
    return result


def _unsuppressed(checks: dict[str, FileCheck], shown: dict[str, str], selection: Selection) -> list[Located]:
    """Findings that no setting and no comment accepts, and those about comments that accept nothing."""
    used: dict[str, set[tuple[Ignore, str]]] = {}
    kept: list[Located] = []
    for each in _distinct(checks):
        path, code = each.finding.path or "", each.finding.code
        if path not in shown or not selection.reports(code, path):
            continue
        accepting = {
            (ignore, name)
            for ignore in checks[path].ignores
            for name in ignore.codes
            if ignore.line in each.lines and name in (code, each.finding.name)
        }
        used.setdefault(path, set()).update(accepting)
        if not accepting:
            kept.append(each)
    for path, check in checks.items():
        # Findings in a module come from the scripts that import it, which need not be among the files.
        for ignore in check.ignores if check.state == "distributed" else ():
            spent = {name for each, name in used.get(path, ()) if each == ignore}
            unused = unused_ignore(ignore, spent, path, selection)
            kept += [Located(unused, ())] if unused else []
    return kept


def _distinct(checks: dict[str, FileCheck]) -> list[Located]:
    """Each finding once: of those of several scripts the most severe, then that of the first script."""
    found: dict[tuple[object, ...], Located] = {}
    for check in checks.values():
        for each in check.found:
            finding = each.finding
            key = (finding.code, finding.path, finding.line, finding.column, finding.evidence.get("cell"))
            if key not in found or by_severity(finding) < by_severity(found[key].finding):
                found[key] = each
    return list(found.values())


def _order(finding: Finding, shown: dict[str, str]) -> tuple[str, int, int, int, str]:
    cell = finding.evidence.get("cell", 0)
    return shown[finding.path or ""], cell, finding.line or 0, finding.column or 0, finding.code
