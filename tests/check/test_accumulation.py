"""Conditions of no_sync and of optimizer.step, in the ways in which scripts write them."""

from __future__ import annotations

import pytest

from paceline.check.rules.dp025_no_sync_off_by_one import NoSyncOffByOne
from tests.check.rule_cases import violations

SCRIPT = """
from contextlib import nullcontext

def train(model, loader, optimizer, args):
    batches = len(loader)
    for i, (x, y) in enumerate(loader{start}):
        with nullcontext() if {sync} else model.no_sync():
            (F.mse_loss(model(x), y) / args.accumulate).backward()
        if {step}:
            optimizer.step()
            optimizer.zero_grad()

dist.init_process_group("gloo")
data = Numbers()
model = DDP(nn.Linear(2, 1))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
train(model, loader, torch.optim.SGD(model.parameters(), lr=0.1), argparse.ArgumentParser().parse_args())
"""
EVERY = "(i + 1) % args.accumulate == 0"


def reports(sync: str, step: str, start: str = "") -> bool:
    """Whether the rule reports a loop with these conditions."""
    return bool(violations(NoSyncOffByOne, SCRIPT.format(sync=sync, step=step, start=start)))


@pytest.mark.parametrize(
    ("sync", "step"),
    [
        (EVERY, EVERY),
        ("not (i + 1) % args.accumulate", EVERY),
        ("i % args.accumulate == args.accumulate - 1", EVERY),
        (f"{EVERY} or i == batches - 1", f"{EVERY} or i + 1 == len(loader)"),
        (f"{EVERY} or i + 1 == len(loader)", EVERY),
        ("True", EVERY),
    ],
)
def test_a_step_behind_a_synchronizing_backward_pass_is_right(sync: str, step: str):
    """Conditions that are written differently and mean the same micro-steps are equal."""
    assert not reports(sync, step)


@pytest.mark.parametrize(
    ("sync", "step"),
    [
        ("i % args.accumulate == 0", EVERY),
        ("(i + 2) % args.accumulate == 0", EVERY),
        (EVERY, f"{EVERY} or i + 1 == len(loader)"),
        (EVERY, f"{EVERY} or i == batches - 1"),
        ("i % args.accumulate != args.accumulate - 1", EVERY),
    ],
)
def test_a_step_behind_a_backward_pass_under_no_sync_is_reported(sync: str, step: str):
    """One micro-step off, and the optimizer steps on local gradients."""
    assert reports(sync, step)


def test_the_start_of_enumerate_counts():
    """`enumerate(loader, 1)` shifts the condition by one."""
    assert not reports("i % args.accumulate == 0", "i % args.accumulate == 0", ", start=1")
    assert reports(EVERY, "i % args.accumulate == 0", ", 1")


def test_conditions_that_cannot_be_read_are_left_out():
    """A function of another module may mean the same micro-steps."""
    assert not reports("sync_now(i)", EVERY)
    assert not reports(EVERY, "ready(i)")
