"""What ranks run in these tests: a training of a small task, and its weights as they end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paceline.parallel.rank_context import StopRequest, init_rank_context
from paceline.records.rundir import RunDir
from paceline.tasks.classify import cross_entropy
from paceline.tasks.data.arrays import Draws, Like, plain
from paceline.tasks.table import TaskOptions
from paceline.tasks.task import Arrays, Loss, Task, accuracy
from paceline.train import setup, task_validation
from paceline.train.config import TrainConfig
from paceline.train.loop import train
from tests.parallel.ranks import ranks_bit_equal


def shaken(columns: tuple[Tensor, ...], draws: Draws | None, like: Like) -> Any:
    """Batches whose points are each made longer or shorter by chance, in training."""
    x, *rest = plain(columns, None, like)
    return (x if draws is None else x * (0.5 + draws.uniform()[:, None].to(x.dtype)), *rest)


def small_task(
    samples: int,
    *,
    tokens: bool = False,
    norm: bool = False,
    features: int = 20,
    classes: int = 5,
    options: TaskOptions | None = None,
) -> Task:
    """A classification of `samples` random points; with `tokens` the loss counts weights instead of samples.

    With `norm` the network has a batch norm. Options reach it: label smoothing, and any augmentation as `shaken`.
    """
    options = options or TaskOptions()
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(samples, features, generator=generator, dtype=torch.float64)
    y = torch.randint(classes, (samples,), generator=generator)
    lengths = torch.randint(1, 9, (samples,), generator=generator)

    def model() -> nn.Module:
        middle = [nn.BatchNorm1d(16)] if norm else []
        # A bias before a batch norm has no gradient but rounding, which Adam and its kin would make a step of.
        return nn.Sequential(nn.Linear(features, 16, bias=not norm), *middle, nn.Tanh(), nn.Linear(16, classes))

    def token_loss(model: nn.Module, batch: Any) -> Loss:
        inputs, labels, weights = batch
        each = nn.functional.cross_entropy(model(inputs), labels, reduction="none")
        return Loss((each * weights).sum(), weights.sum(), None)

    if tokens:
        return Task("tokens", model, token_loss, Arrays(x, y, lengths), Arrays(x[:50], y[:50], lengths[:50]))
    return Task(
        "small",
        model,
        cross_entropy(options.label_smoothing),
        Arrays(x, y, prepare=shaken if options.augment else plain),
        Arrays(x[:53], y[:53]),
        metrics={"accuracy": accuracy},
        count="samples",
    )


def small_task_with_norm(samples: int) -> Callable[[TaskOptions], Task]:
    """What `trained` takes to make the small task with the run's own options."""
    return lambda options: small_task(samples, norm=True, options=options)


def trained(
    config: dict[str, Any], task: Task | Callable[[TaskOptions], Task] | tuple[int, bool] | None, run_dir: str
) -> dict[str, Any]:
    """Train on this rank; parameters (after), whether ranks are bit-equal, and the last evaluation."""
    if task is not None:
        built = small_task(task[0], tokens=task[1]) if isinstance(task, tuple) else task
        task_validation.load_task = lambda spec, options: built if isinstance(built, Task) else built(options)  # type: ignore[assignment]
    context = init_rank_context(["test"])
    job = setup.build(TrainConfig.from_dict(config), context, RunDir(Path(run_dir)), StopRequest())
    outcome = train(job)
    job.recorder.close()
    parameters = [p.detach() for p in job.replica.model.parameters()]
    return {
        "parameters": [p.numpy().copy() for p in parameters],
        "buffers": [b.numpy().copy() for b in job.replica.model.buffers()],
        "averaged": [p.numpy().copy() for p in job.replica.average.model.parameters()] if job.replica.average else [],
        "bit_equal": ranks_bit_equal(parameters),
        "outcome": outcome.reason,
        "step": job.progress.step,
        "modules": "paceline.train.loop" in sys.modules,
    }
