"""Warm ranks: run a function on W ranks in a fraction of a second.

Ranks are forked from the fork server, which has imported torch (`processes.py`), so each is fresh (no state of an
earlier call) and ready at once.

    def total(value):                       # on every rank, in a gloo group of W ranks
        tensor = torch.tensor([float(value + dist.get_rank())])
        dist.all_reduce(tensor)
        return tensor.item()

    run_ranks(total, 2, 10)                 # [21.0, 21.0]

**A call never leaves a process behind**: ranks are killed when one fails, when time is up and when the caller is
interrupted, and die with the fork server, which dies with the caller. The server itself stays for the next call.

A function travels by the path of its file and its name, so that functions of test modules work, which no import
finds under pytest's importlib mode; its arguments and its result travel pickled. A rank loads only the function's own
module; the caller's `__main__` is not run again, unless the function stands in it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from paceline.pool.answers import Answer, PlainReader, RankUse, Unreadable
from paceline.pool.confinement import MARK, Confinement
from paceline.pool.processes import TORCH, ForkServer, Session, Surroundings, fork_server
from paceline.pool.rank import Job, rank_environment, stack_file
from paceline.pool.stack_requests import ask_stacks
from paceline.pool.store import listen
from paceline.records.errors import Exit, PacelineError
from paceline.records.place import place_in_stacks, place_in_traceback

T = TypeVar("T")

_SERVE = "paceline.pool.rank:serve"
_DEATH_NOTICE_S = 0.3
"""A rank that dies breaks the connections of the others. So long we wait for word of a death before we believe a
rank that complains about its peers."""
_STACK_S = 1.0
_LEAVE_S, _LEAVE_PLAIN_S = 5.0, 1.0
_STACK_CHARACTERS = 1 << 18


class RankFailure(PacelineError):  # noqa: N818  the word its readers use
    """A rank raised, or died without an answer. The exception itself, where it could travel, is the `__cause__`.

    Attributes:
        rank: which one failed first.
        message: the exception's type and message, or how the rank died.
        traceback: of the rank, as text; empty when it died.
        stack: of all its threads, as faulthandler writes it, when a signal such as SIGSEGV killed it; empty otherwise.
    """

    def __init__(self, rank: int, message: str, traceback: str, stack: str = "") -> None:
        super().__init__(f"rank {rank} failed: {message}", exit_code=Exit.FAILED)
        self.rank = rank
        self.message = message
        self.traceback = traceback
        self.stack = stack
        if traceback or stack:
            self.add_note(f"On rank {rank}:\n{traceback or stack}")

    def place(self, folder: Path | None) -> str:
        """Where the rank raised or a signal killed it: the innermost line of files in the folder.

        Returns:
            "train.py:12, in main", the path relative to the folder; empty where no such line is known.
        """
        if folder is None:
            return ""
        found = place_in_traceback(self.traceback, folder) or place_in_stacks(self.stack, folder)
        return "" if found is None else str(found.below(folder))

    def __reduce__(self) -> tuple[object, ...]:
        return (RankFailure, (self.rank, self.message, self.traceback, self.stack))


class RankTimeout(PacelineError):  # noqa: N818
    """Some ranks did not answer in time; all were killed.

    Attributes:
        ranks: those that had not answered.
        stacks: for each of them, where it stood (all its threads), as text.
        timeout_s: the limit.
    """

    def __init__(self, stacks: Mapping[int, str], timeout_s: float) -> None:
        self.ranks = tuple(sorted(stacks))
        self.stacks = dict(stacks)
        self.timeout_s = timeout_s
        names = ", ".join(str(rank) for rank in self.ranks)
        super().__init__(
            f"no answer within {timeout_s:g} s from rank {names}",
            why="a rank that waits for a collective operation which another one never calls waits for ever",
            hint="the stacks below show where each stood; raise timeout_s if the work is only slow",
            exit_code=Exit.FAILED,
        )
        for rank in self.ranks:
            self.add_note(f"Rank {rank} stood here:\n{self.stacks[rank]}")

    def __reduce__(self) -> tuple[object, ...]:
        return (RankTimeout, (self.stacks, self.timeout_s))


@dataclass(frozen=True)
class _Rank:
    rank: int
    pid: int
    session: Session
    channel: Connection
    plain: PlainReader | None = None


def run_ranks(
    function: Callable[..., T],
    world: int,
    *args: Any,
    timeout_s: float = 60.0,
    env: Mapping[str, str] | None = None,
    limits: Confinement | None = None,
    group: bool = True,
    plain: bool = False,
    usage: list[RankUse] | None = None,
) -> list[T]:
    """Call `function(*args)` on `world` fresh ranks of one gloo group and return their results, rank 0 first.

    Every rank has one torch thread, the environment of torchrun (RANK, WORLD_SIZE, ...; `MASTER_ADDR` and
    `MASTER_PORT` name a live store), the caller's working directory and `sys.path`.

    Args:
        function: stands at the top level of a module, or of a class there.
        world: number of ranks, 1 or more; one is no special case.
        args: positional arguments, the same for every rank; must be picklable.
        timeout_s: for everything, the start of the ranks included.
        env: variables on top of the caller's environment.
        limits: for functions that run code which nobody has read; the function's own module is loaded before they
            begin.
        group: without, ranks are not joined in a group: they find what a script finds under torchrun.
        plain: for a function that is not trusted. Results are None, bool, int, float, str, list and dict only, and
            travel as JSON, at most 16 MiB a rank; no exception travels as such.
        usage: filled with what each rank was seen to use, also when the call fails.

    Raises:
        RankFailure: a rank raised or died, or a plain one sent what cannot be read; the others were killed at once.
        RankTimeout: time was up; all were killed.
        TypeError: the function cannot be found by its name.
        ValueError: a world below 1.
    """
    if world < 1:
        raise ValueError(f"world is {world}; it takes at least one rank")
    began = time.monotonic()
    deadline = began + timeout_s
    answers: dict[int, Answer] = {}
    with tempfile.TemporaryDirectory(prefix="paceline-pool-") as stacks:
        job = replace(_job(function, args, timeout_s, stacks), limits=limits, group=group, plain=plain)
        environment = _environment(env)
        server = _server(environment)  # without the mark, by which it would be taken for a stray process
        if limits is not None:
            limits.prepare()
            environment[MARK] = Path(stacks).name
        try:
            with contextlib.ExitStack() as stack:
                session = stack.enter_context(server.session())
                ranks: list[_Rank] = []
                try:
                    _start(ranks, job, world, environment, session, stack)
                    _collect(answers, ranks, deadline, timeout_s, stacks)
                finally:
                    if usage is not None:
                        usage += [_use(each, answers.get(each.rank), began) for each in ranks]
                _dismiss(ranks, session, _LEAVE_PLAIN_S if plain else _LEAVE_S)
        finally:
            modest = limits is None or limits.sweep(Path(stacks).name)
    if not modest:
        raise RankFailure(0, "it left more files in its folder than are kept", "")
    results = [answers[rank].result for rank in range(world)]
    return results if plain else [pickle.loads(each) for each in results]


def warm_up(modules: Sequence[str] = ()) -> None:
    """Start the fork server now, and have it import more modules for all ranks. Not needed; saves time later.

    Args:
        modules: names; they must not start threads. Ignored when the server runs already.
    """
    _server(_environment(None), modules)


def _server(environment: Mapping[str, str], modules: Sequence[str] = ()) -> ForkServer:
    return fork_server(environment, (TORCH, "paceline.pool.rank", "paceline.pool.store", *modules))


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    """The whole environment of ranks, without what belongs to one of them."""
    own = {"OMP_NUM_THREADS": "1"} | ({"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {})
    return own | dict(os.environ) | dict(env or {})


def _job(function: Callable[..., Any], args: Sequence[Any], timeout_s: float, stacks: str) -> Job:
    qualname = getattr(function, "__qualname__", "<locals>")
    name = getattr(function, "__module__", None)
    module = sys.modules.get(name) if name else None
    if "<" in qualname or module is None or name is None:
        raise TypeError(f"{function!r} cannot run on ranks: it must be a function at the top level of a module")
    return Job(
        module=name,
        path=getattr(module, "__file__", None),
        qualname=qualname,
        arguments=pickle.dumps(tuple(args)),
        patience_s=timeout_s + 30.0,
        stacks=stacks,
    )


def _start(
    ranks: list[_Rank],
    job: Job,
    world: int,
    environment: Mapping[str, str],
    session: Session,
    stack: contextlib.ExitStack,
) -> None:
    given = pickle.dumps(job)
    with listen(world) as listening:
        port = listening.getsockname()[1]
        for rank in range(world):
            ours, theirs = multiprocessing.Pipe()
            channel = stack.enter_context(ours)
            hosted = (listening.fileno(),) if rank == 0 else ()
            with theirs:
                pid = session.start(
                    _SERVE,
                    given,
                    handles=(theirs.fileno(), *hosted),
                    within=Surroundings({**environment, **rank_environment(rank, world, port)}, sys.argv, sys.path),
                )
            ranks.append(_Rank(rank, pid, session, channel, PlainReader(channel) if job.plain else None))


def _collect(
    answers: dict[int, Answer], ranks: Sequence[_Rank], deadline: float, timeout_s: float, stacks: str
) -> None:
    """Every rank's answer; raises on the first failure."""
    waiting = {each.rank: each for each in ranks}
    while waiting:
        ready = wait([each.channel for each in waiting.values()], max(0.0, deadline - time.monotonic()))
        _take(waiting, answers, stacks)
        failed = {rank: answer for rank, answer in answers.items() if answer.error}
        if failed:
            _blame(failed, waiting, answers, stacks)
        # Whoever sends bit by bit is always ready.
        if waiting and (not ready or time.monotonic() > deadline):
            raise RankTimeout({rank: _stack(each, stacks) for rank, each in waiting.items()}, timeout_s)


def _take(waiting: dict[int, _Rank], answers: dict[int, Answer], stacks: str) -> None:
    """Move every rank that has something to say from `waiting` to `answers`."""
    for rank, each in list(waiting.items()):
        try:
            answer = _answer_of(each)
        except (EOFError, OSError):
            ended = _how_it_ended(each)
            if each.plain is not None and each.pid not in each.session.codes:
                raise RankFailure(rank, f"it sent no answer that can be read: it {ended}", "") from None
            raise RankFailure(rank, f"it {ended} before it answered", "", _written(stack_file(stacks, rank))) from None
        except Unreadable as why:
            raise RankFailure(rank, f"it sent no answer that can be read: {why}", "") from None
        if answer is not None:
            del waiting[rank]
            answers[rank] = answer


def _answer_of(each: _Rank) -> Answer | None:
    """Return its answer, if there is one."""
    if each.plain is not None:
        return each.plain.read()
    if not each.channel.poll():
        return None
    answer: Answer = pickle.loads(each.channel.recv_bytes())
    return answer


def _use(each: _Rank, answer: Answer | None, began: float) -> RankUse:
    """Processor time of a rank so far: fields 14 to 17 of its line in /proc, children that have ended included."""
    cpu_s = None
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{each.pid}/stat").read_text().rpartition(")")[2].split()
        cpu_s = sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return RankUse(each.rank, cpu_s, None if answer is None else answer.at_s - began)


def _blame(failed: Mapping[int, Answer], waiting: dict[int, _Rank], answers: dict[int, Answer], stacks: str) -> None:
    rank = min(failed, key=lambda each: failed[each].at_s)
    if "peer" in failed[rank].error:
        # Perhaps it was pulled down by one that died: then `_take` raises for that one.
        end = time.monotonic() + _DEATH_NOTICE_S
        while waiting and (left := end - time.monotonic()) > 0:
            wait([each.channel for each in waiting.values()], left)
            _take(waiting, answers, stacks)
        # Word of a broken connection may come before word of what broke it.
        told = {each: answer for each, answer in answers.items() if answer.error and "peer" not in answer.error}
        rank = min(told, key=lambda each: told[each].at_s, default=rank)
    first = answers[rank]
    failure = RankFailure(rank, first.error, first.traceback)
    raise failure from (pickle.loads(first.exception) if first.exception else None)


def _how_it_ended(each: _Rank) -> str:
    end = time.monotonic() + _DEATH_NOTICE_S
    while each.pid not in each.session.codes and (left := end - time.monotonic()) > 0:
        each.session.wait(left)
    code = each.session.codes.get(each.pid)
    if code is None:
        return "closed its channel"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _stack(each: _Rank, stacks: str) -> str:
    """Ask a rank for the stack of all its threads."""
    path = stack_file(stacks, each.rank)
    # Before a rank has opened the file it has no handler yet, and the signal would kill it.
    if not path.exists():
        return "(it had not started yet)"
    ask_stacks({each.pid: path}, _STACK_S)
    return _written(path) or "(it did not say: stopped, or in the kernel)"


def _written(stack: Path) -> str:
    """Read the file of a rank; empty where it had not come so far."""
    try:
        with stack.open(errors="replace") as file:
            return file.read(_STACK_CHARACTERS)
    except FileNotFoundError:
        return ""


def _dismiss(ranks: Sequence[_Rank], session: Session, patience_s: float) -> None:
    """All have answered: let them go, and wait until they are gone."""
    for each in ranks:
        with contextlib.suppress(OSError):
            each.channel.send_bytes(b"leave")
    end = time.monotonic() + patience_s
    while any(each.pid not in session.codes for each in ranks) and (left := end - time.monotonic()) > 0:
        session.wait(left)
