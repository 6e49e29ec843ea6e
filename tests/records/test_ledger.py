"""The ledger is readable by numpy at any time, and gives back the batches that were added."""

from __future__ import annotations

import resource
import tempfile
from array import array
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.records.ledger import LedgerWriter, ledger_files, read_ledger
from paceline.records.rundir import RunDir

INDICES = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5)
PASSES = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2))


@settings(max_examples=25)
@given(st.lists(st.tuples(PASSES, st.lists(INDICES, min_size=1, max_size=3)), max_size=12))
def test_any_batches_come_back_and_numpy_reads_each_file_after_every_call(added) -> None:
    """Batches of ranks, loaders and passes may be mixed; within one of them they keep their order."""
    expected: dict[tuple[int, int, int], list[list[int]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir(folder)
        writer = LedgerWriter(run)
        for (rank, loader, number), new in added:
            batches = expected[rank, loader, number]
            numbered = enumerate((array("q", each) for each in new), start=len(batches))
            writer.add(rank, 1, (loader, number), numbered)
            batches += new

            seen = np.load(run.ledger(loader, number, rank))

            assert seen["index"].tolist() == [index for batch in batches for index in batch]
            assert seen["batch"].tolist() == [place for place, batch in enumerate(batches) for _ in batch]
        found = defaultdict(list)
        for rank, batch in read_ledger(run):
            assert batch.batch == len(found[rank, batch.loader, batch.number])
            found[rank, batch.loader, batch.number].append(batch.indices)
    assert found == expected


def test_rows_that_a_full_disk_cut_off_are_left_out_and_the_rest_stays_readable(tmp_path: Path) -> None:
    """The header names rows only when they are there. The limit lets half of the third row be written."""
    run = RunDir(tmp_path)
    writer = LedgerWriter(run)
    writer.add(0, 1, (0, 0), [(0, array("q", [7, 8]))])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (run.ledger(0, 0, 0).stat().st_size + 8, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            writer.add(0, 1, (0, 0), [(1, array("q", [9]))])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert np.load(run.ledger(0, 0, 0))["index"].tolist() == [7, 8]
    assert [batch.indices for _, batch in read_ledger(run)] == [[7, 8]]


def test_a_torn_last_row_is_left_out(tmp_path: Path) -> None:
    """As a machine leaves it that lost its power."""
    run = RunDir(tmp_path)
    writer = LedgerWriter(run)
    writer.add(1, 1, (2, 3), [(0, array("q", [5]))])
    with run.ledger(2, 3, 1).open("ab") as file:
        file.write(b"1234567")

    ((rank, batch),) = read_ledger(run)

    assert (rank, batch.loader, batch.number, batch.batch, batch.indices) == (1, 2, 3, 0, [5])


def test_files_with_other_names_are_left_out(tmp_path: Path) -> None:
    """As a copy that a user made."""
    run = RunDir(tmp_path)
    LedgerWriter(run).add(0, 1, (0, 0), [(0, array("q", [1]))])
    file = run.ledger(0, 0, 0)
    for name in ("rank-00000 (copy).npy", "rank-one.npy"):
        (file.parent / name).write_bytes(file.read_bytes())
    (tmp_path / "ledger" / "loader-a" / "epoch-0000").mkdir(parents=True)
    (tmp_path / "ledger" / "loader-a" / "epoch-0000" / "rank-00000.npy").write_bytes(file.read_bytes())

    assert [each.path for each in ledger_files(run)] == [file]


def test_batches_of_a_restarted_rank_are_kept_apart(tmp_path: Path) -> None:
    """Each of the two attempts received a batch 0."""
    run = RunDir(tmp_path)
    writer = LedgerWriter(run)
    for attempt, batch, index in ((1, 0, 1), (1, 1, 2), (2, 0, 3), (2, 1, 4)):
        writer.add(0, attempt, (0, 0), [(batch, array("q", [index]))])

    found = [(each.attempt, each.batch, each.indices) for _, each in read_ledger(run)]
    assert sorted(found) == [(1, 0, [1]), (1, 1, [2]), (2, 0, [3]), (2, 1, [4])]
