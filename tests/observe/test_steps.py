"""Steps, wrapped models and the weights' bits after each step are seen from outside."""

from __future__ import annotations

import pytest

from paceline.pool.warm_ranks import run_ranks
from tests.observe import ranks


@pytest.mark.parametrize(("fault", "equal"), [("", True), ("past the wrapper", False)])
def test_digests_agree_on_ranks_that_train_the_same_model_and_only_on_these(fault: str, equal: bool) -> None:
    """Two of three steps are digested, as asked; every step is counted; DDP is left as it was."""
    (first, wrapped, steps, trouble), (second, *_) = run_ranks(ranks.stepped, 2, fault)

    assert (len(first), wrapped, steps, trouble) == (2, 1, 3, "")
    assert (first == second) is equal
    assert first[0] != first[1]
