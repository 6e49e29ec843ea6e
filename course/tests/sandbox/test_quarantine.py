"""What runs in a quarantine reaches nothing outside and leaves nothing, however it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paceline.pool.mount_view import FILES, MEMORY, MISSING, NETWORK, PROCESSES, WRITING, closed, installation
from paceline.records.errors import PacelineError
from paceline_course.sandbox import limits as limits_module
from paceline_course.sandbox import quarantine as subject
from paceline_course.sandbox.limits import free_user
from paceline_course.sandbox.quarantine import INSIDE, gaps, judging_environment, lacking, run_quarantined

REPOSITORY = Path(__file__).resolve().parents[3]
OUTER = """
import sys
from pathlib import Path
from paceline_course.sandbox.quarantine import run_quarantined
sys.exit(run_quarantined(sys.argv[2:], Path(sys.argv[1])))
"""
REACH = """
import socket, sys
tcp, abstract = int(sys.argv[1]), sys.argv[2]
def reached(family, address):
    with socket.socket(family) as client:
        client.settimeout(3)
        try: client.connect(address)
        except OSError: return False
        return True
own = socket.create_server(("127.0.0.1", 0))
print(reached(socket.AF_INET, own.getsockname()), reached(socket.AF_INET, ("127.0.0.1", tcp)),
      reached(socket.AF_INET, ("1.1.1.1", 53)), reached(socket.AF_UNIX, "\\0" + abstract))
"""
FILL = """
import os
def most(action):
    for number in range(100_000):
        try: action(number)
        except OSError: return number
def touch(number):
    open(str(number), "w").close()
def put(number):
    if file.write(bytes(1 << 16)) < 1 << 16: raise OSError
many = most(touch)
for name in os.listdir("."): os.remove(name)
file = open("big", "wb", buffering=0)
print(many, most(put))
"""
POOL = """
import sys, tempfile
from pathlib import Path
from paceline_course.sandbox.limits import Limits, free_user, gaps
from paceline.pool.warm_ranks import RankFailure, RankTimeout, run_ranks
from course.tests.sandbox import hostile
import foreign

def within(name, function, world, *args, timeout_s=60):
    limits = Limits(folder / name, user=free_user())
    try: return run_ranks(function, world, *args, limits=limits, plain=True, timeout_s=timeout_s)
    except (RankFailure, RankTimeout) as error: return type(error).__name__

folder = Path(tempfile.mkdtemp())
folder.chmod(0o755)
(seen, _) = within("first", hostile.who_am_i, 2)
assert seen["sum"] == 2.0 and seen["folder"] == seen["home"] == str(folder / "first"), seen
assert free_user() is None or seen["user"] != 0, seen
"""


FOREIGN = """
import os, socket
def kill_everything():
    os.kill(-1, 9)
    return "still here"
def fill(places):
    made = []
    for place in places:
        made.append(0)
        for number in range(100_000):
            try: open(f"{place}/quarantine-test-{number}", "w").close()
            except OSError: break
            made[-1] += 1
    print(*made)
def reach(port):
    with socket.socket() as client:
        client.settimeout(3)
        return [client.connect_ex(("127.0.0.1", port)) == 0, client.connect_ex(("1.1.1.1", 53)) == 0]
def others():
    return [name for name in os.listdir("/proc") if name.isdigit() and os.stat(f"/proc/{name}").st_uid != os.getuid()]
"""


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that every user can reach, with a short name."""
    folder = Path(tempfile.mkdtemp(prefix="paceline-q-"))
    folder.chmod(0o755)
    (folder / "scratch").mkdir()
    yield folder / "scratch"
    shutil.rmtree(folder)


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """A variable's value by which everything is found that was started in a test."""
    value = f"mark-{time.time_ns()}"
    monkeypatch.setenv("QUARANTINE_TEST", value)
    return value


def need(*pieces: str) -> None:
    """Skip where the system does not give them."""
    missing = [MISSING[piece] for piece in pieces if MISSING[piece] in gaps()]
    if missing:
        pytest.skip(f"this system gives no such namespaces: {'; '.join(missing)}")


def marked(value: str) -> list[int]:
    """Living processes that carry the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            inside = entry.name.isdigit() and f"QUARANTINE_TEST={value}".encode() in (entry / "environ").read_bytes()
            if inside and int(entry.name) != os.getpid() and "\nState:\tZ" not in (entry / "status").read_text():
                found.append(int(entry.name))
    return found


def comes_true(what: Callable[[], bool], patience_s: float = 10.0) -> bool:
    """Whether it is so, now or soon."""
    end = time.monotonic() + patience_s
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def nothing_left(mark: str, scratch: Path) -> bool:
    """No process, no mount, no file."""
    mounted = str(scratch) in Path("/proc/self/mounts").read_text()
    return not marked(mark) and not mounted and not list(scratch.iterdir())


def shell(script: str, *more: str) -> list[str]:
    """A command."""
    return ["/bin/sh", "-c", script, "sh", *more]


def python(script: str, *more: str) -> list[str]:
    """A command, without what the working directory holds."""
    return [sys.executable, "-P", "-c", script, *more]


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start_outer() -> Iterator[Start]:
    """Starts a process that runs a command in a quarantine, to be sent signals."""
    started: list[subprocess.Popen[str]] = []

    def start(scratch: Path, command: list[str], cwd: str | None = None) -> subprocess.Popen[str]:
        outer = subprocess.Popen(
            [sys.executable, "-P", "-c", OUTER, str(scratch), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=cwd,
        )
        started.append(outer)
        return outer

    yield start
    for outer in started:
        outer.kill()
        for stream in (outer.stdin, outer.stdout):
            if stream is not None:
                stream.close()


def test_the_command_has_our_input_output_folder_and_exit_code(scratch: Path, mark: str, start_outer: Start) -> None:
    """As if it had been started directly."""
    outer = start_outer(scratch, shell('read line; echo "$line in $PWD"; exit 7'), cwd="/usr")

    printed, _ = outer.communicate("a word\n", timeout=60)

    assert (printed, outer.returncode) == ("a word in /usr\n", 7)
    assert nothing_left(mark, scratch)


def test_a_command_that_a_signal_ends(scratch: Path) -> None:
    """As shells say it; threads of the caller do not matter."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()

    code = run_quarantined(shell("kill -9 $$"), scratch)

    over.set()
    thread.join()
    assert code == 128 + 9


def test_inside_knows_that_it_is_inside(scratch: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And what is missing; temporary files go to scratch."""
    assert lacking() is None
    code = run_quarantined(shell(f'echo "[${{{INSIDE}-outside}}]" "$TMPDIR"'), scratch)

    said, folder = capfd.readouterr().out.split()
    missing = [piece for piece in MISSING if MISSING[piece] in gaps()]
    assert code == 0
    assert said == f"[{','.join(missing)}]"
    assert Path(folder) == scratch


def test_a_long_scratch_does_not_make_names_of_sockets_too_long(
    scratch: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A socket has 107 characters for its name, and the pool's has 37 and more behind the temporary folder."""
    need(FILES)
    deep = scratch / ("x" * 100)

    run_quarantined(shell('echo "$TMPDIR"; touch "$TMPDIR/file"'), deep)

    printed = capfd.readouterr()
    assert len(printed.out) < 60
    assert not printed.err


def test_the_network_is_cut_off(scratch: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Loopback inside works; services of this machine, the world, and sockets without a file are out of reach."""
    need(NETWORK)
    name = f"quarantine-{time.time_ns()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0" + name)
        abstract.listen()
        told = python(REACH, str(tcp.getsockname()[1]), name)
        subprocess.run(told, check=True)
        before = capfd.readouterr().out.split()

        run_quarantined(told, scratch)

    assert capfd.readouterr().out.split() == ["True", "False", "False", "False"]
    assert (before[0], before[1], before[3]) == ("True", "True", "True")


def test_processes_outside_are_neither_seen_nor_killed(scratch: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A kill of everything ends what is inside."""
    need(PROCESSES)
    with subprocess.Popen(["/bin/sleep", "60"]) as somebody:
        try:
            code = run_quarantined(shell("sleep 60 & ls /proc | grep -c '^[0-9]'; kill -9 -1; exit 5"), scratch)
            survived = somebody.poll() is None
        finally:
            somebody.kill()

    assert code == 5
    assert survived
    assert int(capfd.readouterr().out) <= 6


def test_a_daemon_ends_with_the_command(scratch: Path, mark: str) -> None:
    """Also without process numbers of its own, where the first process inside adopts and kills it."""
    code = run_quarantined(shell("setsid -f sh -c 'trap \"\" 1 2 15; sleep 600 & sleep 600'; exit 3"), scratch)

    assert code == 3
    assert nothing_left(mark, scratch)


def test_the_dead_are_buried(scratch: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The first process inside takes those without a parent."""
    need(PROCESSES)
    script = "for i in 1 2 3 4 5 6 7 8 9; do (true & true); done; sleep 0.3; cat /proc/[0-9]*/stat | grep -c ' Z '"

    run_quarantined(shell(script), scratch)

    assert capfd.readouterr().out == "0\n"


def test_the_number_and_the_size_of_files_are_limited(scratch: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And nothing of them stays."""
    need(FILES)
    run_quarantined(shell('cd "$TMPDIR" && exec "$@"', *python(FILL)), scratch, files=500, size_bytes=4 << 20)

    many, chunks = capfd.readouterr().out.split()
    assert 450 < int(many) < 500
    assert int(chunks) == 64
    assert list(scratch.iterdir()) == []


def test_only_scratch_and_given_folders_can_be_written_to(
    scratch: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not the home, not what is open to everybody; a given folder keeps what was written."""
    need(WRITING)
    (tmp_path / "given").mkdir()
    places = [Path.home(), Path("/tmp"), tmp_path, tmp_path / "given", scratch]
    script = 'for each in "$@"; do touch "$each/quarantine-test" 2>/dev/null && echo "$each"; done'

    run_quarantined(shell(script, *map(str, places)), scratch, writes=[tmp_path / "given"])

    assert capfd.readouterr().out.split() == [str(tmp_path / "given"), str(scratch)]
    assert [path.name for path in (tmp_path / "given").iterdir()] == ["quarantine-test"]
    assert [path.name for path in tmp_path.iterdir()] == ["given"]


def test_no_other_mount_can_be_written_to(scratch: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither disks mounted somewhere else nor what the kernel shows of itself, but for the list of own processes."""
    need(WRITING, FILES, PROCESSES)

    run_quarantined(["cat", "/proc/self/mounts"], scratch)

    mounts = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert len(mounts) > 4
    writable = {place for _, place, _, options, *_ in mounts if "ro" not in options.split(",")}
    assert writable <= {str(scratch), "/dev/shm", "/run/user", "/proc"}


def test_shared_memory_is_its_own(scratch: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Segments with a key would outlive everybody."""
    need(MEMORY)
    before = Path("/proc/sysvipc/shm").read_text()

    run_quarantined(shell("ipcmk -M 4096 >/dev/null; tail -n +2 /proc/sysvipc/shm | wc -l"), scratch)

    assert capfd.readouterr().out.strip() == "1"
    assert Path("/proc/sysvipc/shm").read_text() == before


@pytest.mark.serial
@pytest.mark.parametrize("delay_s", [0.0, 0.03, 0.06, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.5, 1.0])
def test_a_killed_caller_leaves_nothing(delay_s: float, scratch: Path, mark: str, start_outer: Start) -> None:
    """At whatever moment: no process, no mount, no file."""
    need(PROCESSES, FILES)
    script = 'setsid -f sleep 600; trap "" 1 2 15; touch "$TMPDIR/file"; sleep 600'
    outer = start_outer(scratch, shell(script))
    time.sleep(delay_s)

    outer.kill()
    outer.wait()

    assert comes_true(lambda: nothing_left(mark, scratch)), (marked(mark), list(scratch.iterdir()))


@pytest.mark.serial
def test_a_killed_keeper_takes_everything_along(scratch: Path, mark: str, start_outer: Start) -> None:
    """The caller notices and ends."""
    need(PROCESSES, FILES)
    outer = start_outer(scratch, shell("setsid -f sleep 600; echo here; sleep 600"))
    assert outer.stdout is not None
    assert outer.stdout.readline() == "here\n"
    (keeper,) = map(int, Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split())

    os.kill(keeper, signal.SIGKILL)

    assert outer.wait(30) == 128 + 9
    assert comes_true(lambda: nothing_left(mark, scratch))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_once(number: signal.Signals, scratch: Path, mark: str, start_outer: Start) -> None:
    """As Ctrl-C sends it, to the group of the caller; the command decides what comes of it."""
    name = number.name.removeprefix("SIG")
    script = (
        f"trap 'echo got; n=$((n+1))' {name}; echo here; while :; do sleep 0.2; [ -n \"$n\" ] && exit $((40+n)); done"
    )
    outer = start_outer(scratch, shell(script))
    assert outer.stdout is not None
    assert outer.stdout.readline() == "here\n"

    sessions = {os.getsid(pid) for pid in marked(mark) if pid != outer.pid}
    os.killpg(outer.pid, number)

    assert outer.wait(30) == 41
    assert outer.stdout.read() == "got\n"
    assert outer.pid not in sessions  # so the terminal's signals reach it only, and nobody inside can type into it
    assert nothing_left(mark, scratch)


@pytest.mark.serial
@pytest.mark.parametrize("delay_s", [0.1, 0.2, 0.3, 0.4])
def test_an_early_signal_is_not_lost(delay_s: float, scratch: Path, mark: str, start_outer: Start) -> None:
    """It is held back until there is somebody to take it; before, the caller ends as any program does."""
    outer = start_outer(scratch, ["/bin/sleep", "30"])
    time.sleep(delay_s)

    outer.terminate()

    assert outer.wait(20) in (-signal.SIGTERM, 128 + signal.SIGTERM)
    assert comes_true(lambda: nothing_left(mark, scratch))


def test_a_quit_ends_what_listens_to_nothing(scratch: Path, mark: str, start_outer: Start) -> None:
    """At once."""
    outer = start_outer(scratch, shell('trap "" 1 2 3 15; setsid -f sleep 600; echo here; sleep 600; sleep 600'))
    assert outer.stdout is not None
    assert outer.stdout.readline() == "here\n"

    outer.send_signal(signal.SIGQUIT)

    assert outer.wait(10) == 128 + 9
    assert comes_true(lambda: nothing_left(mark, scratch))


def test_an_exception_of_the_caller_leaves_nothing(scratch: Path, mark: str) -> None:
    """As when a time limit of a test strikes; our handlers of signals are as before."""

    class TooLate(Exception):  # noqa: N818
        pass

    def strike(*_: object) -> None:
        raise TooLate

    handler, old = signal.getsignal(signal.SIGINT), signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    try:
        with pytest.raises(TooLate):
            run_quarantined(shell('trap "" 1 2 15; touch "$TMPDIR/file"; sleep 600 & sleep 600'), scratch)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)

    assert nothing_left(mark, scratch)
    assert signal.getsignal(signal.SIGINT) is handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_scratch_with_something_in_it_is_refused(scratch: Path) -> None:
    """It would be thrown away."""
    (scratch / "mine.txt").write_text("mine")

    with pytest.raises(PacelineError, match="is not empty"):
        run_quarantined(shell("true"), scratch)

    assert (scratch / "mine.txt").read_text() == "mine"


def test_scratch_may_lie_where_something_else_is_covered(capfd: pytest.CaptureFixture[str]) -> None:
    """In shared memory, say."""
    need(FILES)
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm")
    with tempfile.TemporaryDirectory(prefix="paceline-q-", dir="/dev/shm") as folder:
        run_quarantined(shell('touch "$TMPDIR/file" && ls "$TMPDIR"; ls /dev/shm'), Path(folder))

        assert capfd.readouterr().out.split() == ["file", Path(folder).name]
        assert list(Path(folder).iterdir()) == []


def test_a_folder_to_write_to_has_to_be_there(scratch: Path) -> None:
    """Said before anything starts."""
    with pytest.raises(PacelineError, match="is no folder"):
        run_quarantined(shell("true"), scratch, writes=[scratch / "nowhere"])


def test_a_program_that_does_not_exist_is_named(scratch: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In one line."""
    with pytest.raises(PacelineError, match="could not be set up"):
        run_quarantined(["/no/such/program"], scratch)

    assert capfd.readouterr().err.count("\n") == 1


def test_what_is_missing_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside from the variable, outside from what was tried."""
    monkeypatch.setattr(subject, "_offered", lambda: frozenset(MISSING) - {FILES})
    assert gaps() == [MISSING[FILES]]
    assert "outside a quarantine the network is not cut off" in limits_module.gaps()[-1]

    monkeypatch.setenv(INSIDE, f"{NETWORK},{PROCESSES}")
    assert lacking() == {NETWORK, PROCESSES}
    assert gaps() == ["the network is not cut off", "stray processes may outlive a killed grader"]
    assert limits_module.gaps()[-2:] == gaps()

    monkeypatch.setenv(INSIDE, "")
    assert lacking() == frozenset()
    assert gaps() == []
    assert not [said for said in limits_module.gaps() if "network" in said]


@pytest.mark.parametrize("given", [(), (NETWORK,), (FILES, WRITING), (PROCESSES,)])
def test_a_piece_that_is_refused_does_not_take_the_others(given: tuple[str, ...], scratch: Path, mark: str) -> None:
    """The command runs with those that there are, knows which are missing, and its daemons end with it all the same."""
    need(*given)
    told = {
        "command": shell(f'setsid -f sleep 600; echo "${INSIDE}"; ls /sys/class/net; exit 3'),
        "parent": os.getpid(),
    }
    told |= {"scratch": str(scratch), "writes": [], "size_bytes": 1 << 20, "files": 100}
    script = (
        f"from paceline_course.sandbox import quarantine as q; q.possible = lambda: frozenset({given!r}); "
        f"print(q._keep({told!r}))"
    )

    done = subprocess.run(python(script), capture_output=True, text=True, check=True, timeout=60)

    missing, *_, code = done.stdout.split()
    assert missing == ",".join(piece for piece in MISSING if piece not in given)
    assert code == "3"
    assert nothing_left(mark, scratch)


def test_an_ordinary_user_has_a_quarantine_too(scratch: Path) -> None:
    """Through a user namespace in which everybody keeps their number, without rights of root inside."""
    if os.geteuid() != 0:
        pytest.skip("all other tests do that already")
    source = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY / "course" / "src")])
    candidates = [] if closed(installation()) else [sys.executable]
    candidates += [found for found in map(shutil.which, ("/usr/bin/python3.11", "/usr/bin/python3")) if found]
    script = (
        "import os, sys; from pathlib import Path; from paceline_course.sandbox import quarantine as q\n"
        "print(*sorted(q._offered()), flush=True)\n"
        "probe = 'id -u; grep CapEff /proc/self/status; touch \"$TMPDIR/x\" && echo wrote'\n"
        "print(q.run_quarantined(['/bin/sh', '-c', probe], Path(sys.argv[1])))\n"
    )
    shutil.chown(scratch, 65_000, 65_000)
    for candidate in candidates:
        done = subprocess.run(
            [candidate, "-P", "-c", script, str(scratch)],
            user=65_000,
            group=65_000,
            extra_groups=[],
            env={"PYTHONPATH": source, "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0 and done.stdout.splitlines()[0]:
            break
    else:
        pytest.skip("no Python that another user can run, or no user namespaces")

    _, user, abilities, wrote, code = done.stdout.splitlines()

    assert (user, wrote, code) == ("65000", "wrote", "0")
    assert int(abilities.split()[1], 16) == 0
    assert list(scratch.iterdir()) == []


def run_pool(script: str, scratch: Path) -> int:
    """A script that uses the pool, in a quarantine."""
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    path += os.pathsep + str(scratch.parent)
    (scratch.parent / "foreign.py").write_text(FOREIGN)
    file = scratch.parent / "judge.py"
    file.write_text(POOL + script)
    return run_quarantined([sys.executable, "-P", str(file)], scratch, env={**os.environ, "PYTHONPATH": path})


@pytest.mark.serial
def test_the_pool_works_inside(scratch: Path, mark: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Confined ranks, a group, another user; no file of the judge can be changed, and strays end with their call."""
    script = """
(folder / "judge.txt").write_text("untouched")
print(*within("second", hostile.change, 1, str(folder / "judge.txt")), (folder / "judge.txt").read_text())
print(within("third", hostile.stray, 1, "name"), within("fourth", hostile.who_am_i, 1)[0]["sum"])
"""
    assert run_pool(script, scratch) == 0

    out, err = capfd.readouterr()
    first, second = out.splitlines()
    assert free_user() is None or first == "PermissionError untouched"
    assert second == "[None] 1.0"
    assert not err
    assert nothing_left(mark, scratch)


@pytest.mark.serial
@pytest.mark.skipif(free_user() is None, reason="limits on processes bind another user; that takes root")
def test_a_fork_bomb_inside_ends_with_its_call(scratch: Path, mark: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The judge goes on."""
    script = 'print(within("bomb", hostile.fork_bomb, 1, timeout_s=3), within("on", hostile.who_am_i, 1)[0]["sum"])'

    assert run_pool(script, scratch) == 0

    assert capfd.readouterr().out.split()[-1] == "1.0"
    assert nothing_left(mark, scratch)


@pytest.mark.serial
@pytest.mark.skipif(free_user() is None, reason="a rank that is another user takes root")
def test_a_foreign_rank_reaches_nothing_and_leaves_nothing(
    scratch: Path, mark: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A kill of everything ends its own rank only; of 100 000 files in each folder few are made, and none is left.

    The judge finds room for its next call.
    """
    need(NETWORK, PROCESSES, FILES, WRITING)
    places = ["/tmp", "/var/tmp", "/dev/shm", str(Path.home()), "."]
    with socket.create_server(("127.0.0.1", 0)) as service:
        script = f"""
print(within("kill", foreign.kill_everything, 1))
print(within("fill", foreign.fill, 1, {places!r}), *(folder / "fill" / "rank-0.out").read_text().split())
print(within("reach", foreign.reach, 1, {service.getsockname()[1]})[0], within("others", foreign.others, 1)[0])
"""
        assert run_pool(script, scratch) == 0

    kill, fill, reach = capfd.readouterr().out.splitlines()
    ended, *many = fill.split()
    made = dict(zip(places, map(int, many), strict=True))
    assert kill in ("RankFailure", "['still here']")
    assert ended == "RankFailure"
    assert [made[place] for place in ("/tmp", "/var/tmp", str(Path.home()))] == [0, 0, 0]
    assert made["/dev/shm"] < 20_000
    assert 0 < made["."] < 20_000
    assert reach == "[False, False] []"
    assert not list(Path("/dev/shm").glob("quarantine-test-*"))
    assert nothing_left(mark, scratch)


def test_a_judge_gets_no_variable_that_it_has_no_business_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it runs could read them: tokens, for instance."""
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("PYTHONPATH", "y")
    found = judging_environment()
    assert "SECRET_TOKEN" not in found
    assert found["PYTHONPATH"] == "y"
    assert found["PATH"] == os.environ["PATH"]
