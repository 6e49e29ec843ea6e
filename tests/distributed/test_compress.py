"""Gradients in 16 bits: how wrong they are, what stays exact, what is sent, and how an overflow ends."""

from __future__ import annotations

import gc
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.pool.warm_ranks import run_ranks
from paceline.records.errors import Exit, PacelineError
from paceline.tasks.task import Arrays, Loss, Task
from paceline.train import compress
from paceline.train.choices import COMPRESSIONS
from paceline.train.ddp_warmup import warm_up_ddp
from paceline.train.objective import Objective, read_totals
from tests.distributed.jobs import trained
from tests.parallel.ranks import ranks_bit_equal
from tests.train.ranks import NO_WISHES, told, wrapped

KINDS = ["bf16", "fp16"]
LEDGER_BYTES = 4 * (7 + 1 + 4)
"""Loss, count and stop; whether one was unfrozen; and for each of the four parameters the ranks that reached it."""
LIMITS = {"bf16": 4e-3, "fp16": 5e-4}
ONE_BUCKET, SMALL_BUCKETS = 25.0, 0.001


def net() -> nn.Module:
    """Two layers, the same on every rank."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 10))


def rows(rank: int) -> tuple[Tensor, Tensor]:
    """A rank's 16 samples."""
    generator = torch.Generator().manual_seed(50 + rank)
    return torch.randn(16, 20, generator=generator), torch.randint(10, (16,), generator=generator)


def counted(model: nn.Module, batch: Any) -> Loss:
    """Cross-entropy whose count and sum no 16-bit number can hold: 4,099 a rank, and 12345.678 more in the sum."""
    inputs, labels = batch
    total = nn.functional.cross_entropy(model(inputs), labels, reduction="sum")
    return Loss(total + 12345.678, 4099)


def hooked(kind: str, bucket_mb: float, loss: Any = counted, model: nn.Module | None = None, **changes: Any) -> Any:
    """An objective in DDP with the hook."""
    objective = Objective(model or net(), loss, nullcontext)
    ddp = wrapped(objective, bucket_cap_mb=bucket_mb, **changes)
    compress.register(ddp, kind, objective)
    return objective, ddp


def one_step(kind: str, bucket_mb: float, unused: bool) -> dict[str, Any]:
    """Gradients and ledger of a step with the final buckets; runs on a rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    objective, ddp = hooked(kind, bucket_mb, find_unused_parameters=unused)
    warm_up_ddp(ddp, objective, rows(rank))
    ddp(rows(rank), 1 / 16, (0.0, float(rank == 0), 0.0)).backward()
    gradients = [p.grad for p in objective.model.parameters()]
    return {
        "gradients": [g.numpy().copy() for g in gradients],
        "dtype": {g.dtype for g in gradients},
        "totals": read_totals(objective.totals(world)),
        "equal": ranks_bit_equal([*gradients, objective.ledger.grad]),
    }


def one_process(world: int) -> tuple[float, list[np.ndarray]]:
    """In plain PyTorch and float64: the loss sum, and gradients of the mean over all ranks' samples."""
    model = net().double()
    parts = [rows(rank) for rank in range(world)]
    x, y = torch.cat([p[0] for p in parts]).double(), torch.cat([p[1] for p in parts])
    loss = nn.functional.cross_entropy(model(x), y, reduction="sum")
    (loss / len(x)).backward()
    return loss.item(), [p.grad.numpy() for p in model.parameters()]


@pytest.mark.parametrize("bucket_mb", [ONE_BUCKET, SMALL_BUCKETS])
@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_off_by_the_rounding_and_no_more_and_the_ledger_not_at_all(
    kind: str, world: int, bucket_mb: float
) -> None:
    """Each tensor within 5e-4 (fp16) or 4e-3 (bf16) of float64, but not equal; counts and sums as without a hook.

    Every addition rounds, so the limit grows with the ranks from two on.
    """
    limit = LIMITS[kind] * max(2, world) / 2
    loss, gradients = one_process(world)

    results = run_ranks(one_step, world, kind, bucket_mb, world == 3)

    for result in results:
        errors = [
            np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
            for ours, theirs in zip(result["gradients"], gradients, strict=True)
        ]
        assert max(errors) <= limit
        assert max(errors) > limit / 20  # it did travel in 16 bits
        assert result["dtype"] == {torch.float32}
        assert result["totals"].count == 4099 * world
        assert result["totals"].loss == pytest.approx(loss + 12345.678 * world, rel=2e-7)  # float32's own rounding
        assert (result["totals"].terminate, result["totals"].interrupt) == (False, True)
        assert result["equal"]


def sent_in_steps(kind: str, bucket_mb: float, accumulation: int) -> list[dict[str, int]]:
    """Bytes handed to sums over ranks, by dtype, and calls, in each of three steps; runs on a rank."""
    objective, ddp = hooked(kind, bucket_mb)
    warm_up_ddp(ddp, objective, rows(dist.get_rank()))
    real, steps = dist.all_reduce, []

    def all_reduce(tensor: Tensor, *args: Any, **more: Any) -> Any:
        name = str(tensor.dtype).removeprefix("torch.")
        steps[-1][name] = steps[-1].get(name, 0) + tensor.nbytes
        steps[-1]["calls"] = steps[-1].get("calls", 0) + 1
        return real(tensor, *args, **more)

    compress.dist.all_reduce = all_reduce
    for _ in range(3):
        steps.append({})
        for position in range(accumulation):
            last = position == accumulation - 1
            with nullcontext() if last else ddp.no_sync():
                ddp(rows(0), 1.0, NO_WISHES).backward()
            assert bool(steps[-1]) == last
        objective.zero_grad(set_to_none=True)
    return steps


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_each_step_sends_two_bytes_a_parameter_and_the_ledger_once_whatever_the_accumulation(
    kind: str, accumulation: int
) -> None:
    """One message of gradients and one of the ledger for a model of one bucket; `sync_bytes` says as much."""
    parameters = sum(p.numel() for p in net().parameters())

    (steps, _) = run_ranks(sent_in_steps, 2, kind, ONE_BUCKET, accumulation)
    (cut, _) = run_ranks(sent_in_steps, 2, kind, SMALL_BUCKETS, accumulation)

    name = {"bf16": "bfloat16", "fp16": "float16"}[kind]
    assert steps == [{name: 2 * parameters, "float32": LEDGER_BYTES, "calls": 2}] * 3
    assert [{k: v for k, v in step.items() if k != "calls"} for step in cut] == [
        {name: 2 * parameters, "float32": LEDGER_BYTES}
    ] * 3
    assert cut[0]["calls"] > 2
    assert compress.sync_bytes(net(), kind) == 2 * parameters


def test_bytes_are_those_of_what_is_trained_in_the_numbers_in_which_it_travels() -> None:
    """Frozen parameters do not travel; without compression each has its own dtype; 16 bits stay 16 bits."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).double(), nn.Linear(2, 2).bfloat16())
    model[1].bias.requires_grad_(False)

    sizes = {kind: compress.sync_bytes(model, kind) for kind in COMPRESSIONS}

    assert sizes == {"none": 16 * 4 + 8 * 8 + 6 * 2, "bf16": 2 * (16 + 8 + 6), "fp16": 2 * (16 + 8 + 6)}


def unhooked(kind: str) -> bool:
    """Whether `none` gives DDP's own bits; runs on a rank."""
    rank = dist.get_rank()
    found = []
    for registered in (True, False):
        objective = Objective(net(), counted, nullcontext)
        ddp = wrapped(objective)
        if registered:
            compress.register(ddp, kind, objective)
        ddp(rows(rank), 1.0, NO_WISHES).backward()
        found.append([p.grad.clone() for p in objective.parameters()])
    return all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_no_compression_leaves_ddps_sum_as_it_is() -> None:
    """Bit for bit, at three ranks, where any hook would change the order of additions."""
    assert run_ranks(unhooked, 3, "none") == [True] * 3


def refused() -> list[Any]:
    """What a backend that cannot sum 16 bits leads to, and an unknown name; runs on a rank."""
    objective = Objective(net(), counted, nullcontext)
    ddp = wrapped(objective)
    errors = []

    def cannot(tensor: Tensor) -> None:
        raise RuntimeError("Invalid scalar type\nframe #0")

    compress.dist.all_reduce = cannot
    for kind in ("bf16", "int8"):
        try:
            compress.register(ddp, kind, objective)
        except PacelineError as error:
            errors.append(told(error))
    return errors


def test_what_the_backend_cannot_sum_is_refused_before_the_first_step() -> None:
    """In one message, on every rank; an unknown name too."""
    (backend, unknown), _ = run_ranks(refused, 2)

    assert backend[0].startswith("--compress bf16 is not supported by the backend gloo of this torch")
    assert backend[1:] == ("Invalid scalar type", Exit.USAGE)
    assert unknown == ("--compress int8 is unknown", "", Exit.USAGE)


class Rectified(nn.Module):
    """Its output is w * x behind a ReLU, beside a layer that always trains: a w of -inf would give a finite loss."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.rest = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(samples, 1) -> (samples, 1)."""
        return torch.relu(x * self.w).sum(1, keepdim=True) + self.rest(x)


def steep(model: nn.Module, batch: Any) -> Loss:
    """A loss with a gradient of 1e6 for w at the start."""
    (x,) = batch
    return Loss((1e6 * model(x)).sum(), len(x))


def overflowing(kind: str, bucket_mb: float) -> tuple[list[float], bool, float]:
    """The ledger after a step whose gradient fp16 cannot hold; whether ranks agree; the loss if the step were taken."""
    objective, ddp = hooked(kind, bucket_mb, steep, Rectified())
    batch = (torch.ones(4, 1),)
    warm_up_ddp(ddp, objective, batch)
    ddp(batch, 0.25, NO_WISHES).backward()
    totals = objective.totals(dist.get_world_size())
    equal = ranks_bit_equal([p.grad for p in objective.parameters()])
    with torch.no_grad():
        for parameter in objective.model.parameters():
            parameter -= 0.1 * parameter.grad
        objective.model.rest.weight.zero_()
        objective.model.rest.bias.zero_()
    return totals.tolist(), equal, steep(objective.model, batch).sum.item()


@pytest.mark.parametrize("bucket_mb", [ONE_BUCKET, 1e-5])
def test_an_overflow_in_fp16_makes_the_steps_loss_nan_on_every_rank_and_bf16_has_none(bucket_mb: float) -> None:
    """Taken, the step would have left a finite loss of 0: nothing else would have shown it. The count stays right."""
    fp16 = run_ranks(overflowing, 2, "fp16", bucket_mb)
    bf16 = run_ranks(overflowing, 2, "bf16", bucket_mb)

    for totals, equal, _ in fp16:
        assert np.isnan(totals[0])
        assert totals[1:] == [0, 8, 0, 0, 0, 0]  # the count in three parts, and nobody wishes anything
        assert equal
    assert fp16[0][2] == 0.0
    for totals, equal, _ in bf16:
        assert np.isfinite(totals).all()
        assert equal


def lopsided(kind: str) -> float:
    """The mean of a gradient that is 80,000 on rank 0 and nothing elsewhere; runs on a rank."""
    model = nn.Linear(1, 1, bias=False)
    objective, ddp = hooked(kind, ONE_BUCKET, lambda model, x: Loss(model(x).sum(), len(x)), model)
    x = torch.full((1, 1), 80_000.0 if dist.get_rank() == 0 else 0.0)
    ddp(x, 1.0, NO_WISHES).backward()
    assert torch.isfinite(objective.totals(2)).all()
    return float(model.weight.grad)


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_fp16_cannot_hold_passes_where_the_mean_over_ranks_can(kind: str) -> None:
    """The division comes before the cast."""
    assert run_ranks(lopsided, 2, kind) == [pytest.approx(40_000, rel=LIMITS[kind])] * 2


def steep_task() -> Task:
    """As above, for the trainer."""
    data = Arrays(torch.ones(32, 1))
    return Task("steep", Rectified, steep, data, data)


def diverged(run_dir: str) -> tuple[Any, str]:
    """How the trainer ends; runs on a rank."""
    flags = {"task": "steep", "global_batch": 8, "steps": 5, "lr": 0.1, "precision": "fp32", "compress": "fp16"}
    try:
        trained({**flags, "optimizer": "sgd", "schedule": "constant"}, steep_task(), run_dir)
    except PacelineError as error:
        return told(error), ""
    return None, "trained"


def test_a_run_that_overflows_ends_as_diverged_before_the_step(tmp_path: Path) -> None:
    """At step 1, with the exit code of a divergence, on both ranks."""
    results = run_ranks(diverged, 2, str(tmp_path / "run"))

    for error, _ in results:
        assert error[0] == "the loss is nan at step 1"
        assert error[2] == Exit.DIVERGED


def abandoned(signal: str) -> str:
    """A step during which rank 1 closes its connections; what rank 0 hears. Runs on a rank."""
    objective, ddp = hooked("fp16", SMALL_BUCKETS)
    warm_up_ddp(ddp, objective, rows(0))
    if dist.get_rank() == 1:
        del objective, ddp
        gc.collect()
        dist.destroy_process_group()
        while not Path(signal).exists():  # the pool would end rank 0 together with this one
            time.sleep(0.05)
        return "gone"
    try:
        ddp(rows(0), 1.0, NO_WISHES).backward()
    except RuntimeError as error:
        return str(error)
    finally:
        Path(signal).touch()
    return "went on"


def test_a_rank_whose_peer_goes_away_hears_of_it_instead_of_waiting(tmp_path: Path) -> None:
    """DDP has a promise for the ledger's bucket while others are on their way; a failure there must not lose it."""
    (heard, gone) = run_ranks(abandoned, 2, str(tmp_path / "done"), timeout_s=30)

    assert heard != "went on"
    assert gone == "gone"
