"""A rank that calls one function, from its fork to its end. `warm_ranks.py` is the caller's side.

A rank answers once, through its pipe, and then waits to be told to leave: a rank that left early would close
connections on which a slower one is still receiving.
"""

from __future__ import annotations

import contextlib
import datetime
import faulthandler
import importlib
import importlib.util
import os
import pickle
import sys
import time
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from paceline.parallel.exit import leave
from paceline.pool.answers import Answer, plain_bytes, plain_result
from paceline.pool.confinement import Confinement
from paceline.pool.store import host
from paceline.records.standing import stack_signal

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
        patience_s: after which gloo gives up by itself; longer than the caller's patience.
        stacks: a directory into which a rank writes its stack when it is asked to, or dies of a signal.
        limits: under which the function runs; None for none.
        group: join the group of all ranks; without, only the store for it is there, as for a script under torchrun.
        plain: the function is not trusted: its answer is JSON.
    """

    module: str
    path: str | None
    qualname: str
    arguments: bytes
    patience_s: float
    stacks: str
    limits: Confinement | None = None
    group: bool = True
    plain: bool = False


def stack_file(stacks: str, rank: int) -> Path:
    """Where a rank's stack is written."""
    return Path(stacks) / f"rank-{rank}.txt"


def serve(given: bytes, handle: int, listening: int | None = None) -> NoReturn:
    """Be one rank: join the group, call the function, answer, wait for the word, leave.

    Args:
        given: the job, pickled.
        handle: of the connection to the caller.
        listening: rank 0 gets the socket of the store; it leaves when all have answered.
    """
    job: Job = pickle.loads(given)
    try:
        stacks = stack_file(job.stacks, int(os.environ["RANK"])).open("w")
    except FileNotFoundError:  # the caller was stopped meanwhile, and has cleared up already: nobody wants an answer
        leave(1)
    with stacks, Connection(handle) as channel:
        faulthandler.register(stack_signal(), file=stacks, all_threads=True)
        faulthandler.enable(file=stacks, all_threads=True)  # where it stood when a signal killed it
        store = None if listening is None else host(listening)
        answer = _answer(job)
        with contextlib.suppress(OSError, EOFError):
            channel.send_bytes(plain_bytes(answer) if job.plain else pickle.dumps(answer))
            channel.recv_bytes()
        del store
        leave(1 if answer.error else 0)


def rank_environment(rank: int, world: int, port: int) -> dict[str, str]:
    """The variables that torchrun sets and that scripts read, for one machine and a store at `port`."""
    own = {"RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank}
    sizes = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "ROLE_WORLD_SIZE": world}
    group = {"GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1, "ROLE_NAME": "default"}
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    elastic = {
        # The store at that port exists already: whoever calls init_process_group joins it as a client.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "paceline",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
    }
    return {name: str(value) for name, value in {**own, **sizes, **group, **store, **elastic}.items()}


def _answer(job: Job) -> Answer:
    """Return the answer to send back."""
    try:
        _join(job)
        function = load_function(job.module, job.path, job.qualname)
        if job.limits is not None:
            job.limits.confine(int(os.environ["RANK"]))
        result = function(*pickle.loads(job.arguments))
        content = plain_result(result) if job.plain else pickle.dumps(result)
        return Answer(at_s=time.monotonic(), result=content)
    except BaseException as error:  # noqa: BLE001  sys.exit() in the function is an answer too
        return Answer(
            at_s=time.monotonic(),
            error="".join(traceback.format_exception_only(error)).strip(),
            traceback=_trace(error),
            exception=None if job.plain else _pickled(error),
        )


def _join(job: Job) -> None:
    """One thread, and a gloo group of all ranks where one is asked for."""
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore

    torch.set_num_threads(1)
    if job.group:
        timeout = datetime.timedelta(seconds=job.patience_s)
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = dist.TCPStore(  # type: ignore[attr-defined]  # re-exported without saying so
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timeout
        )
        # Under a name of its own: the function may leave the group and join one as scripts do.
        scoped = PrefixStore("paceline", store)
        dist.init_process_group("gloo", store=scoped, rank=rank, world_size=world, timeout=timeout)


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
