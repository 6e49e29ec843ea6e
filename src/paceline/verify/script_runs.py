"""Starts the runs of a verification: ranks that record, and one process that replays them."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from paceline.audits.run_judge import RunJudge, judge_ledger
from paceline.launch.output_compare import compare_output
from paceline.launch.ring_drain import RingDrain, make_rings_folder
from paceline.observe.parity.script_rank import ScriptJob
from paceline.pool.overlay_view import overlay_view
from paceline.pool.processes import Session, Surroundings, fork_server
from paceline.pool.rank import rank_environment
from paceline.pool.store import start_store
from paceline.records.errors import PacelineError
from paceline.records.parity import PARITY_VARIABLE, ParityEnd, ParityTask, rank_folder, read_end
from paceline.records.ring import RINGS_VARIABLE, Progress
from paceline.records.rundir import RunDir
from paceline.records.schema import AnyEvent, Finding
from paceline.records.standing import RankStanding
from paceline.verify.hang_evidence import standings

_AFTER_END_S = 5.0
"""For what a script does after the steps that are compared, and for ranks to notice that another one failed."""
_PEER = "peer"
"""In messages of gloo about a connection that another rank closed."""
_GLOO_FILE = re.compile(r"\[/\S*\] ")
_SCRIPT_RANK = "paceline.observe.parity.script_rank:run"
_TASK_RANK = "paceline.verify.task_rank:run"


@dataclass(frozen=True)
class ScriptRun:
    """A run that has ended.

    Attributes:
        folder: of its records.
        world: ranks.
        exit_codes: by rank; None for one that was ended because its time was up.
        ends: by rank; None for one that did not come to its end.
        findings: of the audits.
        seconds: that it took.
        where: where each rank was before it was ended; empty where all came to their end.
    """

    folder: Path
    world: int
    exit_codes: list[int | None]
    ends: list[ParityEnd | None]
    findings: list[Finding]
    seconds: float
    where: list[RankStanding] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Every rank came to its end."""
        return all(each is not None and not each.error and not each.exit_code for each in self.ends)

    @property
    def lost_connection(self) -> bool:
        """A rank was killed by a signal, or lost its connection to another one: the cause is where both stand."""
        return any(code is not None and code < 0 for code in self.exit_codes) or _PEER in self.error

    @property
    def error(self) -> str:
        """The last line of a traceback, or exit codes; empty where the script did not fail."""
        lines = [each.error.strip().splitlines()[-1] for each in self.ends if each is not None and each.error]
        for line in sorted(lines, key=lambda each: _PEER in each):  # a lost connection is a consequence
            return _GLOO_FILE.sub("", line.partition(". This is typically")[0])
        failed = [f"rank {rank} exits with code {code}" for rank, code in enumerate(self.exit_codes) if code]
        return "" if self.whole else ", ".join(failed)


class _Judge:
    def __init__(self) -> None:
        self.judge = RunJudge()
        self._decode = msgspec.json.Decoder(AnyEvent).decode

    def event(self, rank: int, line: bytes) -> None:
        """Take an event."""
        self.judge.feed(rank, self._decode(line))

    def progress(self, ranks: dict[int, Progress]) -> None:
        """Nobody watches."""


@contextmanager
def protected(session: Session, scratch: Path, *, allow_writes: bool) -> Iterator[int | None]:
    """A view in which the script's files stay as they are; see `overlay_view`. None where writing is allowed.

    Raises:
        PacelineError: the system forbids it.
    """
    if allow_writes:
        yield None
        return
    with ExitStack() as stack:
        try:
            holder = stack.enter_context(overlay_view(session, scratch))
        except OSError as error:
            raise PacelineError(
                "files of the script cannot be protected",
                why=f"this system forbids mount namespaces or overlays: {error}",
                hint="--allow-writes lets the script write, as each of the runs would",
            ) from None
        yield holder


def run_script(
    job: ScriptJob, task: ParityTask, world: int, patience_s: float, *, allow_writes: bool = False
) -> ScriptRun:
    """Run a script on some ranks.

    Args:
        job: the script.
        task: of its ranks; its folder must not exist yet.
        world: ranks of this run.
        patience_s: after which they are ended.
        allow_writes: let it change files outside of that folder.

    Raises:
        PacelineError: its files cannot be protected.
    """
    began = time.monotonic()
    folder = Path(task.folder)
    folder.mkdir(parents=True)
    (folder / "task.json").write_bytes(msgspec.json.encode(task))
    rings, listener = make_rings_folder(), _Judge()
    drain = RingDrain(rings, RunDir(folder / "run"), listener)
    drain.start()
    try:
        with fork_server().session() as session, protected(session, folder, allow_writes=allow_writes) as view:
            job = msgspec.structs.replace(job, view=view)
            port = start_store(session, world)
            pids = []
            for rank in range(world):
                logs = folder / str(rank)
                logs.mkdir()
                env = {
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    **rank_environment(rank, world, port),
                    RINGS_VARIABLE: str(rings),
                    PARITY_VARIABLE: str(folder / "task.json"),
                }
                with (logs / "stdout.log").open("wb") as out, (logs / "stderr.log").open("wb") as err:
                    within = Surroundings(env, name=f"verify rank{rank}", path=list(sys.path))
                    outputs = (out.fileno(), err.fileno())
                    target = _TASK_RANK if job.is_task else _SCRIPT_RANK
                    pids.append(session.start(target, msgspec.json.encode(job), output=outputs, within=within))
            deadline = time.monotonic() + patience_s
            while not all(pid in session.codes for pid in pids) and time.monotonic() < deadline:
                session.wait(0.05)
                ended = all((rank_folder(folder, rank) / "end.json").exists() for rank in range(world))
                if ended or any(session.codes.get(pid) for pid in pids):  # the others wait for it
                    deadline = min(deadline, time.monotonic() + _AFTER_END_S)
            codes = [session.codes.get(pid) for pid in pids]
            ends = [_end(folder, rank) for rank in range(world)]
            late = None in ends or any(codes)
            where = standings(pids, codes, ends, folder) if late else []
    finally:
        drain.stop()
    judge_ledger(listener.judge, folder / "run")
    if (compared := compare_output(folder, list(range(world)))) is not None:
        listener.judge.feed(0, compared)
    listener.judge.finish()
    return ScriptRun(folder, world, codes, ends, listener.judge.findings(), time.monotonic() - began, where)


def read_task(folder: Path) -> ParityTask:
    """The task of the ranks of a run."""
    return msgspec.json.decode((folder / "task.json").read_bytes(), type=ParityTask)


def _end(folder: Path, rank: int) -> ParityEnd | None:
    try:
        return read_end(folder, rank)
    except OSError:
        return None
