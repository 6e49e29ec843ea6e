"""Lines that every rank prints."""

from __future__ import annotations

import pytest

from paceline.audits.dp155_repeated_output import RepeatedOutput
from paceline.records.observed_rank import OutputCompared, OutputRepeated
from tests.audits.loader_events import judged


def compared(lines, repeated):
    """What the launcher writes."""
    example = OutputRepeated(text="epoch 1", ranks=2, times=2)
    return OutputCompared(lines=lines, repeated=repeated, examples=[example] if repeated else [])


def test_output_that_all_ranks_repeat_is_an_info():
    """Half of rank 0's lines."""
    (found,) = judged(RepeatedOutput, [[compared(20, 10)], []])

    assert (found.severity, found.faults) == ("info", ["F102"])
    assert '10 of rank 0\'s 20, as "epoch 1"' in found.message


@pytest.mark.parametrize(("lines", "repeated"), [(2, 2), (21, 10), (0, 0)])
def test_a_few_lines_are_left_alone(lines, repeated):
    """A greeting, or warnings of libraries."""
    assert judged(RepeatedOutput, [[compared(lines, repeated)], []]) == []


def test_the_longest_comparison_counts():
    """The launcher compares as the output grows."""
    assert judged(RepeatedOutput, [[compared(10, 8), compared(100, 8)], []]) == []
