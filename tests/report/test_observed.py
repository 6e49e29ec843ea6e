"""What was observed in the ranks of a run of `paceline run`, on card and page."""

import io

import msgspec
import pytest
from rich.console import Console

from paceline.cli.card_layout import show
from paceline.cli.cards import run_card
from paceline.records.observation import Unseen, WatchedRanks
from paceline.records.rundir import RunDir
from paceline.report.observed_ranks import ObservedRank, mean_rates
from paceline.report.page.run_page import render_page
from paceline.report.run_record import load_run
from paceline.report.summary import summarise
from tests.report.observed import ERROR, NOTE, begun, ended, observation, taken, timing, training, write_run
from tests.report.test_page import Page


@pytest.fixture
def write(tmp_path):
    """Write a run; two ranks that train, unless told otherwise."""

    def written(ranks=None, **more):
        ranks = {0: training(0), 1: training(1)} if ranks is None else ranks
        return write_run(tmp_path / "train", ranks, **more)

    return written


def shown(path):
    """The page of a run, read strictly."""
    run = load_run(path)
    page = Page(render_page([run], [summarise(run)]))
    assert page.faults == []
    return page, " ".join(" ".join(page.words).split())


def card(path, width=80):
    """The card of a run as text."""
    run = load_run(path)
    console = Console(width=width, file=io.StringIO(), highlight=False, markup=False)
    show(console, run_card(summarise(run), run.info))
    return console.file.getvalue()


def test_numbers_are_those_that_ranks_recorded(write):
    """Nine steps in 1.8 s, 40 samples a rank, and the last loss of each rank."""
    launch = summarise(load_run(write(found=observation()))).launch

    assert launch.steps_per_s == pytest.approx(5.0)
    assert launch.samples_per_s_overall == 40.0
    assert launch.samples == {0: 40, 1: 40}
    assert [(each.rank, each.step, each.value) for each in launch.losses] == [(0, 10, 1 / 2**10), (1, 10, 2 / 2**10)]
    assert launch.lr == pytest.approx(0.01)
    assert launch.not_observed == ["metrics", "checkpoints", "files (no file was opened)"]


def test_steps_are_all_that_ranks_took(write):
    """Not only those up to the last one that was timed."""
    path = write({0: [taken(1, 1.0), timing(1, 0.1), taken(7, 1.0), ended(9, 18)], 1: [taken(8, 1.0)]})

    assert summarise(load_run(path)).launch.steps == 9


def test_damaged_lines_of_every_rank_are_reported_once(write):
    """Rank 0's file is read twice; a file that is no rank's is not read at all."""
    path = write()
    run = RunDir(path)
    for rank in (0, 1):
        with run.events(rank).open("ab") as file:
            file.write(b"no json\n")
    (path / "events" / "rank-one.jsonl").write_text("no json\n")

    remarks = [each for each in load_run(path).remarks if "damaged" in each]

    assert remarks == [f"{run.events(rank)}: 1 damaged line(s) were passed over" for rank in (0, 1)]


def test_the_numbers_are_in_the_json_document(write):
    """`--format json` is the summary, encoded."""
    summary = summarise(load_run(write(found=observation([ERROR]))))

    document = msgspec.json.decode(msgspec.json.encode(summary))

    assert document["launch"]["samples"] == {"0": 40, "1": 40}
    assert document["launch"]["observation"]["findings"][0]["code"] == "DP121"


@pytest.mark.parametrize("second", [training(1, samples=0), training(1)[:-1]])
def test_samples_are_not_observed_unless_every_rank_counted_them(write, second):
    """A rank that counted none, or did not end in order, makes the sum unknown."""
    launch = summarise(load_run(write({0: training(0), 1: second}))).launch

    assert launch.samples == {}
    assert {"samples", "samples/s"} <= {*launch.not_observed}


def test_a_loss_scale_is_divided_out(write):
    """The script's loss, not the scaler's."""
    launch = summarise(load_run(write({0: [taken(1, 512.0, loss_scale=1024.0)], 1: []}))).launch

    assert [each.value for each in launch.losses] == [0.5]


def test_a_loss_that_was_not_looked_at_is_not_observed(write):
    """Nothing is drawn, and nothing is made up."""
    path = write({0: [taken(1, None), taken(2, float("nan"))], 1: []})

    assert "loss" in summarise(load_run(path)).launch.not_observed
    assert "Loss on which backward was called" not in shown(path)[1]


def test_of_a_job_that_was_started_again_the_last_attempt_is_shown(write):
    """Steps begin at 1 again."""
    first = [msgspec.structs.replace(each, attempt=1) for each in training(0)]
    second = [msgspec.structs.replace(each, attempt=2) for each in (taken(1, 7.0), timing(1, 0.1), timing(2, 0.6))]

    launch = summarise(load_run(write({0: [*first, *second], 1: []}))).launch

    assert [(each.step, each.value) for each in launch.losses] == [(1, 7.0)]
    assert launch.steps_per_s == pytest.approx(2.0)


def test_rates_are_steps_over_the_whole_time_between_recorded_steps():
    """100 steps in 10 s, then a pause within 100 steps of 40 s; short stretches are merged."""
    rank = ObservedRank(0)
    for event in (timing(1, 0.0), timing(101, 10.0), timing(102, 10.1), timing(201, 50.0)):
        rank.take(event)

    step, at, rate = mean_rates(rank, most=10)

    assert step.tolist() == [101, 201]
    assert at.tolist() == [10.0, 50.0]
    assert rate.tolist() == pytest.approx([10.0, 2.5])


def test_the_page_shows_findings_with_their_evidence_errors_first(write):
    """Severity, code, place, rank, step, faults, repair; whatever a script is called stays text."""
    path = write(found=observation([NOTE, ERROR]))

    page, text = shown(path)

    assert text.index("DP121 no-sampler") < text.index("DP129 padded-training")
    for words in (
        "1 error, 1 info.",
        "every rank trains on all 8 samples <b>twice</b>.",
        "Repair pass sampler=DistributedSampler(dataset)",
        "line train.py:12",
        "rank 1",
        "step 4",
        "faults F01, F03",
        "Evidence of DP121",
        "ranks [0,1]",
        "why <script>alert(1)</script>",
    ):
        assert words in text
    assert len(page.scripts) == 3


def test_no_findings_come_with_what_was_watched_and_what_was_not(write):
    """On the page and on the card; a topic without data is not among what was watched."""
    path = write(found=observation())

    _, text = shown(path)

    assert "No findings in what was watched." in text
    assert "Watched replicas parameters of 2 ranks data samples of 2 passes; inputs Not observed" in text
    assert "files no file was opened metrics, checkpoints not recorded" in text
    for words in ("none in what was watched", "samples of 2 passes; inputs", "files (no file was opened)"):
        assert words in card(path)


def test_records_that_were_not_judged_are_said_to_be_so(write):
    """The launcher was killed; the command that judges them is named."""
    path = write()

    _, text = shown(path)

    assert f"paceline audit {path}" in text
    assert f"paceline audit {path}" in card(path, 200)
    assert "No findings" not in text


def test_a_run_without_records_of_ranks_has_no_judgement(write):
    """As with PACELINE_OBSERVE=0 and an earlier version."""
    page, text = shown(write({}))

    assert "No record of the ranks was found, so nothing was judged." in text
    assert "observed" not in page.ids


def test_a_run_in_which_nothing_was_observed_has_no_number_of_findings(write):
    """PACELINE_OBSERVE=0: zero findings would be a claim."""
    nobody = WatchedRanks(observed=[], world=0)
    off = [Unseen(what="everything", why="PACELINE_OBSERVE=0", by_launcher=True)]
    path = write({}, found=observation(ranks=nobody, watched={"data": []}, not_observed=off))

    _, text = shown(path)

    assert "findings not observed no rank observed" in text
    assert "Nothing was watched, so nothing was judged." in text
    assert "everything PACELINE_OBSERVE=0" in text
    assert "everything (PACELINE_OBSERVE=0)" in card(path)


def test_a_damaged_observation_is_a_note(write):
    """The rest of the run is shown."""
    path = write()
    RunDir(path).observation.write_text("{")

    _, text = shown(path)

    assert "observation.json is damaged" in text
    assert f"paceline audit {path} makes it again" in text


def test_losses_are_labelled_with_their_source(write):
    """Of which rank, and that it is not a mean."""
    page, text = shown(write(found=observation()))

    assert "as the script called backward(), rank 0, step 10" in text
    assert "not a mean over ranks" in text
    assert {"run-1-loss", "run-1-speed", "run-1-lr"} <= {*page.ids}


@pytest.mark.parametrize("width", [40, 80])
def test_the_card_fits_the_terminal(write, width):
    """At its width no line is longer, but for paths and words that are."""
    text = card(write(found=observation([ERROR, NOTE])), width)

    assert "error DP121 no-sampler train.py:12" in " ".join(text.split())
    assert "repair: pass sampler=DistributedSampler(dataset)" in " ".join(text.split())
    assert all(len(line) <= width or len(line.split()) <= 2 for line in text.splitlines())


def test_a_card_shows_twenty_findings_and_counts_the_rest(write):
    """The page has all of them."""
    path = write(found=observation([ERROR] * 23))

    assert card(path).count("DP121") == 20
    assert "and 3 findings more, on the page" in card(path)
    assert shown(path)[1].count("DP121 no-sampler") == 23


def test_two_observed_runs_are_compared_by_speed_and_findings(tmp_path):
    """Each with figures of its own on one page."""
    paths = [
        write_run(tmp_path / name, {0: training(0), 1: training(1)}, found=observation([ERROR])) for name in ("a", "b")
    ]
    runs = [load_run(path) for path in paths]

    page = Page(render_page(runs, [summarise(run) for run in runs]))

    assert page.faults == []
    assert {"run-1-loss", "run-2-loss"} <= {*page.ids}
    assert len(page.ids) == len(set(page.ids))
    assert {"steps/s", "findings"} <= {*page.words}


def test_events_of_many_ranks_are_read_from_a_sample_of_them(tmp_path):
    """All are counted; losses of six are drawn."""
    ranks = {rank: [begun(), taken(1, 1.0 + rank), ended(1, 4)] for rank in range(40)}
    path = write_run(tmp_path / "wide", ranks, found=observation(), world=40)

    launch = summarise(load_run(path)).launch

    assert sum(launch.samples.values()) == 160
    assert len(launch.losses) == 32
    assert "6 of 40 ranks." in shown(path)[1]
