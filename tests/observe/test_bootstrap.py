"""A script finds what it finds under torchrun, and its own processes are no ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.cli.observed_job import observed_job
from paceline.launch.ring_drain import BOOTSTRAP, observed_environment
from paceline.records.rundir import RunDir
from tests.observe.rank_process import FAKE_TORCH, Ended, plain_environment, python, run_observed, run_plain

SOURCES = os.environ.get("PYTHONPATH", "")
SURROUNDINGS = """
import json, os, sys
print(json.dumps({
    "path": sys.path, "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "cwd": os.getcwd(),
    "meta_path": [getattr(each, "__name__", type(each).__name__) for each in sys.meta_path],
    "environment": dict(os.environ), "sitecustomize": getattr(sys.modules.get("sitecustomize"), "__file__", None),
}))
"""
STEP = """
import torch
from torch import nn
optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters(), 0.1)
optimizer.step()
"""

MIXED_UP = """import ctypes
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(2):
    dist.all_reduce(torch.ones(2, dtype=torch.int32 if dist.get_rank() else torch.float32))
if dist.get_rank() == 1:
    ctypes.string_at(0)
dist.all_reduce(torch.ones(1))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Says in which surroundings it runs."""
    path = tmp_path / "code" / "script.py"
    path.parent.mkdir()
    path.write_text(SURROUNDINGS)
    return path


@pytest.fixture
def fake_torch(tmp_path: Path) -> str:
    """A path on which there is a package `torch` that takes no time to import."""
    (tmp_path / "fake" / "torch").mkdir(parents=True)
    (tmp_path / "fake" / "torch" / "__init__.py").write_text(FAKE_TORCH)
    return os.pathsep.join(filter(None, [str(tmp_path / "fake"), SOURCES]))


def was_to_be_observed(ended: Ended) -> bool:
    """With the false torch no observer can be attached: a note says so where one was to be."""
    assert ended.rings == []
    assert set(ended.notes) <= {0}
    return bool(ended.notes)


def test_the_bootstrap_is_short_and_imports_nothing_heavy(tmp_path: Path) -> None:
    """It runs at the start of every rank; what it loads beside Python's own library is Paceline's."""
    ask = "import json, sys; print(json.dumps({n: getattr(m, '__file__', None) for n, m in sys.modules.items()}))"

    with_it = run_observed(python("-c", ask), tmp_path, plain_environment()).said()
    without = run_plain(python("-c", ask), tmp_path, plain_environment()).said()

    added = {name: file for name, file in with_it.items() if name not in without and name != "sitecustomize"}
    assert "paceline.observe.torch_import" in added
    foreign = {n for n, file in added.items() if file and "site-packages" in file and not n.startswith("paceline")}
    assert foreign == set()
    assert len((BOOTSTRAP / "sitecustomize.py").read_text().splitlines()) < 60


@pytest.mark.parametrize(
    "python_path",
    [None, "first:second", ":first", "first::first", "../elsewhere"],
    ids=["none", "two", "empty first", "empty between", "relative"],
)
@pytest.mark.parametrize("how", ["script", "module", "code"])
def test_a_script_finds_what_it_finds_under_torchrun(
    script: Path, tmp_path: Path, python_path: str | None, how: str
) -> None:
    """`sys.path`, `sys.argv`, PYTHONPATH and the rest of its environment are those of a plain start."""
    command = {
        "script": python(str(script), "--lr", "1"),
        "module": python("-m", "code_of_mine", "--lr", "1"),
        "code": python("-c", SURROUNDINGS, "--lr", "1"),
    }[how]
    (tmp_path / "code_of_mine.py").write_text(SURROUNDINGS)
    ours = "" if python_path is None else python_path
    environment = plain_environment(os.pathsep.join(filter(None, [ours, SOURCES])) if SOURCES else ours)

    ended = run_observed(command, tmp_path, environment)
    expected = run_plain(command, tmp_path, environment)

    assert (ended.code, ended.err) == (expected.code, expected.err) == (0, "")
    observed, plain = ended.said(), expected.said()
    added = {name: observed["environment"].pop(name) for name in ("PACELINE_RINGS", "PACELINE_AGENT")}
    assert added["PACELINE_AGENT"] == str(os.getpid())
    assert observed.pop("meta_path")[1:] == plain.pop("meta_path")  # one more, until torch is imported
    bootstrap = observed.pop("sitecustomize")
    assert bootstrap == str(BOOTSTRAP / "sitecustomize.py") or bootstrap == plain["sitecustomize"]
    del plain["sitecustomize"]
    assert observed == plain


@pytest.mark.parametrize("fails", [False, True])
def test_the_users_own_sitecustomize_runs(script: Path, tmp_path: Path, fails: bool) -> None:
    """As it does in a plain start, with the same words on stderr where it fails."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(
        "import os, sys\nos.environ['OWN'] = str(len(sys.path))\n" + "raise ValueError('my own mistake')\n" * fails
    )
    environment = plain_environment(os.pathsep.join(filter(None, [str(own), SOURCES])))

    observed = run_observed(python(str(script)), tmp_path, environment)
    plain = run_plain(python(str(script)), tmp_path, environment)

    assert observed.said()["environment"]["OWN"] == plain.said()["environment"]["OWN"]
    assert observed.said()["sitecustomize"] == plain.said()["sitecustomize"]
    assert observed.err == plain.err
    assert ("my own mistake" in observed.err) is fails


def test_a_script_that_only_asks_for_torch_is_observed_once_it_imports_it(tmp_path: Path, fake_torch: str) -> None:
    """Libraries ask `importlib.util.find_spec` whether there is torch."""
    ask = "import importlib.util as u; print(u.find_spec('torch').name, u.find_spec('torch').loader.name); "
    environment = plain_environment(fake_torch)

    asked = run_observed(python("-c", ask), tmp_path, environment)
    imported = run_observed(python("-c", ask + "import torch; print(torch.VALUE)"), tmp_path, environment)

    assert not was_to_be_observed(asked)
    assert was_to_be_observed(imported)
    assert imported.out == "torch torch\n1\n"


@pytest.mark.parametrize(
    ("command", "armed"),
    [
        (python("-c", "import torch"), True),
        (["bash", "-c", f"true; {sys.executable} -c 'import torch'; true"], True),
        (["bash", "-c", f"(true; (true; {sys.executable} -c 'import torch'; true); true)"], True),
        (python("-I", "-c", "import sys; sys.path.insert(0, sys.argv[1]); import torch", "fake"), False),
        (python("-S", "-c", "import torch"), False),
        (python("-c", "pass"), False),
        (python("-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import torch'])"), False),
    ],
    ids=["rank", "shell", "shells", "isolated", "no site", "no torch", "child"],
)
def test_only_ranks_that_import_torch_are_observed(
    tmp_path: Path, fake_torch: str, command: list[str], armed: bool
) -> None:
    """`--no-python` may put shells in between; what a rank starts itself is no rank."""
    ended = run_observed(command, tmp_path, plain_environment(fake_torch))

    assert ended.code == 0
    assert was_to_be_observed(ended) is armed


@pytest.mark.parametrize("missing", ["agent", "rank"])
def test_processes_of_another_launcher_are_not_observed(tmp_path: Path, fake_torch: str, missing: str) -> None:
    """Variables that a process inherited do not make it a rank."""
    environment = plain_environment(fake_torch)
    if missing == "rank":
        del environment["LOCAL_RANK"]

    ended = run_observed(
        python("-c", "import torch"), tmp_path, environment, agent=2**23 if missing == "agent" else None
    )

    assert (ended.code, ended.err) == (0, "")
    assert not was_to_be_observed(ended)


@pytest.mark.parametrize("broken", ["paceline", "torch"])
def test_an_observer_that_cannot_be_imported_leaves_a_note_and_the_script_runs(
    tmp_path: Path, fake_torch: str, broken: str
) -> None:
    """Nothing of it on the script's stderr."""
    if broken == "paceline":
        (tmp_path / "fake" / "paceline.py").write_text("raise RuntimeError('another package of that name')")

    ended = run_observed(python("-c", "import torch; print(torch.VALUE)"), tmp_path, plain_environment(fake_torch))

    assert (ended.code, ended.out, ended.err) == (0, "1\n", "")
    assert ("another package" if broken == "paceline" else "Error: ") in ended.notes[0]


@pytest.mark.parametrize("broken", ["paceline", "torch"])
def test_a_note_that_cannot_be_written_is_no_error_of_the_script(tmp_path: Path, fake_torch: str, broken: str) -> None:
    """The folder of the rings may be gone, as when the launcher was killed."""
    if broken == "paceline":
        (tmp_path / "fake" / "paceline.py").write_text("raise RuntimeError('another package of that name')")
    environment = plain_environment(fake_torch)
    environment |= observed_environment(tmp_path / "gone", environment)

    ended = run_plain(python("-c", "import torch; print(torch.VALUE)"), tmp_path, environment)

    assert (ended.code, ended.out, ended.err) == (0, "1\n", "")


def test_observation_that_is_off_leaves_no_trace_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where it is on, the trace is gone when the job has ended."""
    before = dict(os.environ)
    with observed_job(RunDir(tmp_path), lambda _: None):
        during = dict(os.environ)
    assert {name for name in during if during[name] != before.get(name)} == {
        "PACELINE_RINGS",
        "PACELINE_AGENT",
        "PYTHONPATH",
    }
    assert dict(os.environ) == before

    monkeypatch.setenv("PACELINE_OBSERVE", "0")
    before = dict(os.environ)
    with observed_job(RunDir(tmp_path), lambda _: None) as observation:
        assert dict(os.environ) == before
    assert observation.findings() == []
    assert observation.card([], 80) == ""


MOVES = (
    """
import io, os, sys
os.chdir("/")
sys.stdout = io.StringIO()
sys.argv = []
import torch
"""
    + STEP
)


@pytest.mark.parametrize("how", ["script", pytest.param("module", marks=pytest.mark.slow)])
def test_scripts_that_change_directory_output_and_arguments_are_observed(tmp_path: Path, how: str) -> None:
    """Lines are named by paths from where the script was started."""
    (tmp_path / "mine.py").write_text(MOVES)

    ended = run_observed(python("mine.py") if how == "script" else python("-m", "mine"), tmp_path, plain_environment())

    assert (ended.code, ended.err) == (0, "")
    assert ended.rings == ["1-00000.ring"]
    assert ended.notes == {}
    by_type = {each["type"]: each for each in ended.events()}
    assert by_type["rank_started"]["pid"] == ended.pid
    assert by_type["observed_step"]["step_place"]["path"] == str(tmp_path / "mine.py")
    assert by_type["script_ended"]["step"] == 1


WORKERS = """
import os, subprocess, sys, torch
from torch.utils.data import DataLoader
if __name__ == "__main__":
    for context in ("fork", "spawn", "forkserver"):
        loader = DataLoader([0, 1, 2, 3], num_workers=2, multiprocessing_context=context)
        assert sorted(int(each) for each in loader) == [0, 1, 2, 3]
    subprocess.run([sys.executable, "-c", "import torch, os; torch.save({}, os.devnull)"], check=True)
    if os.fork() == 0:
        torch.optim.SGD([torch.ones(1)], 0.1).step()
        sys.exit()
    os.wait()
"""


@pytest.mark.slow
def test_workers_and_children_of_a_rank_are_not_observed(tmp_path: Path) -> None:
    """Forked, spawned or from a fork server: one ring, and only what the rank itself did is in it."""
    (tmp_path / "workers.py").write_text(WORKERS)

    ended = run_observed(python("workers.py"), tmp_path, plain_environment())

    assert (ended.code, ended.err) == (0, "")
    assert (ended.rings, ended.notes) == (["1-00000.ring"], {})
    kinds = [each["type"] for each in ended.events()]
    assert kinds.count("rank_started") == kinds.count("script_ended") == 1
    assert kinds.count("loader_begun") == 3
    assert "observed_step" not in kinds


KILLED = """
import os, sys, time, torch
from torch import nn
from torch.optim import SGD
optimizer = SGD(nn.Linear(2, 2).parameters(), 0.1)
for step in range(1, 31):
    optimizer.step()
    time.sleep(0.01)
os.kill(os.getpid(), int(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_a_rank_that_is_killed_loses_no_record(tmp_path: Path, number: signal.Signals) -> None:
    """Its last step is in its file: the ring belongs to the kernel."""
    (tmp_path / "killed.py").write_text(KILLED)

    ended = run_observed(python("killed.py", str(int(number))), tmp_path, plain_environment())

    assert ended.code == -number
    steps = [each["step"] for each in ended.events() if each["type"] == "observed_step"]
    assert steps == list(range(1, 31))


def test_a_crash_in_compiled_code_leaves_the_line_on_stderr(tmp_path: Path, fake_torch: str) -> None:
    """Also before torch is imported; a script that has enabled faulthandler itself keeps its own file."""
    code = "import ctypes\ndef crash():\n    ctypes.string_at(0)\ncrash()\n"
    script = tmp_path / "crash.py"
    script.write_text(code)
    own = tmp_path / "own.py"
    own.write_text(f"import faulthandler\nfaulthandler.enable(open('stacks.txt', 'w'))\n{code}")

    crashed = run_observed(python(str(script)), tmp_path, plain_environment(fake_torch))
    kept = run_observed(python(str(own)), tmp_path, plain_environment(fake_torch))

    assert f'File "{script}", line 3 in crash' in crashed.err
    assert "Fatal Python error" not in kept.err
    assert "line 5 in crash" in (tmp_path / "stacks.txt").read_text()


@pytest.mark.slow
def test_a_job_whose_rank_is_killed_keeps_the_records_of_its_last_step(paceline, tmp_path: Path) -> None:
    """Under the launcher, which drains the rings while the job ends."""
    (tmp_path / "killed.py").write_text(KILLED)

    ended = paceline(
        "run",
        "--nproc-per-node",
        "1",
        "--run-dir",
        "run",
        "killed.py",
        str(int(signal.SIGKILL)),
    )

    assert ended.returncode != 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "events" / "rank-00000.jsonl").read_text().splitlines()]
    assert max(each["step"] for each in lines if each["type"] == "observed_step") == 30


@pytest.mark.slow
def test_a_job_reports_a_crash_and_collectives_that_met_each_other(paceline, tmp_path: Path) -> None:
    """Rank 1 reduces whole numbers where rank 0 reduces fractions, and then crashes in compiled code."""
    (tmp_path / "crash.py").write_text(MIXED_UP)

    paceline("run", "--nproc-per-node", "2", "--run-dir", "run", "crash.py")

    lines = (tmp_path / "run" / "findings.jsonl").read_text().splitlines()
    found = {each["code"]: each for each in map(json.loads, lines)}
    assert (found["DP180"]["rank"], found["DP180"]["line"]) == (1, 7)
    assert (found["DP161"]["rank"], found["DP161"]["line"], found["DP161"]["faults"]) == (1, 5, ["F130"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "observed"),
    [
        (["--no-python", "bash", "-c", f"cd .; {sys.executable} train.py; true"], True),
        (["--no-python", sys.executable, "-I", "train.py"], False),
        (["--module", "train"], True),
    ],
    ids=["shell", "isolated", "module"],
)
def test_jobs_say_whether_they_were_observed(paceline, tmp_path: Path, command: list[str], observed: bool) -> None:
    """In what they print as JSON."""
    (tmp_path / "train.py").write_text(STEP)

    ended: subprocess.CompletedProcess[str] = paceline(
        "run", "--nproc-per-node", "1", "--run-dir", "run", "--format", "json", *command
    )

    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["ranks"] == {"observed": [0] * observed, "world": int(observed)}
    unseen = [each["what"] for each in said["not_observed"]]
    assert ("everything" in unseen) is not observed
