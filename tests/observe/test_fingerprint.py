"""A fingerprint tells ranks that hold the same state from those that do not, and names what differs."""

from __future__ import annotations

import pytest

from paceline.audits.rank_differences import Difference, differences
from paceline.pool.warm_ranks import run_ranks
from paceline.records.observed import Fingerprint
from tests.observe import ranks


def kinds(found: list[Difference]) -> set[str]:
    """Kinds of what differs."""
    return {each.kind for each in found}


@pytest.mark.parametrize(
    ("fault", "differing"),
    [("none", {"buffer"}), ("module", {"buffer", "parameter", "optimizer"}), ("rate", {"buffer", "optimizer"})],
)
def test_what_differs_is_named_by_kind(fault: str, differing: set[str]) -> None:
    """Batch norm on own samples: buffers only. A forward past DDP: weights and momentum as well. A rate: itself."""
    each = run_ranks(ranks.fingerprints, 2, fault)

    found = differences([rank[0] for rank in each])
    assert kinds(found) == differing
    if fault == "rate":
        assert [str(one) for one in found if one.kind == "optimizer"] == ["optimizer:lr (ranks 0 | 1)"]
    if fault == "module":
        assert found[0].name == "parameter:0.weight"


def test_randomness_is_compared_only_where_asked() -> None:
    """Ranks that draw their own augmentation differ there, and should."""
    each = run_ranks(ranks.fingerprints, 2, "none")

    assert "random" not in kinds(differences([rank[0] for rank in each]))
    assert "random:torch" in [one.name for one in differences([rank[1] for rank in each])]


def test_taking_a_fingerprint_draws_no_random_number() -> None:
    """The program's own numbers stay what they are."""
    assert ranks.random_numbers_after(True) == ranks.random_numbers_after(False)


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
