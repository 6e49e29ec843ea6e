"""Loader processes under each start method of multiprocessing: the same samples, and an end with their rank."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from paceline.records.errors import PacelineError
from paceline.tasks.data.arrays import Like
from paceline.tasks.table import TaskOptions
from paceline.tasks.task_loader import load_task
from paceline.train.batch_plan import Plan
from paceline.train.feed import DatasetFeed, make_feed
from paceline.train.loader_processes import check_loadable, start_method

LIKE = Like(torch.device("cpu"), torch.float32, channels_last=False)
FILE = """
{first}
import os, random
import torch
from torch import nn
from torch.utils.data import Dataset
from neighbor import SHIFT
from paceline.tasks.task import Loss, Task

class Rows(Dataset):
    epoch = 0
    def __len__(self): return 7
    def set_epoch(self, epoch): self.epoch = epoch
    def __getitem__(self, i): return torch.tensor([i + SHIFT, self.epoch, random.random(), os.getpid()]).double()
    def collate(self, rows): return torch.stack(rows)

def local():
    class Local(Rows):
        pass
    return Local()

def task():
    return Task("mine", nn.Identity, lambda m, b: Loss(b.sum(), len(b)), {data}, Rows())
"""


@pytest.fixture
def task_of(tmp_path: Path):
    """Loads a task's file, written with a line before all others; start method, path and modules are put back."""
    before, path = multiprocessing.get_start_method(allow_none=True), list(sys.path)

    def load(first: str = "", data: str = "Rows()"):
        (tmp_path / "neighbor.py").write_text("SHIFT = 10\n")
        file = tmp_path / "loader_task.py"
        file.write_text(FILE.format(first=first, data=data))
        return load_task(str(file), TaskOptions())

    yield load
    multiprocessing.set_start_method(before, force=True)
    sys.path[:] = path
    for name in ("paceline_user_task_loader_task", "neighbor"):
        sys.modules.pop(name, None)


@pytest.mark.serial
@pytest.mark.parametrize(
    "first",
    [
        "",
        "import multiprocessing; multiprocessing.set_start_method('fork')",
        "import multiprocessing; multiprocessing.set_start_method('spawn')",
        "import multiprocessing; multiprocessing.set_start_method('forkserver', force=True)",
    ],
)
def test_every_start_method_gives_the_samples_of_no_loader_process(first: str, task_of) -> None:
    """The file and its neighbors are imported there, the epoch is known, what is random depends on the sample only."""
    data = task_of(first).train_data
    plan = Plan(7, 3, 1, 1, 1, 0)

    alone = torch.cat([batch for (batch,) in DatasetFeed(data, plan, LIKE, 0).epoch(2, 1)])
    shared = torch.cat([batch for (batch,) in DatasetFeed(data, plan, LIKE, 2).epoch(2, 1)])

    assert torch.equal(alone[:, :3], shared[:, :3])
    assert alone[:, 1].tolist() == [2.0] * 4
    assert os.getpid() not in shared[:, 3].int().tolist()


def test_a_file_sets_the_start_method_as_a_script_does_and_else_it_is_fork_on_linux(task_of) -> None:
    """Loading a second time, as task validation does, is no error; spawn goes through a fork server."""
    task_of()
    assert start_method() == ("fork" if sys.platform == "linux" else "spawn")

    for _ in range(2):
        task_of("import multiprocessing; multiprocessing.set_start_method('spawn')")
        assert multiprocessing.get_start_method() == "spawn"
        assert start_method() == "forkserver"


def test_a_dataset_that_cannot_be_pickled_is_refused_where_it_has_to_be(task_of) -> None:
    """A class made inside a function: fine with fork and without loader processes."""
    plan = Plan(7, 3, 1, 1, 1, 0)
    local = task_of(data="local()").train_data
    check_loadable("train_data", local, 2)
    local = task_of("import multiprocessing; multiprocessing.set_start_method('spawn')", "local()").train_data

    make_feed(local, plan, LIKE, 0)
    with pytest.raises(PacelineError, match="cannot be sent to loader processes, which start by spawn") as caught:
        make_feed(local, plan, LIKE, 2)

    assert "Local" in caught.value.why
    assert "--loader-workers 0" in caught.value.hint


OWNER = """
import multiprocessing, sys, time
import torch
from paceline.tasks.data.arrays import Like
from paceline.train.feed import DatasetFeed
from paceline.train.batch_plan import Plan

if __name__ == "__main__":
    multiprocessing.set_start_method("{method}")
    from rows import Rows
    feed = DatasetFeed(Rows(), Plan(99, 3, 1, 1, 1, 0), Like(torch.device("cpu"), torch.float32, False), 2)
    batches = feed.epoch(0, 0)
    print(*sorted({{int(pid) for _ in range(4) for pid in next(batches)[0]}}), flush=True)
    time.sleep(600)
"""
ROWS = """
import os
import torch

class Rows:
    def __len__(self): return 99
    def __getitem__(self, i): return torch.tensor(os.getpid())
"""


def alive(pid: int) -> bool:
    """Whether a process runs, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.serial
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends orphans on Linux only")
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_loader_processes_ignore_signals_to_their_rank_and_die_with_it(method: str, tmp_path: Path) -> None:
    """Also when it is killed, and also those that a fork server has started."""
    (tmp_path / "rows.py").write_text(ROWS)
    script = tmp_path / "owner.py"
    script.write_text(textwrap.dedent(OWNER.format(method=method)))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    owner = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment)
    loaders = [int(pid) for pid in owner.stdout.readline().split()]
    assert len(loaders) == 2

    for pid in loaders:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
            os.kill(pid, number)
    time.sleep(0.5)
    held = [alive(pid) for pid in loaders]
    owner.kill()
    owner.wait()
    deadline = time.monotonic() + 30
    while any(map(alive, loaders)) and time.monotonic() < deadline:
        time.sleep(0.05)

    assert held == [True, True]
    assert not any(map(alive, loaders))
