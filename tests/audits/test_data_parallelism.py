"""Who averages gradients with whom."""

from __future__ import annotations

import pytest

from paceline.audits.data_parallelism import DataParallelism
from tests.audits.loader_events import called, wrapped


@pytest.mark.parametrize(
    ("events", "world", "everywhere", "partly"),
    [
        ([wrapped(4)], 4, True, False),
        ([wrapped(4), wrapped(2, number=1)], 4, False, True),
        ([wrapped(2)], 4, False, True),
        ([wrapped(1)], 1, False, False),
        ([], 4, False, False),
        ([called("all_reduce", 8, on="gradients", size=4)], 4, True, False),
        ([called("all_reduce", 8, on="parameters", size=4)], 4, True, False),
        ([called("all_reduce", 8, on="gradients", size=2)], 4, False, False),
        ([called("all_reduce", 8, on="other", size=4)], 4, False, False),
        ([called("broadcast", 8, on="parameters", size=4)], 4, False, False),
    ],
)
def test_groups_and_own_averages_tell(events, world, everywhere, partly):
    """Wrappers first; without any, the script's own all_reduce."""
    parallel = DataParallelism()

    for event in events:
        parallel.feed(0, event, world)

    assert parallel.everywhere is everywhere
    assert parallel.partly is partly
