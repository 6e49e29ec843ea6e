"""`paceline train` under observation: nothing is found, and the ledger is the trainer's own plan."""

import subprocess
import sys

import numpy as np
import pytest

from paceline.parallel.partition import epoch_order
from paceline.records.findings import read_findings
from paceline.records.rundir import RunDir
from paceline.train.batch_plan import Plan

TASK = """
import torch
import torch.nn.functional as F
from torch import nn
from paceline.tasks.task import Loss, Task, accuracy


class Points(torch.utils.data.Dataset):
    def __init__(self, samples, seed):
        self.x = torch.randn(samples, 2, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], int(self.x[index].prod() > 0)


def loss(model, batch):
    x, y = batch
    return Loss(F.cross_entropy(model(x), y, reduction="sum"), len(y))


def task():
    model = lambda: nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    return Task(name="points", model=model, loss=loss, train_data=Points(203, 0), eval_data=Points(50, 1))
"""


@pytest.mark.slow
def test_the_trainer_gives_no_finding_and_its_ledger_is_its_plan(tmp_path):
    """Every sample that the loop received is the one that the plan names, in its order, on both ranks."""
    (tmp_path / "points.py").write_text(TASK)
    run = RunDir(tmp_path / "observed")
    command = [sys.executable, "-m", "paceline", "run", "--nproc-per-node", "2", "--run-dir", str(run.path), "-m"]
    command += ["paceline", "train", "points.py", "--epochs", "2", "--global-batch", "24", "--seed", "5"]

    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=200)

    assert read_findings(run.findings)[0] == []
    for rank in range(2):
        plan = Plan(samples=203, global_batch=24, accumulation=1, seed=5, world=2, rank=rank)
        for epoch in range(2):
            order = epoch_order(203, 5, epoch)
            spans = [span for step in range(plan.steps_in(epoch)) for span in plan.micro_batches(epoch, step)]
            wanted = [int(i) for span in spans for i in order[span.start : span.stop]]
            files = sorted(run.path.glob(f"ledger/loader-*/epoch-0000/rank-{rank:05d}.npy"))
            seen = [np.load(path)["index"].tolist() for path in files]
            assert wanted in seen
