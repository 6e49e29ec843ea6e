"""The card and the finding of a job that failed because its ranks lost step say why."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from paceline.records.rundir import RunDir

BUDGET = """
    import time
    import torch, torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    end = time.monotonic() + 0.5 + rank
    dist.barrier()
    while time.monotonic() < end:
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        time.sleep(0.02)
"""


@pytest.mark.slow
def test_a_time_budget_of_each_rank_is_named_with_its_line(tmp_path: Path) -> None:
    """Rank 0 leaves the loop a second before rank 1."""
    (tmp_path / "train.py").write_text(textwrap.dedent(BUDGET))
    command = [sys.executable, "-m", "paceline", "run", "--nproc-per-node", "2", "--run-dir", "run", "train.py"]

    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)

    assert ended.returncode == 1
    assert "rank 0 left early" in ended.stderr
    assert "a condition on a clock at" in ended.stderr
    assert "let one rank look at the clock and broadcast its decision" in ended.stderr
    found = [json.loads(line) for line in RunDir(tmp_path / "run").findings.read_text().splitlines()]
    (finding,) = [each for each in found if each["code"] == "DP181"]
    assert finding["faults"] == ["F85"]
    assert finding["line"] == 1 + BUDGET.strip().splitlines().index("    while time.monotonic() < end:") + 1
