"""The last position of each rank names the fault behind a failed job, or leaves it open."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from paceline.audits.failure_faults import NamedFault, name_fault
from paceline.audits.job_findings import explained, job_findings
from paceline.audits.run_judge import RunJudge
from paceline.records.event import Event
from paceline.records.launched import Attempt, Cause, RankExit
from paceline.records.observed_rank import InputSeen
from tests.audits.observed_events import at, begun, collective, ended, loader_ended, started, step, wrapped

MISMATCH = ("said", "op.preamble.length <= op.nbytes. 388 vs 4. Is there a collective mismatch?")
TIMEOUT = ("raised", "RuntimeError: [unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation to complete")


def exits(*codes: int, stopped: Iterable[int] = ()) -> list[RankExit]:
    """How ranks ended."""
    stopped = set(stopped)
    return [
        RankExit(rank=rank, local_rank=rank, pid=rank, exit_code=code, after_s=1.0, stopped=rank in stopped)
        for rank, code in enumerate(codes)
    ]


def named(kind: str, ranks: dict[int, list[Event]], *rows: tuple[str, str], ends: list[RankExit] | None = None):
    """The fault of a job in which rank 1 left, or failed, as far as its events show it."""
    judge = RunJudge()
    for rank, events in ranks.items():
        for event in (started(rank, len(ranks)), wrapped(), *events):
            judge.feed(rank, event)
    judge.finish()
    cause = Cause(kind=kind, title="rank 1", rank=None if kind == "unknown" else 1, rows=list(rows))  # type: ignore[arg-type]
    attempt = Attempt(
        attempt=1,
        started_unix_s=0.0,
        duration_s=1.0,
        world=len(ranks),
        outcome="failed",
        ranks=exits(1, 0) if ends is None else ends,
        logs=None,
        cause=cause,
    )
    found = name_fault(attempt, cause, judge.positions(1))
    (finding,) = job_findings([attempt], judge.positions)
    card = explained(cause, attempt, judge.positions(1))
    if found is not None:
        assert finding.faults == list(found.faults)
        assert found.why in finding.message
        assert card.rows[-2:] == [("why", found.why), ("next", found.advice)]
    else:
        assert card is cause
    return found


def batch_step(number: int, batch: int, *, loop: int = 0, **other: object) -> Event:
    """A step from a batch of the training loader, in one of its passes."""
    return msgspec.structs.replace(step(number, **other), loader=0, number=loop, batch=batch)


def steps(last: int, *, skipped: int = 0, **other: object) -> list[Event]:
    """Steps of the first pass, after some skipped batches."""
    return [batch_step(number, number - 1 + skipped, **other) for number in range(1, last + 1)]


def ended_pass(batches: int, backwards: int, *, exhausted: bool = True, number: int = 0) -> Event:
    """Of the training loader."""
    return loader_ended(0, number=number, batches=batches, backwards=backwards, exhausted=exhausted)


def inside(number: int) -> Event:
    """The forward pass of a step that was not done."""
    return InputSeen(step=number, forward=0, rows=16, shape=[16, 4], digest="d")


def script(folder: Path, text: str) -> object:
    """A script, and the line of its backward pass."""
    path = folder / "train.py"
    path.write_text(textwrap.dedent(text))
    line = next(number for number, each in enumerate(path.read_text().splitlines(), 1) if "backward" in each)
    return at(line, str(path))


def test_an_evaluation_through_the_wrapper_on_one_rank_is_f78() -> None:
    """Rank 0 evaluates after step 4; rank 1 has ended."""
    evaluation = loader_ended(1, step=4, batches=1, exhausted=False, wrapped_forwards=1, with_gradients=False)
    trained = [*steps(4), ended_pass(4, 4)]

    found = named("left", {0: [*trained, begun(1, step=4), evaluation, ended(4)], 1: [*trained, ended(4)]})

    assert found == NamedFault(("F78",), "rank 0 evaluates through the DDP wrapper after step 4, and rank 1 does not")


def test_an_evaluation_of_both_ranks_is_not_f78() -> None:
    """Rank 1 has evaluated fewer batches: the ranks evaluate unevenly, which has no name here."""
    evaluation = {"step": 4, "wrapped_forwards": 1, "with_gradients": False}
    cut = loader_ended(1, batches=2, exhausted=False, **evaluation)
    whole = loader_ended(1, batches=1, exhausted=True, **evaluation)
    trained = [*steps(4), ended_pass(4, 4)]

    assert named("left", {0: [*trained, begun(1, step=4), cut, ended(4)], 1: [*trained, whole, ended(4)]}) is None


@pytest.mark.parametrize(("op", "faults"), [("barrier", ("F87", "F78")), ("all_gather", ("F78",))])
def test_a_collective_at_a_line_to_which_the_rank_never_came_is_f78_or_f87(op: str, faults: tuple[str, ...]) -> None:
    """Rank 0 calls it in a branch of its own; rank 1 has called another line."""
    both = [*steps(4), ended_pass(4, 4), collective(number=1, group="0", size=2, place=at(50), step=4)]
    alone = collective(op, number=2, group="0", size=2, place=at(60), step=4)

    found = named("left", {0: [*both, alone, ended(4)], 1: [*both, ended(4)]})

    assert found is not None
    assert found.faults == faults


def test_complete_passes_of_different_length_are_f79() -> None:
    """Whatever the steps and batches say: they shift from the first short pass on."""
    longer = [*steps(5), ended_pass(5, 5), batch_step(6, 0, loop=1), ended_pass(2, 1, number=1)]
    shorter = [*steps(4), ended_pass(4, 4), batch_step(5, 0, loop=1), ended_pass(4, 4, number=1)]

    found = named("left", {0: longer, 1: [*shorter, ended(8)]})

    assert found is not None
    assert found.faults == ("F79",)
    assert "4 batches on rank 1 and 5 on rank 0" in found.why


def test_a_pass_that_is_longer_than_a_complete_one_is_f79() -> None:
    """Rank 0 had more batches of the pass when it failed."""
    found = named(
        "left", {0: [*steps(4), inside(5), ended_pass(5, 4, exhausted=False)], 1: [*steps(4), ended_pass(4, 4)]}
    )

    assert found is not None
    assert found.faults == ("F79",)


def test_equal_steps_from_different_batches_are_f82() -> None:
    """Rank 1 skips two batches, and is at the collective after its pass three steps early."""
    late = collective(number=1, group="0", size=2, place=at(50), step=4)
    ranks = {
        0: [*steps(4), inside(5), ended_pass(5, 4, exhausted=False), ended(4)],
        1: [*steps(2), *steps(4, skipped=2)[2:], ended_pass(6, 4), late],
    }

    found = named("failed", ranks, MISMATCH)

    assert found is not None
    assert found.faults == ("F82",)
    assert found.why == "step 3 is from batch 5 of the pass on rank 1, and from batch 3 on rank 0: rank 1 skips batches"


def test_batches_that_are_skipped_after_the_last_step_are_f82() -> None:
    """No step shows them: the pass of rank 1 has one batch more than backward passes."""
    ranks = {
        0: [*steps(4), inside(5), ended_pass(5, 4, exhausted=False), ended(4)],
        1: [*steps(4), ended_pass(5, 4), ended(4)],
    }

    found = named("left", ranks)

    assert found is not None
    assert found.faults == ("F82",)


def test_loaders_whose_numbers_shift_are_not_compared() -> None:
    """Rank 0 has evaluated before, with loader 0; its training loader has another number than on rank 1."""
    evaluation = [begun(0, place=at(80)), loader_ended(0, batches=9)]
    trained = [msgspec.structs.replace(each, loader=1) for each in steps(4)]
    ranks = {
        0: [*evaluation, begun(1), *trained, inside(5), loader_ended(1, batches=5, backwards=4, exhausted=False)],
        1: [begun(0), *steps(4), ended_pass(4, 4), begun(1, place=at(80)), loader_ended(1, batches=9)],
    }

    assert named("left", ranks) is None


def test_a_collective_before_later_steps_is_not_the_one_in_which_a_rank_waits() -> None:
    """Steps are recorded less and less often: rank 0 has taken 15 since its barrier."""
    barrier = collective("barrier", number=1, group="0", size=2, place=at(60), step=60)

    assert named("left", {0: [step(60), barrier, ended(75)], 1: [step(60), ended(75)]}) is None


PATIENCE = """
    for epoch in range(60):
        for x in loader:
            loss.backward()
        if stopping.should_stop(value):
            break
"""


def test_a_loop_that_is_left_with_data_to_come_is_f81(tmp_path: Path) -> None:
    """The passes are equal, and rank 0 has begun the next one."""
    place = script(tmp_path, PATIENCE)
    trained = [begun(0), *steps(4, backward_place=place), ended_pass(4, 4)]
    cut = ended_pass(1, 0, exhausted=False, number=1)

    found = named(
        "left", {0: [*trained, begun(0, number=1, step=4), inside(5), cut, ended(4)], 1: [*trained, ended(4)]}
    )

    assert found is not None
    assert found.faults == ("F81",)
    assert (found.place and found.place.line) == 5


def test_without_the_source_a_loop_that_is_left_is_f81_or_f85() -> None:
    """The batches rule F79 out."""
    ranks = {
        0: [*steps(4), inside(5), ended_pass(5, 4, exhausted=False), ended(4)],
        1: [*steps(4), ended_pass(4, 4, exhausted=False), ended(4)],
    }

    found = named("left", ranks)

    assert found is not None
    assert found.faults == ("F81", "F85")


BUDGET = """
    while time.monotonic() - started < 5:
        x, y = sample()
        loss.backward()
    dist.all_reduce(seen)
"""
FILES = """
    for epoch in range(3):
        for x in read(files):
            loss.backward()
"""
COUNTED = """
    for epoch in range(3):
        loss.backward()
"""


@pytest.mark.parametrize(
    ("source", "faults"),
    [(BUDGET, ("F85",)), (FILES, ("F79",)), (PATIENCE, ("F81", "F79")), (COUNTED, None)],
    ids=["clock", "data", "condition or data", "neither"],
)
def test_without_a_loader_the_source_tells_how_the_loop_ends(
    tmp_path: Path, source: str, faults: tuple[str, ...] | None
) -> None:
    """Rank 1 is at a collective behind the loop, and rank 0 in its fifth step."""
    trained: list[Event] = [step(number, backward_place=script(tmp_path, source)) for number in range(1, 5)]
    late = collective(number=1, group="0", size=2, place=at(50), step=4)

    found = named("failed", {0: [*trained, inside(5), ended(4)], 1: [*trained, late]}, MISMATCH)

    assert (found and found.faults) == faults


def test_ranks_in_the_same_collective_have_no_name_here() -> None:
    """Sizes differ: that is F130, which `job_findings` gives."""
    both = [*steps(4), collective("all_gather", number=1, group="0", size=2, place=at(50), step=4)]

    assert named("failed", {0: [*both, ended(4)], 1: both}, MISMATCH) is None


def test_a_rank_that_raised_has_no_name_here() -> None:
    """Its own exception is the fault."""
    ranks = {0: [*steps(4), ended_pass(5, 4, exhausted=False)], 1: [*steps(4), ended_pass(4, 4, exhausted=False)]}

    assert named("failed", ranks, ("raised", "ValueError: boom")) is None


def test_a_rank_that_is_still_busy_at_the_timeout_is_f86_or_f78() -> None:
    """Rank 1 waits in a barrier to which rank 0 has not come."""
    barrier = collective("barrier", number=1, group="0", size=2, place=at(35), step=0)
    ends = exits(-15, 1, stopped=[0])

    found = named("unknown", {0: [], 1: [barrier, ended(0)]}, TIMEOUT, ends=ends)

    assert found is not None
    assert found.faults == ("F86", "F78")
    assert found.why.startswith("rank 0 had not come to the barrier at train.py:35")


@pytest.mark.parametrize("case", ["came", "went on", "lost", "later"])
def test_a_timeout_for_another_reason_is_left_open(case: str) -> None:
    """Rank 0 came to the barrier, is in a step of its own, or the connection was lost; later steps are not all seen."""
    barrier = collective("barrier", number=1, group="0", size=2, place=at(35), step=60 if case == "later" else 0)
    busy = {"came": [barrier], "went on": [inside(1)], "lost": [], "later": [step(60)]}[case]
    row = ("raised", "RuntimeError: [pair.cc:561] Connection closed by peer") if case == "lost" else TIMEOUT

    assert named("unknown", {0: busy, 1: [barrier]}, row, ends=exits(-15, 1, stopped=[0])) is None


def test_one_rank_alone_has_no_fault() -> None:
    """There is nobody to lose step with."""
    assert named("left", {1: [*steps(4), ended(4)]}) is None


def test_each_attempt_of_a_job_has_positions_of_its_own() -> None:
    """A restarted job begins anew, and nothing of the first attempt counts for the second."""
    judge = RunJudge()
    for attempt in (1, 2):
        for event in (started(0), wrapped(), *steps(6 - attempt)):
            judge.feed(0, msgspec.structs.replace(event, attempt=attempt))
    judge.finish()

    assert [judge.positions(attempt)[0].step for attempt in (1, 2)] == [5, 4]
    assert judge.positions(3) == {}
