"""Check an answer: test its properties one after the other, and turn whatever happens into a verdict."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from paceline.audits.hang import Seen, card, diagnose
from paceline.pool.warm_ranks import RankFailure, RankTimeout, run_ranks, warm_up
from paceline.records.errors import PacelineError
from paceline_course.answer import Answer, read_trace, scratch_folder
from paceline_course.checking import Checks, MissingName, Property, Wrong, load_checks
from paceline_course.content import Course, Exercise
from paceline_course.messages import GENERAL
from paceline_course.outcome import Outcome, Verdict

_PRINTED_LINES, _PRINTED_BYTES = 8, 4096
_MISMATCH = ("op.preamble.length <= op.nbytes", "Received data size doesn't match expected size")
"""What gloo says, in an exception or before it aborts."""
_LEFT = ("Connection closed by peer", "Connection reset by peer")
_MEMORY = ("MemoryError", "can't allocate memory", "Cannot allocate memory")


def check(
    course: Course,
    exercise: Exercise,
    path: Path,
    *,
    seed: int | None = None,
    patience: float = 1.0,
    quick: bool = False,
    told: Callable[[str], None] | None = None,
) -> Outcome:
    """Test the properties of an exercise until one fails.

    Args:
        course: where the exercise is from.
        exercise: which one.
        path: of the learner's file.
        seed: of all random numbers; a fresh one by default.
        patience: factor on all time limits, for slow machines.
        quick: leave out properties that are marked as slow.
        told: called with the statement of each property before it is tested.
    """
    checks = load_checks(course, exercise)
    seed = secrets.randbelow(2**31) if seed is None else seed
    make_ready()
    began = time.monotonic()
    wanted = [each for each in checks.of(exercise) if not (quick and each.slow)]
    verdicts: list[Verdict] = []
    with scratch_folder() as scratch:
        for number, each in enumerate(wanted):
            if told is not None:
                told(each.statement)
            answer = Answer(path, scratch / str(number), seed + number, patience)
            verdicts.append(_test(each, answer, checks))
            if not verdicts[-1].passed:
                break
    return Outcome(
        exercise=exercise.id,
        title=exercise.title,
        passed=all(verdict.passed for verdict in verdicts),
        seed=seed,
        seconds=time.monotonic() - began,
        verdicts=verdicts,
        untested=[each.statement for each in wanted[len(verdicts) :]],
    )


def begin_ready() -> None:
    """Let the server of warm ranks load in its own time, beside whatever comes first; returns at once."""
    warm_up(("paceline_course.answer_process", "paceline.observe.probes.group_collectives"))


@cache
def make_ready() -> None:
    """Start the server of warm ranks, once a process: some seconds that belong to no answer."""
    begin_ready()
    run_ranks(_nothing, 1, timeout_s=180)


def _nothing() -> None:
    """Done as soon as the server is there."""


def _test(each: Property, answer: Answer, checks: Checks) -> Verdict:
    try:
        each.test(answer)
    except Wrong as wrong:
        return _verdict(each, answer, checks, wrong)
    except RankFailure as failure:
        meant = _of_failure(failure, answer)
        stray = _to_nobody(answer) if meant.message in ("died", "left") else None
        return _verdict(each, answer, checks, stray or meant)
    except RankTimeout as late:
        if (stray := _to_nobody(answer)) is not None:
            return _verdict(each, answer, checks, stray)
        hang = Wrong("hang", expected=f"an end within {late.timeout_s:g} s", got="none")
        return _verdict(each, answer, checks, hang, _card(late, answer))
    except PacelineError:
        raise
    except FileNotFoundError:
        return _verdict(each, answer, checks, Wrong("deleted", expected=str(answer.path), got="no such file"))
    except Exception as error:  # noqa: BLE001  a check trips over what an answer returned: that is the answer's
        return _verdict(each, answer, checks, Wrong("unusable", got=f"{type(error).__name__}: {error}"))
    return Verdict(statement=each.statement, passed=True)


def _verdict(each: Property, answer: Answer, checks: Checks, wrong: Wrong, hang: str = "") -> Verdict:
    message = checks.messages.get(wrong.message) or GENERAL.get(wrong.message)
    if message is None:
        raise PacelineError(f"{checks.path} has no message {wrong.message}", hint="a defect of the course: report it")
    return Verdict(
        statement=each.statement,
        passed=False,
        message=wrong.message,
        ran=wrong.ran,
        expected=wrong.expected,
        got=wrong.got,
        where=wrong.where,
        likely=message.likely,
        look=message.look,
        card=hang,
        printed=_printed(answer),
    )


def _of_failure(failure: RankFailure, answer: Answer) -> Wrong:
    """A rank raised or died: what that means for a learner."""
    said = failure.message.splitlines()[-1]  # a syntax error comes with its line before
    kind, _, text = said.partition(":")
    name = kind.rpartition(".")[2].strip()
    where = failure.place(answer.last)
    if name == "Wrong":  # judged over there, by a check of ours
        cause = failure.__cause__
        return cause if isinstance(cause, Wrong) else Wrong("unusable", got=failure.message)
    if name == "NotImplementedError":
        return Wrong("todo", where=where)
    if name in {"SyntaxError", "IndentationError", "TabError"}:
        return Wrong("syntax", got=said, where=where)
    if name == "MissingName":
        missing = failure.__cause__.name if isinstance(failure.__cause__, MissingName) else text.strip()
        return Wrong("missing-name", expected=f"{missing} in {answer.path.name}", got="no such name")
    if name == "SystemExit":
        return Wrong("exit", got=failure.message, where=where)
    if "File too large" in failure.message:
        return Wrong("printed", got=failure.message, where=where)
    if any(word in failure.message for word in _MEMORY):
        return Wrong("memory", got=failure.message, where=where)
    printed = _printed(answer, failure.rank)
    if any(word in failure.message or word in printed for word in _MISMATCH):
        return Wrong("mismatch", expected="the same collective on every rank", got=f"rank {failure.rank} found another")
    if any(word in failure.message for word in _LEFT):
        return Wrong(
            "left", expected="all processes go on together", got=f"rank {failure.rank} lost another", where=where
        )
    if not failure.traceback:
        return Wrong("died", got=failure.message, where=where)
    on_rank = f" on rank {failure.rank}" if failure.rank else ""
    if not where:
        return Wrong("unusable", got=f"{failure.message}{on_rank}")
    return Wrong("raised", got=f"{failure.message}{on_rank}", where=where)


def _to_nobody(answer: Answer) -> Wrong | None:
    """The first send to a rank, or receive from one, that does not exist; None where there is none.

    gloo does not check it: it reads past its table of connections, and the rank dies or waits for ever, as it happens.
    """
    for rank, path in _by_rank(answer, "trace-*.jsonl"):
        for call in read_trace(path.parent, rank)[0]:
            # A number below 0 is none in the trace, as that of a receive from any rank is.
            beyond = call.root is not None and call.root >= call.size
            if (call.op == "send" and (beyond or call.root is None)) or (call.op == "recv" and beyond):
                other = "a rank below 0" if call.root is None else f"rank {call.root}"
                did = f"{'sends to' if call.op == 'send' else 'receives from'} {other}"
                where = "" if call.place is None else f"{Path(call.place.path).name}:{call.place.line}"
                return Wrong(
                    "no-such-rank", expected=f"rank 0 to {call.size - 1}", got=f"rank {rank} {did}", where=where
                )
    return None


def _by_rank(answer: Answer, pattern: str) -> list[tuple[int, Path]]:
    """Files of the last call by rank, which their names end with."""
    found = [] if answer.last is None else answer.last.glob(pattern)
    return sorted((int(end), path) for path in found if (end := path.stem.rpartition("-")[2]).isdecimal())


def _card(late: RankTimeout, answer: Answer) -> str:
    """Which rank, at which line."""
    if answer.last is None:
        return ""
    ranks: dict[int, Seen] = {}
    number = 0
    while number <= max(late.ranks) or (answer.last / f"rank-{number}.out").exists():
        calls, done = read_trace(answer.last, number)
        traced = calls if (answer.last / f"trace-{number}.jsonl").exists() else None
        ended = number not in late.stacks
        ranks[number] = Seen(late.stacks.get(number, ""), traced, frozenset(done), ended)
        number += 1
    return card(diagnose(ranks), late.timeout_s, root=answer.last)


def _printed(answer: Answer, rank: int | None = None) -> str:
    """The end of what a rank printed; without one, of what the first rank that printed anything did."""
    for _, path in _by_rank(answer, "rank-*.out" if rank is None else f"rank-{rank}.out"):
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _PRINTED_BYTES))
            text = file.read().decode(errors="replace")
        if text.strip():
            return "\n".join(line[:200] for line in text.splitlines()[-_PRINTED_LINES:])
    return ""
