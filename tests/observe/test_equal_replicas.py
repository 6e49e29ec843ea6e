"""A fingerprint tells ranks that hold the same state from those that do not, and names what differs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.audits.rank_differences import Difference, differences
from paceline.observe.session import Session, Topic
from paceline.observe.sinks import MemorySink
from paceline.pool.warm_ranks import run_ranks
from paceline.records.observed import Fingerprint
from tests.observe import ranks


def kinds(found: list[Difference]) -> set[str]:
    """Kinds of what differs."""
    return {each.kind for each in found}


@pytest.mark.parametrize(
    ("fault", "differing"),
    [("none", {"buffer", "random"}), ("module", {"buffer", "random", "parameter", "optimizer"})],
)
def test_what_differs_is_named_by_kind(fault: str, differing: set[str]) -> None:
    """Batch norm on own samples: only buffers and generators. A forward past DDP: weights and momentum as well."""
    each = run_ranks(ranks.fingerprints, 2, fault)
    start, state = (
        [one for one in zip(*each, strict=True) if one[0].moment == moment] for moment in ("start", "state")
    )

    assert [kinds(differences(one)) for one in start] == [{"buffer"}]
    assert [one[0].step for one in state] == [1, 2]
    assert kinds(differences(state[-1])) == differing
    if fault == "module":
        assert differences(state[-1])[0].name == "parameter:0.weight"


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


def test_ranks_are_grouped_by_what_they_hold() -> None:
    """Three ranks of which two agree; a name that one lacks differs."""
    prints = [
        Fingerprint(rank=0, step=1, digests={"parameter:w": "a", "buffer:n": "x"}),
        Fingerprint(rank=1, step=1, digests={"parameter:w": "b", "buffer:n": "x"}),
        Fingerprint(rank=2, step=1, digests={"parameter:w": "b"}),
    ]

    assert differences(prints) == [
        Difference("parameter:w", ((0,), (1, 2))),
        Difference("buffer:n", ((0, 1), (2,))),
    ]


def test_fingerprints_of_different_steps_are_no_comparison() -> None:
    """A rank that is a step ahead differs for that reason alone."""
    with pytest.raises(ValueError, match="different steps"):
        differences([Fingerprint(rank=0, step=1, digests={}), Fingerprint(rank=1, step=2, digests={})])
