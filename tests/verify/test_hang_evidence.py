"""A script that hangs on ranks alone fails, and the result says where each rank is."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from paceline.observe.parity.script_rank import ScriptJob
from paceline.records.parity import ParityResult
from paceline.records.standing import RankStanding
from paceline.verify.hang_evidence import is_hang, words
from paceline.verify.script_parity import Question, verify_script

SCRIPT = """
    import torch, torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader, Subset, TensorDataset

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = TensorDataset(torch.randn(60, 6), torch.randint(0, 3, (60,)))
    loader = DataLoader(Subset(data, range(rank, 60, world)), batch_size={batch})
    model = DDP(nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {end}
    dist.barrier()
    dist.destroy_process_group()
"""


def verify(tmp_path: Path, **parts: str) -> ParityResult:
    """Verify the script without its audits."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT.format(**{"batch": "10", "end": "", **parts})))
    job = ScriptJob(script=str(script), arguments=[], directory=str(tmp_path))
    return verify_script(Question(job, 2, 6, tmp_path / "runs", patience_s=12, audit=False))


def line_of(tmp_path: Path, text: str) -> int:
    """The number of the line that holds this text."""
    lines = (tmp_path / "train.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_where_ranks_are_is_said_in_one_sentence() -> None:
    """With the file's name alone: the script is known."""
    one = RankStanding(rank=0, state="waits", call="all_reduce", path="/home/me/train.py", line=31, function="evaluate")

    assert words([one, RankStanding(rank=1, state="ended")]) == (
        "rank 0 waits in all_reduce, at train.py:31, in evaluate; rank 1 has ended"
    )


def test_a_rank_that_computes_is_no_hang() -> None:
    """It may only be slow."""
    waits = RankStanding(rank=0, state="waits")

    assert is_hang([waits, RankStanding(rank=1, state="ended")])
    assert not is_hang([waits, RankStanding(rank=1, state="runs")])


@pytest.mark.slow
def test_an_evaluation_through_ddp_on_rank_0_alone_hangs_there(tmp_path: Path) -> None:
    """DDP broadcasts buffers in forward, and rank 1 waits in the barrier."""
    end = "if rank == 0: model(data.tensors[0])"
    result = verify(tmp_path, end=end)

    assert result.verdict == "fail"
    assert [each.state for each in result.hang] == ["waits", "waits"]
    assert [each.line for each in result.hang] == [line_of(tmp_path, end), line_of(tmp_path, "dist.barrier()")]
    assert [each.call for each in result.hang] == ["forward of DDP", "barrier"]
    assert "one process does: rank 0 waits in forward of DDP, at train.py:" in result.reason


@pytest.mark.slow
def test_different_numbers_of_batches_hang_where_ranks_train(tmp_path: Path) -> None:
    """Rank 0 has three batches, rank 1 two."""
    result = verify(tmp_path, batch="15 if rank else 10")

    assert result.verdict == "fail"
    assert result.hang[0].line in (line_of(tmp_path, "model(x)"), line_of(tmp_path, "loss.backward()"))
    assert result.hang[1].line == line_of(tmp_path, "dist.barrier()")
