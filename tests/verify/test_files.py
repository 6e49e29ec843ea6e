"""A verification leaves no process, no mount and no file, whoever starts it and however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces of Linux")
SCRIPT = """
    import time
    import torch, torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP

    dist.init_process_group("gloo")
    model = DDP(nn.Linear(2, 2))
    open("written.txt", "w").write("x")
    time.sleep({sleep})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    dist.destroy_process_group()
"""
COMMAND = [sys.executable, "-m", "paceline", "verify", "--steps", "1"]


def write(tmp_path: Path, sleep: float) -> dict[str, str]:
    """Write the script, and give the environment in which it is verified."""
    (tmp_path / "work").mkdir()
    (tmp_path / "temporary").mkdir()
    (tmp_path / "work" / "train.py").write_text(textwrap.dedent(SCRIPT.format(sleep=sleep)))
    return {**os.environ, "TMPDIR": str(tmp_path / "temporary")}


def left(tmp_path: Path, pid: int) -> list[str]:
    """What a verification has left behind."""
    own = [each for each in psutil.process_iter(["cmdline", "name", "environ"]) if each.pid != os.getpid()]
    temporary = str(tmp_path / "temporary")
    return [
        *(f"process {each.info['name']}" for each in own if (each.info["environ"] or {}).get("TMPDIR") == temporary),
        *(str(each) for each in Path(temporary).glob("paceline*")),  # torch leaves a folder for compiled code
        *(str(each) for each in Path("/dev/shm").glob(f"paceline-rings-{pid}-*")),
        *(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(tmp_path) in line),
        *(str(each) for each in (tmp_path / "work").iterdir() if each.name != "train.py"),
    ]


def wait_for(tmp_path: Path, pattern: str) -> None:
    """Wait until a run has written such a file."""
    deadline = time.monotonic() + 120
    while not list((tmp_path / "temporary").glob(f"paceline-verify-*/runs/{pattern}")):
        assert time.monotonic() < deadline, f"no {pattern}"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("during", ["audited/events/rank-00001.jsonl", "run-1/rank-00001"], ids=["audited", "ranks"])
def test_a_stopped_verification_leaves_nothing(tmp_path: Path, during: str, number: signal.Signals) -> None:
    """Ctrl-C gives 130, SIGTERM 143."""
    env = write(tmp_path, 600.0)
    limit = ["--time-limit", "12" if during.startswith("run-1") else "600"]  # then the audited run ends
    command = subprocess.Popen([*COMMAND, *limit, "train.py"], cwd=tmp_path / "work", env=env)
    try:
        wait_for(tmp_path, during)

        command.send_signal(number)

        code = command.wait(90)
    finally:
        command.kill()
    assert code == (130 if number == signal.SIGINT else 143)
    assert left(tmp_path, command.pid) == []


def forbidden(tmp_path: Path, *options: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Verify where no mount namespace can be made."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-Ur", "true"], check=False).returncode:
        pytest.skip("no user namespaces")
    inner = 'echo 0 > /proc/sys/user/max_mnt_namespaces && exec "$@"'
    return subprocess.run(
        ["unshare", "-Ur", "sh", "-c", inner, "sh", *COMMAND, *options, "--output", "../parity.json", "train.py"],
        cwd=tmp_path / "work",
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.mark.slow
def test_a_system_without_namespaces_is_named_with_the_flag_that_helps(tmp_path: Path) -> None:
    """Nothing was started before."""
    done = forbidden(tmp_path, env=write(tmp_path, 0.0))

    assert done.returncode == 2, done.stderr
    assert "this system forbids mount namespaces or overlays" in done.stderr
    assert "--allow-writes" in done.stderr
    assert left(tmp_path, 0) == []


@pytest.mark.slow
def test_with_the_flag_the_script_writes(tmp_path: Path) -> None:
    """The result is the same."""
    done = forbidden(tmp_path, "--allow-writes", env=write(tmp_path, 0.0))

    assert done.returncode in (0, 5), done.stderr
    assert (tmp_path / "work" / "written.txt").exists()
