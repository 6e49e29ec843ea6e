"""Say why a job that makes no progress may be stuck, from what its processes are and do.

Once the observed ranks of a job have advanced, `hang_watch` knows more: this watch is for jobs that do not begin, and
for those that are not observed.

Every two seconds a thread reads the process table below each rank. A job makes progress while its processes use the
processor. After 20 s without any, four explanations are tried:

- the script starts processes of its own in every rank (mp.spawn), so that they wait for each other at one port;
- the script sets a world size that is not this job's;
- a rank ended with code 0 and the others wait for it;
- every rank started a launcher (this one needs no standstill).

Loader workers, compilers and services are not mistaken for ranks: children that torch names `pt_data_worker` do not
count, nor do other programs than python, and a child counts only when it sleeps as torch's store does between attempts
to connect, or when the script's own text calls mp.spawn or the like. `explain` is a pure function of two observations.
"""

from __future__ import annotations

import ast
import contextlib
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

PATIENCE_S = 20.0
_EVERY_S = 2.0
_BUSY_SHARE = 0.05
"""Of one core a rank; less is no progress."""
_SLEEPS = "hrtimer_nanosleep"
_LOADER = "pt_data_worker"
_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "compile_worker")
_SPAWNED = "multiprocessing.spawn"
_LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate",
    "deepspeed",
    "mpirun",
    "paceline",
)


@dataclass(frozen=True)
class Child:
    """A process below a rank.

    Attributes:
        pid: its id.
        command: its command line.
        thread: the name of its main thread.
        waits_in: the kernel function that it sleeps in; "" when it runs or that is not known.
    """

    pid: int
    command: tuple[str, ...]
    thread: str
    waits_in: str


@dataclass(frozen=True)
class RankSeen:
    """A rank at one moment.

    Attributes:
        alive: its process runs.
        cpu_s: processor time of the rank and all below it.
        joined: it has met the other ranks, by its threads or a connection to MASTER_PORT.
        command: its command line.
        children: processes below it.
    """

    alive: bool
    cpu_s: float = 0.0
    joined: bool = False
    command: tuple[str, ...] = ()
    children: tuple[Child, ...] = ()


@dataclass(frozen=True)
class Script:
    """Facts from the text of the user's script.

    Attributes:
        path: as on the command line.
        arguments: of the script.
        starter: the call that starts processes, as "mp.spawn at line 29"; "" when there is none.
        world_size: a number written in init_process_group; None when there is none.
        world_size_line: where.
        start: the words before `path` that start it without a launcher.
    """

    path: str
    arguments: tuple[str, ...] = ()
    starter: str = ""
    world_size: int | None = None
    world_size_line: int = 0
    start: tuple[str, ...] = ("python",)


def read_script(path: str, arguments: Sequence[str]) -> Script:
    """Look for calls that start processes and for a fixed world size; nothing is found in what cannot be parsed."""
    script = Script(path, tuple(arguments))
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return script
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if not script.starter and (call := _starter(node, name)):
            script = replace(script, starter=f"{call} at line {node.lineno}")
        for word in node.keywords if name == "init_process_group" else ():
            value = getattr(word.value, "value", None)
            if word.arg == "world_size" and isinstance(word.value, ast.Constant) and isinstance(value, int):
                script = replace(script, world_size=value, world_size_line=node.lineno)
    return script


def _starter(node: ast.Call, name: str) -> str:
    """The name of a call that starts processes; "" for others, such as psutil.Process(pid)."""
    words = {word.arg for word in node.keywords}
    of = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    if name in ("spawn", "start_processes") and ("nprocs" in words or of.endswith(("mp", "multiprocessing"))):
        return f"mp.{name}"
    return "Process" if name == "Process" and "target" in words else ""


def explain(
    before: Mapping[int, RankSeen],
    now: Mapping[int, RankSeen],
    script: Script,
    world: int,
    left: Mapping[int, float],
) -> str | None:
    """Why a job that stands still may do so, in a sentence or two; None when nothing fits.

    Args:
        before: each rank of this machine some seconds ago.
        now: each rank now.
        script: the user's.
        world: ranks of the job.
        left: seconds since a rank ended with code 0, by rank.
    """
    if script.world_size is not None and script.world_size != world:
        return (
            f"the script sets world_size={script.world_size} (line {script.world_size_line}), and this job has "
            f"{world}: leave world_size out, or start {script.world_size} ranks"
        )
    counts = {rank: len(_own_ranks(before.get(rank), seen, script)) for rank, seen in now.items() if seen.alive}
    if counts and all(counts.values()) and not any(seen.joined for seen in now.values()):
        sure = "" if script.starter.startswith("mp.") else "probably "
        where = f" ({script.starter})" if script.starter else ""
        each = " and ".join(f"{count} in rank {rank}" for rank, count in sorted(counts.items())[:2])
        more = f" and so on for {len(counts)} ranks" if len(counts) > 2 else ""
        command = shlex.join([*script.start, script.path, *script.arguments])
        return (
            f"the script {sure}starts its own processes{where}, {each}{more}, which wait for each other at the same "
            f"port. Start it without a launcher: {command}"
        )
    if left and any(seen.alive for seen in now.values()):
        rank, since = max(left.items(), key=lambda one: one[1])
        return f"rank {rank} ended with code 0 {since:.0f} s ago; the others probably wait for it"
    return None


def launchers(now: Mapping[int, RankSeen]) -> str | None:
    """A sentence when every rank of several started a launcher."""
    found = [next((c for c in seen.children if _is_launcher(c.command)), None) for seen in now.values()]
    if len(found) < 2 or not all(found) or found[0] is None:
        return None
    return (
        f"every rank started a launcher ({shlex.join(found[0].command)[:100]}): the training runs {len(found)} times. "
        "Start the script with python"
    )


def _own_ranks(before: RankSeen | None, now: RankSeen, script: Script) -> list[Child]:
    """Children that look like ranks of the script's own."""
    slept = {child.pid for child in before.children if child.waits_in == _SLEEPS} if before else set()
    found = []
    for child in now.children:
        text = " ".join(child.command)
        if child.thread == _LOADER or any(helper in text for helper in _HELPERS):
            continue
        if _SPAWNED not in text and child.command != now.command:
            continue  # another program
        if script.starter.startswith("mp.") or (child.waits_in == _SLEEPS and child.pid in slept):
            found.append(child)
    return found


def _is_launcher(command: Sequence[str]) -> bool:
    words = [Path(word).name for word in command[:6]]
    return any(name in words for name in _LAUNCHERS)


def observe(pids: Mapping[int, int]) -> dict[int, RankSeen]:
    """Look at the processes now.

    Args:
        pids: by rank.
    """
    return {rank: _observe(pid) for rank, pid in pids.items()}


def _observe(pid: int) -> RankSeen:
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return RankSeen(alive=False)
        below = process.children(recursive=True)
        command = tuple(process.cmdline())
        cpu = sum(process.cpu_times()[:4])
    except psutil.Error:
        return RankSeen(alive=False)
    children = []
    for child in below:
        with contextlib.suppress(psutil.Error):
            cpu += sum(child.cpu_times()[:2])
            children.append(
                Child(child.pid, tuple(child.cmdline()), _read(child.pid, "comm"), _read(child.pid, "wchan"))
            )
    return RankSeen(True, cpu, _joined(process), command, tuple(children))


def _joined(process: psutil.Process) -> bool:
    threads = (_read(process.pid, f"task/{each.name}/comm") for each in Path(f"/proc/{process.pid}/task").glob("*"))
    if any(name.startswith(("pt_gloo", "gloo", "pt_nccl", "pt_tcpstore")) for name in threads):
        return True
    try:
        port = process.environ().get("MASTER_PORT", "")
        return any(each.raddr and str(each.raddr.port) == port for each in process.net_connections("tcp"))
    except psutil.Error:
        return False


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text().strip()
    except OSError:
        return ""


class StallWatch:
    """Follows one attempt and says at most once why it may stand still.

    Args:
        pids: by rank.
        world: ranks of the job.
        script: the user's.
        ended: how ranks ended so far, by rank: the time and the exit code.
        say: called with the sentence.
        patience_s: how long nothing must have moved.
        covered: another watch says why this job stands still; see `hang_watch`.

    Attributes:
        own_ranks: the script was found to start its own processes.
    """

    def __init__(
        self,
        pids: Mapping[int, int],
        world: int,
        script: Script,
        ended: Callable[[], Mapping[int, tuple[float, int | None]]],
        say: Callable[[str], None],
        patience_s: float = PATIENCE_S,
        covered: Callable[[], bool] = lambda: False,
    ) -> None:
        self.own_ranks = False
        self._every_s = min(_EVERY_S, patience_s / 2)
        self._pids, self._world, self._script = pids, world, script
        self._ended, self._say, self._covered, self._patience_s = ended, say, covered, patience_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="paceline-stall", daemon=True)
        self._thread.start()

    def silence(self) -> None:
        """Say nothing any more."""
        self._stop.set()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        started = moved = time.monotonic()
        before, at = observe(self._pids), started
        while not self._stop.wait(self._every_s):
            seen, now = observe(self._pids), time.monotonic()
            used = sum(max(0.0, one.cpu_s - before[rank].cpu_s) for rank, one in seen.items())
            alive = sum(one.alive for one in seen.values())
            if used > _BUSY_SHARE * max(1, alive) * (now - at):
                moved = now
            text = None
            if now - moved >= self._patience_s and not self._covered():
                text = explain(before, seen, self._script, self._world, self._left())
                self.own_ranks = text is not None and "its own processes" in text
            elif now - started >= self._patience_s:
                text = launchers(seen)
            if text is not None and not self._stop.is_set():
                stands = f"no progress for {now - moved:.0f} s: " if now - moved >= self._patience_s else ""
                self._say(f"paceline: {stands}{text}")
                return
            before, at = seen, now

    def _left(self) -> dict[int, float]:
        now = time.time()
        return {rank: now - at for rank, (at, code) in self._ended().items() if code == 0 and now - at >= PATIENCE_S}
