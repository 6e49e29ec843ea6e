"""What is written is what is read, whatever happens to the process or to the file in between."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.records import writer as writer_module
from paceline.records.errors import Exit, PacelineError
from paceline.records.reader import EventStream
from paceline.records.writer import EventWriter
from tests.records.samples import checkpoint, comparable, events, note, start, step, write_lines

MB = 1024 * 1024


@settings(max_examples=60)
@given(batches=st.lists(st.lists(events(), max_size=6), max_size=4))
def test_any_events_come_back_in_order_over_any_number_of_sessions(batches) -> None:
    """Written by one writer or several after each other, all is read unchanged; what is no finite number is NaN."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "events", "rank-00000.jsonl")
        for batch in [*batches, []]:
            with EventWriter(path) as writer:
                for event in batch:
                    writer.write(event)

        stream = EventStream(path, superseded=True)
        read = list(stream)

    assert [comparable(e) for e in read] == [comparable(e) for batch in batches for e in batch]
    assert stream.notes == []


def test_a_line_is_one_json_object_with_its_type(tmp_path: Path) -> None:
    """Other programs can read the file line by line with any JSON parser."""
    path = tmp_path / "e.jsonl"

    with EventWriter(path) as writer:
        writer.write(step(3, loss=0.5))
        writer.write(note("two\nlines"))

    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert (first["type"], first["step"], first["loss"]) == ("step", 3, 0.5)
    assert second == {"type": "note", "message": "two\nlines", "level": "info"}


def test_a_line_survives_the_process_from_the_moment_it_is_written(tmp_path: Path) -> None:
    """No flush, no close, no timer: a step that never returns cannot take earlier events with it."""
    writer = EventWriter(tmp_path / "e.jsonl")

    writer.write(note("a"))

    assert len(list(EventStream(writer.path))) == 1
    writer.close()


KILLED_WRITER = """
import sys
from pathlib import Path
from paceline.records.schema import Note
from paceline.records.writer import EventWriter
writer = EventWriter(Path(sys.argv[1]))
number = 0
while True:
    writer.write(Note(message=f"{number} " + "x" * (number % 97)))
    number += 1
"""


@pytest.mark.serial
@pytest.mark.parametrize("delay_s", [0.0, 0.013, 0.05])
def test_a_writer_killed_at_any_moment_leaves_whole_lines_and_at_most_one_torn(tmp_path: Path, delay_s: float) -> None:
    """After kill -9 all complete lines are a gapless beginning of what was written."""
    path = tmp_path / "e.jsonl"
    process = subprocess.Popen([sys.executable, "-c", KILLED_WRITER, str(path)])
    end = time.monotonic() + 60
    while (not path.exists() or path.stat().st_size < 1000) and time.monotonic() < end:
        time.sleep(0.005)
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    process.wait()

    stream = EventStream(path)
    numbers = [int(event.message.split()[0]) for event in stream]

    assert len(numbers) > 5
    assert numbers == list(range(len(numbers)))
    assert stream.damaged_lines == 0
    assert stream.torn_bytes == len(path.read_bytes().rpartition(b"\n")[2])


def test_a_torn_last_line_is_dropped_with_a_note(tmp_path: Path) -> None:
    """The rest of the file counts, and the note says how many bytes were torn."""
    path = write_lines(tmp_path / "e.jsonl", step(1), b'{"type":"step","st')

    stream = EventStream(path)
    read = list(stream)

    assert [event.step for event in read] == [1]
    assert len(stream.notes) == 1
    assert "torn (18 bytes" in stream.notes[0]


@pytest.mark.parametrize("torn", [b'{"type":"step","st', b"x" * 200_000], ids=["short", "longer than a block"])
def test_reopening_cuts_off_a_torn_line_and_appends(tmp_path: Path, torn: bytes) -> None:
    """A resumed run goes on after the last whole line, and knows how much it dropped."""
    path = write_lines(tmp_path / "e.jsonl", step(1), torn)

    with EventWriter(path) as writer:
        writer.write(step(2))

    stream = EventStream(path)
    assert [event.step for event in stream] == [1, 2]
    assert stream.notes == []
    assert writer.dropped_bytes == len(torn)


def test_a_file_that_is_one_torn_line_becomes_empty(tmp_path: Path) -> None:
    """Killed in the middle of the very first line."""
    path = write_lines(tmp_path / "e.jsonl", b"{")

    EventWriter(path).close()

    assert path.read_bytes() == b""


FILLS_THE_DISK = """
import resource, sys
from pathlib import Path
from paceline.records.errors import PacelineError
from paceline.records.schema import Note
from paceline.records.writer import EventWriter
writer = EventWriter(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    for number in range(1000):
        writer.write(Note(message=f"{number} " + "x" * 50))
except PacelineError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def test_a_full_disk_gives_one_message_and_leaves_whole_lines(tmp_path: Path) -> None:
    """The kernel refuses a write half-way: exit code 4, no traceback, and the file ends with a newline."""
    path = tmp_path / "e.jsonl"

    done = subprocess.run(
        [sys.executable, "-c", FILLS_THE_DISK, str(path)], capture_output=True, text=True, check=False
    )

    assert done.returncode == Exit.CANNOT_WRITE
    assert done.stderr == ""
    assert done.stdout.startswith(f"error: cannot write {path}\n  why:  File too large\n  next: ")
    content = path.read_bytes()
    assert 3000 < len(content) <= 5000
    assert content.endswith(b"\n")
    stream = EventStream(path)
    assert [int(e.message.split()[0]) for e in stream] == list(range(content.count(b"\n")))


def test_a_device_without_space_gives_one_message(tmp_path: Path) -> None:
    """/dev/full accepts nothing, and cannot be cut back either."""
    path = tmp_path / "e.jsonl"
    path.symlink_to("/dev/full")
    writer = EventWriter(path)

    with pytest.raises(PacelineError) as caught:
        writer.write(note("a"))

    assert caught.value.exit_code == Exit.CANNOT_WRITE
    assert "No space left" in caught.value.why
    writer.close()


def test_the_writer_goes_on_after_a_disk_that_was_full_for_a_while(tmp_path: Path, monkeypatch) -> None:
    """What the disk refused is lost and said; the next line stands on a line of its own."""
    real = os.write
    writer = EventWriter(tmp_path / "e.jsonl")
    writer.write(note("first"))

    def half_then_full(handle: int, data: bytes) -> int:
        if data.startswith(b'{"type'):
            return real(handle, data[:7])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer_module.os, "write", half_then_full)
    with pytest.raises(PacelineError, match="No space left"):
        writer.write(note("lost"))
    monkeypatch.undo()
    writer.write(note("third"))
    writer.close()

    stream = EventStream(writer.path)
    assert [event.message for event in stream] == ["first", "third"]
    assert stream.notes == []


def test_a_directory_that_cannot_be_made_gives_one_message(tmp_path: Path) -> None:
    """A file stands where the events directory should be."""
    (tmp_path / "events").write_text("")

    with pytest.raises(PacelineError) as caught:
        EventWriter(tmp_path / "events" / "rank-00000.jsonl")

    assert "is a file, not a directory" in str(caught.value)


def test_closing_twice_is_allowed_also_after_an_exception(tmp_path: Path) -> None:
    """What was written before a failure is on disk."""
    writer = EventWriter(tmp_path / "e.jsonl")
    with contextlib.suppress(ZeroDivisionError), writer:
        writer.write(note("before"))
        raise ZeroDivisionError

    writer.close()

    assert len(list(EventStream(writer.path))) == 1


@pytest.mark.parametrize(
    ("line", "damaged", "unknown"),
    [
        (b"not json\n", 1, 0),
        (b"\n", 1, 0),
        (b"\xff\xfe\x00\n", 1, 0),
        (b'{"type":"step"}\n', 1, 0),
        (b'{"type":7}\n', 1, 0),
        (b'{"message":"no type"}\n', 1, 0),
        (b"[" * 100_000 + b"\n", 1, 0),
        (b'{"type":"gradient_histogram","bins":[1,2]}\n', 0, 1),
    ],
    ids=["text", "empty", "bytes", "missing fields", "type is a number", "no type", "nested", "later version"],
)
def test_a_strange_line_in_the_middle_is_counted_and_passed_over(tmp_path, line, damaged, unknown) -> None:
    """Damage and events of later versions are never fatal and never silent."""
    path = write_lines(tmp_path / "e.jsonl", start(0), step(1), line, step(2))

    stream = EventStream(path)
    read = list(stream)

    assert [event.step for event in read] == [0, 1, 2]
    assert (stream.damaged_lines, stream.unknown_lines) == (damaged, unknown)
    assert len(stream.notes) == 1
    assert ("damaged" if damaged else "later version") in stream.notes[0]


def test_two_open_writers_of_one_file_lose_no_line(tmp_path: Path) -> None:
    """A file has one writer; should it have two, neither writes over the other."""
    path = tmp_path / "e.jsonl"
    with EventWriter(path) as one, EventWriter(path) as two:
        for number in range(3):
            one.write(note(f"one {number}"))
            two.write(note(f"two {number}"))

    assert [event.message for event in EventStream(path)] == [f"{who} {n}" for n in range(3) for who in ("one", "two")]


LATER = [
    b'{"type":"end","step":7,"reason":"preempted","exit_code":143,"elapsed_s":1.0}\n',
    b'{"type":"note","message":"m","level":"critical"}\n',
    b'{"type":"checkpoint","step":7,"path":"c","duration_s":0.1,"size_bytes":1,"elapsed_s":1.0,"reason":"drill"}\n',
    b'{"type":"attempt","attempt":1,"started_unix_s":0.0,"duration_s":1.0,"world":1,"outcome":"preempted","ranks":[],'
    b'"logs":null,"cause":{"kind":"preempted","title":"t","rank":null,"rows":[]}}\n',
]


@pytest.mark.parametrize("line", LATER, ids=["end", "note", "checkpoint", "attempt"])
def test_a_word_of_a_later_version_is_kept(tmp_path: Path, line: bytes) -> None:
    """Reasons, levels, outcomes and kinds are open: a word that is not known yet is no damage."""
    path = write_lines(tmp_path / "e.jsonl", line)

    stream = EventStream(path)
    (event,) = stream

    assert stream.notes == []
    assert json.loads(msgspec.json.encode(event)).items() >= json.loads(line).items()


def test_a_field_of_a_later_version_does_not_hide_an_event(tmp_path: Path) -> None:
    """Additive changes of the schema keep old readers working."""
    path = write_lines(tmp_path / "e.jsonl", b'{"type":"note","message":"m","colour":"red"}\n')

    stream = EventStream(path)

    assert [event.message for event in stream] == ["m"]
    assert stream.notes == []


def test_a_line_longer_than_any_event_is_one_damaged_line(tmp_path: Path, monkeypatch) -> None:
    """A file without newlines (a disk image, say) is not loaded whole; what follows its line is read."""
    monkeypatch.setattr("paceline.records.lines.MAX_LINE_BYTES", 1000)
    path = write_lines(tmp_path / "e.jsonl", step(1), b"z" * 3500 + b"\n", step(2))

    stream = EventStream(path)

    assert [event.step for event in stream] == [1, 2]
    assert stream.damaged_lines == 1


def test_counting_again_starts_from_zero(tmp_path: Path) -> None:
    """Iterating twice gives the same events and the same notes."""
    path = write_lines(tmp_path / "e.jsonl", step(1), b"?\n", b"torn")
    stream = EventStream(path)

    first, first_notes = list(stream), stream.notes
    second, second_notes = list(stream), stream.notes

    assert first == second
    assert first_notes == second_notes
    assert len(first_notes) == 2


def test_a_missing_event_file_is_one_clear_message(tmp_path: Path) -> None:
    """The path and the system's reason."""
    with pytest.raises(PacelineError, match=r"cannot read .*none\.jsonl\n  why:  No such file"):
        list(EventStream(tmp_path / "none.jsonl"))


def test_steps_that_a_resumed_session_did_again_are_left_out(tmp_path: Path) -> None:
    """Only what leads to the end of the run counts; notes of all sessions stay."""
    path = write_lines(
        tmp_path / "e.jsonl",
        start(0),
        step(1, 0.1),
        checkpoint(1),
        step(2, 0.2),
        checkpoint(2),
        note("first session"),
        start(1, session=2),
        step(2, 1.2),
        checkpoint(2),
    )

    read = [e for e in EventStream(path) if e.__struct_config__.tag in ("step", "checkpoint", "note")]

    assert read == [step(1, 0.1), checkpoint(1), note("first session"), step(2, 1.2), checkpoint(2)]
    assert len(list(EventStream(path, superseded=True))) == 9


def survivors(sessions: list[tuple[int, int, str]]) -> list[tuple[int, int]]:
    """The history as a list that each session cuts back and goes on with: (step, session) of what counts."""
    history: list[tuple[int, int]] = []
    for session, (resumed_at, did, how) in enumerate(sessions):
        if how != "restarted":
            history = [entry for entry in history if entry[0] <= resumed_at]
        history += [(resumed_at + n + 1, session) for n in range(did)]
    return history


@settings(max_examples=80)
@given(data=st.data())
def test_any_history_of_resumes_reads_like_a_list_that_was_cut_back(data) -> None:
    """Resumes as this and as earlier versions write them, also to an earlier step twice, and elastic restarts that
    resume nothing: the reader agrees with a simple model."""
    sessions, reached = [], 0
    for _ in range(data.draw(st.integers(1, 5))):
        how = data.draw(st.sampled_from(["resumed", "resumed by an earlier version", "restarted"]))
        resumed_at = 0 if how == "restarted" else data.draw(st.integers(0, reached))
        did = data.draw(st.integers(0, 4))
        reached = resumed_at + did
        sessions.append((resumed_at, did, how))
    lines = []
    for session, (resumed_at, did, how) in enumerate(sessions):
        numbered = 1 if how == "restarted" else session + 2
        lines.append(start(resumed_at, numbered, resumed_from=resumed_at if how == "resumed" else None))
        lines += [step(resumed_at + n + 1, float(session)) for n in range(did)]

    with tempfile.TemporaryDirectory() as folder:
        path = write_lines(Path(folder, "e.jsonl"), *lines)
        read = [(e.step, int(e.loss)) for e in EventStream(path) if e.__struct_config__.tag == "step"]

    assert read == survivors(sessions)


def test_resuming_to_an_earlier_step_twice_leaves_one_of_each_step(tmp_path: Path) -> None:
    """A written-down example of the law above."""
    path = write_lines(
        tmp_path / "e.jsonl",
        *(start(0), step(1, 0), step(2, 0), step(3, 0)),
        *(start(2, 2), step(3, 1), step(4, 1)),
        *(start(1, 3), step(2, 2)),
    )

    read = [(e.step, e.loss) for e in EventStream(path) if e.__struct_config__.tag == "step"]

    assert read == [(1, 0), (2, 2)]


def test_an_elastic_restart_that_resumes_nothing_hides_no_step(tmp_path: Path) -> None:
    """It begins anew at step 0; its events say which attempt they are of."""
    path = write_lines(
        tmp_path / "e.jsonl",
        *(start(0), step(1, 0), step(2, 0)),
        *(msgspec.structs.replace(event, attempt=2) for event in (start(0), step(1, 1), step(2, 1), step(3, 1))),
    )

    read = [(e.attempt, e.step) for e in EventStream(path) if e.__struct_config__.tag == "step"]

    assert read == [(msgspec.UNSET, 1), (msgspec.UNSET, 2), (2, 1), (2, 2), (2, 3)]


def peak_bytes(path: Path) -> int:
    """The most memory that reading the file took at once."""
    tracemalloc.start()
    try:
        count = sum(1 for _ in EventStream(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count > 5_000
    return peak


@pytest.mark.serial
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """50 MB take as little as 5 MB, so 2 GB do too."""
    filler = note("x" * 1500)
    block = write_lines(tmp_path / "block", *(e for n in range(500) for e in (step(n), filler))).read_bytes()
    small, big = tmp_path / "small", tmp_path / "big"
    for path, size in ((small, 5 * MB), (big, 50 * MB)):
        write_lines(path, start(0))
        with path.open("ab") as file:
            while file.tell() < size:
                file.write(block)

    peak_small, peak_big = peak_bytes(small), peak_bytes(big)

    assert peak_big < 2 * MB
    assert peak_big < peak_small + MB // 4


def test_events_of_a_restarted_job_carry_their_attempt_and_others_none(tmp_path: Path) -> None:
    """Each event, also where the writer of the event knows nothing of attempts."""
    for path, attempt in ((tmp_path / "first.jsonl", msgspec.UNSET), (tmp_path / "second.jsonl", 3)):
        with EventWriter(path, attempt=attempt) as writer:
            writer.write(note("hello"))

    lines = [json.loads((tmp_path / name).read_text()) for name in ("first.jsonl", "second.jsonl")]

    assert "attempt" not in lines[0]
    assert lines[1] == lines[0] | {"attempt": 3}
