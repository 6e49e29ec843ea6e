"""`paceline run` names the rank and the line of a hang, and leaves slow jobs alone."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from paceline.cli.main import call
from paceline.records.launched import HangOver, HangSeen
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir

TRAIN = """
    import subprocess, time
    import torch, torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = nn.Linear(4, 4)
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def pause(seconds):
        time.sleep(seconds)

    def step():
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
"""


def launch(folder: Path, end: str, *flags: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Two ranks that take ten steps and then come to `end`, indented by four."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(TRAIN) + "\nfor number in range(10):\n    step()\n" + textwrap.dedent(end))
    command = [sys.executable, "-m", "paceline", "run", "--nproc-per-node", "2", "--run-dir", str(folder / "run")]
    return subprocess.run(
        [*command, *flags, "train.py"], cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def line_of(folder: Path, text: str) -> int:
    """The number of the line that holds this text."""
    lines = (folder / "train.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def hangs(folder: Path) -> list[HangSeen | HangOver]:
    """As the launcher recorded them."""
    (path,) = (folder / "run" / "events").glob("launcher-*.jsonl")
    return [each for each in EventStream(path) if isinstance(each, HangSeen | HangOver)]


@pytest.mark.slow
def test_a_rank_that_is_elsewhere_is_named_with_its_line_and_the_job_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the terminal, in the record and in the document; the watch for stalls says nothing beside it.

    tests/launch/test_hang_watch.py has a fast test of stacks, judgement and end.
    """
    end = """
        if rank == 1:
            subprocess.run(["sleep", "300"])
        dist.barrier()
    """

    ended = launch(tmp_path, end, "--hang-patience", "1", "--stop-on-hang", "--format", "json")

    assert ended.returncode == 1
    line = line_of(tmp_path, "subprocess.run")
    assert "-- paceline: hang: rank 1 did not come to a collective" in ended.stderr
    assert f"of subprocess, at train.py:{line}" in ended.stderr
    assert f"rank 0   waits in barrier, at train.py:{line_of(tmp_path, 'dist.barrier')}" in ended.stderr
    assert "no progress for" not in ended.stderr
    assert "SIGKILL" not in ended.stderr.rpartition("-- hang:")[2]  # how ranks were ended is no cause
    (hang,) = hangs(tmp_path)
    assert isinstance(hang, HangSeen)
    assert (hang.kind, hang.culprits, hang.step) == ("missing", [1], 10)
    found = [each for each in json.loads(ended.stdout)["findings"] if each["severity"] == "error"]
    assert [(each["code"], each["rank"], each["line"]) for each in found if each["code"] != "DP122"] == [
        ("DP401", 1, line)
    ]
    call(["audit", str(tmp_path / "run")])
    assert "DP401 rank-missing-in-collective" in capsys.readouterr().out
    assert not list((tmp_path / "run").rglob("*.stacks"))


@pytest.mark.slow
def test_a_job_that_goes_on_says_so_and_succeeds(tmp_path: Path) -> None:
    """The pause stays in the record, as an information."""
    end = """
        if rank == 1:
            pause(7)
        step()
        dist.destroy_process_group()
    """

    ended = launch(tmp_path, end, "--hang-patience", "1", "--fail-on", "error")

    assert "rank 1   is at train.py" in ended.stderr
    assert "paceline: the job went on after" in ended.stderr
    assert [type(each) for each in hangs(tmp_path)] == [HangSeen, HangOver]
    findings = [json.loads(line) for line in RunDir(tmp_path / "run").findings.read_text().splitlines()]
    assert [each["severity"] for each in findings if each["code"] == "DP401"] == ["info"]


SLOW = """
    pause(8)  # everything is slow, and nothing hangs
    for number in range(12):
        pause(0.02 if number % 4 else 0.2)
        step()
    with torch.no_grad():  # an evaluation without a loader, of 7 s
        end = time.monotonic() + 7
        while time.monotonic() < end:
            net(torch.ones(2000, 4))
    step()
    if rank == 0:  # one rank saves while the other one waits
        end = time.monotonic() + 8
        while time.monotonic() < end:
            torch.save(torch.ones(1 << 22), "checkpoint.pt")
    dist.barrier()
    step()
    dist.destroy_process_group()
    pause(6)
"""


@pytest.mark.slow
def test_a_job_with_slow_phases_gives_no_alarm(tmp_path: Path) -> None:
    """A patience of 3 s in place of 10, so that phases of 8 s are long."""
    script = SLOW.replace("pause(8)", "pause(0)")

    ended = launch(tmp_path, script, "--hang-patience", "3")

    assert ended.returncode == 0, ended.stderr
    assert hangs(tmp_path) == []


@pytest.mark.slow
def test_a_slow_first_step_gives_no_alarm(tmp_path: Path) -> None:
    """One rank reads its data for longer than the patience, and the other one waits for it."""
    script = textwrap.dedent(TRAIN) + textwrap.dedent("""
        if rank == 0:
            end = time.monotonic() + 8
            while time.monotonic() < end:
                sum(range(1000))
        step()
        dist.destroy_process_group()
    """)
    (tmp_path / "early.py").write_text(script)
    command = [sys.executable, "-m", "paceline", "run", "--nproc-per-node", "2", "--run-dir", str(tmp_path / "run")]

    ended = subprocess.run(
        [*command, "--hang-patience", "1", "early.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert hangs(tmp_path) == []
