"""`paceline run` beside torchrun: the same job, and what we add."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from paceline.cli.main import call
from paceline.records.findings import read_findings
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir, read_info

OURS = [sys.executable, "-m", "paceline", "run"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]

# Rank 1 ends in its own way once rank 0 has said its words, so that both launchers show the same.
SCRIPT = """
import json, os, pathlib, signal, sys, time

how, rank = sys.argv[1], int(os.environ["RANK"])
here = pathlib.Path(sys.argv[2])
# One write each: print() makes two, and ranks cut into each other's lines.
os.write(1, f"words of rank {rank} {sys.argv[3:]}\\n".encode())
os.write(2, f"errors of rank {rank}\\n".encode())
(here / f"env-{rank}.json").write_text(json.dumps(dict(os.environ)))
while not (here / f"env-{1 - rank}.json").exists():
    time.sleep(0.02)
if rank == 0 and how in ("raise", "exit", "kill"):
    time.sleep(60)
if how == "wait":
    def leave(number, frame):
        os.write(1, f"rank {rank} got {signal.Signals(number).name}\\n".encode())
        sys.exit(0)
    signal.signal(signal.SIGTERM, leave)
    (here / f"ready-{rank}").touch()
    time.sleep(60)
if how == "raise":
    raise ValueError("boom")
if how == "exit":
    sys.exit(3)
if how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""

ADDED = {
    "OMP_NUM_THREADS",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_MAX_",
    "PACELINE_RUN_DIR",
    "PACELINE_RINGS",
    "PACELINE_AGENT",
}
"""The listed variables that workers have beyond torchrun's."""
# Ports, names and paths that differ from one torchrun to the next as well.
EACH_TIME = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "OMP_NUM_THREADS"}


@dataclass(frozen=True)
class Ended:
    """A job that one of the launchers ran.

    Attributes:
        folder: its working directory.
        code: its exit code.
        out: its stdout.
        err: its stderr.
    """

    folder: Path
    code: int
    out: str
    err: str

    def env(self, rank):
        """The environment that a worker saw."""
        return json.loads((self.folder / "seen" / f"env-{rank}.json").read_text())

    def layout(self):
        """The files and directories below the log directory, without its name."""
        root = self.logs()
        return {str(path.relative_to(root)) for path in root.rglob("*")}

    def logs(self):
        """The directory of the job's logs: <log dir>/<id>."""
        (folder,) = self.folder.glob("**/attempt_0")
        return folder.parent

    def run(self):
        """The run directory."""
        (folder,) = (self.folder / "runs").iterdir()
        return RunDir(folder)

    def events(self):
        """What the launcher recorded."""
        (path,) = self.run().path.glob("events/launcher-*.jsonl")
        return list(EventStream(path))

    def worker_errors(self):
        """What workers wrote to stderr, without the agent's own lines, its traceback and our card."""
        return sorted(re.findall(r"^.*errors of rank \d$", self.err.split("\n-- ")[0], re.MULTILINE))


def start(command, folder, how, flags, env):
    """Start a launcher in a fresh working directory."""
    folder.mkdir()
    (folder / "seen").mkdir()
    (folder / "script.py").write_text(SCRIPT)
    argv = [*command, "--nproc-per-node", "2", *flags, "script.py", how, "seen", "--nnodes", "--help"]
    plain = {name: value for name, value in os.environ.items() if name not in ADDED}
    return subprocess.Popen(
        argv, cwd=folder, env=plain | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def both(folder, how, flags=(), env=None, between=None):
    """Run the same job under `paceline run` and under torchrun, at the same time."""
    folders = [folder / "ours", folder / "theirs"]
    jobs = []
    for command, each in zip((OURS, TORCHRUN), folders, strict=True):
        more = ["--log-dir", "logs"] if command is TORCHRUN and "--log-dir" not in flags else []
        jobs.append(start(command, each, how, [*flags, *more], env or {}))
    if between is not None:
        for job, each in zip(jobs, folders, strict=True):
            between(job, each)
    ended = []
    for job, each in zip(jobs, folders, strict=True):
        out, err = job.communicate(timeout=100)
        ended.append(Ended(each, job.returncode, out, err))
    return ended


@pytest.fixture(scope="module")
def succeed(tmp_path_factory):
    """A script that succeeds."""
    return both(tmp_path_factory.mktemp("succeed"), "succeed")


@pytest.fixture(scope="module")
def raises(tmp_path_factory):
    """A script that raises on rank 1."""
    return both(tmp_path_factory.mktemp("raise"), "raise")


@pytest.fixture(scope="module")
def leaves(tmp_path_factory):
    """A script that calls sys.exit(3) on rank 1."""
    return both(tmp_path_factory.mktemp("exit"), "exit")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A script whose rank 1 is killed."""
    return both(tmp_path_factory.mktemp("kill"), "kill")


@pytest.fixture(params=["succeed", "raises", "leaves", "killed"])
def pair(request):
    """Each of the four endings, ours and torchrun's."""
    return request.getfixturevalue(request.param)


@pytest.mark.serial
def test_exit_codes_are_those_of_torchrun(pair):
    """Whatever happens to the script."""
    ours, theirs = pair

    assert ours.code == theirs.code


@pytest.mark.serial
def test_workers_see_the_environment_of_torchrun_and_the_listed_additions(pair):
    """Variable for variable; tuned threads are what torchrun sets as well."""
    ours, theirs = pair

    for rank in range(2):
        here, there = ours.env(rank), theirs.env(rank)
        assert set(here) - set(there) == ADDED - {"OMP_NUM_THREADS"}
        assert set(there) - set(here) == set()
        shared = (set(here) & set(there)) - EACH_TIME - {"PWD", "OLDPWD", "_"}
        assert {name: here[name] for name in shared} == {name: there[name] for name in shared}
        assert here["OMP_NUM_THREADS"] == there["OMP_NUM_THREADS"] == "1"
        assert here["PACELINE_RUN_DIR"] == str(ours.run().path.resolve())


@pytest.mark.serial
def test_output_is_that_of_torchrun(pair):
    """Stdout line by line; stderr of the workers line by line; no prefix on either."""
    ours, theirs = pair

    assert sorted(ours.out.splitlines()) == sorted(theirs.out.splitlines())
    assert ours.worker_errors() == theirs.worker_errors() == ["errors of rank 0", "errors of rank 1"]


@pytest.mark.serial
def test_the_script_gets_its_own_arguments_untouched(succeed):
    """Also those that are flags of ours."""
    for ended in succeed:
        assert "words of rank 0 ['--nnodes', '--help']" in ended.out


@pytest.mark.serial
def test_logs_are_laid_out_as_by_torchrun_below_the_run_directory(pair):
    """The same tree, with the kept output of each rank added."""
    ours, theirs = pair

    kept = {f"attempt_0/{rank}/{name}.log" for rank in range(2) for name in ("stdout", "stderr")}
    assert ours.layout() == theirs.layout() | kept
    assert ours.logs().parent == ours.run().logs


@pytest.mark.serial
def test_success_is_recorded_without_a_card(succeed):
    """run.json says what ran and with which settings; the events say how it ended."""
    ours, _ = succeed
    run = ours.run()

    info = read_info(run.path)
    events = ours.events()

    assert (info.verb, info.name) == ("run", "script")
    assert info.command[:4] == ["paceline", "run", "--nproc-per-node", "2"]
    assert set(info.facts["settings"]) == {name for name in ADDED if not name.startswith("PACELINE_")}
    assert [type(event).__name__ for event in events] == ["Start", "Attempt", "OutputCompared", "End"]
    assert (events[0].world, events[3].reason, events[3].exit_code) == (2, "finished", 0)
    assert [(each.rank, each.exit_code, each.stopped) for each in events[1].ranks] == [(0, 0, False), (1, 0, False)]
    assert (ours.logs() / "attempt_0/1/stdout.log").read_text().startswith("words of rank 1")
    assert ours.err.count("\n") == 4  # two lines of ours, and one of each worker
    assert "MALLOC_MMAP_MAX_=0" in ours.err.splitlines()[0]
    assert run.findings.read_bytes() == b""


@pytest.mark.serial
def test_a_raise_ends_in_a_card_instead_of_the_agents_traceback(raises):
    """Rank, exception, file and line, and the log, which exists."""
    ours, theirs = raises

    card = ours.err[ours.err.index("-- rank 1 failed first --") :]

    assert "raised  ValueError: boom" in card
    line = 1 + SCRIPT.splitlines().index('    raise ValueError("boom")')
    assert re.search(rf"at      \S*script.py:{line}$", card, re.MULTILINE)
    assert "ChildFailedError" in theirs.err
    assert "ChildFailedError" not in ours.err
    log = re.search(r"log     (\S+)", card)[1]
    assert "ValueError: boom" in (ours.folder / log).read_text()
    assert [type(event).__name__ for event in ours.events()] == ["Start", "Attempt", "OutputCompared", "End"]
    assert ours.events()[1].cause.rank == 1
    (finding,) = read_findings(ours.run().findings)[0]
    assert (finding.code, finding.rank, finding.line) == ("DP180", 1, line)
    assert finding.path.endswith("script.py")


@pytest.mark.serial
def test_the_card_says_how_a_rank_ended_without_an_exception(leaves, killed):
    """An exit code in one case, a signal in words in the other."""
    assert "exited with code 3" in leaves[0].err
    assert "rank 0 was stopped by the launcher" in leaves[0].err
    assert "killed by SIGKILL" in killed[0].err


@pytest.mark.serial
def test_sigterm_reaches_the_workers_and_ends_as_under_torchrun(tmp_path):
    """Same code, same words of the workers, and no traceback of the agent."""

    def stop(job, folder):
        end = time.monotonic() + 60
        while len(list((folder / "seen").glob("ready-*"))) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        job.send_signal(signal.SIGTERM)

    ours, theirs = both(tmp_path, "wait", between=stop)

    assert ours.code == theirs.code
    assert sorted(ours.out.splitlines()) == sorted(theirs.out.splitlines())
    assert "rank 1 got SIGTERM" in ours.out
    assert "Traceback" not in ours.err
    assert "stopped by SIGTERM" in ours.err


@pytest.mark.serial
def test_tee_and_no_tuning_and_variables_of_torchrun_work_as_there(tmp_path):
    """Prefixes, logs and PET_* defaults are torch's; without tuning only the run directory is added."""
    flags = ["--tee", "3", "--no-tuning", "--log-dir", "mine"]
    env = {"PET_ROLE": "rider"}
    folder = tmp_path / "theirs"
    theirs_job = start(TORCHRUN, folder, "succeed", [each for each in flags if each != "--no-tuning"], env)
    ours_job = start(OURS, tmp_path / "ours", "succeed", flags, env)

    ours, theirs = (
        Ended(tmp_path / name, *(lambda done, job: (job.returncode, *done))(job.communicate(timeout=100), job))
        for name, job in (("ours", ours_job), ("theirs", theirs_job))
    )

    assert ours.code == theirs.code == 0
    assert sorted(ours.out.splitlines()) == sorted(theirs.out.splitlines())
    assert "[rider0]:words of rank 0" in ours.out
    assert ours.worker_errors() == theirs.worker_errors() == [f"[rider{rank}]:errors of rank {rank}" for rank in (0, 1)]
    assert ours.layout() == theirs.layout()
    assert (ours.folder / "mine").is_dir()
    assert set(ours.env(0)) - set(theirs.env(0)) == {name for name in ADDED if name.startswith("PACELINE_")}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory with a script in it; the environment is put back afterwards."""
    before = dict(os.environ)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('never')\n")
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["missing.py"], "there is no script missing.py"),
        (["--no-python", "no-such-program"], "there is no program no-such-program"),
        (["."], "is a directory"),
        (["--nproc-per-node", "0", "train.py"], "--nproc-per-node cannot be 0"),
        (["--nproc-per-node", "-1", "train.py"], "--nproc-per-node cannot be -1"),
        (["--nproc-per-node", "x", "train.py"], "--nproc-per-node cannot be x"),
        (["--nnodes", "a:b", "train.py"], "--nnodes cannot be a:b"),
        (["--nnodes", "0", "train.py"], "cannot start the job"),
        (["--max-restarts", "-1", "train.py"], "cannot start the job"),
        (["--tee", "9", "train.py"], "cannot start the job"),
        (["--rdzv-conf", "novalue", "train.py"], "cannot start the job"),
        (["--local-ranks-filter", "a", "train.py"], "cannot start the job"),
        (["--start-method", "magic", "train.py"], "argument --start-method"),
        (["--max-restarts", "many", "train.py"], "argument --max-restarts"),
        (["--no-such-flag", "train.py"], "error:"),
        (["--nproc-per-node", "2"], "error:"),
        (["--log-dir", "train.py", "train.py"], "train.py is a file"),
        (["--master-port", "99999999", "train.py"], "port 99999999 cannot be used"),
    ],
)
def test_a_bad_request_ends_in_one_message_and_leaves_nothing(here, capsys, argv, words):
    """Exit code 2, what and what next, no traceback, no file, no worker."""
    code = call(["run", *argv])

    err = capsys.readouterr().err
    assert code == 2
    assert err.startswith("error: ")
    assert words in err
    assert "next:" in err
    assert "Traceback" not in err
    assert [path.name for path in here.iterdir()] == ["train.py"]


def test_a_port_in_use_is_refused(here, capsys):
    """Before anything is started, with the way out."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        code = call(["run", "--master-port", str(port), "train.py"])

    assert code == 2
    assert f"port {port} cannot be used" in capsys.readouterr().err
    assert [path.name for path in here.iterdir()] == ["train.py"]


def test_a_directory_that_holds_a_run_is_refused_and_left_as_it_is(here, capsys):
    """A record is never overwritten."""
    run = here / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")

    code = call(["run", "--run-dir", str(run), "train.py"])

    assert code == 2
    assert "holds a run already" in capsys.readouterr().err
    assert [path.name for path in run.iterdir()] == ["run.json"]


def test_an_unwritable_place_is_one_message(here, capsys):
    """The run directory is below a file."""
    code = call(["run", "--run-dir", "train.py/run", "train.py"])

    assert code in (2, 4)
    assert capsys.readouterr().err.startswith("error: ")


def test_a_dry_run_prints_the_plan_and_starts_nothing(here, capsys):
    """The command, the settings with their reasons, and no directory."""
    before = sorted(here.rglob("*"))

    code = call(["run", "--dry-run", "--nproc-per-node", "2", "train.py", "--lr", "0.1"])

    shown = capsys.readouterr()
    assert (code, shown.err) == (0, "")
    assert "train.py --lr 0.1" in shown.out
    assert "2 on this machine" in shown.out
    assert "PACELINE_RUN_DIR=" in shown.out
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["--nproc-per-node", "2", "--help"], []])
def test_help_needs_no_torch(argv):
    """All flags, at once, and torch is not imported for it."""
    program = f"import sys; from paceline.cli.run import run_command; code = run_command({argv!r}); "
    program += "assert 'torch' not in sys.modules; sys.exit(code)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "--nproc-per-node" in done.stdout
    assert "--run-dir" in done.stdout


def test_the_verb_hands_every_word_on(monkeypatch):
    """Typer reads none of the flags, neither before nor after the script."""
    from paceline.cli import run as module

    seen = []
    monkeypatch.setattr(module, "run_command", lambda argv: seen.append(argv) or 7)
    argv = ["--nproc-per-node", "2", "-m", "-t", "3", "--help", "train.py", "--help", "-x", "--", "--lr=1", "--"]

    assert call(["run", *argv]) == 7
    assert seen == [argv]


@pytest.mark.serial
def test_attempts_are_listed_with_their_causes_also_after_success(tmp_path):
    """Each crash in a line when it happens and at the end; the logs of all attempts are kept."""
    (tmp_path / "crash.py").write_text(
        "import os\nrank, attempt = os.environ['RANK'], os.environ['TORCHELASTIC_RESTART_COUNT']\n"
        "print('attempt', attempt, flush=True)\n"
        "if attempt != '2' and rank == '0':\n    raise RuntimeError(f'crash {attempt}')\n"
    )
    command = [*OURS, "--max-restarts", "2", "--monitor-interval", "0.1", "--run-dir", "run", "crash.py"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)

    (path,) = (tmp_path / "run").glob("events/launcher-*.jsonl")
    attempts = [event for event in EventStream(path) if type(event).__name__ == "Attempt"]
    assert done.returncode == 0
    assert [each.outcome for each in attempts] == ["failed", "failed", "succeeded"]
    assert [dict(each.cause.rows)["raised"] for each in attempts[:2]] == [
        "RuntimeError: crash 0",
        "RuntimeError: crash 1",
    ]
    assert "paceline: succeeded at attempt 3 of 3" in done.stderr
    assert done.stderr.count("RuntimeError: crash 0 (") == 2
    for number, each in enumerate(attempts):
        assert (tmp_path / "run" / each.logs / "0" / "stdout.log").read_text() == f"attempt {number}\n"


@pytest.mark.serial
def test_a_second_signal_ends_workers_that_ignore_the_first(tmp_path):
    """With the exit code of torchrun, one line, and no process left."""
    (tmp_path / "stubborn.py").write_text(
        "import os, pathlib, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "pathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(300)\n"
    )
    job = subprocess.Popen([*OURS, "stubborn.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 100
    while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    time.sleep(1)

    job.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=60)

    assert job.returncode == 1
    assert "stopped by SIGTERM" in err
    assert "Traceback" not in err
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()
