"""The operation at which ranks and one process part is found by the sums of its results."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch

from paceline.observe.parity.operations import OperationLog
from paceline.records.parity import Operation, rank_folder
from paceline.records.place import Place
from paceline.verify.operations import first_operation

Row = tuple[str, list[int], float]


def written(folder: Path, ranks: list[list[Row]]) -> Path:
    """Operations of some ranks; each at a line of its own."""
    for rank, rows in enumerate(ranks):
        own = rank_folder(folder, rank)
        own.mkdir(parents=True)
        operations = [
            Operation(name=name, shape=shape, total=total, size=abs(total), place=Place(path="train.py", line=line))
            for line, (name, shape, total) in enumerate(rows, 1)
        ]
        (own / "operations.jsonl").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in operations))
    return folder


RANKS = [
    [("t", [3, 2], 7.0), ("addmm", [4, 3], 1.0), ("nll_loss", [], 0.5)],
    [("t", [3, 2], 7.0), ("addmm", [4, 3], 2.0), ("nll_loss", [], 0.7)],
]


def found(tmp_path: Path, one: list[Row], ranks: list[list[Row]] = RANKS) -> Operation | None:
    """What differs from one process."""
    return first_operation(written(tmp_path / "ranks", ranks), 2, written(tmp_path / "one", [one]), double=True)


def test_weights_parts_of_a_batch_and_means_agree(tmp_path: Path) -> None:
    """Weights are equal, activations add up, and the loss is the mean of both."""
    assert found(tmp_path, [("t", [3, 2], 7.0), ("addmm", [8, 3], 3.0), ("nll_loss", [], 0.6)]) is None


@pytest.mark.parametrize(("line", "total"), [(2, 3.1), (3, 0.61)])
def test_the_first_operation_that_differs_is_named(tmp_path: Path, line: int, total: float) -> None:
    """With the line of the script."""
    one: list[Row] = [("t", [3, 2], 7.0), ("addmm", [8, 3], 3.0), ("nll_loss", [], 0.6)]
    one[line - 1] = (one[line - 1][0], one[line - 1][1], total)
    operation = found(tmp_path, one)

    assert operation is not None
    assert operation.place == Place(path="train.py", line=line)


def test_operations_that_only_one_side_has_are_left_out(tmp_path: Path) -> None:
    """DDP copies buffers, for example."""
    one: list[Row] = [("t", [3, 2], 7.0), ("nll_loss", [], 0.6)]

    assert found(tmp_path, one, [[rows[0], ("other", [1], 9.0)] for rows in RANKS]) is None


def test_missing_records_prove_nothing(tmp_path: Path) -> None:
    """A rank may end before its first backward pass."""
    assert first_operation(tmp_path, 2, tmp_path, double=True) is None


def test_operations_that_compute_nothing_are_not_noted(tmp_path: Path) -> None:
    """Views and fresh memory differ between runs, though nothing is wrong."""
    path, x = tmp_path / "operations.jsonl", torch.ones(4, 2)
    log = OperationLog(path, aside=lambda: False)
    log.__enter__()  # `close` leaves it
    torch.empty_like(x).mul_(0.0)
    x[0].sum()
    log.close()
    names = [msgspec.json.decode(line, type=Operation).name for line in path.read_bytes().splitlines()]

    assert [name for name in names if name.partition(".")[0] in ("empty_like", "select")] == []
    assert "sum.default" in names
