"""Long-running rank processes that hold all contestants and run blocks of them when told.

The driver starts `python bench/ranks.py` once a worker, in the environment that torchrun gives, and talks to each over
its standard input and output, one JSON object a line. All ranks get the same commands in the same order, so that the
collectives inside match.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from paceline.launch.tuning import cpu_settings

BENCH = Path(__file__).resolve().parent

ALLOCATOR = {setting.name: setting.value for setting in cpu_settings({}, threads=None)}
"""What `paceline train` sets for its workers, here for all contestants alike: glibc keeps freed memory instead of
giving it back and faulting it in again at every step (bench/allocator.py)."""


class RankError(RuntimeError):
    """A rank raised or died; the message holds its own."""


def rank_environment(rank: int, world: int, port: int, allocator: dict[str, str]) -> dict[str, str]:
    """What torchrun sets for a rank on one machine, one thread each, and the allocator's settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "PACELINE_"))}
    return (
        inherited
        | allocator
        | {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world),
            "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1",
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": str(world),
            "ROLE_NAME": "default",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": "bench",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "OMP_NUM_THREADS": "1",
        }
    )


class Ranks:
    """The driver's side. Use as a context manager.

    Args:
        world: how many.
        allocator: environment of the memory allocator.
    """

    def __init__(self, world: int, allocator: dict[str, str] | None = None) -> None:
        self.world = world
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._logs = [tempfile.TemporaryFile("w+") for _ in range(world)]  # noqa: SIM115  # closed by close()
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(BENCH / "ranks.py")],
                env=rank_environment(rank, world, port, ALLOCATOR if allocator is None else allocator),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._logs[rank],
                text=True,
            )
            for rank in range(world)
        ]

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Give all ranks a command; return rank 0's answer.

        Raises:
            RankError: a rank raised or died. The others are killed, since they may wait for it.
        """
        line = json.dumps(command) + "\n"
        for process in self._processes:
            with contextlib.suppress(BrokenPipeError):
                _pipe(process.stdin).write(line)
                _pipe(process.stdin).flush()
        answers = [self._answer(rank, command["op"]) for rank in range(self.world)]
        return answers[0]

    def _answer(self, rank: int, op: str) -> dict[str, Any]:
        line = _pipe(self._processes[rank].stdout).readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            if "error" not in answer:
                return answer
            self.kill()
            raise RankError(f"rank {rank} failed in {op}: {answer['error']}")
        self.kill()
        self._logs[rank].seek(0)
        tail = self._logs[rank].read()[-2000:]
        raise RankError(f"rank {rank} died in {op} (exit code {self._processes[rank].returncode})\n{tail}")

    def kill(self) -> None:
        """End all ranks at once."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    def close(self) -> None:
        """Ranks leave when their standard input ends."""
        for process in self._processes:
            with contextlib.suppress(BrokenPipeError):
                _pipe(process.stdin).close()
        try:
            for process in self._processes:
                process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.kill()
        for log in self._logs:
            log.close()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


class Server:
    """One rank's side."""

    def __init__(self) -> None:
        self.contestants: dict[str, Any] = {}
        self.before: dict[str, Any] = {}
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    def setup(
        self, key: str, name: str, batch: int, root: str, bf16: bool, overrides: dict[str, Any], tree: str = ""
    ) -> dict[str, Any]:
        """Build a contestant and take two steps, which find memory and let DDP arrange its buckets.

        With a `tree`, a checkout, it is made of that tree's Paceline and contestants; those of others stay alive.
        """
        if tree:
            for module in [name for name in sys.modules if name.split(".")[0] in ("paceline", "contestants")]:
                del sys.modules[module]
            sys.path[:0] = [f"{tree}/src", f"{tree}/bench"]
        import contestants

        if tree and not str(contestants.__file__).startswith(tree):
            raise RuntimeError(f"{contestants.__file__} was loaded instead of that of {tree}")
        from contestants.base import Workload

        contestant = contestants.make(name, overrides)
        contestant.setup(Workload(self.rank, self.world, batch, Path(root), bf16=bf16))
        self.contestants[key] = contestant
        self.before[key] = _flat_weights(contestant)
        contestant.ready()
        contestant.run(2)
        return {}

    def block(self, key: str, steps: int) -> dict[str, Any]:
        """Run a block; seconds of the slowest rank."""
        import torch
        import torch.distributed as dist

        contestant = self.contestants[key]
        contestant.ready()
        contestant.run(1)  # untimed: caches and branch predictors belong to the contestant before
        if torch.get_num_threads() != 1:
            raise RuntimeError(f"{key} changed the number of threads to {torch.get_num_threads()}")
        dist.barrier()
        started = time.perf_counter()
        contestant.run(steps)
        seconds = torch.tensor(time.perf_counter() - started, dtype=torch.float64)
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        return {"seconds": seconds.item()}

    def check(self, key: str) -> dict[str, Any]:
        """That the contestant did train: weights moved, are finite, and are the same on all ranks."""
        import torch.distributed as dist

        contestant = self.contestants[key]
        weights = _flat_weights(contestant)
        lowest, highest = weights.clone(), weights.clone()
        dist.all_reduce(lowest, dist.ReduceOp.MIN)
        dist.all_reduce(highest, dist.ReduceOp.MAX)
        return {
            "moved": float((weights - self.before[key]).norm()),
            "finite": bool(weights.isfinite().all()),
            "synchronised": contestant.synchronised,
            "rank_difference": float((highest - lowest).abs().max()),
        }

    def close(self, key: str) -> dict[str, Any]:
        """Let go of a contestant."""
        self.contestants.pop(key).close()
        self.before.pop(key)
        return {}


def _flat_weights(contestant: Any) -> Any:
    """A copy of all weights as one vector."""
    import torch

    return torch.cat([p.detach().reshape(-1) for p in contestant.module().parameters()])


def serve() -> None:
    """Answer commands until standard input ends."""
    # Libraries print; answers must not be mixed with that.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.path.insert(0, str(BENCH))

    import torch.distributed as dist

    from paceline.parallel.exit import die_with_parent, leave

    die_with_parent()
    dist.init_process_group("gloo")
    server = Server()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(server, command.pop("op"))(**command)
        except Exception as error:  # noqa: BLE001  # whatever a contestant raises, the driver must hear of it
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    leave(0)


if __name__ == "__main__":
    serve()
