"""Find the rank that a hanging job waits for, and its line.

A collective ends when every rank of its group has called it. So when a job hangs, either some rank has not reached the
call in which the others wait, or the ranks wait in different calls, or one is busy elsewhere. Two records distinguish
these: the collectives that each rank has issued (`paceline.observe.probes.group_collectives`), and the stack of each
rank, which works even where collectives are not observed. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paceline.audits.wording import ranks_text
from paceline.records.observed import Collective
from paceline.records.place import Place, place_in_stacks
from paceline.records.wrap import ordinal, text_card

_TO_ONE = ("send", "recv")
"""Operations that involve two ranks of a group only."""
_TEXTS = {
    "missing": (
        "hang: {who} did not come to a collective",
        "a collective ends when every rank of the group has called it",
        "look for a branch that not every rank takes: a condition on the rank, or on a number of its own",
    ),
    "mismatch": (
        "hang: {who} wait in different collectives",
        "ranks have to call the same collectives in the same order, with tensors of the same size",
        "compare the two lines: a different order, or tensors of different size",
    ),
    "network": (
        "hang: {who} wait in the same collective",
        "every rank has called it and none gets an answer: the connection between them is blocked, or it is slow",
        "look at the sizes above; on several machines at the network between them",
    ),
    "busy": (
        "no end: {who} {have} not come to an end",
        "no collective is known in which it waits: a loop without end, or a wait for something else",
        "look at the line above; more time, if it is only slow",
    ),
}
"""Title, reason and advice for each kind."""


@dataclass(frozen=True)
class Seen:
    """The state of one rank when the job was stopped.

    Attributes:
        stack: of all its threads, as faulthandler writes it; empty if unknown.
        calls: the collectives that it issued, in order; None if they were not traced.
        done: the `seq` of those that are complete.
        ended: it had finished.
    """

    stack: str = ""
    calls: Sequence[Collective] | None = None
    done: frozenset[int] = frozenset()
    ended: bool = False

    @property
    def place(self) -> Place | None:
        """The user's line that it executes."""
        return None if self.ended else place_in_stacks(self.stack)


@dataclass(frozen=True)
class Hang:
    """Why a job makes no progress.

    Attributes:
        kind: `missing`: some ranks never reached the collective in which the others wait. `mismatch`: all wait, but in
            different calls. `busy`: the culprits are not known to wait for a collective, and have not ended.
            `network`: all wait in the same call.
        culprits: the ranks to look at, lowest first.
        where: the user's line that each rank executes, where known.
        waiting: the collective in which each waiting rank waits.
        issued: how many collectives of that group each rank has issued; empty without traces.
        ended: ranks that had ended.
    """

    kind: Literal["missing", "mismatch", "busy", "network"]
    culprits: tuple[int, ...]
    where: Mapping[int, Place]
    waiting: Mapping[int, Collective]
    issued: Mapping[int, int]
    ended: tuple[int, ...] = ()


def diagnose(ranks: Mapping[int, Seen]) -> Hang:
    """Find the culprit.

    Args:
        ranks: every rank of the job.

    Raises:
        ValueError: no rank, or all have ended: that is no hang.
    """
    if not ranks or all(each.ended for each in ranks.values()):
        raise ValueError("a job of which every rank has ended does not hang")
    where = {rank: place for rank, seen in ranks.items() if (place := seen.place) is not None}
    ended = tuple(sorted(rank for rank, seen in ranks.items() if seen.ended))
    waiting = {rank: call for rank, seen in ranks.items() if not seen.ended and (call := _pending(seen)) is not None}
    alive = sorted(rank for rank, seen in ranks.items() if not seen.ended)
    if not waiting:
        return Hang("busy", tuple(alive), where, {}, {}, ended)
    group = next(iter(waiting.values())).group
    issued = {rank: _issued(seen, group) for rank, seen in ranks.items() if seen.calls is not None}
    least, most = min(issued.values()), max(issued.values())
    if least < most:
        return Hang("missing", _of(issued, least), where, waiting, issued, ended)
    if idle := [rank for rank in alive if rank not in waiting]:
        # They have done as many as the others, and yet are not in the call: it is complete for them.
        return Hang("busy", tuple(idle), where, waiting, issued, ended)
    kinds = {(call.op, call.bytes, call.dtype, call.root) for call in waiting.values()}
    kind: Literal["mismatch", "network"] = "mismatch" if len(kinds) > 1 else "network"
    return Hang(kind, tuple(sorted(waiting)), where, waiting, issued, ended)


def card(hang: Hang, timeout_s: float | None = None, root: Path | None = None) -> str:
    """The cause as plain text, without a newline at the end.

    Args:
        hang: what was found.
        timeout_s: how long was waited.
        root: paths below it are shown relative to it.
    """
    rows: list[tuple[str, str]] = []
    for rank in sorted({*hang.where, *hang.waiting, *hang.ended}):
        rows.append((f"rank {rank}", _standing(hang, rank, root)))
    title, why, advice = _TEXTS[hang.kind]
    if hang.kind == "busy" and hang.waiting:
        why = "the collective that others wait in is complete for it, so it is busy with something else"
    rows += [("why", why), ("next", advice)]
    after = f" after {timeout_s:g} s" if timeout_s is not None else ""
    have = "have" if len(hang.culprits) > 1 else "has"
    return text_card(f"{title.format(who=ranks_text(hang.culprits), have=have)}{after}", rows, label=9)


def _pending(seen: Seen) -> Collective | None:
    """The newest collective that is not complete."""
    calls = [call for call in seen.calls or () if call.op not in _TO_ONE and call.seq not in seen.done]
    return calls[-1] if calls else None


def _issued(seen: Seen, group: str) -> int:
    return sum(call.group == group and call.op not in _TO_ONE for call in seen.calls or ())


def _of(counts: Mapping[int, int], value: int) -> tuple[int, ...]:
    return tuple(sorted(rank for rank, count in counts.items() if count == value))


def _standing(hang: Hang, rank: int, root: Path | None) -> str:
    if rank in hang.ended:
        count = f", after {_count(hang.issued[rank])}" if rank in hang.issued else ""
        return f"has ended{count}"
    parts = []
    if rank in hang.waiting:
        call = hang.waiting[rank]
        parts.append(f"waits in {call.op} of {call.bytes:,} bytes")
        if rank in hang.issued:
            parts.append(f"its {ordinal(hang.issued[rank])} collective")
    elif rank in hang.issued:
        parts.append(f"has called {_count(hang.issued[rank])}")
    place = hang.where.get(rank) or (hang.waiting[rank].place if rank in hang.waiting else None)
    if place is not None:
        parts.append(f"stands at {place if root is None else place.below(root)}")
    return ", ".join(parts)


def _count(number: int) -> str:
    return f"{number:,} collective{'' if number == 1 else 's'}"
