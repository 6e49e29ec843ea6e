"""What `paceline run` reads in the script that it starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.check import script_findings
from paceline.cli.script_reading import ScriptReading

FAULTY = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from data import numbers
dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(numbers(), batch_size=8, shuffle=True):
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""
DATA = """
import torch
from torch.utils.data import TensorDataset
def numbers():
    return TensorDataset(torch.ones(8, 2), torch.ones(8, 1))
"""


def reading(script: str, *, module: bool = False, no_check: bool = False) -> ScriptReading:
    """The reading of a job that starts this script."""
    plan: Any = SimpleNamespace(flags={"no_check": no_check, "training_script": script, "module": module})
    return ScriptReading(plan)


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with a faulty script, also as a module of a package."""
    (tmp_path / "package").mkdir()
    for folder in (tmp_path, tmp_path / "package"):
        (folder / "train.py").write_text(FAULTY)
        (folder / "data.py").write_text(DATA)
    (tmp_path / "package" / "__main__.py").write_text(FAULTY)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("script", "module"), [("train.py", False), ("train", True), ("package.train", True), ("package", True)]
)
def test_the_script_that_is_started_is_read(script: str, module: bool):
    """A module is the file that `python -m` runs."""
    job = reading(script, module=module)

    assert [(each.code, each.line) for each in job.findings() if each.severity == "error"] == [("DP001", 9)]
    assert job.missing() == []


@pytest.mark.parametrize(
    ("script", "why"),
    [("missing.py", "no Python file"), ("program", "no Python file"), ("broken.py", "line 1")],
)
def test_a_script_that_cannot_be_read_is_listed_as_not_observed(script: str, why: str):
    """The job starts all the same."""
    Path("broken.py").write_text("def f(:\n    import torch\n")
    job = reading(script)

    assert job.findings() == []
    assert [(each.what, why in each.why) for each in job.missing()] == [("the source of the script", True)]


def test_no_check_reads_nothing():
    """The reason is the flag."""
    job = reading("train.py", no_check=True)

    assert job.findings() == []
    assert [each.why for each in job.missing()] == ["--no-check"]


def test_a_failure_of_the_check_never_reaches_the_job(monkeypatch: pytest.MonkeyPatch):
    """It is listed under what was not observed."""

    def fail(_: Path) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(script_findings, "script_findings", fail)
    job = reading("train.py")

    assert job.findings() == []
    assert [each.why for each in job.missing()] == ["paceline check failed with ZeroDivisionError: oh"]


def test_settings_that_are_wrong_are_named():
    """They end `paceline check`, but not a training."""
    Path("pyproject.toml").write_text("[tool.paceline.check]\nselct = []\n")
    job = reading("train.py")

    assert job.findings() == []
    assert "unknown key selct" in job.missing()[0].why
