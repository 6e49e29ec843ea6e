"""Name the fault behind a failed job, from the last position of each rank.

When ranks lose step, the failure shows up elsewhere: as a lost connection, a timeout, or data of a wrong size. The
records tell these faults apart:

- F78 one rank evaluates through the DDP wrapper, or calls a collective at a line to which the others never come;
- F79 the ranks have different numbers of batches: complete passes of different length;
- F82 a rank skips batches: equal steps from different batches of the same pass;
- F85, F81 a rank leaves the loop although it has as many batches as the others: by a clock, or by another condition;
- F86 a rank is still busy when the wait of the others times out.

The source of the script only tells F85 from F81, and F79 without a data loader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from paceline.audits.consequences import timed_out
from paceline.audits.last_positions import RankPosition
from paceline.audits.loop_exits import loop_exits
from paceline.records.launched import Attempt, Cause
from paceline.records.place import Place

MISMATCH = "collective mismatch"
"""gloo's words for data of a size that it did not expect."""
_ALL_RECORDED = 50
"""Every step up to this one is recorded."""
_BARRIERS = ("barrier", "monitored_barrier")
_ADVICE = {
    "F78": "let all ranks take part, or evaluate model.module, which calls no collective",
    "F79": "give each rank the same number of batches: DistributedSampler, drop_last, or Join around uneven data",
    "F81": "let all ranks leave the loop together: all_reduce the condition first",
    "F82": "let all ranks skip the same batches: all_reduce the condition first",
    "F85": "let one rank look at the clock and broadcast its decision: clocks of ranks differ",
    "F86": "do long work before init_process_group, or give it a longer timeout",
    "F87": "let all ranks call the barrier",
}


@dataclass(frozen=True)
class NamedFault:
    """A fault that the records show.

    Attributes:
        faults: ids, the most probable one first; two where the evidence allows both.
        why: the evidence.
        place: the line to change; None if it is not known.
    """

    faults: tuple[str, ...]
    why: str
    place: Place | None = None

    @property
    def advice(self) -> str:
        """The repair of the most probable fault."""
        return _ADVICE[self.faults[0]]


def name_fault(attempt: Attempt, cause: Cause, positions: Mapping[int, RankPosition]) -> NamedFault | None:
    """Name the fault of a failed attempt; None where the records do not show it.

    Args:
        attempt: that failed.
        cause: of the failure.
        positions: of the ranks that were observed.
    """
    if len(positions) < 2 or attempt.world < 2:
        return None
    if cause.kind == "unknown":
        return _busy(attempt, cause, positions)
    ahead = _ahead(cause, positions)
    if ahead is None:
        return None
    others = ((rank, each) for rank, each in positions.items() if rank != ahead)
    found = (_lost_step(ahead, positions[ahead], *other, left=cause.kind == "left") for other in others)
    return next((each for each in found if each is not None), None)


def _ahead(cause: Cause, positions: Mapping[int, RankPosition]) -> int | None:
    """The rank that went on to something that the others do not do yet."""
    if cause.kind == "left":
        return cause.rank if cause.rank in positions else None
    if not any(MISMATCH in text for _, text in cause.rows):
        return None
    for rank, each in positions.items():
        call = each.open
        if call is None or call.number is None:
            continue
        if all(other.numbers.get(call.group, 0) < call.number for at, other in positions.items() if at != rank):
            return rank
    return None


def _lost_step(rank: int, out: RankPosition, at: int, other: RankPosition, *, left: bool) -> NamedFault | None:
    """Why rank `rank` went on while rank `at` trains or evaluates."""
    if other.evaluates is not None and other.step == out.step:
        if any(not each.trained and each.step >= other.step for each in out.passes.values()):
            return None
        why = f"rank {at} evaluates through the DDP wrapper after step {other.step:,}, and rank {rank} does not"
        return NamedFault(("F78",), why)
    if (found := _uneven(rank, out, at, other) or _skipped(rank, out, at, other)) is not None:
        return found
    if other.open is not None:
        if not left or other.open.place is None or other.open.place in out.lines or other.step != out.step:
            return None
        faults = ("F87", "F78") if other.open.op in _BARRIERS else ("F78",)
        return NamedFault(faults, f"rank {rank} never comes to the {other.open.op} at {other.open.place}")
    return _left_loop(rank, out, other)


def _uneven(rank: int, out: RankPosition, at: int, other: RankPosition) -> NamedFault | None:
    for key, own in sorted(out.passes.items()):
        peer = other.passes.get(key)
        if peer is None or not (own.trained and peer.trained and out.same_loader(other, key[0])):
            continue
        shorter, longer = sorted((own, peer), key=lambda each: (each.batches, not each.exhausted))
        if shorter.exhausted and longer.batches > shorter.batches:
            more = "" if longer.exhausted else "at least "
            first, second = (rank, at) if shorter is own else (at, rank)
            counts = f"{shorter.batches} batches on rank {first} and {more}{longer.batches} on rank {second}"
            return NamedFault(("F79",), f"pass {key[1] + 1} over the training data has {counts}")
    return None


def _skipped(rank: int, out: RankPosition, at: int, other: RankPosition) -> NamedFault | None:
    for step in sorted(out.batches.keys() & other.batches.keys()):
        own, peer = out.batches[step], other.batches[step]
        if own[:2] == peer[:2] and own[2] != peer[2] and out.same_loader(other, own[0]):
            first, second = (rank, at) if own[2] > peer[2] else (at, rank)
            more, less = max(own[2], peer[2]) + 1, min(own[2], peer[2]) + 1
            taken = f"from batch {more} of the pass on rank {first}, and from batch {less} on rank {second}"
            return NamedFault(("F82",), f"step {step:,} is {taken}: rank {first} skips batches")
    for key, own_pass in out.passes.items():
        peer_pass = other.passes.get(key)
        if peer_pass is None or not out.same_loader(other, key[0]):
            continue
        if not own_pass.exhausted or peer_pass.exhausted or not own_pass.trained:
            continue
        unused = own_pass.batches - own_pass.backwards
        if unused > max(0, peer_pass.batches - peer_pass.backwards - 1):  # the batch of the pass that failed
            counts = f"{own_pass.batches} batches in its last pass, and trained on {own_pass.backwards}"
            return NamedFault(("F82",), f"rank {rank} received {counts}: it skips batches")
    return None


def _left_loop(rank: int, out: RankPosition, other: RankPosition) -> NamedFault | None:
    exits = loop_exits(out.backward)
    after = f"rank {rank} leaves the training loop after step {out.step:,}"
    same = _has_data(out, other)
    if exits is None:
        return NamedFault(("F81", "F85"), f"{after}, although it has as many batches as others") if same else None
    faults = list(_conditional(exits.clock, exits.condition))
    if not same and exits.data:
        faults.append("F79")
    if not faults:
        return None
    line = exits.clock or exits.condition
    if line is None or out.backward is None:
        return NamedFault(tuple(faults[:2]), f"{after}, which ends with its data")
    place = Place(path=out.backward.path, line=line, function="")
    on = "a condition on a clock" if exits.clock else "a condition"
    return NamedFault(tuple(faults[:2]), f"{after}, which ends by {on} at {place}", place)


def _has_data(out: RankPosition, other: RankPosition) -> bool:
    """True if the rank that left had data to come: within its pass, or for as many passes as the other one."""
    trained = [key for key, each in out.passes.items() if each.trained]
    if not trained:
        return False
    key = max(trained)
    peer = other.passes.get(key)
    return not out.passes[key].exhausted or (peer is not None and peer.trained and out.same_loader(other, key[0]))


def _conditional(clock: int | None, condition: int | None) -> Iterator[str]:
    if clock is not None:
        yield "F85"
    if condition is not None:
        yield "F81"


def _busy(attempt: Attempt, cause: Cause, positions: Mapping[int, RankPosition]) -> NamedFault | None:
    """One rank computes, or waits for something else, for longer than the timeout of a collective."""
    if not any(label == "raised" and timed_out(text) for label, text in cause.rows):
        return None
    if len(attempt.ranks) < attempt.world:
        return None  # the rank that did not come may be on another machine
    running = [each.rank for each in attempt.ranks if each.stopped and each.rank in positions]
    calls = [each.open for rank, each in positions.items() if each.open is not None and rank not in running]
    if len(running) != 1 or not calls or calls[0].number is None:
        return None
    busy, call = positions[running[0]], calls[0]
    came = busy.numbers.get(call.group, 0) >= calls[0].number
    went_on = busy.begun > busy.step or busy.step != (call.step or 0) or busy.step >= _ALL_RECORDED
    if came or went_on:
        return None
    why = f"rank {running[0]} had not come to the {call.op} at {call.place} when the wait of the others timed out"
    return NamedFault(("F86", "F78"), why)
