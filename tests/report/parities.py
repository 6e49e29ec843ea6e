"""Results of `paceline verify`, written down."""

from __future__ import annotations

from typing import Any

from paceline.records.parity import Compared, Divergence, ParityResult, RankStanding
from paceline.records.schema import Finding


def passed(**changes: Any) -> ParityResult:
    """Two ranks and one process agree; the learning rate is scaled."""
    values = {
        "verdict": "pass",
        "reason": "2 ranks and one process compute the same for 3 steps",
        "command": ["/home/me/train.py", "--epochs", "1"],
        "world": 2,
        "compared": Compared(steps=3, tensors=30, dtype="float64", tolerance=1e-9, floor=0.0, worst=3e-15),
        "tensors": {f"parameter:{number}.weight": number * 1e-16 for number in range(30)},
        "adjusted": ["batch normalization uses its running statistics in both runs"],
        "not_compared": ["the evaluation"],
        "learning_rates": [0.2, 0.1, 0.0],
        "learning_rates_of_one": [0.1, 0.05, 0.0],
        "script_sha256": "ab" * 32,
        "versions": {"python": "3.11.9", "torch": "2.9.0", "paceline": "0.1.0"},
        "seconds": 12.3,
    }
    return ParityResult(**values | changes)


def failed(**changes: Any) -> ParityResult:
    """Gradients are half of those of one process."""
    first = Divergence(
        step=1,
        what="state",
        tensor="parameter:7.weight",
        relative=1e-3,
        rank=0,
        against="one process",
        factor=0.5,
        path="/home/me/train.py",
        line=19,
    )
    finding = Finding(
        code="DP123",
        name="same-order-each-epoch",
        severity="error",
        faults=["F06"],
        message="each pass gives the same order",
        advice="call set_epoch",
    )
    values = {
        "verdict": "fail",
        "reason": "gradients are 1/2 of those of one process",
        "faults": ["F23", "F129"],
        "first_divergence": first,
        "findings": [finding],
    }
    return passed(**values | changes)


def hung(**changes: Any) -> ParityResult:
    """Rank 0 waits for rank 1, which has ended."""
    ranks = [
        RankStanding(rank=0, state="waits", call="all_reduce", path="/home/me/train.py", line=31, function="main"),
        RankStanding(rank=1, state="ended"),
    ]
    values = {
        "verdict": "fail",
        "reason": "2 ranks do not come to an end within 60 s, one process does",
        "hang": ranks,
    }
    empty = {"compared": None, "tensors": {}, "learning_rates": [], "learning_rates_of_one": [], "adjusted": []}
    return passed(**values | empty | changes)
