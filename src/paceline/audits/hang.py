"""Find the rank that a hanging job waits for, and its line.

A collective ends when every rank of its group has called it. So when a job hangs, either some rank has not reached the
call in which the others wait, or the ranks wait in different calls, or one is busy elsewhere. Two kinds of evidence
distinguish these. Stacks say where each rank stands, also in calls that DDP makes itself (`judge_standings`, for
`paceline run`). Traces say which collectives each rank has issued (`diagnose`, for the course, whose probe
`group_collectives` sees them all). All functions are pure, but for reading the line that a rank stands at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from paceline.audits.source_text import text_at
from paceline.audits.wording import ranks_text
from paceline.records.launched import HangOver, HangSeen
from paceline.records.observed import Collective
from paceline.records.place import Place, place_in_stacks
from paceline.records.schema import Finding
from paceline.records.standing import BACKWARD, FORWARD, TO_ONE, RankStanding, standing_in, standing_text
from paceline.records.wrap import text_card

Kind = Literal["missing", "mismatch", "busy", "network", "stopped"]
_ROOTED = ("broadcast", "scatter", "gather", "reduce")
"""Collectives that scripts call in different lines on the root and elsewhere."""
_TEXTS: dict[Kind, tuple[str, str, str]] = {
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
        "no progress: {who} {wait} for no other rank",
        "no collective is known in which it waits: a loop without end, or a wait for something else",
        "look at the line above; more time, if it is only slow",
    ),
    "stopped": (
        "hang: {who} {are} stopped",
        "the process gets no processor time, so its rank comes to no collective",
        "look for a debugger, Ctrl-Z or a job manager that stopped it; kill -CONT PID lets it go on",
    ),
}
"""Title, reason and advice for each kind."""
_ELSEWHERE = (
    "all ranks of this machine have called it, and the job has ranks elsewhere: one of those did not come, or the "
    "network is blocked"
)
_INSIDE = {
    "threading": "a lock, an event or a thread: look for who should release it, and for two locks in opposite order",
    "queue": "a queue that nobody fills: look at the thread or process that should",
    "subprocess": "a program that does not end: give it a timeout, and look at what it waits for",
    "socket": "a server that does not answer: give the request a timeout",
    "ssl": "a server that does not answer: give the request a timeout",
    "re": "a regular expression that backtracks: simplify nested repetitions such as (a+)+",
    "pdb": "a debugger that waits for input",
}
"""The usual cause, by the module of the standard library in which the line is."""
_CODES = {
    "missing": ("DP401", "rank-missing-in-collective", ["F78"]),
    "mismatch": ("DP402", "different-collectives", ["F78"]),
    "network": ("DP403", "collective-without-end", []),
    "stopped": ("DP404", "process-stopped", []),
    "busy": ("DP405", "no-progress", []),
}


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


@dataclass(frozen=True)
class Hang:
    """Why a job makes no progress.

    Attributes:
        kind: see `HangSeen.kind`.
        culprits: the ranks to look at, lowest first.
        ranks: where each rank stands.
        why: in place of the usual reason.
        advice: in place of the usual one.
        out_of_step: of ranks that wait in different collectives, those outside the one in which most wait.
    """

    kind: Kind
    culprits: tuple[int, ...]
    ranks: tuple[RankStanding, ...]
    why: str = ""
    advice: str = ""
    out_of_step: tuple[int, ...] = ()

    @property
    def text(self) -> tuple[str, str, str]:
        """Title, reason and advice."""
        several = len(self.culprits) > 1
        title, why, advice = _TEXTS[self.kind]
        if odd := self.out_of_step:
            most = ranks_text([rank for rank in self.culprits if rank not in odd])
            where = "waits in another collective" if len(odd) == 1 else "wait in other collectives"
            title = f"hang: {ranks_text(odd)} {where} than {most}"
            advice = f"look at {ranks_text(odd)} first: a branch, a skipped step or another order"
        title = title.format(
            who=ranks_text(self.culprits), wait="wait" if several else "waits", are="are" if several else "is"
        )
        return title, self.why or why, self.advice or advice


def diagnose(ranks: Mapping[int, Seen]) -> Hang:
    """Find the culprit by the collectives that ranks have issued, or by their stacks if these were not traced.

    Args:
        ranks: every rank of the job.

    Raises:
        ValueError: no rank, or all have ended: that is no hang.
    """
    if not ranks or all(each.ended for each in ranks.values()):
        raise ValueError("a job of which every rank has ended does not hang")
    pending = {rank: call for rank, seen in ranks.items() if not seen.ended and (call := _pending(seen)) is not None}
    group = next(iter(pending.values())).group if pending else None
    standings = tuple(_traced(rank, seen, pending.get(rank), group) for rank, seen in sorted(ranks.items()))
    if not pending:
        return judge_standings(standings, len(ranks))
    numbers = {each.rank: each.number for each in standings if each.number is not None}
    if len(set(numbers.values())) > 1:
        return Hang("missing", _least(numbers), standings)
    if idle := tuple(each.rank for each in standings if not each.gone and each.rank not in pending):
        # They have done as many as the others, and yet are not in the call: it is complete for them.
        why = "the collective that others wait in is complete for it, so it is busy with something else"
        return Hang("busy", idle, standings, why)
    kinds = {rank: (call.op, call.bytes, call.dtype, call.root) for rank, call in pending.items()}
    if len(set(kinds.values())) > 1:
        return Hang("mismatch", tuple(sorted(pending)), standings, out_of_step=_minority(kinds))
    return Hang("network", tuple(sorted(pending)), standings)


def judge_standings(ranks: Sequence[RankStanding], world: int) -> Hang:
    """Find the culprit by the lines at which ranks stand, and by the number of collectives that their script called.

    A rank that waits for no other is the one that others wait for. Only where all wait do numbers matter, since scripts
    may call collectives of some ranks.

    Args:
        ranks: of this machine.
        world: ranks of the job.
    """
    standings = tuple(sorted((_in_wait(each) for each in ranks), key=lambda each: each.rank))
    waiting = [each for each in standings if each.waits_for_ranks]
    others = [each for each in standings if not each.waits_for_ranks and not each.gone]
    if stopped := [each for each in others if each.state in ("stopped", "blocked")]:
        blocked = all(each.state == "blocked" for each in stopped)
        advice = "look at the disk or the network file system that it uses" if blocked else ""
        return Hang("stopped", _ranks(stopped), standings, advice=advice)
    if others or world == 1:
        advice = next((text for each in others if (text := _usual_cause(each))), "")
        return Hang("missing" if waiting and others else "busy", _ranks(others or waiting), standings, advice=advice)
    if gone := [each for each in standings if each.gone]:
        return Hang("missing", _ranks(gone), standings)
    meetings = {each.rank: _meeting(each) for each in waiting}
    if len(set(meetings.values())) > 1:
        return Hang("mismatch", _ranks(waiting), standings, out_of_step=_minority(meetings))
    numbers = {each.rank: each.number for each in waiting if each.number is not None}
    if len(set(numbers.values())) > 1:
        return Hang("missing", _least(numbers), standings)
    return Hang("network", _ranks(waiting), standings, why=_ELSEWHERE if world > len(standings) else "")


def hang_event(ranks: Sequence[RankStanding], world: int) -> HangSeen:
    """The judgement as a record; the launcher adds when it was.

    Args:
        ranks, world: as for `judge_standings`.
    """
    hang = judge_standings(ranks, world)
    title, why, advice = hang.text
    return HangSeen(
        kind=hang.kind,
        title=title,
        why=why,
        advice=advice,
        culprits=list(hang.culprits),
        ranks=list(hang.ranks),
        out_of_step=list(hang.out_of_step),
    )


def card(hang: Hang, timeout_s: float | None = None, root: Path | None = None) -> str:
    """The cause as plain text, without a newline at the end.

    Args:
        hang: what was found.
        timeout_s: how long was waited.
        root: paths below it are shown relative to it.
    """
    title, why, advice = hang.text
    after = f" after {timeout_s:g} s" if timeout_s is not None else ""
    return text_card(f"{title}{after}", _rows(hang.ranks, why, advice, root), label=9)


def event_card(hang: HangSeen, root: Path | None = None, width: int | None = None) -> str:
    """The card that `paceline run` shows.

    Args:
        hang: as recorded.
        root: paths below it are shown relative to it.
        width: of the terminal; None does not wrap.
    """
    step = f"after step {hang.step:,}" if hang.step else "and no step was done"
    since = f"no rank has advanced for {hang.still_s:.0f} s, {step}"
    rows = [*_rows(hang.ranks, hang.why, hang.advice, root), ("since", since)]
    return text_card(f"paceline: {hang.title}", rows, label=9, width=width)


def hang_findings(events: Iterable[HangSeen | HangOver], root: Path | None = None) -> list[Finding]:
    """One finding for each hang: an error, or an information if the job went on by itself.

    Args:
        events: of one job, in order.
        root: paths below it are shown relative to it in messages.
    """
    found: list[Finding] = []
    for event in events:
        if isinstance(event, HangSeen):
            found.append(_finding(event, root))
        elif found:
            went_on = f"{found[-1].message}; it went on after {event.still_s:.0f} s"
            found[-1] = msgspec.structs.replace(found[-1], severity="info", message=went_on)
    return found


def _finding(hang: HangSeen, root: Path | None) -> Finding:
    code, name, faults = _CODES.get(hang.kind, _CODES["busy"])
    if hang.kind == "mismatch" and len({each.call in (BACKWARD, FORWARD) for each in hang.ranks}) > 1:
        faults = [*faults, "F82"]  # or the ranks take different numbers of steps
    culprits = [each for each in hang.ranks if each.rank in (hang.out_of_step or hang.culprits)]
    first = next((each for each in culprits if each.line is not None), culprits[0] if culprits else None)
    standings = "; ".join(f"rank {each.rank} {standing_text(each, root)}" for each in hang.ranks)
    return Finding(
        code=code,
        name=name,
        severity="error",
        message=f"{hang.title.partition(': ')[2]}: {standings}",
        advice=hang.advice,
        faults=faults,
        path=first.path if first is not None else None,
        line=first.line if first is not None else None,
        rank=first.rank if first is not None else None,
        step=hang.step,
        evidence={"source": "run", "culprits": hang.culprits, "still_s": hang.still_s, "patience_s": hang.patience_s},
    )


def _rows(ranks: Iterable[RankStanding], why: str, advice: str, root: Path | None) -> list[tuple[str, str]]:
    rows = [(f"rank {each.rank}", standing_text(each, root)) for each in ranks]
    return [*rows, ("why", why), ("next", advice)]


def _traced(rank: int, seen: Seen, call: Collective | None, group: str | None) -> RankStanding:
    number = _issued(seen, group) if group is not None and seen.calls is not None else None
    if seen.ended:
        return RankStanding(rank=rank, state="ended", number=number)
    if number is None:
        return standing_in(rank, seen.stack, state="waits")
    place = place_in_stacks(seen.stack) or (call.place if call is not None else None)
    standing = RankStanding(rank=rank, state="waits", number=number).at(place)
    return standing if call is None else msgspec.structs.replace(standing, call=call.op, bytes=call.bytes)


def _pending(seen: Seen) -> Collective | None:
    """The newest collective that is not complete."""
    calls = [call for call in seen.calls or () if call.op not in TO_ONE and call.seq not in seen.done]
    return calls[-1] if calls else None


def _issued(seen: Seen, group: str) -> int:
    return sum(call.group == group and call.op not in TO_ONE for call in seen.calls or ())


def _minority(meetings: Mapping[int, object]) -> tuple[int, ...]:
    """The ranks outside the meeting of more than half of the ranks; none where no meeting has so many."""
    (most, count), *_ = Counter(meetings.values()).most_common(1)
    return tuple(sorted(rank for rank, each in meetings.items() if each != most)) if 2 * count > len(meetings) else ()


def _least(counts: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(sorted(rank for rank, count in counts.items() if count == min(counts.values())))


def _ranks(standings: Iterable[RankStanding]) -> tuple[int, ...]:
    return tuple(sorted(each.rank for each in standings))


def _in_wait(one: RankStanding) -> RankStanding:
    """Waiting for an asynchronous operation has no frame of its own: only the line says so."""
    if one.state != "waits" or one.call or one.inside or one.worker is not None:
        return one
    place: Place | None = one.place
    return msgspec.structs.replace(one, call="Work.wait") if ".wait(" in (text_at(place) or "") else one


def _meeting(one: RankStanding) -> tuple[str, str | None, int | None]:
    """Equal for ranks that wait in the same call; by its line too where all ranks have one line for it."""
    anywhere = one.call.startswith(_ROOTED)
    return one.call, None if anywhere else one.path, None if anywhere else one.line


def _usual_cause(one: RankStanding) -> str:
    if one.worker is not None:
        return "the line is that of the data set in a loader worker: a file, a lock or a loop there"
    if one.call in TO_ONE:
        return "compare the source and the destination: each receive needs a send of its peer, to it and with its tag"
    if text := _INSIDE.get(one.inside.rpartition(" of ")[2]):
        return text
    if one.state == "runs":
        return f"rank {one.rank} computes at its line: a loop without end, or work that it does alone and that is slow"
    return f"rank {one.rank} waits at its line for something that does not come, or sleeps" if one.path else ""
