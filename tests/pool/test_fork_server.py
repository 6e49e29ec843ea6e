"""The fork server: its processes are as good as fresh ones, and none outlives whoever asked for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from paceline.pool import processes
from paceline.pool.fork_server import START_METHOD
from paceline.pool.processes import TORCH, ForkServer, ServerGone, Surroundings, close_fork_server, fork_server
from paceline.pool.single_call import call_apart

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")


@pytest.fixture
def server() -> ForkServer:
    """The one of this process."""
    return fork_server()


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Servers with other settings take its place for a test; it lives on. Gives the numbers of servers that stay."""
    kept, processes._current = processes._current, None
    yield [each.pid for each in servers()]
    monkeypatch.undo()
    close_fork_server()
    processes._current = kept


def see(what: str, server: ForkServer | None = None, env: dict[str, str] | None = None) -> Any:
    """What a process sees of itself; without a server, of one that has loaded nothing."""
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        found = call_apart(server or fork_server(env, ()), f"tests.pool.seen:{what}", output=nowhere.fileno(), env=env)
    assert isinstance(found, bytes), found
    return json.loads(found)


def fresh(what: str, env: dict[str, str] | None = None) -> Any:
    """What a fresh interpreter sees of itself."""
    script = f"import sys; from tests.pool.seen import {what} as f; sys.stdout.buffer.write(f(b'', print))"
    return json.loads(subprocess.check_output([sys.executable, "-c", script], env=env))


def test_each_process_draws_its_own_random_numbers(server: ForkServer) -> None:
    """As fresh ones do: a fork copies the state of every generator."""
    for one, other in zip(see("random_numbers", server), see("random_numbers", server), strict=True):
        assert one != other


def test_all_processes_of_a_server_have_its_hash_seed_and_a_given_one_is_kept(others: list[int]) -> None:
    """Python reads it when it starts."""
    assert see("hash_of_a_word") == see("hash_of_a_word")
    seeded = {**os.environ, "PYTHONHASHSEED": "7"}
    assert see("hash_of_a_word", env=seeded) == fresh("hash_of_a_word", env=seeded)


def test_a_process_has_no_files_but_its_own(server: ForkServer) -> None:
    """Standard streams, and the pipe of its answer: nothing of the server, nothing of this process."""
    found = see("handles", server)

    assert found.pop("0") == found.pop("1") == found.pop("2") == os.devnull
    assert len([each for each in found.values() if each.startswith(("pipe", "socket"))]) == 1
    assert not [each for each in found.values() if "anon_inode" in each]


def test_signals_mean_what_they_mean_in_a_fresh_process(server: ForkServer) -> None:
    """The server holds back those that schedulers send to all processes; its children do not."""
    assert see("signals", server) == fresh("signals")


def test_functions_for_the_end_of_the_server_do_not_run_in_its_processes(others: list[int], tmp_path: Path) -> None:
    """What a library registers for the end of the interpreter belongs to the process that loaded it."""
    environment = {**os.environ, "MARK": str(tmp_path)}
    server = fork_server(environment, ("tests.pool.leaves_a_mark",))

    see("place", server, environment)
    assert list(tmp_path.iterdir()) == []


def test_settings_that_are_read_when_libraries_load_bring_another_server(others: list[int]) -> None:
    """OpenMP's threads, the allocator: a variable that comes after the fork would change nothing."""
    for count in ("2", "1"):
        environment = {**os.environ, "OMP_NUM_THREADS": count, "MALLOC_ARENA_MAX": count}
        see("place", env=environment)
        (child,) = servers(others)
        assert (child.environ()["OMP_NUM_THREADS"], child.environ()["MALLOC_ARENA_MAX"]) == (count, count)
    see("place", env={**environment, "OTHER": "1"})
    assert servers(others) == [child]


def test_pages_stay_shared(server: ForkServer) -> None:
    """Of what torch and its modules take, a process copies little."""
    resident, own = see("memory", server)

    assert own < resident / 4


@pytest.mark.parametrize(
    ("modules", "variables", "reason"),
    [
        (("tests.pool.starts_a_thread",), {}, "loaded modules started 1 thread(s)"),
        ((TORCH, "tests.pool.initializes_cuda"), {}, "CUDA was initialized while modules were loaded"),
        (("tests.pool.opens_a_device",), {}, "CUDA was initialized while modules were loaded"),
        ((), {START_METHOD: "spawn"}, "PACELINE_START_METHOD=spawn"),
    ],
)
def test_where_a_fork_is_unsafe_processes_are_fresh_interpreters(
    modules: Sequence[str], variables: dict[str, str], reason: str, others: list[int]
) -> None:
    """A fork would copy locks that no thread releases, or a CUDA context that does not work."""
    environment = {**os.environ, **variables}
    server = fork_server(environment, modules)

    with server.session() as session:
        assert session.ready.fresh == reason
        pid = session.start("tests.pool.test_fork_server:sleeps", within=Surroundings(environment))
        assert wait_for(lambda: "paceline.pool.fresh_process" in psutil.Process(pid).cmdline())
    assert not psutil.pid_exists(pid)
    assert see("place", server, environment) == see_place_here()


@pytest.mark.parametrize("modules", [(), ("tests.pool.without_waitid",)])
def test_ends_are_told_with_their_codes_in_their_order(modules: Sequence[str], others: list[int]) -> None:
    """Also where a process has to be collected for its end to be seen."""
    with fork_server(None, modules).session() as session:
        first = session.start("tests.pool.test_fork_server:ends_with", b"3")
        while first not in session.codes:
            session.wait(10)
        second, third = (session.start("tests.pool.test_fork_server:sleeps") for _ in range(2))
        session.send_signal(second, signal.SIGKILL)
        while second not in session.codes:
            session.wait(10)
        assert list(session.codes.items()) == [(first, 3), (second, -signal.SIGKILL)]
        session.kill()
        assert session.codes[third] == -signal.SIGKILL
    assert not psutil.pid_exists(third)


def test_a_process_runs_where_this_one_is_now(server: ForkServer, tmp_path: Path, monkeypatch: Any) -> None:
    """Not where the server was started; modules are looked for as by `python -m`."""
    see("threads", server)
    (tmp_path / "elsewhere.py").write_text("import json, os\ndef f(*_): return json.dumps(os.getcwd()).encode()\n")
    monkeypatch.chdir(tmp_path)

    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        assert call_apart(server, "elsewhere:f", output=nowhere.fileno()) == json.dumps(str(tmp_path)).encode()


def see_place_here() -> list[Any]:
    """What `python -m` gives here."""
    return [str(Path.cwd()), [""], str(Path.cwd())]


def test_a_server_can_be_lent_and_lives_on_when_the_borrower_is_killed(server: ForkServer, tmp_path: Path) -> None:
    """The borrower's processes end with it, and those of the owner go on."""
    script = (
        "import time; from paceline.pool.processes import fork_server\n"
        "session = fork_server().session()\n"
        "print(session.start('tests.pool.test_fork_server:sleeps'), flush=True); time.sleep(600)"
    )
    with server.session() as session:
        kept = session.start("tests.pool.test_fork_server:sleeps")
        with server.lent() as (variables, numbers):
            borrower = subprocess.Popen(
                [sys.executable, "-c", script],
                env=os.environ | variables,
                pass_fds=numbers,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert borrower.stdout is not None
        theirs = int(borrower.stdout.readline())
        assert psutil.Process(theirs).ppid() == psutil.Process(kept).ppid()
        borrower.kill()
        borrower.wait()

        assert wait_for(lambda: not psutil.pid_exists(theirs))
        assert psutil.pid_exists(kept)
    assert not psutil.pid_exists(kept)


def test_a_variable_that_lends_nothing_is_ignored(others: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a command was started without the connection."""
    for lent in ("", "no number", "0:1", "999:5"):
        monkeypatch.setenv("PACELINE_FORK_SERVER", lent)
        see("place")
        assert "PACELINE_FORK_SERVER" not in os.environ


def test_a_server_that_cannot_load_its_modules_says_so(others: list[int]) -> None:
    """With the end of what it printed."""
    with pytest.raises(ServerGone, match="No module named 'no_such_module'"):
        fork_server(None, ("no_such_module",)).session()


def test_schedulers_signals_do_not_end_the_server(server: ForkServer) -> None:
    """Slurm sends them to every process of a job; a training has the grace time all the same."""
    assert wait_for(servers)
    (process,) = servers()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        process.send_signal(number)

    assert see("threads", server) == int(os.environ["OMP_NUM_THREADS"])


def ends_with(given: bytes) -> int:
    """At once."""
    return int(given)


def sleeps(given: bytes) -> int:
    """For a long time."""
    time.sleep(600)
    return 0


def servers(besides: Collection[int] = ()) -> list[psutil.Process]:
    """Fork servers of this process, besides those with these numbers."""
    found = [each for each in psutil.Process().children() if "paceline.pool.fork_server" in each.cmdline()]
    return [each for each in found if each.pid not in besides]


def wait_for(condition: Any, seconds: float = 10.0) -> bool:
    """Whether it holds within some time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())
