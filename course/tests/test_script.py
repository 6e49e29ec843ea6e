"""A learner's file runs as a program under the eyes of the course, as it would under torchrun."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from paceline.observe.probes.group_collectives import GroupCollectives
from paceline.pool.warm_ranks import RankFailure
from paceline_course.answer import Answer, scratch_folder

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(10, 3, generator=torch.Generator().manual_seed(0)))
    sampler = DistributedSampler(data, seed=1)
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (x,) in DataLoader(data, batch_size=2, sampler=sampler):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    if dist.get_rank() == 0:
        print("arguments", sys.argv[1:])
        open("result.txt", "w").write("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""


@pytest.fixture
def answer(tmp_path: Path):
    """Makes an answer of some code."""
    with scratch_folder() as scratch:
        numbers = itertools.count()

        def make(code: str) -> Answer:
            path = tmp_path / "L1_1.py"
            path.write_text(code)
            return Answer(path, scratch / str(next(numbers)), seed=1)

        yield make


def test_a_script_is_seen_from_its_samples_to_its_weights(answer) -> None:
    """Indices of both ranks are disjoint and complete, weights agree after each step, files and output are there."""
    run = answer(SCRIPT)
    first, second = run.script(2, "--epochs", "2")

    for epoch in (0, 1):
        seen = [index for rank in (first, second) for batch in rank.passes[epoch].batches for index in batch]
        assert sorted(seen) == list(range(10))
    assert first.passes[0].batches != first.passes[1].batches
    assert first.digests == second.digests
    assert len(first.digests) == 6
    assert set(first.states[0]) == {"weight", "bias"}
    assert (first.left_group, first.trouble) == (True, "")
    assert "arguments ['--epochs', '2']" in run.printed(0)
    assert run.printed(1) == ""
    assert (run.last / "result.txt").read_text() == "done"
    if not GroupCollectives.missing():
        assert sum(call.by_backward and call.op == "all_reduce" for call in run.calls(0)) == 6


def test_one_process_is_no_special_case(answer) -> None:
    """It gets the environment of a job of one."""
    (only,) = answer(SCRIPT).script(1)

    assert [len(each.batches) for each in only.passes] == [5, 5]


PLACES = """
import os
names = "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"
print(*[os.environ[name] for name in names])
"""


def test_two_machines_are_told_of_as_torchrun_does(answer) -> None:
    """Ranks go on from machine to machine, local ranks begin anew."""
    run = answer(PLACES)
    run.script(4, machines=2)

    assert [run.printed(rank).split() for rank in range(4)] == [
        ["0", "0", "4", "2", "0", "2"],
        ["1", "1", "4", "2", "0", "2"],
        ["2", "0", "4", "2", "1", "2"],
        ["3", "1", "4", "2", "1", "2"],
    ]
    with pytest.raises(ValueError, match="3 ranks cannot be shared by 2 machines"):
        run.script(3, machines=2)


@pytest.mark.parametrize(("line", "failure"), [("sys.exit(3)", "SystemExit: 3"), ("1 / 0", "ZeroDivisionError")])
def test_a_script_that_fails_is_a_failure(answer, line: str, failure: str) -> None:
    """With what it raised; a clean exit is none."""
    with pytest.raises(RankFailure, match=failure):
        answer(f"import sys\n{line}\n").script(1)
    assert answer("import sys\nsys.exit(0)\n").script(1)[0].left_group
