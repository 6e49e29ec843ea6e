"""The process group: when it is made, and when the script is done with it."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import SGD

from paceline.records.observed import Collective
from paceline.records.observed_rank import GroupMade, ScriptEnded
from paceline.records.ring import ENDED
from tests.observe.watched import Watched, group_of_one


def test_the_group_is_announced_and_its_end_is_the_end_of_the_script(watched: Watched, tmp_path: Path) -> None:
    """Once, also where the interpreter leaves in order afterwards."""
    with group_of_one(tmp_path):
        SGD(nn.Linear(4, 2).parameters(), 0.1).step()
        dist.destroy_process_group()
    watched.ends()

    (made,) = watched.of(GroupMade)
    assert (made.rank, made.world, made.backend) == (0, 1, "gloo")
    (ended,) = watched.of(ScriptEnded)
    assert (ended.step, ended.samples) == (1, 0)
    assert 0 < ended.elapsed_s < 300
    assert watched.sink.counters[ENDED] == 1  # a launcher no longer expects it to advance


def test_the_end_of_another_group_is_not_the_end_of_the_script(group: None, watched: Watched) -> None:
    """A script may make one for an evaluation and go on."""
    other = dist.new_group([0])
    dist.destroy_process_group(other)
    dist.all_reduce(torch.ones(1))

    assert watched.of(ScriptEnded) == []
    assert len(watched.of(Collective)) == 1
