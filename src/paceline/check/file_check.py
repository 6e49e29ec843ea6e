"""Checks one file: it is parsed, and if it is a distributed script, all rules run on it."""

from __future__ import annotations

import ast
import re
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from paceline.check.analyses.script import Script
from paceline.check.distribution_hints import DistributionHints
from paceline.check.edits import Edit
from paceline.check.rule import Rule, Violation
from paceline.check.selection import FAILED
from paceline.check.suppressions import MARK, Ignore, ignores_in
from paceline.records.schema import Finding
from paceline.syntax.local_imports import ParsedFiles, Signature
from paceline.syntax.module_index import Module
from paceline.syntax.notebook_cells import cell_of
from paceline.syntax.program import Program
from paceline.syntax.source_files import Source, Unreadable, parse, read_bytes

State = Literal["distributed", "not distributed", "without torch", "unreadable"]
TRAINS = re.compile(rb"torch|lightning|accelerate|transformers|deepspeed")
"""Files without any of these words are not parsed."""


class Located(msgspec.Struct, frozen=True):
    """A finding, and what suppressions and repairs need to know of it.

    Attributes:
        finding: its path is absolute; in a notebook its line is that within the cell.
        lines: where a comment suppresses it; in a notebook those of the joined cells.
        edits: a repair that is safe to apply.
    """

    finding: Finding
    lines: tuple[int, ...]
    edits: tuple[Edit, ...] = ()


class FileCheck(msgspec.Struct):
    """The result for one file.

    Attributes:
        reason: why the file is unreadable.
        found: in this file and in other files of the script.
        ignores: comments of this file that accept findings.
        inputs: absolute paths that the result depends on, the file itself first, with what was there before it was
            read; None where no file was.
    """

    state: State
    reason: str = ""
    found: list[Located] = []
    ignores: list[Ignore] = []
    inputs: dict[str, Signature | None] = {}


class FileChecker:
    """Checks files, each as a script.

    Args:
        rules: to run.
    """

    def __init__(self, rules: Sequence[type[Rule]]) -> None:
        self._rules = rules
        self.files = ParsedFiles()
        self._hints = DistributionHints(self.files)

    def check(self, path: Path) -> FileCheck:
        """Check the file at an absolute path."""
        own = {str(path): self.files.signature(str(path))}
        content = read_bytes(path)
        if isinstance(content, Unreadable):
            return FileCheck("unreadable", content.reason, inputs=own)
        if not TRAINS.search(content):
            return FileCheck("without torch", inputs=own)
        source = self.files.source(path) or parse(path, content)
        if isinstance(source, Unreadable):
            return FileCheck("unreadable", source.reason, inputs=own)
        check = self.check_source(source)
        if MARK in content:
            check.ignores = ignores_in(source)
        return check

    def check_source(self, source: Source) -> FileCheck:
        """Check a parsed file, whose path is absolute; without its comments."""
        check = FileCheck("not distributed")
        looked_at: set[str] = set()
        try:
            possible, looked_at = self._hints.distributes(source)
            if possible:
                script = Script(Program(source, self.files))
                if script.distributed:
                    check.state = "distributed"
                    check.found = [each for rule in self._rules for each in _run(rule, script)]
                looked_at = script.program.imports.looked_at
        except RecursionError:
            check.state, check.reason = "unreadable", "expressions are nested too deeply"
        except Exception as error:  # noqa: BLE001  # a defect of the engine must not hide what other files have
            check.state = "distributed"
            check.found = [_failure(source.path, "the engine", error)]
        own = str(source.path)
        check.inputs = {each: self.files.signature(each) for each in (own, *sorted(looked_at - {own}))}
        return check


def _run(rule: type[Rule], script: Script) -> Iterator[Located]:
    """Findings of a rule; a rule that fails is one more finding."""
    try:
        for violation in rule().check(script):
            yield _located(rule, violation, script)
    except Exception as error:  # noqa: BLE001
        yield _failure(script.program.root.source.path, f"rule {rule.code}", error)


def _located(rule: type[Rule], violation: Violation, script: Script) -> Located:
    module = script.program.evaluator.home(violation.node).module
    line, column, lines = _place(violation.node, module)
    evidence = msgspec.to_builtins(violation.evidence, str_keys=True, enc_hook=str, order="deterministic")
    evidence["source"] = "read"
    if module.source.cells and (cell := cell_of(module.source.cells, line)):
        evidence["cell"], line = cell
    finding = Finding(
        code=rule.code,
        name=rule.name,
        severity=violation.severity or rule.severity,
        message=violation.message,
        advice=violation.advice,
        faults=list(violation.faults or rule.faults),
        path=str(module.source.path.absolute()),
        line=line,
        column=column,
        evidence=evidence,
    )
    return Located(finding, lines, violation.edits)


def _place(node: ast.AST, module: Module) -> tuple[int, int, tuple[int, ...]]:
    """Line and column of a node from 1, and lines on which a comment suppresses what is found there."""
    line: int = getattr(node, "lineno", 1)
    offset: int = getattr(node, "col_offset", 0)
    text = module.source.lines[line - 1] if line <= len(module.source.lines) else ""
    column = len(text.encode()[:offset].decode(errors="replace")) + 1
    lines = {line}
    if node in module.parents:
        statement = module.statement(node)
        lines.add(statement.lineno)
        if not hasattr(statement, "body"):  # of a simple statement also the last line, where formatters put comments
            lines.add(statement.end_lineno or statement.lineno)
    return line, column, tuple(sorted(lines))


def _failure(path: Path, what: str, error: Exception) -> Located:
    """A finding about Paceline itself."""
    code, name = FAILED
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    finding = Finding(
        code=code,
        name=name,
        severity="info",
        message=f"{what} failed with {type(error).__name__}: {error}{where}, so this script is not fully checked",
        advice="report it to Paceline with the script",
        path=str(path.absolute()),
        evidence={"source": "read", "exception": type(error).__name__},
    )
    return Located(finding, ())
