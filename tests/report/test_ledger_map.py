"""Which rank read which samples, counted from the ledger."""

from array import array

import pytest

from paceline.records.ledger import LedgerWriter
from paceline.records.rundir import RunDir
from paceline.report.ledger_map import ledger_maps
from paceline.report.observed_ranks import observed_job
from paceline.report.page.run_page import render_page
from paceline.report.page.shell import plotly_script
from paceline.report.run_record import load_run
from paceline.report.summary import summarise
from tests.report.observed import begun, left, observation, write_run
from tests.report.test_page import Page


@pytest.fixture
def maps(tmp_path):
    """Maps of a run whose ledger is given."""

    def made(ledger, events=(), world=2):
        ranks = {rank: list(events) for rank in range(world)}
        run = RunDir(write_run(tmp_path / "train", ranks, ledger=ledger, world=world))
        return list(ledger_maps(run, observed_job(run), world))

    return made


def test_samples_are_counted_by_rank_and_over_all_ranks(maps):
    """Of ten samples, 0 is read by both ranks, 7 to 9 by none."""
    (one,) = maps({(0, 0, 0): [[0, 1], [2, 3]], (0, 0, 1): [[0, 4], [5, 6]]}, [begun(samples=10), left()])

    assert (one.once, one.more, one.never) == (6, 1, 3)
    assert one.ranks[0].mean == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert one.ranks[1].mean == [1, 0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert one.mean == [2, 1, 1, 1, 1, 1, 1, 0, 0, 0]
    assert [(each.samples, each.distinct, each.first, each.last) for each in one.ranks] == [(4, 4, 0, 3), (4, 4, 0, 6)]
    assert (one.left_early, one.absent) == ([], [])


def test_negative_indices_are_left_out(maps):
    """A sampler may count from the end; there is no column for them."""
    (one,) = maps({(0, 0, 0): [[0, -1], [2, -3]]}, [begun(samples=4), left()], world=1)

    assert (one.once, one.more, one.never) == (2, 0, 2)


@pytest.mark.parametrize("size", [0, 6, 128, 140])
def test_a_torn_file_holds_what_is_whole_in_it(tmp_path, size):
    """Less than its header, nothing behind it, or less than a row."""
    path = write_run(tmp_path / "train", {0: [begun(), left()]}, ledger={(0, 0, rank): [[0, 1]] for rank in (0, 1)})
    run = RunDir(path)
    file = run.ledger(0, 0, 0)
    file.write_bytes(file.read_bytes()[:size])

    (one,) = ledger_maps(run, observed_job(run), 2)

    assert [each.rank for each in one.ranks] == [1]


def test_many_samples_are_put_into_two_hundred_columns_at_most(maps):
    """Each rank reads every other sample of 1001, the last column being narrower."""
    (one,) = maps({(0, 0, rank): [list(range(rank, 1001, 2))] for rank in (0, 1)}, [begun(samples=1001), left()])

    assert one.width == 6
    assert len(one.mean) == len(one.centers) == 167 <= 200
    assert set(one.mean) == {1.0}
    assert one.ranks[0].mean[:-1] == [0.5] * 166
    assert one.ranks[0].mean[-1] == pytest.approx(3 / 5)
    assert one.centers[0] == 2.5
    assert one.centers[-1] == 998.0


def test_the_first_two_passes_and_the_last_are_shown(maps):
    """Of each loader."""
    found = maps({(loader, number, 0): [[0]] for loader in (0, 1) for number in range(5)}, world=1)

    assert [(one.loader, one.number) for one in found] == [(0, 0), (0, 1), (0, 4), (1, 0), (1, 1), (1, 4)]


def test_samples_outside_of_a_subset_are_among_those_never_read(maps):
    """And the subset's size is known."""
    (one,) = maps({(0, 0, 0): [[1, 3]]}, [begun(samples=2, root_samples=5, subset="s"), left()], world=1)

    assert (one.samples, one.subset, one.never) == (5, 2, 3)


def test_without_the_size_of_the_data_nobody_knows_what_was_never_read(maps):
    """The loader's first event is missing."""
    (one,) = maps({(0, 0, 0): [[1, 3]]}, world=1)

    assert (one.samples, one.never, one.data) == (4, None, "")


def test_ranks_that_left_early_or_have_no_indices_are_named(maps):
    """A pass that was given up, and a rank without a file."""
    (one,) = maps({(0, 0, 0): [[0, 1]]}, [begun(), left(exhausted=False)])

    assert (one.left_early, one.absent) == ([0], [1])


def test_of_a_job_that_was_started_again_the_last_attempt_is_counted(tmp_path):
    """The batches begin at 0 again."""
    run = RunDir(write_run(tmp_path / "train", {0: [begun()]}, world=1))
    writer = LedgerWriter(run)
    for attempt, batch, indices in [(1, 0, [0, 1]), (1, 1, [2, 3]), (2, 0, [4, 5]), (2, 1, [6, 7])]:
        writer.add(0, attempt, (0, 0), [(batch, array("q", indices))])

    (one,) = ledger_maps(run, observed_job(run), 1)

    assert one.ranks[0].mean == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_torn_end_is_left_out(tmp_path):
    """Whole rows before it are counted."""
    run = RunDir(write_run(tmp_path / "train", {0: [begun()]}, ledger={(0, 0, 0): [[0, 1, 2]]}, world=1))
    path = run.ledger(0, 0, 0)
    path.write_bytes(path.read_bytes()[:-5])

    (one,) = ledger_maps(run, observed_job(run), 1)

    assert one.once == 2


def test_the_page_has_a_map_with_its_numbers_for_each_pass(tmp_path):
    """A caption in words, a table, and rank 0 above rank 1."""
    ledger = {(0, 0, 0): [[0, 1], [2, 3]], (0, 0, 1): [[4, 5], [6, 0]]}
    events = {rank: [begun(), left()] for rank in (0, 1)}
    run = load_run(write_run(tmp_path / "train", events, ledger=ledger, found=observation()))

    page = Page(render_page([run], [summarise(run)]))
    text = " ".join(" ".join(page.words).split())

    assert page.faults == []
    assert "run-1-ledger-0-0" in page.ids
    assert "Loader 0, pass 0: Digits, train.py:9" in text
    assert "6 samples were read once, 1 more than once, 1 never, by 2 ranks together." in text
    assert "Samples that each rank read" in text


def test_a_large_ledger_keeps_the_page_small(tmp_path):
    """16 ranks, 3 passes, 40,000 samples: columns travel, not indices."""
    ledger = {(0, number, rank): [list(range(rank, 40_000, 16))] for rank in range(16) for number in range(3)}
    events = {rank: [begun(0, number, samples=40_000) for number in range(3)] for rank in range(16)}
    run = load_run(write_run(tmp_path / "train", events, ledger=ledger, found=observation(), world=16))

    html = render_page([run], [summarise(run)])

    assert len(html) - len(plotly_script()) < 250_000
