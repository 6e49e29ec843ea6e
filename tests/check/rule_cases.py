"""Cases of rules: a text becomes a script, and the lines that it marks are those that must be reported."""

from __future__ import annotations

import textwrap
from pathlib import Path

from paceline.check.analyses.script import Script
from paceline.check.rule import MARK, PRELUDE, Rule, Violation
from paceline.syntax.program import Program
from paceline.syntax.source_files import Source, parse

OFFSET = PRELUDE.count("\n")


def script_of(case: str) -> Script:
    """The case with the usual imports in front."""
    source = parse(Path("case.py"), (PRELUDE + textwrap.dedent(case)).encode())
    assert isinstance(source, Source), source
    return Script(Program(source))


def violations(rule: type[Rule], case: str) -> list[Violation]:
    """What a rule reports in a case; nothing if the script is not distributed."""
    script = script_of(case)
    return list(rule().check(script)) if script.distributed else []


def reported_lines(rule: type[Rule], case: str) -> list[int]:
    """Lines of the case that are reported, counted from 1."""
    return sorted(each.node.lineno - OFFSET for each in violations(rule, case))


def marked_lines(case: str) -> list[int]:
    """Lines of the case that are marked, counted from 1."""
    return [number for number, line in enumerate(textwrap.dedent(case).splitlines(), 1) if line.rstrip().endswith(MARK)]
