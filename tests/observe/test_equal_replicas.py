"""A fingerprint tells ranks that hold the same state from those that do not, and names what differs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from paceline.observe.session import Session, Topic
from paceline.observe.sinks import MemorySink
from paceline.pool.warm_ranks import run_ranks
from paceline.records.observed import Fingerprint
from tests.observe import ranks


def differing(prints: Sequence[Fingerprint]) -> set[str]:
    """Names whose digests are not the same on all ranks."""
    first, *others = (set(each.digests.items()) for each in prints)
    return {name for other in others for name, _ in first ^ other}


def kinds(names: set[str]) -> set[str]:
    """First parts of the names."""
    return {name.partition(":")[0] for name in names}


@pytest.mark.parametrize(
    ("fault", "expected"),
    [("none", {"buffer", "random"}), ("module", {"buffer", "random", "parameter", "optimizer"})],
)
def test_what_differs_is_named_by_kind(fault: str, expected: set[str]) -> None:
    """Batch norm on own samples: only buffers and generators. A forward past DDP: weights and momentum as well."""
    each = run_ranks(ranks.fingerprints, 2, fault)
    start, state = (
        [one for one in zip(*each, strict=True) if one[0].moment == moment] for moment in ("start", "state")
    )

    assert [kinds(differing(one)) for one in start] == [{"buffer"}]
    assert [one[0].step for one in state] == [1, 2]
    assert kinds(differing(state[-1])) == expected
    assert ("parameter:0.weight" in differing(state[-1])) == (fault == "module")


def test_taking_a_fingerprint_draws_no_random_number() -> None:
    """The program's own numbers stay what they are."""
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    expected = torch.get_rng_state()
    sink = MemorySink()

    with Session(sink, ranks.of_state()) as session:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        session.announce(Topic.SCRIPT_ENDS)

    assert any("random:torch" in each.digests for each in sink.of(Fingerprint))
    assert torch.equal(torch.get_rng_state(), expected)
