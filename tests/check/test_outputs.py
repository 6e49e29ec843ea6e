"""The formats that other tools read."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from paceline.check.catalog import RULES
from paceline.check.check_files import CheckResult
from paceline.check.github_commands import github_of
from paceline.check.json_output import json_of
from paceline.check.sarif import sarif_of
from paceline.check.text_output import summary, text_of
from paceline.records.schema import Finding


def finding(**fields: Any) -> Finding:
    """A finding with some fields of its own."""
    given = {
        "code": "DP001",
        "name": "no-sampler",
        "severity": "error",
        "message": "100% of: a, b\nand more",
        "advice": "do it",
        "faults": ["F01", "F02"],
        "path": "src/my train.py",
        "line": 41,
        "column": 5,
        "evidence": {"source": "read"},
    }
    return Finding(**(given | fields))


RESULT = CheckResult(
    findings=[
        finding(),
        finding(line=50, severity="warning"),
        finding(path="a.ipynb", line=12, evidence={"source": "read", "cell": 3}, severity="info"),
        finding(code="DP000", name="rule-failed", severity="info", line=None, column=None, faults=[]),
    ],
    distributed=["src/my train.py", "a.ipynb"],
    not_distributed=["b.py"],
    without_torch=["c.py", "d.py"],
    unreadable=[("old.py", "Python 2")],
)


def test_text_has_a_line_for_each_finding_and_says_what_was_not_looked_at():
    """Places in notebooks have the cell; colors are for terminals."""
    lines = text_of(RESULT).splitlines()

    assert lines[0].startswith("src/my train.py:41:5: error DP001 no-sampler (F01, F02): 100%")
    assert "a.ipynb:cell 3:12:5: info DP001 no-sampler (F01, F02): 100% of: a, b" in lines
    assert "src/my train.py: info DP000 rule-failed: 100% of: a, b" in lines
    assert lines[-2:] == [
        "old.py: not read: Python 2",
        "1 error, 1 warning, 2 notes in 2 of 6 files (2 are without torch, 1 is not distributed, 1 could not be read)",
    ]
    assert "\033[31merror\033[0m" in text_of(RESULT, color=True)
    assert "\033" not in text_of(RESULT)


def test_a_summary_never_says_that_nothing_was_found_where_nothing_was_judged():
    """No findings are reported only for scripts that the rules ran on."""
    assert summary(CheckResult(without_torch=["a.py"])).startswith("nothing was judged: none of 1 file")
    assert summary(CheckResult(distributed=["a.py"])) == "no findings in 1 file of distributed training"


def test_json_has_findings_and_the_files_that_were_not_judged():
    """As design.md describes it."""
    document = json.loads(json_of(RESULT, "1.0"))

    assert document["findings"][0]["column"] == 5
    assert document["counts"] == {"error": 1, "warning": 1, "info": 2}
    assert document["files"] == {
        "read": 3,
        "distributed": 2,
        "not_distributed": 1,
        "skipped": 2,
        "unreadable": [{"path": "old.py", "reason": "Python 2"}],
    }


def required(value: dict[str, Any], **kinds: type) -> None:
    """Properties that must be there, with their types."""
    for name, kind in kinds.items():
        assert isinstance(value[name], kind), name


def test_sarif_has_what_the_schema_of_version_2_1_0_requires():
    """Checked property by property, without a validator."""
    document = json.loads(sarif_of(RESULT, "1.0"))

    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    driver = run["tool"]["driver"]
    required(driver, name=str, rules=list)
    assert [each["id"] for each in driver["rules"]] == sorted({"DP000", "DP099", *(rule.code for rule in RULES)})
    for rule in driver["rules"]:
        required(rule, id=str, name=str, shortDescription=dict, help=dict, defaultConfiguration=dict)
        assert rule["shortDescription"]["text"]
        assert rule["help"]["text"]
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
    assert "F01" in next(each for each in driver["rules"] if each["id"] == "DP001")["properties"]["tags"]
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    required(run["invocations"][0], executionSuccessful=bool)
    for result in run["results"]:
        required(result, ruleId=str, ruleIndex=int, message=dict, locations=list, level=str)
        assert result["message"]["text"]
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        physical = result["locations"][0]["physicalLocation"]
        assert re.fullmatch(r"[\w./%-]+", physical["artifactLocation"]["uri"])
        if "region" in physical:
            assert physical["region"]["startLine"] >= 1
            assert physical["region"]["startColumn"] >= 1
    prints = [each["partialFingerprints"]["paceline/v1"] for each in run["results"]]
    assert len(set(prints)) == len(prints)


def test_fingerprints_of_sarif_stay_when_lines_move():
    """Code scanning would report the finding as new otherwise."""
    moved = CheckResult(findings=[finding(line=99)], distributed=["src/my train.py"])

    before, after = (json.loads(sarif_of(each, "1.0"))["runs"][0]["results"][0] for each in (RESULT, moved))

    assert before["partialFingerprints"] == after["partialFingerprints"]
    assert before["locations"] != after["locations"]


def test_workflow_commands_escape_what_ends_properties_and_lines():
    """Per cent signs and line breaks in messages."""
    lines = github_of(RESULT).splitlines()

    assert lines[0] == (
        "::error file=src/my train.py,line=41,col=5,title=DP001 no-sampler::100%25 of: a, b%0Aand more%0Anext: do it"
    )
    assert lines[1].startswith("::warning ")
    assert lines[2].startswith("::notice file=a.ipynb,title=DP001 no-sampler::cell 3, line 12: ")
    assert lines[4] == "::notice file=old.py,title=not read::paceline could not read this file: Python 2"
    assert lines[5].startswith("1 error, 1 warning, 2 notes")


@pytest.mark.parametrize("path", ["a:b,c.py"])
def test_properties_of_workflow_commands_escape_colons_and_commas(path: str):
    """They separate properties."""
    (line, _) = github_of(CheckResult(findings=[finding(path=path)], distributed=[path])).splitlines()

    assert "file=a%3Ab%2Cc.py," in line
