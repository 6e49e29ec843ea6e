"""Parameters without a gradient in some steps, sparse and complex ones, and buffers of any layer: N ranks are one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from paceline.pool.warm_ranks import run_ranks
from paceline.records.errors import PacelineError
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir
from paceline.records.schema import Note
from paceline.train.optim.build import build_optimizer
from paceline.train.optim.table import OPTIMIZERS
from tests.distributed.absent import MODELS, Depth, DepthWithNorm, RunningMean, flags, one_process, task_of, worst
from tests.distributed.jobs import trained
from tests.distributed.test_strategies import differences, own_settings

LIMIT = 1e-13
VARIANTS: list[dict[str, Any]] = [
    {"weight_decay": 0.1, "noise_every": 1},
    {"accumulate": 3, "clip_norm": 0.3},
]


def sgd(weight_decay: float) -> Any:
    """torch's SGD without any fused kernel; biases do not decay."""

    def make(model: nn.Module) -> torch.optim.Optimizer:
        matrices = [p for p in model.parameters() if p.ndim > 1]
        others = [p for p in model.parameters() if p.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others}]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9, foreach=False)

    return make


def compared(base: str) -> list[tuple[str, float, bool]]:
    """Each model in each variant, and each optimizer, against one process; runs on a rank."""
    found = []

    def compare(case: str, name: str, settings: dict[str, Any], reference: Any) -> None:
        done = trained(flags(**settings), task_of(MODELS[name]), f"{base}/{len(found)}")
        expected = one_process(
            name, reference, accumulate=settings.get("accumulate", 1), clip=settings.get("clip_norm")
        )
        found.append((f"{name}, {case}", worst(done["parameters"] + done["buffers"], expected), done["bit_equal"]))

    for name in MODELS:
        for variant in VARIANTS:
            # torch's SGD refuses to decay where a gradient is sparse, and so do we.
            settings = variant | ({"weight_decay": 0.0} if name == "sparse" else {})
            compare(str(settings), name, settings, sgd(settings.get("weight_decay", 0.0)))
    for optimizer in OPTIMIZERS:
        settings = {"optimizer": optimizer, "lr": 0.05, "momentum": None, "weight_decay": 0.01}
        own = own_settings(optimizer)
        compare(optimizer, "comes and goes", settings, lambda model, o=optimizer, s=own: build_optimizer(o, model, s))
    return found


@pytest.mark.parametrize("world", [1, 2, 3])
def test_parameters_without_a_gradient_in_some_steps_move_as_in_one_process(world: int, tmp_path: Path) -> None:
    """Weights and counters within 1e-13, the same bits on all ranks, also where ranks have no sample of a batch."""
    for rank in run_ranks(compared, world, str(tmp_path), timeout_s=240):
        for case, error, bit_equal in rank:
            assert error <= LIMIT, f"{case}: {error}"
            assert bit_equal, case


RESUMED = {
    "comes late": {},
    "unfreezes": {"optimizer": "adamw", "momentum": None},
    "sparse": {"compress": "bf16"},
    "depth": {"average": "ema"},
}


def resumed(base: str) -> list[tuple[str, list[str]]]:
    """What differs between an undisturbed run and one resumed in its middle; runs on a rank."""
    found = []
    for name, changes in RESUMED.items():
        whole, half = Path(base) / f"{name}-whole", Path(base) / f"{name}-half"
        settings = flags(precision="fp32", checkpoint_every="3", keep=99, **changes)
        trained(settings, task_of(MODELS.get(name, Depth)), str(whole))
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.copytree(whole, half)
            for path in sorted((half / "checkpoints").iterdir())[1:]:
                shutil.rmtree(path)
        dist.barrier()
        trained({**settings, "resume": str(half)}, task_of(MODELS.get(name, Depth)), str(half))
        dist.barrier()
        last = sorted((whole / "checkpoints").iterdir())[-1].name
        found.append((name, differences(whole / "checkpoints" / last, half / "checkpoints" / last)))
    return found


def test_a_model_whose_branches_depend_on_its_state_resumes_to_the_bit(tmp_path: Path) -> None:
    """With three ranks, where the order in which gradients are summed shows; stochastic depth included."""
    for rank in run_ranks(resumed, 3, str(tmp_path), timeout_s=240):
        assert rank == [(name, []) for name in RESUMED]


def with_running_mean(base: str) -> dict[str, Any]:
    """A running mean that is no batch norm's, and averages of weights, against one process; runs on a rank."""
    settings = flags(global_batch=12, average="ema", ema_decay=0.9)
    done = trained(settings, task_of(RunningMean, 36), base)
    expected = one_process(RunningMean, sgd(0.0), samples=36, batch=12)
    numbers = [i for i, value in enumerate(expected) if value.ndim and (abs(value) < 1e300).all()]
    ours = done["parameters"] + done["buffers"]
    return {
        "error": worst([ours[i] for i in numbers], [expected[i] for i in numbers]),
        "mask": done["buffers"][2].tolist(),
        "index": done["buffers"][3].tolist(),
    }


@pytest.mark.parametrize("world", [1, 2, 3])
def test_running_statistics_of_any_layer_are_those_of_one_process(world: int, tmp_path: Path) -> None:
    """Where each rank has an equal part of each batch; masks with inf, and indices, stay, also in an average."""
    for rank in run_ranks(with_running_mean, world, str(tmp_path)):
        assert rank["error"] <= LIMIT
        assert rank["mask"] == [0.0, float("-inf")]
        assert rank["index"] == [0, 1, 2, 3, 4]

    notes = [e.message for e in EventStream(RunDir(tmp_path).events(0)) if isinstance(e, Note)]
    told = [note for note in notes if note.startswith("2 buffers differ between workers, mean first")]
    assert len(told) == (world > 1)


def refused(base: str, number: int) -> tuple[str, str]:
    """What is said of a setting that cannot be; runs on a rank."""
    models = (MODELS["sparse"], MODELS["sparse"], MODELS["complex"], DepthWithNorm)
    changes: list[dict[str, Any]] = [
        {"optimizer": "adamw", "momentum": None},
        {"weight_decay": 0.1},
        {"optimizer": "lamb", "momentum": None},
        {"batch_norm": "sync", "global_batch": 23, "epochs": 20},
    ]
    try:
        trained(flags(**changes[number]), task_of(models[number]), f"{base}/{number}")
    except PacelineError as error:
        return error.what, error.why
    return "", ""


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "the optimizer adamw does not take the sparse gradient of rare.weight|words.weight"),
        (1, "weight decay cannot be applied to the sparse gradient of rare.weight|words.weight"),
        (2, "the optimizer lamb cannot train the complex parameter wave"),
        (3, "workers took different branches through a model with synchronised batch norm"),
    ],
)
def test_what_cannot_be_is_refused_on_all_ranks_with_the_parameter_named(
    number: int, words: str, tmp_path: Path
) -> None:
    """Sparse and complex parameters, and branches by chance in front of a synchronised norm, which would hang."""
    for what, why in run_ranks(refused, 2, str(tmp_path), number, timeout_s=60):
        assert any(what == f"{words.split('|')[0]}" or what.endswith(other) for other in words.split("|")), what
        if number == 3:
            assert "side.1" in why
