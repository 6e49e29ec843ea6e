"""The drawn network is the planner's where ranks take turns on cores."""

from __future__ import annotations

import msgspec
import pytest

from paceline.plan.collectives import Link, ring
from paceline.report.plan.speed_figures import ring_s
from tests.report import plans


def test_the_network_line_follows_the_turns_that_messages_take() -> None:
    """With fewer ranks than cores and with more."""
    facts = msgspec.structs.replace(plans.speed().network, processors=2.0)
    link = Link(plans.LATENCY, plans.BANDWIDTH, 2e9, 2.0)

    for ranks in (2, 3, 8):
        for size in (1e3, 1e8):
            assert ring_s(facts, ranks, size) == pytest.approx(ring(ranks, size, link), rel=1e-12)
