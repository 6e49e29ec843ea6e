"""The text output of a check."""

from __future__ import annotations

import pytest

from paceline_course.outcome import Outcome, Verdict, as_text

WIDTHS = [20, 30, 40, 59, 60, 80, 200]


@pytest.mark.parametrize("width", WIDTHS)
def test_what_a_check_found_fits_its_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """The course's card: statements, and what is known of the one that failed."""
    verdicts = [
        Verdict(statement="the mean of the gradients of all ranks is the gradient of the whole batch", passed=True),
        Verdict(
            statement="uneven parts are weighted by their number of samples",
            passed=False,
            message="mean-of-means",
            ran="average([1.0, 2.0], [3, 1]) on 2 ranks",
            expected="1.25 on each rank, within 1e-12",
            got="1.5 on each rank",
            where="paceline-course/labs/L4_2.py:17, in average",
            likely="the means were averaged without their counts",
        ),
    ]
    outcome = Outcome(exercise="L4.2", title="Uneven parts", seed=7, passed=False, seconds=1.0, verdicts=verdicts)
    monkeypatch.setenv("COLUMNS", str(width))

    lines = as_text(outcome).splitlines()

    assert [line for line in lines if len(line) > width and len(line.split()) > 1] == []
    words = {word.strip(":") for line in lines for word in line.split()}
    assert {word for verdict in verdicts for word in f"{verdict.statement} {verdict.got}".split()} - words == set()
