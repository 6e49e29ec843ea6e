"""The pool of warm ranks: results, failures, limits, and nothing left behind."""

import ctypes
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist

from paceline.pool.processes import Session, Surroundings, close_fork_server, fork_server
from paceline.pool.rank import Job, load_function, rank_environment
from paceline.pool.warm_ranks import RankFailure, RankTimeout, run_ranks


@dataclass(frozen=True)
class Point:
    """Defined in a test module, which no import finds."""

    x: int
    y: int


def rank_sum(offset):
    """The sum of offset + rank over all ranks, and this rank's number."""
    tensor = torch.tensor([float(offset + dist.get_rank())])
    dist.all_reduce(tensor)
    return tensor.item(), dist.get_rank()


def environment(*names):
    """This rank's environment variables and threads."""
    return {name: os.environ.get(name) for name in names} | {"threads": torch.get_num_threads()}


def mirrored(point):
    """Takes and gives a type of the test module."""
    return Point(point.y, point.x)


def tensor_of(size):
    """A big result, beyond what a pipe holds."""
    return torch.full((size,), float(dist.get_rank()))


def fails_on(rank):
    """Raise on one rank while the others wait for it."""
    if dist.get_rank() == rank:
        raise ValueError(f"boom on {rank}")
    dist.barrier()


def dies_on(rank, how):
    """End one rank without an answer while the others wait for it."""
    if dist.get_rank() == rank:
        if how == "signal":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(3)
    dist.barrier()


def crashes_on(rank):
    """Read memory that is not there on one rank, while the others wait for it."""
    if dist.get_rank() == rank:
        ctypes.string_at(0)
    dist.barrier()


def leaves_with(code):
    """A function that calls sys.exit."""
    sys.exit(code)


def waits_in_vain(folder):
    """Rank 1 returns, the others wait for it, each with a child process; all write down their process ids."""
    child = subprocess.Popen(["sleep", "600"])
    Path(folder, f"{os.getpid()}").touch()
    Path(folder, f"{child.pid}").touch()
    if dist.get_rank() != 1:
        dist.barrier()


def joins_again():
    """Leave the group and join it again as scripts do."""
    dist.destroy_process_group()
    dist.init_process_group("gloo", init_method="env://")
    return rank_sum(0)[0]


def alive(pid):
    """Whether a process lives (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def still_alive(folder, patience_s=5.0):
    """Of the process ids noted in the folder, those that live on after some patience."""
    end = time.monotonic() + patience_s
    while True:
        left = [each.name for each in Path(folder).iterdir() if alive(each.name)]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.05)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_results_come_back_in_the_order_of_the_ranks(world):
    """Each rank's result stands at its place, and the ranks share a process group."""
    results = run_ranks(rank_sum, world, 10)

    expected = sum(10.0 + rank for rank in range(world))
    assert results == [(expected, rank) for rank in range(world)]


def test_a_rank_has_the_environment_that_torchrun_gives(monkeypatch):
    """Rank variables, the caller's variables as they are now, and the extra ones on top; one torch thread."""
    monkeypatch.setenv("POOL_TEST_CALLER", "seen")
    monkeypatch.setenv("POOL_TEST_BOTH", "caller")
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "POOL_TEST_CALLER", "POOL_TEST_BOTH")

    results = run_ranks(environment, 2, *names, env={"POOL_TEST_BOTH": "extra"})

    expected = [(str(rank), str(rank), "2", "2", "seen", "extra") for rank in range(2)]
    assert results == [dict(zip(names, each, strict=True)) | {"threads": 1} for each in expected]
    assert "POOL_TEST_BOTH" in os.environ
    assert "RANK" not in os.environ


def test_ranks_start_fresh(monkeypatch):
    """Nothing of an earlier call reaches a later one."""
    run_ranks(environment, 1, "POOL_TEST_ONCE", env={"POOL_TEST_ONCE": "1"})

    (later,) = run_ranks(environment, 1, "POOL_TEST_ONCE")

    assert later["POOL_TEST_ONCE"] is None


def test_types_of_a_test_module_travel_both_ways():
    """Arguments and results may be of classes that only the function's own file defines."""
    assert run_ranks(mirrored, 2, Point(1, 2)) == [Point(2, 1)] * 2


def test_a_big_result_arrives_whole():
    """Four megabytes from each rank, by value."""
    results = run_ranks(tensor_of, 2, 1_000_000)

    for rank, result in enumerate(results):
        torch.testing.assert_close(result, torch.full((1_000_000,), float(rank)))


def test_a_function_may_join_the_group_again():
    """MASTER_ADDR and MASTER_PORT name a live rendezvous, so a script's own init_process_group works."""
    assert run_ranks(joins_again, 2) == [1.0, 1.0]


@pytest.mark.serial
def test_a_warm_call_takes_a_fraction_of_a_second():
    """Far below the three seconds that importing torch takes, with room for a busy machine."""
    run_ranks(rank_sum, 2, 0)

    best = min(_seconds(lambda: run_ranks(rank_sum, 2, 0)) for _ in range(3))

    assert best < 1.0


def _seconds(action):
    start = time.monotonic()
    action()
    return time.monotonic() - start


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_raises_ends_the_call_at_once(rank):
    """The failure names the rank, its message and its traceback, and carries the exception; nobody waits."""
    with pytest.raises(RankFailure) as caught:
        run_ranks(fails_on, 2, rank, timeout_s=30.0)

    assert (caught.value.rank, caught.value.message) == (rank, f"ValueError: boom on {rank}")
    assert f"line {fails_on.__code__.co_firstlineno + 3}, in fails_on" in caught.value.traceback
    assert "paceline/pool" not in caught.value.traceback
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(("how", "words"), [("signal", "was killed by SIGKILL"), ("exit", "ended with exit code 3")])
def test_a_rank_that_dies_is_named_and_not_the_one_that_lost_its_peer(how, words):
    """The rank that waits sees a broken connection; the one that died is the cause."""
    with pytest.raises(RankFailure) as caught:
        run_ranks(dies_on, 2, 1, how, timeout_s=30.0)

    assert caught.value.rank == 1
    assert words in caught.value.message


def test_a_rank_that_crashes_says_where_it_stood():
    """A signal leaves no traceback; faulthandler writes the stack."""
    with pytest.raises(RankFailure) as caught:
        run_ranks(crashes_on, 2, 1, timeout_s=30.0)

    assert (caught.value.rank, caught.value.traceback) == (1, "")
    assert "was killed by SIGSEGV" in caught.value.message
    line = f'test_warm_ranks.py", line {crashes_on.__code__.co_firstlineno + 3} in crashes_on'
    assert line in caught.value.stack
    assert line in "".join(caught.value.__notes__)
    assert line in pickle.loads(pickle.dumps(caught.value)).stack


def test_a_rank_that_ends_by_itself_has_no_stack():
    """Neither does one that nothing can be asked of."""
    for how in ("exit", "signal"):
        with pytest.raises(RankFailure) as caught:
            run_ranks(dies_on, 1, 0, how, timeout_s=30.0)
        assert caught.value.stack == ""


def test_sys_exit_on_a_rank_is_a_failure():
    """A result is what was asked for; leaving is none."""
    with pytest.raises(RankFailure, match="SystemExit: 5"):
        run_ranks(leaves_with, 1, 5)


def test_time_out_names_the_ranks_and_shows_where_they_stand(tmp_path):
    """Rank 1 has answered; ranks 0 and 2 wait in a barrier: only they are named, with their stacks."""
    with pytest.raises(RankTimeout) as caught:
        run_ranks(waits_in_vain, 3, str(tmp_path), timeout_s=5.0)

    assert caught.value.ranks == (0, 2)
    for stack in caught.value.stacks.values():
        assert "waits_in_vain" in stack
        assert "barrier" in stack


def test_time_out_leaves_no_process_behind(tmp_path):
    """Ranks are gone when the call returns, and with them what they started."""
    with pytest.raises(RankTimeout):
        run_ranks(waits_in_vain, 2, str(tmp_path), timeout_s=5.0)

    assert len(list(tmp_path.iterdir())) == 4
    assert still_alive(tmp_path, patience_s=1.0) == []


def test_a_killed_caller_takes_its_ranks_along(tmp_path):
    """kill -9 of the caller: the ranks and the fork server are gone soon after."""
    script = tmp_path / "caller.py"
    script.write_text(
        "import os, time, pathlib, sys\n"
        "from paceline.pool.warm_ranks import run_ranks\n"
        "def work(folder):\n"
        "    pathlib.Path(folder, str(os.getpid())).touch()\n"
        "    pathlib.Path(folder, str(os.getppid())).touch()\n"
        "    time.sleep(600)\n"
        "if __name__ == '__main__':\n"
        "    run_ranks(work, 2, sys.argv[1], timeout_s=600)\n"
    )
    pids = tmp_path / "pids"
    pids.mkdir()
    caller = subprocess.Popen([sys.executable, str(script), str(pids)])
    end = time.monotonic() + 60
    while len(list(pids.iterdir())) < 3 and time.monotonic() < end:
        time.sleep(0.05)

    caller.kill()
    caller.wait()

    assert len(list(pids.iterdir())) == 3
    assert still_alive(pids) == []


def test_a_function_that_has_no_place_in_a_module_is_refused():
    """A lambda cannot be found by name in another process; that is said before any process starts."""
    with pytest.raises(TypeError, match="top level of a module"):
        run_ranks(lambda: 1, 2)


def test_a_world_without_ranks_is_refused():
    """Zero ranks have no result to give."""
    with pytest.raises(ValueError, match="at least one rank"):
        run_ranks(rank_sum, 0, 1)


def test_failures_survive_being_sent_on():
    """Both failures can be pickled, as errors that travel between processes must."""
    failure = pickle.loads(pickle.dumps(RankFailure(1, "ValueError: x", "trace")))
    late = pickle.loads(pickle.dumps(RankTimeout({2: "stack"}, 1.5)))

    assert (failure.rank, failure.message, failure.traceback, failure.exit_code) == (1, "ValueError: x", "trace", 1)
    assert (late.ranks, late.stacks, late.timeout_s) == ((2,), {2: "stack"}, 1.5)


def test_a_function_of_an_importable_module_is_the_imported_one():
    """Modules that an import finds are not loaded a second time, and names may lead through classes."""
    import json

    assert load_function("json", json.__file__, "dumps") is json.dumps
    assert load_function("json", json.__file__, "JSONEncoder.encode") is json.JSONEncoder.encode


def test_a_rank_0_that_returns_at_once_does_not_leave_the_others_searching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a group nothing holds it until they have come; the store that they look for is in no rank."""
    start = Session.start

    def slowly(*args: object, **kwargs: object) -> int:
        """Half a second from rank to rank."""
        pid = start(*args, **kwargs)
        time.sleep(0.5)
        return pid

    monkeypatch.setattr(Session, "start", slowly)
    assert run_ranks(joins_late, 3, group=False, timeout_s=30) == ["0", "1", "2"]


def joins_late() -> str:
    """All ranks but 0 look for the store."""
    if os.environ["RANK"] != "0":
        dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    return os.environ["RANK"]


def test_a_rank_whose_caller_was_stopped_meanwhile_goes_without_a_word(tmp_path, capfd):
    """Ctrl-C between the start of a rank and its first step: what it was to write into is gone."""
    job = Job("math", None, "sqrt", pickle.dumps((4.0,)), 5.0, str(tmp_path / "cleared-up"))
    with fork_server().session() as session:
        environment = {**os.environ, **rank_environment(0, 1, 1)}
        pid = session.start(
            "paceline.pool.rank:serve", pickle.dumps(job), handles=(0,), within=Surroundings(environment)
        )
        session.wait(30)

    assert session.codes == {pid: 1}
    assert capfd.readouterr().err == ""


INTERRUPTED = """
import os, signal, sys, time
import psutil
from paceline.pool import processes
from paceline.pool.warm_ranks import run_ranks

def interrupted(connection, message, handles=(), real=processes.send):
    if type(message).__name__ == "Start":
        os.kill(os.getpid(), signal.SIGINT)
    return real(connection, message, handles)

run_ranks(time.sleep, 1, 0)
processes.send = interrupted
try:
    run_ranks(time.sleep, 1, 600, timeout_s=900)
except KeyboardInterrupt:
    sys.exit(f"interrupted, {len(psutil.Process().children(recursive=True))} process left")
"""


def test_an_interrupt_while_a_rank_is_started_leaves_no_traceback_and_no_rank() -> None:
    """It waits for the whole message and its answer; the rank is ended then, and only the fork server is left."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (1, "interrupted, 1 process left\n")


class Marked:
    """A confinement that only remembers the mark of its call."""

    mark = ""

    def prepare(self) -> None:
        """Nothing to make ready."""

    def confine(self, rank: int) -> None:
        """No limits."""

    def sweep(self, mark: str) -> bool:
        """Whoever carries the mark would be killed here."""
        Marked.mark = mark
        return True


def test_the_fork_server_does_not_carry_the_mark_of_the_call_that_started_it() -> None:
    """Whoever sweeps up after a confined call takes every process with its mark for a stray."""
    close_fork_server()

    assert run_ranks(os.getppid, 1, limits=Marked()) == [(server := fork_server_pid())]

    assert Marked.mark.encode() not in Path(f"/proc/{server}/environ").read_bytes()


def fork_server_pid() -> int:
    """Of this process's server."""
    (server,) = (each for each in psutil.Process().children() if "paceline.pool.fork_server" in each.cmdline())
    return server.pid
