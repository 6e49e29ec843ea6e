"""Batch norms over ranks: synchronised ones are one process's, and ghost ones do not depend on the number of ranks."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline.parallel.buffers import merge_buffers
from paceline.parallel.partition import batch_span, epoch_order
from paceline.pool.warm_ranks import run_ranks
from paceline.records.errors import PacelineError
from paceline.tasks.classify import cross_entropy
from paceline.tasks.models.cnn import FashionCNN
from paceline.train.ddp_warmup import warm_up_ddp
from paceline.train.model import without_samples
from paceline.train.norms.convert import with_batch_norm
from paceline.train.objective import Objective, read_totals
from tests.distributed.jobs import small_task, trained
from tests.parallel.ranks import ranks_bit_equal
from tests.train.ranks import NO_WISHES, told, wrapped

LIMIT = 1e-13
SPLITS = [[7], [5, 2], [0, 6], [4, 1, 3], [3, 0, 4], [0, 2, 1]]
SHAPES: dict[str, tuple[type[nn.Module], tuple[int, ...]]] = {
    "1d": (nn.BatchNorm1d, (5,)),
    "1d of sequences": (nn.BatchNorm1d, (5, 3)),
    "2d": (nn.BatchNorm2d, (5, 4, 3)),
    "3d": (nn.BatchNorm3d, (5, 2, 3, 4)),
}
SETTINGS: list[dict[str, Any]] = [{}, {"affine": False}, {"momentum": None}, {"track_running_stats": False}]
convert = partial(with_batch_norm, momentum=None, device=torch.device("cpu"))


def fresh(shape: str, settings: dict[str, Any]) -> nn.Module:
    """torch's norm in float64, with weights that are not 1 and 0."""
    module, size = SHAPES[shape]
    norm = module(size[0], **settings).double()
    for number, parameter in enumerate(norm.parameters()):
        parameter.data = torch.linspace(0.5, 2, size[0], dtype=torch.float64) * (number + 1)
    return norm


def values(samples: int, shape: str, step: int) -> tuple[Tensor, Tensor]:
    """Values with a mean of 5, and a gradient from above."""
    generator = torch.Generator().manual_seed(step)
    size = (samples, *SHAPES[shape][1])
    x = torch.randn(size, generator=generator, dtype=torch.float64) * 2 + 5
    return x, torch.randn(size, generator=generator, dtype=torch.float64)


def pass_through(norm: nn.Module, x: Tensor, above: Tensor) -> list[Tensor]:
    """Output, gradient of the values, gradients of the parameters."""
    leaf = x.clone().requires_grad_()
    output = norm(leaf)
    wanted = [leaf, *norm.parameters()]
    return [output.detach(), *torch.autograd.grad((output * above).sum() + output.pow(3).sum(), wanted)]


def synchronised(split: list[int]) -> list[tuple[str, float, bool]]:
    """The worst relative difference to torch on the whole batch, for every shape and setting; runs on a rank."""
    rank, results = dist.get_rank(), []
    start = sum(split[:rank])
    own = slice(start, start + split[rank])
    for shape in SHAPES:
        for settings in SETTINGS:
            theirs, ours = fresh(shape, settings), convert(fresh(shape, settings), "sync", ghost_size=0)
            errors = [0.0]
            for step in range(3):
                x, above = values(sum(split), shape, step)
                whole = pass_through(theirs, x, above)
                part = pass_through(ours, x[own], above[own])
                for gradient in part[2:]:
                    dist.all_reduce(gradient)
                pairs = [*zip(part[2:], whole[2:], strict=True), *zip(ours.buffers(), theirs.buffers(), strict=True)]
                pairs += [(part[0], whole[0][own]), (part[1], whole[1][own])]
                errors += [relative(a, b) for a, b in pairs if a.numel()]
            results.append((f"{shape} {settings}", max(errors), ranks_bit_equal(list(ours.buffers()))))
    return results


def relative(ours: Tensor, theirs: Tensor) -> float:
    """norm(a - b) / norm(b)."""
    return float((ours - theirs).double().norm() / theirs.double().norm())


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_outputs_gradients_and_statistics_are_those_of_one_process_on_the_whole_batch(split: list[int]) -> None:
    """Uneven and empty parts, every shape, with and without weights and statistics; statistics equal to the bit."""
    for rank in run_ranks(synchronised, len(split), split):
        assert len(rank) == 16
        for case, error, bit_equal in rank:
            assert error <= LIMIT, f"{case}: {error}"
            assert bit_equal, case


def shifted(large: float) -> tuple[Tensor, Tensor]:
    """float32 statistics of values around a large mean; runs on a rank."""
    norm = convert(nn.BatchNorm1d(4, momentum=1.0), "sync", ghost_size=0)
    generator = torch.Generator().manual_seed(dist.get_rank())
    norm(torch.randn(500, 4, generator=generator) + large + dist.get_rank())
    return norm.running_mean, norm.running_var


def test_a_mean_that_is_large_beside_the_deviation_costs_no_digits_in_float32() -> None:
    """A mean of 3,000 and a deviation of 1: sums of squares in float32 would be off by half the variance."""
    exact = torch.cat(
        [torch.randn(500, 4, generator=torch.Generator().manual_seed(r)) + 3000.0 + r for r in range(3)]
    ).double()

    for mean, variance in run_ranks(shifted, 3, 3000.0):
        assert relative(mean, exact.mean(0)) < 1e-6
        assert relative(variance, exact.var(0)) < 1e-3


def alone() -> Any:
    """One sample on all ranks together; runs on a rank."""
    norm = convert(nn.BatchNorm1d(3), "sync", ghost_size=0)
    try:
        norm(torch.ones(1 if dist.get_rank() == 1 else 0, 3))
    except PacelineError as error:
        dist.barrier()  # nobody went on alone
        return told(error)
    return "went on"


def test_a_single_sample_on_all_ranks_is_refused_on_all_of_them() -> None:
    """The ranks without one know it too."""
    for what, why, code in run_ranks(alone, 3, timeout_s=30):
        assert what.startswith("batch norm cannot normalise a single sample")
        assert why == "all workers together have one value for each channel"
        assert code == 1


def images(samples: int) -> tuple[Tensor, Tensor]:
    """Random images and labels."""
    generator = torch.Generator().manual_seed(3)
    return torch.randn(samples, 1, 28, 28, generator=generator), torch.randint(10, (samples,), generator=generator)


def cnn(dtype: str) -> nn.Module:
    """The network of fashion-mnist, as the trainer places it."""
    torch.manual_seed(8)
    return FashionCNN().to(getattr(torch, dtype)).to(memory_format=torch.channels_last)


def network_step(split: list[int], dtype: str, autocast: bool) -> dict[str, Any]:
    """A step of the network in DDP with the trainer's objective; a rank without samples runs on an empty batch."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model = convert(cnn(dtype), "sync", ghost_size=0)
    context = partial(torch.autocast, "cpu", dtype=torch.bfloat16) if autocast else nullcontext
    objective = Objective(model, cross_entropy(), context)
    x, y = images(sum(split))
    x = x.to(getattr(torch, dtype)).to(memory_format=torch.channels_last)
    objective.empty = without_samples((x[:2], y[:2]), (x[:3], y[:3]), (2, 3))
    ddp = wrapped(objective)
    warm_up_ddp(ddp, objective, (x[:2], y[:2]))
    start = sum(split[:rank])
    own = x[start : start + split[rank]], y[start : start + split[rank]]
    ddp(own if split[rank] else None, world / sum(split), NO_WISHES).backward()
    return {
        "gradients": [p.grad.clone() for p in model.parameters()],
        "buffers": list(model.buffers()),
        "count": read_totals(objective.totals(world)).count,
        "equal": ranks_bit_equal([*model.buffers(), *(p.grad for p in model.parameters())]),
    }


def network_alone(samples: int, dtype: str, autocast: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients and buffers after one step in one process, with torch's batch norm."""
    model = cnn(dtype)
    x, y = images(samples)
    x = x.to(getattr(torch, dtype)).to(memory_format=torch.channels_last)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    return [p.grad for p in model.parameters()], list(model.buffers())


@pytest.mark.parametrize("split", [[8], [5, 3], [4, 0, 4]], ids=str)
def test_a_network_of_two_norms_trains_as_on_one_process_with_ranks_that_have_no_sample(split: list[int]) -> None:
    """Float64: within 1e-12 through two norms and two convolutions; bf16: no further off than torch's own."""
    gradients, buffers = network_alone(sum(split), "float64", False)
    torchs, _ = network_alone(sum(split), "float32", True)

    exact = run_ranks(network_step, len(split), split, "float64", False)
    rounded = run_ranks(network_step, len(split), split, "float32", True)

    for result in exact:
        assert max(map(relative, result["gradients"], gradients)) <= 1e-12
        assert max(map(relative, result["buffers"], buffers)) <= LIMIT
        assert result["count"] == sum(split)
        assert result["equal"]
    for result in rounded:
        for ours, theirs, true in zip(result["gradients"], torchs, gradients, strict=True):
            assert relative(ours, true) <= 1.2 * relative(theirs, true) + 1e-3
        assert max(map(relative, result["buffers"], buffers)) <= 5e-3
        assert result["equal"]


# -- ghost -----------------------------------------------------------------------------------------------------------


def local_outputs(samples: int) -> tuple[Tensor, list[Tensor]]:
    """The output of torch's own norm under DDP on this rank's part, and all ranks' merged buffers."""
    rank, world = dist.get_rank(), dist.get_world_size()
    norm = fresh("2d", {})
    x, _ = values(samples, "2d", 0)
    output = wrapped(norm)(x.chunk(world)[rank])
    merge_buffers(norm)
    return output.detach(), list(norm.buffers())


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_local_norm_under_ddp_is_a_ghost_norm_of_the_ranks_part(world: int) -> None:
    """Outputs to the bit; running statistics, once merged, to rounding: 12 samples on 1, 2 and 3 ranks."""
    norm = convert(fresh("2d", {}), "ghost", ghost_size=12 // world)
    output = norm(values(12, "2d", 0)[0])

    results = run_ranks(local_outputs, world, 12)

    assert torch.equal(torch.cat([found for found, _ in results]), output)
    for _, buffers in results:
        assert max(map(relative, buffers, norm.buffers())) <= LIMIT


SAMPLES, BATCH, SIZE, STEPS = 192, 48, 8, 12


def plain() -> tuple[list[Tensor], list[Tensor]]:
    """The same training in one process, groups and running statistics written out; no norm of ours, no DDP."""
    torch.manual_seed(0)
    model = small_task(SAMPLES, norm=True).model().double()
    first, norm, last = model[0], model[1], nn.Sequential(*model[2:])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    columns = small_task(SAMPLES, norm=True).train_data.columns
    mean, variance = norm.running_mean.clone(), norm.running_var.clone()
    for step in range(STEPS):
        epoch, index = divmod(step, SAMPLES // BATCH)
        span = batch_span(SAMPLES, BATCH, index)
        picked = torch.from_numpy(epoch_order(SAMPLES, 0, epoch)[span.start : span.stop])
        groups = first(columns[0][picked]).split(SIZE)
        scaled = [
            (g - g.mean(0)) / (g.var(0, correction=0) + norm.eps).sqrt() * norm.weight + norm.bias for g in groups
        ]
        loss = nn.functional.cross_entropy(last(torch.cat(scaled)), columns[1][picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        means, variances = torch.stack([g.mean(0) for g in groups]), torch.stack([g.var(0) for g in groups])
        mean = 0.9 * mean + 0.1 * means.mean(0).detach()
        variance = 0.9 * variance + 0.1 * variances.mean(0).detach()
    return [p.detach() for p in model.parameters()], [mean, variance]


def on_ranks(run_dir: str) -> tuple[list[np.ndarray], list[np.ndarray], bool]:
    """Parameters and buffers of the trainer, which has merged them for its last evaluation; runs on a rank."""
    config = {
        "task": "small",
        "global_batch": BATCH,
        "steps": STEPS,
        "optimizer": "sgd",
        "lr": 0.1,
        "momentum": 0.9,
        "weight_decay": 0.0,
        "schedule": "constant",
        "precision": "fp64",
        "batch_norm": "ghost",
        "ghost_size": SIZE,
    }
    done = trained(config, small_task(SAMPLES, norm=True), run_dir)
    return done["parameters"], done["buffers"], done["bit_equal"]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ghost_norm_does_not_depend_on_the_ranks_where_parts_are_multiples_of_its_size(
    world: int, tmp_path: Path
) -> None:
    """Weights and running statistics of the trainer after 12 steps are one plain process's within 1e-13."""
    parameters, statistics = plain()

    for found, buffers, bit_equal in run_ranks(on_ranks, world, str(tmp_path / "run")):
        ours = [torch.from_numpy(array) for array in (*found, *buffers[:2])]
        assert max(map(relative, ours, [*parameters, *statistics])) <= LIMIT
        assert bit_equal
