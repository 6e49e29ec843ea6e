"""What a rank emits arrives in its ring, with the attempt, and what is lost is reported."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

from paceline.observe.sinks import ImmediateSink, RingSink
from paceline.records.reader import EventStream
from paceline.records.ring import Kind, RingReader, RingWriter, ring_path, unpack_batch
from paceline.records.schema import Note


def test_events_batches_and_progress_go_into_the_ring(tmp_path: Path) -> None:
    """In order; events as JSON with their type, without an attempt where the job is not restarted."""
    sink = RingSink(RingWriter(tmp_path, 0))
    reader = RingReader(ring_path(tmp_path, 0, 1))
    sink.emit(Note(message="first"))
    sink.batch(1, 2, 3, array("q", [7, 8]))
    sink.beat(5, 40)

    (event_kind, event), (batch_kind, batch) = reader.read()

    assert (event_kind, json.loads(event)) == (Kind.EVENT, {"type": "note", "message": "first", "level": "info"})
    assert batch_kind is Kind.BATCH
    assert unpack_batch(batch) == (1, 2, 3, array("q", [7, 8]).tobytes())
    assert reader.progress[:2] == (5, 40)


def test_events_of_a_job_that_may_be_restarted_carry_their_attempt(tmp_path: Path) -> None:
    """So that readers know which of them a later attempt repeats."""
    sink = RingSink(RingWriter(tmp_path, 0, 2), attempt=2)
    sink.emit(Note(message="again"))

    ((_, event),) = RingReader(ring_path(tmp_path, 0, 2)).read()

    assert json.loads(event)["attempt"] == 2


def test_records_that_found_no_room_are_reported_with_the_next_event_that_finds_some(tmp_path: Path) -> None:
    """Once, with their number."""
    sink = RingSink(RingWriter(tmp_path, 0, capacity=400))
    reader = RingReader(ring_path(tmp_path, 0, 1))
    for number in range(20):
        sink.emit(Note(message=str(number)))
    kept = [json.loads(payload)["message"] for _, payload in reader.read()]
    lost = reader.dropped
    for text in ("room again", "still"):
        sink.emit(Note(message=text))

    after = [json.loads(payload) for _, payload in reader.read()]

    assert kept == [str(number) for number in range(len(kept))]
    assert lost >= 20 - len(kept) > 0
    assert [each["type"] for each in after] == ["not_observed", "note", "note"]
    assert after[0]["why"] == f"{lost} records found no room in the ring"


def test_an_immediate_sink_has_written_an_event_when_it_returns(tmp_path: Path) -> None:
    """A process may hang in its next call."""
    sink = ImmediateSink(tmp_path / "events.jsonl")
    sink.emit(Note(message="about to hang"))

    assert [each.message for each in EventStream(tmp_path / "events.jsonl")] == ["about to hang"]
    sink.close()
