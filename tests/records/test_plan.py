"""result.json of a plan: its schema is written, and a later one is refused rather than misread."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.records.errors import PacelineError
from paceline.records.plan_results import SCHEMA, TrendsResult, read_plan, write_plan
from paceline.records.rundir import RunDir

RESULT = TrendsResult(records=[], notes=["a note"])


def test_a_result_says_its_schema_and_kind_and_is_read_again(tmp_path: Path) -> None:
    """Both stand in the file."""
    write_plan(RunDir(tmp_path), RESULT)

    written = json.loads((tmp_path / "result.json").read_text())

    assert (written["schema"], written["plan"]) == (SCHEMA, "trends")
    assert read_plan(tmp_path) == RESULT


def test_a_result_without_a_schema_is_of_the_first_and_unknown_fields_are_passed_over(tmp_path: Path) -> None:
    """As older and minor later versions wrote them."""
    (tmp_path / "result.json").write_text('{"plan": "trends", "records": [], "notes": ["a note"], "later": 1}')

    assert read_plan(tmp_path) == RESULT


@pytest.mark.parametrize(
    ("schema", "said"), [(SCHEMA + 1, "newer Paceline"), ('"two"', "is damaged"), ("null", "is damaged")]
)
def test_a_later_schema_is_refused(tmp_path: Path, schema: object, said: str) -> None:
    """With what to do; one that is no number is damage."""
    (tmp_path / "result.json").write_text(f'{{"schema": {schema}, "plan": "trends", "records": [], "notes": []}}')

    with pytest.raises(PacelineError, match=said) as refused:
        read_plan(tmp_path)

    assert refused.value.hint
