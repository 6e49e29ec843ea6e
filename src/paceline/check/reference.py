"""docs/reference/rules.md, made from the rules: `python -m paceline.check.reference > docs/reference/rules.md`.

A test compares the committed page with `page()`.
"""

from __future__ import annotations

import sys
import textwrap

from paceline.check.catalog import RULES
from paceline.check.rule import Rule
from paceline.check.rule_text import anchor, example, rule_sections, rule_summary

_WIDTH = 120
FAULTS_NOT_READ: dict[str, str] = {
    "F20": "hidden states carried over batches: the order of batches is known only while the training runs",
    "F32": "a learning rate that does not fit the batch: both depend on the job, not on the script",
}
"""Fault id to the reason why no rule looks for it."""

_OPENING = """
# Rules

<!-- Made by python -m paceline.check.reference from the rules themselves; edit those. -->

A rule looks for one kind of fault of data-parallel training in the source of a script. [`paceline check`](check.md)
runs all rules on each distributed script, without running the script and without torch. Rules follow values: names,
aliases, attributes, functions, classes, keyword dictionaries and local imports.

Codes are permanent. Faults are ids of Paceline's catalog of faults, as the findings name them.
`paceline check --explain DP001` prints the section of a rule.

## Severities

| severity | meaning |
|---|---|
| `error` | certain: the code is wrong whatever stands elsewhere |
| `warning` | probable: the code is wrong unless something that reading does not show makes it right |
| `info` | worth knowing: harmless in many scripts, or on purpose |

A finding can have another severity than its rule where the script shows more, or less. Errors and warnings make
`paceline check` exit with code 1; infos do not.

`paceline check --fix` makes the repairs of rules in whose row *fix* stands, where it is safe.

## All rules

""".lstrip()

_OWN = """
### DP000 rule-failed

A rule failed on a script, which is a defect of Paceline. The finding is an info and names the rule and the exception;
all other rules ran.

### DP099 unused-ignore

A comment `# paceline: ignore[...]` names no rule, an unknown rule, or a rule that reports nothing there. Comments are
looked at in distributed scripts only: findings in a module come from the scripts that import it.
"""

_CLOSING = """
## What reading cannot show

No rule looks for these faults, for the reason given. "No findings" says nothing about them.
[`paceline run`](run.md) finds many of them while the training runs ([audits](audits.md)), and
[`paceline verify`](verify.md) compares N ranks with one process.

| fault | why no rule looks for it |
|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = ["| code | name | severity | topic | fix | what it says | faults |", "|---|---|---|---|---|---|---|"]
    for rule in RULES:
        rows.append(
            f"| [{rule.code}](#{anchor(rule)}) | `{rule.name}` | {rule.severity} | {rule.topic} | "
            f"{'fix' if rule.fixes else ''} | {rule_summary(rule)} | {', '.join(rule.faults)} |"
        )
    sections = "\n".join(_section(rule) for rule in RULES)
    not_read = "\n".join(f"| {fault} | {reason} |" for fault, reason in sorted(FAULTS_NOT_READ.items(), key=_number))
    table = "\n".join(rows)
    return f"{_OPENING}{table}\n{_OWN}\n{sections}{_CLOSING}{not_read}\n"


def _number(row: tuple[str, str]) -> int:
    return int(row[0].removeprefix("F"))


def _section(rule: type[Rule]) -> str:
    fixes = " `--fix` repairs it where that is safe." if rule.fixes else ""
    facts = f"Severity: {rule.severity}. Topic: {rule.topic}. Faults: {', '.join(rule.faults)}.{fixes}"
    lines = [f"### {rule.code} {rule.name}", "", f"{rule_summary(rule)}.", "", _filled(facts), ""]
    sections = rule_sections(rule)
    references = sections.pop("References", "")
    for heading, text in sections.items():
        lines += [_filled(f"**{heading}.** {text}"), ""]
    for title, cases in (("Reported", rule.invalid), ("Not reported", rule.valid)):
        name, case = next(iter(cases.items()))
        lines += [f"{title}: {name}", "", "```python", example(case), "```", ""]
    return "\n".join([*lines, _filled(f"**References.** {references}"), ""])


def _filled(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    sys.stdout.write(page())
