"""Following a run: events that are appended, torn or not, and what people see of them."""

from __future__ import annotations

import time
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from paceline.cli.follow import Follower, Tail, console_for, evaluation_line
from paceline.records.rundir import RunDir, write_info
from paceline.records.schema import (
    SCHEMA,
    Batch,
    Checkpoint,
    End,
    Evaluation,
    Measure,
    Note,
    RunInfo,
    Start,
    Step,
    TaskFacts,
)
from paceline.records.writer import EventWriter

START = Start(session=1, time_unix_s=0.0, world=2, step=0)
INFO = RunInfo(
    schema=SCHEMA,
    verb="train",
    name="digits",
    command=["paceline", "train", "digits"],
    started_at="2026-01-31T12:00:00+00:00",
    versions={},
    config={"lr": 0.05, "schedule": "cosine"},
    batch=Batch(per_rank=32, accumulation=1, world=2, global_batch=64),
    task=TaskFacts(name="digits", parameters=9, train_samples=100, eval_samples=50, steps_per_epoch=2, total_steps=40),
)


def note(message: str) -> Note:
    """A note."""
    return Note(message=message)


def step(number: int, loss: float = 0.25) -> Step:
    """Step `number`, 64 samples and half a second each."""
    return Step(
        step=number,
        epoch=0,
        samples=64 * number,
        count=64.0,
        loss=loss,
        lr=0.1,
        elapsed_s=0.5 * number,
        data_s=0.0,
        forward_s=0.0,
        backward_s=0.0,
        update_s=0.0,
    )


def evaluation(number: int, epoch: float, loss: float = 0.5) -> Evaluation:
    """An evaluation after step `number`."""
    return Evaluation(
        step=number,
        epoch=epoch,
        samples=64 * number,
        elapsed_s=12.34,
        duration_s=0.1,
        metrics={"loss": Measure(value=loss, count=1797.0), "accuracy": Measure(value=0.9, count=1797.0)},
    )


def lines(*events: msgspec.Struct) -> bytes:
    """As the writer puts them on disk."""
    return b"".join(msgspec.json.encode(event) + b"\n" for event in events)


@settings(max_examples=40)
@given(data=st.data())
def test_a_tail_gives_each_event_once_however_the_writes_are_torn(tmp_path_factory, data: st.DataObject) -> None:
    """Cut anywhere, read after every piece; an event comes as soon as its line is whole."""
    content = lines(*(note(f"message {n} ü") for n in range(6)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    path = tmp_path_factory.mktemp("t") / "e.jsonl"
    tail = Tail(path)
    seen: list[str] = []

    for start, stop in zip([0, *cuts], [*cuts, len(content)], strict=True):
        with path.open("ab") as file:
            file.write(content[start:stop])
        seen += [event.message for event in tail.read()]
        assert len(seen) == content[:stop].count(b"\n")

    assert seen == [f"message {n} ü" for n in range(6)]
    assert tail.read() == []


def test_a_tail_waits_for_a_file_that_does_not_exist_yet(tmp_path: Path) -> None:
    """The workers make it."""
    tail = Tail(tmp_path / "later")

    before = tail.read()
    (tmp_path / "later").write_bytes(lines(note("a")))

    assert before == []
    assert tail.read() == [note("a")]


def test_a_tail_begins_behind_what_earlier_sessions_wrote(tmp_path: Path) -> None:
    """A resumed run is not shown from its beginning."""
    path = tmp_path / "e.jsonl"
    path.write_bytes(lines(note("old")))
    tail = Tail(path)

    with EventWriter(path) as writer:
        writer.write(note("new"))

    assert tail.read() == [note("new")]


@pytest.mark.parametrize("torn", [b'{"type":"note","mess', b"x" * 70_000])
def test_a_torn_line_of_a_killed_session_does_not_hide_the_start_of_the_next(tmp_path: Path, torn: bytes) -> None:
    """The writer cuts it off, so the next session's first line begins earlier than the file had ended."""
    path = tmp_path / "e.jsonl"
    path.write_bytes(lines(note("old")) + torn)
    tail = Tail(path)

    with EventWriter(path) as writer:
        writer.write(START)
        writer.write(note("new"))

    assert tail.read() == [START, note("new")]


def test_lines_that_are_no_events_are_passed_over(tmp_path: Path) -> None:
    """The report counts them; a progress bar must not fall over them."""
    path = tmp_path / "e.jsonl"
    tail = Tail(path)

    path.write_bytes(lines(note("a")) + b'??\n\xff\n{"type":"later"}\n' + lines(note("b")))

    assert tail.read() == [note("a"), note("b")]


def followed(run: RunDir, *batches: list[msgspec.Struct], terminal: bool = False) -> tuple[str, Follower, list]:
    """What a follower draws of batches that are written while it follows, itself, and what `extra` got."""
    out = StringIO()
    got: list[msgspec.Struct] = []
    console = Console(file=out, width=160, force_terminal=terminal, color_system=None, legacy_windows=False)
    with Follower(run, console, got.append) as follower:
        for events in batches:
            with EventWriter(run.events(0)) as writer:
                for event in events:
                    writer.write(event)
            end = time.monotonic() + 10
            while events is not batches[-1] and len(got) < 1 and time.monotonic() < end:
                time.sleep(0.01)
    return out.getvalue(), follower, got


CHECKPOINT = Checkpoint(step=2, path="checkpoints/step-00000002", duration_s=0.1, size_bytes=5, elapsed_s=1.0)
END = End(step=2, reason="finished", exit_code=0, elapsed_s=1.0)


def test_elsewhere_than_on_a_terminal_there_is_a_line_for_what_matters(tmp_path: Path) -> None:
    """First line, evaluations and notes; no line for steps and checkpoints; plain text."""
    run = RunDir(tmp_path)
    write_info(run, INFO)
    events = [START, note("[bold] is not markup"), step(1), step(2), evaluation(2, 1.0), CHECKPOINT, END]

    text, follower, got = followed(run, events[:3], events[3:])

    assert text.splitlines() == [
        "32 per rank × 1 accumulation × 2 ranks = global batch 64 · 2 steps per epoch · learning rate 0.05, cosine",
        "note: [bold] is not markup",
        "epoch    1 · step      2 · accuracy 0.9000 of 1,797 · loss 0.5000 · 12.3 s",
    ]
    assert got == events
    assert follower.end == END
    assert follower.info == INFO


def test_a_run_that_is_over_at_once_is_shown_whole(tmp_path: Path) -> None:
    """Everything that was written before the launcher returned is drawn, however short that was."""
    run = RunDir(tmp_path)
    write_info(run, INFO)

    for _ in range(3):
        text, follower, got = followed(run, [START, evaluation(2, 1.0), END])

        assert len(text.splitlines()) == 2
        assert follower.end == END
        assert got == [START, evaluation(2, 1.0), END]


def test_a_terminal_gets_a_bar_with_loss_and_speed(tmp_path: Path) -> None:
    """64 samples in half a second are 128 a second; evaluations stay above the bar."""
    run = RunDir(tmp_path)
    write_info(run, INFO)

    text, _, _ = followed(run, [START], [step(1), step(21), evaluation(21, 10.5), END], terminal=True)

    assert "21/40" in text
    assert "loss 0.2500" in text
    assert "128 samples/s" in text
    assert "epoch 10.50" in text


def test_a_job_that_never_starts_leaves_nothing_but_itself_to_wait_for(tmp_path: Path) -> None:
    """No event at all: the follower ends when it is told to."""
    text, follower, got = followed(RunDir(tmp_path))

    assert text == ""
    assert (follower.info, follower.end, got) == (None, None, [])


def test_a_damaged_run_json_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    """Drawing never ends a run."""
    run = RunDir(tmp_path)
    run.info.write_text("{")

    text, follower, _ = followed(run, [START, note("n"), END])

    assert "is damaged" in text
    assert text.splitlines()[-1] == "note: n"
    assert follower.end == END


def test_a_line_of_an_evaluation_ends_with_the_loss_and_says_what_is_not_finite() -> None:
    """Counts stand behind means; fractions of an epoch have two digits."""
    assert evaluation_line(evaluation(1234, 0.3333)) == (
        "epoch 0.33 · step  1,234 · accuracy 0.9000 of 1,797 · loss 0.5000 · 12.3 s"
    )
    assert "loss nan ·" in evaluation_line(evaluation(1, 1.0, loss=float("nan")))


def test_progress_goes_to_stdout_for_people_and_nowhere_for_programs(capsys) -> None:
    """With --format json stdout belongs to the reader of the object."""
    for_people, for_programs = console_for("text"), console_for("json")

    for_people.print("hello")
    for_programs.print("hello")

    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("hello\n", "")


def test_an_average_and_a_monitor_are_shown_beside_what_they_belong_to() -> None:
    """Raw weights behind the average's number, the limit of stability behind the sharpness."""
    metrics = {
        "loss": Measure(value=0.3, count=360),
        "accuracy": Measure(value=0.91, count=360),
        "raw_loss": Measure(value=0.4, count=360),
        "raw_accuracy": Measure(value=0.9, count=360),
        "sharpness": Measure(value=5.125, count=1000),
        "stability_limit": Measure(value=6.6666, count=1000),
    }

    line = evaluation_line(Evaluation(step=9, epoch=1.0, samples=900, elapsed_s=2.0, duration_s=0.1, metrics=metrics))

    assert line == (
        "epoch    1 · step      9 · accuracy 0.9100 of 360 (raw 0.9000) · sharpness 5.125 (limit 6.667) · "
        "loss 0.3000 (raw 0.4000) · 2.0 s"
    )


def test_one_step_a_refresh_gives_a_rate_and_a_task_that_counts_tokens_gets_tokens_a_second(tmp_path: Path) -> None:
    """Steps that come one by one, half a second apart: 128 samples and 4,096 tokens a second, 18 s for 36 steps."""
    assert INFO.task is not None
    run = RunDir(tmp_path)
    write_info(run, msgspec.structs.replace(INFO, task=msgspec.structs.replace(INFO.task, unit="tokens")))
    steps = [msgspec.structs.replace(step(n), count=2048.0) for n in range(1, 5)]

    first, _, _ = followed(run, [START], [steps[0]], terminal=True)
    text, _, _ = followed(run, [START], *([each] for each in steps), terminal=True)

    assert "- samples/s" in first
    assert "0 samples/s  " not in text.replace("128 samples/s", "")
    assert "step 4/40  0:18 left  loss 0.2500  128 samples/s  4,096 tokens/s" in text
