"""The text of a rule: its docstring in parts, and its cases as examples."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterable

from paceline.check.rule import HEADINGS, MARK, Rule


def anchor(rule: type[Rule]) -> str:
    """The anchor of its section in docs/reference/rules.md."""
    return f"{rule.code}-{rule.name}".lower()


def rule_summary(rule: type[Rule]) -> str:
    """The first line, without the period."""
    return _document(rule).partition("\n")[0].rstrip(".")


def rule_sections(rule: type[Rule]) -> dict[str, str]:
    """Text of each heading in one line."""
    parts = re.split(rf"^({'|'.join(HEADINGS)}):$", _document(rule), flags=re.MULTILINE)
    return {heading: " ".join(text.split()) for heading, text in zip(parts[1::2], parts[2::2], strict=True)}


def example(case: str) -> str:
    """A case as it is shown: reported lines are marked in words."""
    return textwrap.dedent(case).strip("\n").replace(MARK, "# reported")


def explanation(rule: type[Rule]) -> str:
    """The text of `paceline check --explain`."""
    lines = [
        f"{rule.code} {rule.name}: {rule_summary(rule)}",
        "",
        f"severity {rule.severity}, topic {rule.topic}, faults {', '.join(rule.faults)}"
        + (", --fix repairs it" if rule.fixes else ""),
    ]
    for heading, text in rule_sections(rule).items():
        lines += ["", heading, *textwrap.wrap(text, 100, initial_indent="  ", subsequent_indent="  ")]
    for title, cases in (("Reported", rule.invalid), ("Not reported", rule.valid)):
        for name, case in cases.items():
            lines += ["", f"{title}: {name}", "", textwrap.indent(example(case), "    ")]
    return "\n".join(lines) + "\n"


def rule_list(rules: Iterable[type[Rule]]) -> str:
    """The text of `paceline check --list-rules`."""
    return "".join(
        f"{rule.code}  {rule.severity:<7}  {'fix' if rule.fixes else '   '}  {rule.name}: {rule_summary(rule)}\n"
        for rule in rules
    )


def _document(rule: type[Rule]) -> str:
    return inspect.getdoc(sys.modules[rule.__module__]) or ""
