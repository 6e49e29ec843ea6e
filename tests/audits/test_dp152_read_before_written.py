"""Readers that do not wait for the writer."""

from __future__ import annotations

from paceline.audits.dp152_read_before_written import ReadBeforeWritten
from tests.audits.loader_events import SAVE, called, judged, touched

BEST = "/job/best.pt"


def write(step=10, collectives=40, **more):
    """Rank 0 saves."""
    return touched(BEST, step=step, collectives=collectives, by="torch.save", **more)


def read(step=10, collectives=40, **more):
    """A rank loads."""
    return touched(BEST, "read", step=step, collectives=collectives, by="torch.load", **more)


def test_a_read_without_a_barrier_is_a_warning():
    """The best checkpoint is loaded right after training."""
    (found,) = judged(ReadBeforeWritten, [[write(), read()], [read()], [read()]])

    assert (found.severity, found.faults, found.line) == ("warning", ["F94"], SAVE.line)
    assert (found.rank, found.step, found.evidence["writer"]) == (1, 10, 0)


def test_a_read_before_a_collective_that_precedes_the_write_is_a_warning():
    """The reader cannot have waited."""
    (found,) = judged(ReadBeforeWritten, [[write(collectives=41)], [read(collectives=40)]])

    assert found.rank == 1


def test_the_last_of_several_writes_counts():
    """The best model was saved before, and again just now."""
    ranks = [[write(5, 20), write(10, 40)], [read()]]

    assert len(judged(ReadBeforeWritten, ranks)) == 1


def test_a_cache_that_others_read_at_once_is_a_warning():
    """Rank 0 builds it before the first step, and nobody waits."""
    assert len(judged(ReadBeforeWritten, [[write(0, 1)], [read(0, 1)]])) == 1


def test_a_barrier_between_is_right():
    """One collective more."""
    assert judged(ReadBeforeWritten, [[write(), read(10, 41)], [read(10, 41)]]) == []


def test_a_barrier_over_another_group_is_right():
    """It was seen on the reader, though the default group does not count it."""
    barrier = called("barrier", 0, group="gloo")

    assert judged(ReadBeforeWritten, [[write(), barrier], [barrier, read()]]) == []


def test_a_checkpoint_of_an_earlier_run_may_be_read():
    """All ranks resume from it, and rank 0 writes it again later."""
    ranks = [[read(0, 1), write(10, 40)], [read(0, 1)]]

    assert judged(ReadBeforeWritten, ranks) == []
    assert judged(ReadBeforeWritten, [[read(0, 1), write(0, 1)], [read(0, 1)]]) == []


def test_a_file_that_is_read_before_it_is_written_again_is_right():
    """Each epoch reads what the epoch before wrote; a collective lies between."""
    ranks = [[write(5, 20), write(10, 41)], [read(5, 21), read(10, 40)]]

    assert judged(ReadBeforeWritten, ranks) == []


def test_a_reader_that_knows_the_file_may_read_the_old_one():
    """It was written before, or read before."""
    assert judged(ReadBeforeWritten, [[write(5, 20), write(10, 41)], [read(10, 40)]]) == []
    assert judged(ReadBeforeWritten, [[write(10, 41)], [read(5, 20), read(10, 40)]]) == []


def test_reads_and_writes_of_other_steps_are_not_compared():
    """Ranks that count no collectives."""
    assert judged(ReadBeforeWritten, [[write(10, 0)], [read(5, 0)]]) == []


def test_what_two_ranks_write_is_left_to_its_own_audit():
    """A third reads it."""
    assert judged(ReadBeforeWritten, [[write()], [write()], [read()]]) == []


def test_a_lock_file_says_that_ranks_wait():
    """As filelock makes it."""
    lock = touched("/job/cache.lock", "append")

    assert judged(ReadBeforeWritten, [[lock, write()], [lock, read()]]) == []


def test_several_writers_and_own_files_are_passed_over():
    """The first is DP151's, and each rank may read what it wrote."""
    assert judged(ReadBeforeWritten, [[write(), read()], [write(), read()]]) == []
    assert judged(ReadBeforeWritten, [[write(), read()], []]) == []


def test_files_of_libraries_and_logs_are_passed_over():
    """No line of the script, or a file that grows."""
    assert judged(ReadBeforeWritten, [[write(place=None)], [read(place=None)]]) == []
    log = [[touched("/job/a.csv", step=3)], [touched("/job/a.csv", "read", step=3)]]
    assert judged(ReadBeforeWritten, log) == []
