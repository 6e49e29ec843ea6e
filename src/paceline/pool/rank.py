"""A rank of the pool, from its fork to its end. `warm_ranks.py` is the caller's side.

A rank answers once, through its pipe, and then waits to be told to leave: a rank that left early would close
connections on which a slower one is still receiving.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import importlib
import importlib.util
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import time
import traceback
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from paceline.parallel.exit import die_with_parent, leave
from paceline.pool.answers import Answer, plain_bytes, plain_result
from paceline.pool.confinement import Confinement

MAIN = "__mp_main__"
"""The name under which the caller's script is loaded here, as multiprocessing does; `__main__` means it too."""


@dataclass(frozen=True)
class Job:
    """One call of `run_ranks`, as it travels to every rank.

    Attributes:
        module: the name of the function's module.
        path: the file of that module, for modules that no import finds (tests, scripts); None for built-in ones.
        qualname: the function's name within the module.
        arguments: its positional arguments, pickled: they are read after the module, which may define their types.
        env: the whole environment, without what belongs to one rank.
        patience_s: after which gloo gives up by itself; longer than the caller's patience.
        stacks: a directory into which a rank writes its stack when it is asked to, or dies of a signal.
        limits: under which the function runs; None for none.
        group: join the group of all ranks; without, only the store for it is there, as for a script under torchrun.
        plain: the function is not believed: its answer is JSON, and it holds nothing of the server that it came from.
    """

    module: str
    path: str | None
    qualname: str
    arguments: bytes
    env: Mapping[str, str]
    patience_s: float
    stacks: str
    limits: Confinement | None = None
    group: bool = True
    plain: bool = False


def stack_signal() -> int:
    """The signal that asks a rank for its stack: a real-time one, since programs use SIGUSR1 and SIGUSR2 themselves."""
    return int(getattr(signal, "SIGRTMIN", signal.SIGUSR1)) + 3


def stack_file(stacks: str, rank: int) -> Path:
    """Where a rank's stack is written."""
    return Path(stacks) / f"rank-{rank}.txt"


def serve(channel: Connection, job: Job, rank: int, world: int, endpoint: socket.socket | int) -> NoReturn:
    """Be one rank: join the group, call the function, answer, wait for the word, leave.

    Args:
        channel: to the caller.
        job: what to do.
        rank: 0 to world - 1.
        world: number of ranks.
        endpoint: rank 0 gets the listening socket of the rendezvous, the others its port.
    """
    # A group of its own, so that a kill takes along what the function starts (loader workers).
    if job.plain:
        os.setsid()  # and no terminal, into which it could type
    else:
        os.setpgid(0, 0)
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        leave(1)
    try:
        stacks = stack_file(job.stacks, rank).open("w")
    except FileNotFoundError:  # the caller was stopped meanwhile, and has cleared up already: nobody wants an answer
        leave(1)
    with stacks:
        if job.plain:
            _hold_only(channel.fileno(), stacks.fileno(), *([] if isinstance(endpoint, int) else [endpoint.fileno()]))
        faulthandler.register(stack_signal(), file=stacks, all_threads=True)
        faulthandler.enable(file=stacks, all_threads=True)  # where it stood when a signal killed it
        port = endpoint if isinstance(endpoint, int) else endpoint.getsockname()[1]
        os.environ.clear()
        os.environ.update({**job.env, **rank_environment(rank, world, port)})
        # The store of all ranks lives in rank 0, which may be through before the others have found it.
        answer, store = _answer(job, rank, world, endpoint)
        with contextlib.suppress(OSError, EOFError):
            channel.send_bytes(plain_bytes(answer) if job.plain else pickle.dumps(answer))
            channel.recv_bytes()
        del store
        leave(1 if answer.error else 0)


def _hold_only(*handles: int) -> None:
    """Close what was inherited besides: multiprocessing's tracker, say, does for the caller what it is told."""
    kept = {0, 1, 2, *handles}
    parent = multiprocessing.parent_process()
    if parent is not None:
        kept.add(int(parent.sentinel))
    with contextlib.suppress(AttributeError, OSError, ValueError):
        kept.add(sys.stdin.fileno())
    folder = Path("/proc/self/fd")
    inherited = [int(name) for name in os.listdir(folder)] if folder.exists() else range(3, 4096)  # noqa: PTH208
    for handle in inherited:
        if handle not in kept:
            with contextlib.suppress(OSError):
                os.close(handle)
    # Whoever needs a tracker here starts one of its own.
    tracker = getattr(resource_tracker, "_resource_tracker", None)
    if tracker is not None:
        tracker._fd = tracker._pid = None


def rank_environment(rank: int, world: int, port: int) -> dict[str, str]:
    """The variables that torchrun sets and that scripts read, for one machine and a rendezvous at `port`."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        # The store at that port exists already: whoever calls init_process_group again joins it as a client.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_RUN_ID": "paceline-pool",
    }


def _answer(job: Job, rank: int, world: int, endpoint: socket.socket | int) -> tuple[Answer, object]:
    """What to send back, and the store, which is to be kept until all have answered."""
    store: object = None
    try:
        store = _join(rank, world, endpoint, job)
        function = load_function(job.module, job.path, job.qualname)
        if job.limits is not None:
            job.limits.confine(rank)
        result = function(*pickle.loads(job.arguments))
        content = plain_result(result) if job.plain else pickle.dumps(result)
        return Answer(at_s=time.monotonic(), result=content), store
    except BaseException as error:  # noqa: BLE001  sys.exit() in the function is an answer too
        answer = Answer(
            at_s=time.monotonic(),
            error="".join(traceback.format_exception_only(error)).strip(),
            traceback=_trace(error),
            exception=None if job.plain else _pickled(error),
        )
        return answer, store


def _join(rank: int, world: int, endpoint: socket.socket | int, job: Job) -> object:
    """One thread, a store that rank 0 serves on a socket that the caller bound (no port race), a gloo group."""
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore

    torch.set_num_threads(1)
    timeout = datetime.timedelta(seconds=job.patience_s)
    listening = None if isinstance(endpoint, int) else endpoint
    port = endpoint if isinstance(endpoint, int) else endpoint.getsockname()[1]
    store = dist.TCPStore(  # type: ignore[attr-defined]  # re-exported without saying so
        "127.0.0.1",
        port,
        world,
        is_master=listening is not None,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=None if listening is None else listening.detach(),
    )
    if job.group:
        scoped = PrefixStore("paceline", store)
        dist.init_process_group("gloo", store=scoped, rank=rank, world_size=world, timeout=timeout)
    return store


def load_function(module: str, path: str | None, qualname: str) -> Callable[..., Any]:
    """The function, imported by name where that finds the same file, else loaded from its file under that name."""
    found: Any = _load_module(module, path)
    for part in qualname.split("."):
        found = getattr(found, part)
    function: Callable[..., Any] = found
    return function


def _load_module(name: str, path: str | None) -> Any:
    if name == "__main__":
        name = MAIN
    elif name in sys.modules:
        return sys.modules[name]
    if path is None or (name != MAIN and _finds(name, path)):
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    # Unpickling `a.b.T` asks for the package `a` first, which need not exist for a module loaded from its file.
    parts = name.split(".")
    for depth in range(1, len(parts)):
        parent = types.ModuleType(".".join(parts[:depth]))
        parent.__path__ = [str(Path(path).parents[len(parts) - depth - 1])]
        sys.modules.setdefault(parent.__name__, parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if name == MAIN:
        sys.modules["__main__"] = module
    spec.loader.exec_module(module)
    return module


def _finds(name: str, path: str) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == Path(path).resolve()


def _trace(error: BaseException) -> str:
    """The traceback from the user's function on, without the frames of this module."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename == __file__ and frame.tb_next is not None:
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame))


def _pickled(error: BaseException) -> bytes | None:
    try:
        content = pickle.dumps(error)
        pickle.loads(content)  # some exceptions are written but cannot be read back
    except Exception:  # noqa: BLE001  whatever a foreign class raises here, the text is sent all the same
        return None
    return content
