"""What a run of `paceline run` can honestly show."""

import io

import msgspec
import pytest
from rich.console import Console

from paceline.cli.card_layout import show
from paceline.cli.cards import run_card
from paceline.cli.main import call
from paceline.records.launched import Attempt, Cause, RankExit
from paceline.records.observed import NotObserved, StepTiming
from paceline.records.rundir import RunDir, write_info
from paceline.records.schema import End, RunInfo, Start
from paceline.records.writer import EventWriter
from paceline.report.comparison import NOT_SET, compare
from paceline.report.launch_view import as_shown
from paceline.report.page.run_page import render_page
from paceline.report.run_record import load_run
from paceline.report.summary import summarise
from tests.report.test_page import Page

CAUSE = Cause(
    kind="failed",
    title="rank 1 failed first",
    rank=1,
    rows=[("raised", "ValueError: <b>bad</b> shard"), ("at", "train.py:12, in main"), ("others", "rank 0 was stopped")],
)


def ranks(*codes):
    """Ends of ranks, a second apart."""
    return [
        RankExit(rank=rank, local_rank=rank, pid=70 + rank, exit_code=code, after_s=5.0 + rank, stopped=code == -15)
        for rank, code in enumerate(codes)
    ]


@pytest.fixture
def launched(tmp_path):
    """Write a run of two attempts, the second of which ends as told; gives its directory."""

    def write(name="train", code=0, ended=True, output=b"epoch 0\n"):
        run = RunDir(tmp_path / name)
        info = RunInfo(
            schema=1,
            verb="run",
            name=name,
            command=["paceline", "run", f"{name}.py"],
            started_at="2026-03-01T09:30:00+00:00",
            versions={"torch": "2.14.1"},
            config={"nproc_per_node": "2", "rdzv_id": name, "training_script": f"{name}.py"},
            facts={"settings": {"OMP_NUM_THREADS": "1"}, "machine": {"host": "bench-1", "cores": 2}},
        )
        write_info(run, info)
        folder = run.logs / "job" / "attempt_1" / "0"
        folder.mkdir(parents=True)
        (folder / "output.log").write_bytes(output)
        common = {"started_unix_s": 1.0, "duration_s": 6.0, "world": 2}
        with EventWriter(run.launcher_events("bench-1")) as events:
            events.write(Start(session=1, time_unix_s=0.0, world=2, step=0))
            events.write(
                Attempt(
                    attempt=1, outcome="failed", ranks=ranks(-15, 1), logs="logs/job/attempt_0", cause=CAUSE, **common
                )
            )
            outcome = "failed" if code else "succeeded"
            cause = CAUSE if code else None
            events.write(
                Attempt(
                    attempt=2, outcome=outcome, ranks=ranks(0, code), logs="logs/job/attempt_1", cause=cause, **common
                )
            )
            if ended:
                reason = "failed" if code else "finished"
                events.write(
                    End(step=0, reason=reason, exit_code=code, elapsed_s=13.0, message=CAUSE.title if code else "")
                )
        return run.path

    return write


def test_the_numbers_are_those_that_a_launcher_knows(launched):
    """Exit code, wall time, attempts, ranks; nothing of a trainer, and no start-up counted as training."""
    summary = summarise(load_run(launched()))

    assert (summary.exit_code, summary.launch.wall_s, summary.launch.world) == (0, 13.0, 2)
    assert [each.outcome for each in summary.launch.attempts] == ["failed", "succeeded"]
    assert summary.ended == "Finished with exit code 0 at attempt 2."
    assert (summary.steps, summary.elapsed_s, summary.throughput, summary.phases, summary.warnings) == (
        None, None, None, [], [],
    )  # fmt: skip
    assert "loss" in summary.launch.not_observed


def test_the_page_shows_attempts_ranks_and_output_escaped(launched):
    """Whatever the script printed or raised; what was not observed is said once."""
    output = b"\x1b[31mred\x1b[0m <script>alert(1)</script>\n 1%\r 50%\r100%\n\xff\x00\n"
    run = load_run(launched(code=1, output=output))

    html = render_page([run], [summarise(run)])
    page = Page(html)
    text = " ".join(page.words)

    assert page.faults == []
    assert "<script>alert" not in html
    assert "<b>bad" not in html
    for words in ("Attempt 1: failed after 6.00 s", "rank 1 failed first", "train.py:12", "exited with code 1"):
        assert words in text
    assert "red <script>alert(1)</script> 100% \ufffd\ufffd" in " ".join(text.split())
    assert text.count("Not observed:") == 1
    assert text.lower().count("not observed") == 1
    assert "set" not in text.split()


@pytest.mark.parametrize("width", [40, 80])
def test_the_card_fits_the_terminal(launched, width):
    """At its width no line is longer, but for paths and words that are."""
    run = load_run(launched(code=1))
    summary = summarise(run)
    console = Console(width=width, file=io.StringIO(), highlight=False, markup=False)

    show(console, run_card(summary, run.info))

    text = console.file.getvalue()
    assert "rank 1 failed first" in " ".join(text.split())
    assert "\ufffd" not in text
    assert all(len(line) <= width or len(line.split()) <= 2 for line in text.splitlines())


def test_a_comparison_with_a_training_shows_what_both_have(launched, runs):
    """And says what was not observed, instead of rows of 'not set'."""
    both = [load_run(launched()), load_run(runs.plain("trained"))]
    summaries = [summarise(run) for run in both]

    comparison = compare(both, summaries)

    assert [row.name for row in comparison.settings] == ["verb"]
    assert all(NOT_SET not in row.values for row in comparison.settings)
    assert all(None not in row.values for row in comparison.numbers)
    assert comparison.remarks[0].startswith("train: started by paceline run; not observed: steps, samples")
    assert Page(render_page(both, summaries, comparison)).faults == []


def test_two_launched_runs_are_compared_by_what_launchers_know(launched):
    """Wall time, attempts and exit code; chance names of the rendezvous are no settings."""
    runs = [load_run(launched("one")), load_run(launched("two", code=1))]

    comparison = compare(runs, [summarise(run) for run in runs])

    assert [row.name for row in comparison.settings] == ["training_script"]
    assert [row.name for row in comparison.numbers] == ["exit code", "wall time", "attempts"]


def test_json_has_the_attempts_and_says_what_was_not_observed(launched, capsys):
    """One document; `report` writes no page for it."""
    assert call(["report", str(launched(code=1)), "--format", "json"]) == 0

    (run,) = msgspec.json.decode(capsys.readouterr().out)["runs"]
    assert run["launch"]["cause"]["title"] == "rank 1 failed first"
    assert run["launch"]["attempts"][0]["ranks"][1]["exit_code"] == 1
    assert run["steps"] is None
    assert "steps" in run["launch"]["not_observed"]


def test_a_target_is_refused_since_no_metric_is_observed(launched, capsys):
    """Rather than shown as missed."""
    assert call(["report", str(launched()), "--target", "accuracy=0.9"]) == 2

    assert "paceline run does not observe metrics" in capsys.readouterr().err


def test_a_launcher_that_was_killed_left_no_end(launched):
    """Its attempts stand all the same."""
    summary = summarise(load_run(launched(ended=False)))

    assert summary.status == "unknown"
    assert summary.ended == "No end was recorded: the launcher was killed, or still runs."
    assert len(summary.launch.attempts) == 2


def test_a_record_of_an_earlier_version_is_read(tmp_path, launched):
    """It has a card as the message of its end, in the file of rank 0, and no attempts."""
    path = launched()
    for old in path.glob("events/*"):
        old.unlink()
    with EventWriter(RunDir(path).events()) as events:
        events.write(Start(session=1, time_unix_s=0.0, world=2, step=0))
        events.write(
            End(step=0, reason="failed", exit_code=1, elapsed_s=3.0, message="-- rank 0 failed -----\n  log x\n---")
        )

    summary = summarise(load_run(path))

    assert summary.ended == "Failed with exit code 1: rank 0 failed."
    assert summary.launch.attempts == []
    assert Page(render_page([load_run(path)], [summary])).faults == []


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("10%\r20%\r", "20%"),
        ("\x1b]0;title\x07text", "text"),
        ("a\x07b", "a\ufffdb"),
        ("x" * 500, "x" * 400 + " …"),
        ("\r\n", ""),
    ],
)
def test_a_line_is_shown_as_a_terminal_leaves_it(line, shown):
    """The last state of a progress bar, without escapes."""
    assert as_shown(line) == shown


def test_steps_that_an_observer_timed_are_shown_with_their_source_and_what_was_not_seen_with_its_reason(launched):
    """Card, JSON and page; before that, steps are among what is not observed."""
    path = launched()
    before = summarise(load_run(path)).launch
    with EventWriter(RunDir(path).events()) as events:
        events.write(Start(session=1, time_unix_s=0.0, world=2, step=0))
        for number in range(1, 26):
            events.write(StepTiming(step=number, samples=64 * number, duration_s=0.032, source="hooks"))
        events.write(NotObserved(what="sample indices", why="an iterable data set has none"))

    run = load_run(path)
    summary = summarise(run)
    launch = summary.launch

    assert {"steps", "samples", "samples/s"} <= {*before.not_observed}
    assert (launch.steps, launch.timed_steps, launch.timed_by) == (25, 20, ["hooks"])
    assert (launch.step_s, launch.samples_per_s) == (0.032, 2000.0)
    assert launch.not_observed == [
        *("loss", "metrics", "learning rate", "checkpoints"),
        "sample indices (an iterable data set has none)",
    ]
    out = io.StringIO()
    show(Console(file=out, width=100), run_card(summary, run.info))
    for text in ("0.032 s", "median of 20 steps of rank 0", "timed by hooks", "2,000"):
        assert text in out.getvalue()


@pytest.mark.parametrize("reason", ["preempted", "finished"])
def test_an_end_of_a_later_version_is_told_in_its_own_word(launched, reason):
    """A reason that is not known yet is no failure."""
    path = launched(ended=False)
    with EventWriter(RunDir(path).launcher_events("bench-1")) as events:
        events.write(End(step=0, reason=reason, exit_code=0, elapsed_s=3.0))

    assert summarise(load_run(path)).ended.startswith(f"{reason.capitalize()} with exit code 0")
