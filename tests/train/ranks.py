"""What runs on ranks in these tests: small models, wrapped as the trainer wraps them."""

from __future__ import annotations

import inspect
import random
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from paceline.parallel.buffers import merge_buffers
from paceline.parallel.partition import split
from paceline.records.errors import PacelineError
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.tasks.classify import cross_entropy
from paceline.tasks.data.arrays import Like
from paceline.tasks.task import Arrays, Gathered, Loss, Task, accuracy
from paceline.train import training_state
from paceline.train.averaging import Average
from paceline.train.batch_plan import Plan
from paceline.train.ddp_warmup import inspect_loss, warm_up_ddp
from paceline.train.evaluate import evaluate
from paceline.train.feed import make_feed
from paceline.train.norms.convert import with_batch_norm
from paceline.train.objective import Objective, read_totals
from paceline.train.recorder import Recorder

NO_WISHES = (0.0, 0.0, 0.0)
LIKE = Like(torch.device("cpu"), torch.float64, channels_last=False)


def told(error: PacelineError) -> tuple[str, str, int]:
    """An error as plain data."""
    return error.what, error.why, error.exit_code


def wrapped(objective: Objective, **changes: Any) -> DistributedDataParallel:
    """DDP as the trainer has it: buffers stay each rank's own."""
    renamed = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    keep = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
    return DistributedDataParallel(objective, gradient_as_bucket_view=True, **keep, **changes)


def points(samples: int, features: int = 3, classes: int = 4) -> tuple[Tensor, Tensor]:
    """Random inputs (samples, features) float64 and labels (samples,)."""
    generator = torch.Generator().manual_seed(samples)
    x = torch.randn(samples, features, generator=generator, dtype=torch.float64)
    return x, torch.randint(classes, (samples,), generator=generator)


def network(*, norm: bool = False, dropout: bool = False, features: int = 3, classes: int = 4) -> nn.Module:
    """A small network in float64, the same on every rank."""
    torch.manual_seed(4)
    middle = [nn.BatchNorm1d(8)] if norm else []
    noise = [nn.Dropout(0.5)] if dropout else []
    return nn.Sequential(nn.Linear(features, 8), *middle, nn.Tanh(), *noise, nn.Linear(8, classes)).double()


def one_step(sizes: list[int], poisoned: int | None, stopping: dict[int, tuple[float, float, float]]) -> dict[str, Any]:
    """Forward and backward where rank r has sizes[r] samples; what the ledger says, and the gradients.

    Args:
        sizes: samples of each rank.
        poisoned: a rank whose inputs hold a NaN.
        stopping: wishes by rank.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    model = network()
    objective = Objective(model, cross_entropy(), nullcontext)
    ddp = wrapped(objective)
    x, y = points(sum(sizes))
    start = sum(sizes[:rank])
    own = x[start : start + sizes[rank]].clone(), y[start : start + sizes[rank]]
    if rank == poisoned:
        own[0][0, 0] = float("nan")
    batch = own if sizes[rank] else None
    ddp(batch, world / sum(sizes), stopping.get(rank, NO_WISHES)).backward()
    return {
        "totals": read_totals(objective.totals(world)),
        "gradients": [p.grad.numpy().copy() for p in model.parameters()],
    }


def empty_rank() -> dict[str, Any]:
    """A rank's own gradients and buffers after a forward without samples, no DDP."""
    model = network(norm=True)
    objective = Objective(model, cross_entropy(), nullcontext)
    before = [b.clone() for b in model.buffers()]
    value = objective(None, 7.0, (0.0, 1.0, 0.0))
    value.backward()
    return {
        "value": value.item(),
        "gradients": [p.grad for p in model.parameters()],
        "ledger": objective.ledger.grad.tolist(),
        "buffers equal": all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True)),
    }


def collectives(accumulation: int, steps: int) -> list[str]:
    """Names of the collectives that `steps` steps of `accumulation` micro-batches issue, settled before."""
    model = network()
    objective = Objective(model, cross_entropy(), nullcontext)
    ddp = wrapped(objective)
    x, y = points(6)
    warm_up_ddp(ddp, objective, (x, y))
    issued: list[str] = []
    dist.group.WORLD.register_pre_hook(1, lambda call: issued.append(str(call.name).rpartition(".")[2]))
    for _ in range(steps):
        for position in range(accumulation):
            with nullcontext() if position == accumulation - 1 else ddp.no_sync():
                ddp((x, y), 1.0, NO_WISHES).backward()
        objective.zero_grad(set_to_none=True)
    return issued


def random_state() -> list[Any]:
    """Of all three generators, comparable."""
    return [
        random.getstate(),
        np.random.get_state()[1].tolist(),
        np.random.get_state()[2:],
        torch.get_rng_state().tolist(),
    ]


def everything(objective: Objective) -> list[Any]:
    """All that settling must not touch."""
    tensors = [*objective.parameters(), *objective.buffers()]
    return [
        [t.detach().numpy().tobytes() for t in tensors],
        [p.grad is None for p in objective.parameters()],
        random_state(),
        objective.training,
    ]


class Noisy(nn.Module):
    """Draws from all three generators in its forward, and has a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network(norm=True, dropout=True)

    def forward(self, x: Tensor) -> Tensor:
        """Logits with noise."""
        return self.inner(x + random.random() + np.random.standard_normal())


def settled(inspected_only: bool) -> dict[str, bool]:
    """Whether everything is as before, and whether the work was done at all."""
    torch.manual_seed(10 + dist.get_rank())
    model = Noisy()
    objective = Objective(model, cross_entropy(), nullcontext)
    ddp = wrapped(objective)
    passes = []
    model.register_forward_hook(lambda *_: passes.append(1))
    random.gauss(0, 1)
    np.random.standard_normal()
    before = everything(objective)
    if inspected_only:
        inspect_loss(objective, points(9), "t", 9)
    else:
        warm_up_ddp(ddp, objective, points(9))
    return {"same": everything(objective) == before, "ran": len(passes) > 0}


def gradients_of_steps(settle_first: bool, steps: int) -> list[bytes]:
    """The bits of the gradient of the same batch, a step after another; enough parameters for several buckets."""
    torch.manual_seed(1)
    model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(40, 40), nn.Tanh())), nn.Linear(40, 4))
    objective = Objective(model, cross_entropy(), nullcontext)
    ddp = wrapped(objective, bucket_cap_mb=0.02)
    torch.manual_seed(100 + dist.get_rank())
    batch = torch.randn(5, 40), torch.randint(4, (5,))
    if settle_first:
        warm_up_ddp(ddp, objective, batch)
    bits = []
    for _ in range(steps):
        ddp(batch, 0.1, NO_WISHES).backward()
        bits.append(b"".join(p.grad.numpy().tobytes() for p in model.parameters()))
        objective.zero_grad(set_to_none=True)
    return bits


class Branches(nn.Module):
    """Three linear layers, of which a rank uses the first, and those of its own list."""

    def __init__(self, used: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 4).double() for _ in range(3))
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)
        self.used = used

    def forward(self, x: Tensor) -> Tensor:
        """The sum of the layers in use."""
        return sum(self.layers[i](x) for i in (0, *self.used))


def unreached(used: list[list[int]]) -> list[str]:
    """Names that `inspect_loss` gives where rank r uses the layers used[r]."""
    objective = Objective(Branches(used[dist.get_rank()]), cross_entropy(), nullcontext)
    return inspect_loss(objective, points(5), "t", 5).unreached


class Changing(nn.Module):
    """Changes more about itself in a forward than its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4).double()
        self.late = nn.Parameter(torch.ones(4, dtype=torch.float64), requires_grad=False)
        self.calls = 0
        self.seen = torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        """Noisy logits."""
        self.calls += 1
        self.seen += len(x)
        self.late.requires_grad_(True)
        return self.layer(x) + self.late + torch.rand(4)


def changed() -> dict[str, Any]:
    """What is left of an inspection, and what it says."""
    model = Changing()
    probe = inspect_loss(Objective(model, cross_entropy(), nullcontext), points(5), "t", 5)
    return {
        "calls": model.calls,
        "seen": model.seen.tolist(),
        "frozen": not model.late.requires_grad,
        "unsaved": probe.unsaved,
        "draws": probe.draws,
    }


def refused_on_rank_one(norm: str) -> Any:
    """What each rank says of a loss that counts wrongly on rank 1 only, in front of a batch norm of that kind."""
    wrong = dist.get_rank() == 1
    model = with_batch_norm(network(norm=True), norm, ghost_size=2, momentum=None, device=torch.device("cpu"))

    def loss(model: nn.Module, batch: Any) -> Loss:
        right = cross_entropy()(model, batch)
        return Loss(right.sum, right.count + wrong)

    try:
        return inspect_loss(Objective(model, loss, nullcontext), points(5), "t", 5).unreached
    except PacelineError as error:
        return told(error)


class Rows:
    """The same data as a map-style dataset; `short` makes its batches one sample shorter than asked."""

    def __init__(self, columns: tuple[Tensor, ...], short: bool = False) -> None:
        self.columns = columns
        self.short = short

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(column[index] for column in self.columns)

    def collate(self, rows: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """Stack, and drop the last row when there are two and more."""
        kept = rows[:-1] if self.short and len(rows) > 1 else rows
        return tuple(torch.stack(column) for column in zip(*kept, strict=True))


def confidence(outputs: Tensor, batch: Any) -> Tensor:
    """Rows (batch, 2): the first logit, and whether the label is class 0."""
    return torch.stack([outputs[:, 0], (batch[1] == 0).to(outputs.dtype)], dim=1)


def area_under_curve(rows: Tensor) -> float:
    """The share of pairs (class 0, other) in which class 0 has the larger logit: not a mean over samples."""
    logits, positive = rows[:, 0], rows[:, 1] > 0
    return float((logits[positive][:, None] > logits[~positive][None, :]).double().mean())


def order_of(rows: Tensor) -> float:
    """A number that changes when two rows change places."""
    return float((rows[:, 0] * torch.arange(1, len(rows) + 1)).sum())


def evaluation_task(samples: int, kind: str) -> Task:
    """A task whose evaluation set has so many samples."""
    columns = points(samples)
    data = Arrays(*columns) if kind == "arrays" else Rows(columns, short=kind == "short")
    metrics: dict[str, Any] = {"accuracy": accuracy, "order": Gathered(confidence, order_of)}
    if samples > 20:
        metrics["auc"] = Gathered(confidence, area_under_curve)
    return Task("t", network, cross_entropy(), data, data, metrics, count="samples", eval_batch=4)


def evaluated(sizes: list[int], kind: str) -> list[Any]:
    """Measures of an evaluation for each size, as (value, count) by name, and whether the mode came back."""
    results: list[Any] = []
    for samples in sizes:
        task = evaluation_task(samples, kind)
        objective = Objective(task.model(), task.loss, nullcontext)
        plan = Plan(samples, 64, 1, 0, dist.get_world_size(), dist.get_rank())
        feed = make_feed(task.eval_data, plan, LIKE, 0)
        try:
            measured = evaluate(objective, task, feed)
        except PacelineError as error:
            dist.barrier()
            results.append(told(error))
            continue
        assert objective.model.training
        results.append({name: (m.value, m.count) for name, m in measured.items()})
    return results


def evaluated_with_statistics(samples: int) -> dict[str, Any]:
    """A loss that depends on batch-norm statistics, which differ between ranks until they are merged."""
    task = Task("t", lambda: network(norm=True), cross_entropy(), Arrays(*points(samples)), Arrays(*points(samples)))
    objective = Objective(task.model(), task.loss, nullcontext)
    rank = dist.get_rank()
    span = split(samples, dist.get_world_size(), rank)
    task.loss(objective.model, tuple(c[span.start : span.stop] for c in points(samples)))
    own = {n: b.numpy().copy() for n, b in objective.model.named_buffers()}
    plan = Plan(samples, 64, 1, 0, dist.get_world_size(), rank)
    measured = evaluate(objective, task, make_feed(task.eval_data, plan, LIKE, 0))
    return {"buffers": own, "loss": measured["loss"].value}


def average_of(model: nn.Module, kind: str) -> Average | None:
    """An average of that kind, which takes in the weights after step 12; None for `none`."""
    if kind not in ("ema", "swa"):
        return None
    plan = Plan(40, 10, 1, 0, dist.get_world_size(), dist.get_rank())
    feed = make_feed(Arrays(*points(40)), plan, LIKE, 0)
    objective = Objective(model, cross_entropy(), nullcontext)
    return Average(objective, feed, plan, decay=0.5 if kind == "ema" else None, first_step=1, last_step=12)


def saved_and_loaded(folder: str, kind: str = "none") -> dict[str, Any]:
    """A checkpoint of two ranks with buffers and random states of their own, read again on this rank."""
    rank = dist.get_rank()
    run = RunDir(Path(folder))
    model = network(norm=True)
    average = average_of(model, kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    cross_entropy()(model, points(5 + 3 * rank)).sum.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
    if average is not None:
        average.update(model, 12)
    torch.manual_seed(50 + rank)
    recorder = Recorder(run, rank, 2)
    recorder.start(1, 0, 0.0)
    keeper = training_state.Keeper(run, "t", 2, recorder)
    progress = training_state.Progress(step=12, samples=99, reached=1, session=3)
    keeper.save(model, average, optimizer, progress, "periodic")
    dist.barrier()
    drawn = torch.rand(3)
    recorder.close()

    path = run.checkpoints / "step-00000012"
    saved = training_state.load(path, "t")
    fresh = network(norm=True)
    other = torch.optim.SGD(fresh.parameters(), lr=9.0, momentum=0.9)
    again = average_of(fresh, kind)
    notes = training_state.restore(saved, fresh, other, again)
    training_state.restore_random(saved)
    averaged = [[] if each is None else [*each.averaged.state_dict().values()] for each in (average, again)]
    momentum = [other.state[p]["momentum_buffer"] for p in fresh.parameters()]
    return {
        "notes": notes,
        "progress": saved.progress,
        "elapsed": progress.elapsed_s,
        "weights": all(torch.equal(a, b) for a, b in zip(model.parameters(), fresh.parameters(), strict=True)),
        "momentum": all(
            torch.equal(a, optimizer.state[p]["momentum_buffer"])
            for a, p in zip(momentum, model.parameters(), strict=True)
        ),
        "rate": other.param_groups[0]["lr"],
        "buffers": all(torch.equal(a, b) for a, b in zip(model.buffers(), fresh.buffers(), strict=True)),
        "random": torch.equal(torch.rand(3), drawn),
        "average": all(torch.equal(a, b) for a, b in zip(*averaged, strict=True)),
        "averaged": {} if average is None else {n: b.numpy().copy() for n, b in average.model.named_buffers()},
        "own": {n: b.numpy().copy() for n, b in model.named_buffers()},
        "file": {n: t.numpy().copy() for n, t in saved.model.items()},
        "checkpoints": [e.step for e in EventStream(run.events(0)) if e.__struct_config__.tag == "checkpoint"],
    }


def restored(folder: str, kind: str) -> Any:
    """What restoring the checkpoint of `saved_and_loaded` gives on this number of ranks."""
    path = Path(folder, "checkpoints", "step-00000012")
    try:
        saved = training_state.load(path, "other" if kind == "other task" else "t")
        model = network(norm=True, classes=5 if kind == "other model" else 4)
        average = average_of(model, kind)
        before = torch.get_rng_state()
        notes = training_state.restore(saved, model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), average)
        training_state.restore_random(saved)
    except PacelineError as error:
        return told(error)
    merged = {n: b.numpy().copy() for n, b in model.named_buffers()}
    merge_buffers(model)
    averaged = {} if average is None else {n: b.numpy().copy() for n, b in average.model.named_buffers()}
    untouched = torch.equal(before, torch.get_rng_state())
    return {"notes": notes, "random untouched": untouched, "buffers": merged, "averaged": averaged}
