"""What `paceline check` finds in the zoo: `python -m tests.zoo.check_score [--page docs/zoo-check.md]`.

A script counts as found if a finding names one of its faults, or stands on one of its fault lines; as named if a
finding names one of its faults; as told apart if, besides, no finding in its repaired twin names one.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paceline.check.catalog import RULES
from paceline.check.file_check import FileChecker
from paceline.records.schema import Finding
from paceline.syntax.source_files import Source, parse
from tests.zoo.catalog import ZOO, Script, scripts

Twin = Callable[[Script], str]


@dataclass(frozen=True)
class Score:
    """One script.

    Attributes:
        findings: all of them.
        twin: findings in the repaired twin; None if there is no twin.
    """

    script: Script
    findings: list[Finding]
    twin: list[Finding] | None

    @property
    def naming(self) -> list[Finding]:
        """Findings that name one of its faults."""
        return _naming(self.findings, self.script)

    @property
    def on_line(self) -> list[Finding]:
        """Findings on one of its fault lines."""
        return [each for each in self.findings if each.line in self.script.fault_lines]

    @property
    def found(self) -> bool:
        """A finding names a fault, or stands on a fault line."""
        return bool(self.naming or self.on_line)

    @property
    def told_apart(self) -> bool:
        """A finding names a fault, and none does so in the twin."""
        return bool(self.naming) and self.twin is not None and not _naming(self.twin, self.script)

    @property
    def alarms(self) -> list[Finding]:
        """Errors and warnings."""
        return [each for each in self.findings if each.severity in ("error", "warning")]

    @property
    def false_alarms_of_twin(self) -> list[Finding]:
        """Errors and warnings in the twin."""
        return [each for each in self.twin or () if each.severity in ("error", "warning")]


def _naming(findings: Iterable[Finding], script: Script) -> list[Finding]:
    return [each for each in findings if set(each.faults) & set(script.faults)]


def findings_in(text: str, path: Path) -> list[Finding]:
    """All findings in a script."""
    source = parse(path.absolute(), text.encode())
    assert isinstance(source, Source), source
    return [each.finding for each in FileChecker(RULES).check_source(source).found]


@cache
def twins() -> tuple[Twin, type] | None:
    """What makes repaired twins, with the table of repairs; None if there are none in this tree."""
    try:
        module = importlib.import_module("tests.zoo.repairs")
    except ModuleNotFoundError:
        return None
    return module.repaired, module.REPAIRS


def score(script: Script) -> Score:
    """Check a script, and its twin."""
    known = twins()
    twin = None
    if script.faulty and known is not None and script.slug in known[1]:  # type: ignore[operator]
        twin = findings_in(known[0](script), script.path)
    return Score(script, findings_in(script.path.read_text(encoding="utf-8"), script.path), twin)


def scores(root: Path = ZOO) -> list[Score]:
    """Of all scripts, the faulty ones first."""
    return [score(script) for script in scripts(root)]


def counts(results: Iterable[Score]) -> dict[str, int]:
    """Numbers of scripts."""
    faulty = [each for each in results if each.script.faulty]
    correct = [each for each in results if not each.script.faulty]
    return {
        "faulty": len(faulty),
        "found": sum(each.found for each in faulty),
        "named": sum(bool(each.naming) for each in faulty),
        "named by an error or a warning": sum(bool(set(_ids(each.naming)) & set(_ids(each.alarms))) for each in faulty),
        "twins": sum(each.twin is not None for each in faulty),
        "told apart": sum(each.told_apart for each in faulty),
        "twins with an error or a warning": sum(bool(each.false_alarms_of_twin) for each in faulty),
        "correct": len(correct),
        "correct with an error or a warning": sum(bool(each.alarms) for each in correct),
    }


def _ids(findings: Iterable[Finding]) -> list[int]:
    return [id(each) for each in findings]


def page(results: list[Score]) -> str:
    """The table as a page of the documentation."""
    n = counts(results)
    lines = [
        "# The zoo, read",
        "",
        "Training scripts of our own (`tests/zoo/`), faulty and correct ones, read by",
        "[`paceline check`](reference/check.md). Made by `python -m tests.zoo.check_score --page docs/zoo-check.md`.",
        "A twin is the script with its fault repaired.",
        "",
        f"- faults found: {_share(n['found'], n['faulty'])}",
        f"- rightly named: {_share(n['named'], n['faulty'])},",
        f"  {n['named by an error or a warning']} of them by an error or a warning",
        f"- told apart from the repaired twin: {_share(n['told apart'], n['twins'])}" if n["twins"] else "",
        f"- twins with an error or a warning: {n['twins with an error or a warning']} of {n['twins']}"
        if n["twins"]
        else "",
        f"- correct scripts with an error or a warning: {n['correct with an error or a warning']} of {n['correct']}",
        "",
        "| script | faults | found | by | told apart |",
        "|---|---|---|---|---|",
        *(_row(each) for each in results if each.script.faulty),
        "",
        "| correct script with a finding | findings |",
        "|---|---|",
        *(
            f"| {each.script.slug} | {_shown(each.findings)} |"
            for each in results
            if not each.script.faulty and each.findings
        ),
    ]
    return "\n".join(line for line, before in zip(lines, ["x", *lines], strict=False) if line or before) + "\n"


def _row(each: Score) -> str:
    found = "named" if each.naming else "found, not named" if each.found else "**missed**"
    apart = "" if each.twin is None else "yes" if each.told_apart else "**no**"
    faults, by = ", ".join(each.script.faults), _shown(each.naming or each.on_line)
    return f"| {each.script.slug} | {faults} | {found} | {by} | {apart} |"


def _shown(findings: Iterable[Finding]) -> str:
    return ", ".join(sorted({f"{each.code} ({each.severity})" for each in findings}))


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / max(whole, 1):.0f}%)"


def main() -> None:
    """Print the numbers and what is missed, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, help="write the table as a page of the documentation")
    parser.add_argument("--root", type=Path, default=ZOO, help="another zoo: a folder with faulty/ and correct/")
    given = parser.parse_args()
    results = scores(given.root)
    for each in results:
        name = f"{each.script.path.parent.name}/{each.script.slug}"
        if each.script.faulty and not each.naming:
            print(
                f"{'found, not named' if each.found else 'missed':<17} {name} {', '.join(each.script.faults)}: "
                f"{_shown(each.findings)}"
            )
        elif each.script.faulty and each.twin is not None and not each.told_apart:
            print(f"not told apart    {name}: {_shown(_naming(each.twin, each.script))}")
        elif not each.script.faulty and each.alarms:
            print(f"false alarm       {name}: {_shown(each.alarms)}")
    for text, number in counts(results).items():
        print(f"{number:>5}  {text}")
    if given.page:
        given.page.write_text(page(results))


if __name__ == "__main__":
    main()
