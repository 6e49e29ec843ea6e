"""The way to another network, and the way that a run went."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from paceline.checkpoint import manifest
from paceline.checkpoint.state import MODEL_FILE, encode_model
from paceline.landscape import interpolation
from paceline.landscape.interpolation import barrier, move, positions
from paceline.landscape.kept_parts import save_rows
from paceline.landscape.measures import TAKE
from paceline.landscape.session import Session
from paceline.landscape.slices import Values, evaluate
from paceline.landscape.trajectory import principal_plane, run_path, window
from paceline.pool.warm_ranks import run_ranks
from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir, write_info
from paceline.records.schema import SCHEMA, RunInfo
from paceline.tasks.classify import cross_entropy
from paceline.tasks.task import Arrays, Task
from tests.landscape.problems import (
    Memory,
    Point,
    conv_net,
    image_task,
    quadratic,
    session,
    taken_on_ranks,
    wide_net,
)
from tests.landscape.test_docs import PAGE


def checkpoint(run: Path, step: int, model: nn.Module, task: str = "images") -> None:
    """A complete checkpoint of a run of paceline train."""
    info = RunInfo(
        schema=SCHEMA, verb="train", name=task, command=[], started_at="", versions={}, config={"task": task}
    )
    write_info(RunDir(run), info)
    manifest.write(run / "checkpoints", step, 1, task, {MODEL_FILE: encode_model(model.state_dict())})


# ---- the way to another network


def test_the_ends_of_a_line_are_exactly_the_two_networks() -> None:
    """To the bit at 0 and at 1, on the line in between, and beyond."""
    generator = torch.Generator().manual_seed(0)
    one, other = torch.randn(2, 1000, generator=generator).unbind()

    def between(t: float) -> torch.Tensor:
        return move(one.clone(), other.numpy(), t)

    assert torch.equal(between(0.0), one)
    assert torch.equal(between(1.0), other)
    for t in (-0.25, 0.5, 1.25):
        assert torch.allclose(between(t), (1 - t) * one + t * other, atol=1e-6)


@pytest.mark.parametrize("points", [2, 9, 25])
def test_positions_hold_both_ends(points: int) -> None:
    """0 and 1 exactly, `points` from one to the other, evenly."""
    t = positions(points)

    assert ((t >= 0) & (t <= 1)).sum() == points
    assert {0.0, 1.0} <= set(t.tolist())
    assert np.allclose(np.diff(t), 1 / (points - 1))


def test_a_barrier_is_what_stands_above_the_straight_line_between_the_ends() -> None:
    """A bump of known height on a slope; what lies beyond the ends does not count; none where the loss sags."""
    t = np.linspace(-0.5, 1.5, 41)
    slope = 1.0 + 2.0 * t

    assert barrier(t, slope + 0.7 * np.exp(-(((t - 0.3) / 0.05) ** 2))) == pytest.approx((0.7, 0.3), abs=1e-9)
    assert barrier(t, slope + 5.0 * (t > 1.2))[0] == pytest.approx(0.0, abs=1e-12)
    assert barrier(t, slope - np.sin(np.pi * np.clip(t, 0, 1)))[0] == pytest.approx(0.0, abs=1e-12)
    assert np.isnan(barrier(t, np.where(t > 0.5, np.nan, slope))[0])


def labelled_by_itself(model: nn.Module) -> Task:
    """A task that `model` has learnt: its own answers are the labels."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(200, 6, generator=generator, dtype=torch.float64)
    data = Arrays(x, model(x).argmax(dim=1))
    return Task("own", lambda: model, cross_entropy(), data, data)


def two_layers() -> nn.Module:
    """A network of one hidden layer of 16 units, with strong opinions."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    with torch.no_grad():
        model[0].weight.mul_(4)
        model[2].weight.mul_(60)
    return model


def permuted(model: nn.Module, order: torch.Tensor) -> nn.Module:
    """The same function with its hidden units in another order."""
    other = two_layers()
    with torch.no_grad():
        other[0].weight.copy_(model[0].weight[order])
        other[0].bias.copy_(model[0].bias[order])
        other[2].weight.copy_(model[2].weight[:, order])
        other[2].bias.copy_(model[2].bias)
    return other


def line_to(model: nn.Module, other: nn.Module, folder: Path) -> Session:
    """A session with both as runs."""
    checkpoint(folder / "one", 5, model, "own")
    checkpoint(folder / "two", 7, other, "own")
    return session(
        labelled_by_itself(model),
        model,
        folder / "parts",
        target=str(folder / "one"),
        other=str(folder / "two"),
        points=9,
    )


def test_exchanging_hidden_units_keeps_the_loss_and_raises_a_barrier(tmp_path: Path) -> None:
    """Equal losses at the ends and a hill in between; undone, the line is flat."""
    model = two_layers()
    order = torch.randperm(16, generator=torch.Generator().manual_seed(2))
    shuffled = permuted(model, order)
    sorted_again = permuted(shuffled, torch.argsort(order))

    apart = TAKE["interpolation"](line_to(model, shuffled, tmp_path / "apart")).result
    together = TAKE["interpolation"](line_to(model, sorted_again, tmp_path / "together")).result

    assert apart.ends[0] == pytest.approx(apart.ends[1], rel=1e-12)
    assert apart.barrier > 5 * apart.ends[0]
    assert apart.distance > 1
    assert together.barrier == pytest.approx(0.0, abs=1e-12)
    assert together.distance == 0.0
    assert (apart.other_checkpoint, together.other_checkpoint) == (7, 7)
    assert len(apart.other_weights) == 64
    assert apart.other_weights != together.other_weights


@pytest.mark.parametrize("kind", ["batch", "saved"])
def test_the_ends_have_exactly_the_two_runs_losses(tmp_path: Path, kind: str) -> None:
    """With saved statistics, too: those of the other network go along, and the model's own come back."""
    one, other = conv_net(), conv_net()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
        other[1].running_mean.fill_(0.3)
        other[1].running_var.fill_(2.0)
    checkpoint(tmp_path / "one", 1, one)
    checkpoint(tmp_path / "two", 2, other)
    settings = {"target": str(tmp_path / "one"), "batch_norm": kind, "points": 5}
    made = session(image_task(), one, tmp_path / "parts", other=str(tmp_path / "two"), **settings)

    outcome = TAKE["interpolation"](made)
    found = outcome.result

    assert all(f"`{name.replace('accuracy', '<metric>')}`" in PAGE for name in outcome.arrays)
    looked_at = [session(image_task(), model, tmp_path / "p", batch_norm=kind) for model in (one, other)]
    assert found.ends == [each.slices.value_alone(each.slices.point()).loss for each in looked_at]
    assert not one[1].running_mean.any()
    assert bool((one[1].running_var == 1).all())


def halfway(t: float, one: nn.Module, other: nn.Module) -> nn.Module:
    """The network on the way: parameters beyond the ends too, statistics those of the nearer end there."""
    made = conv_net()
    with torch.no_grad():
        for own, a, b in zip(made.parameters(), one.parameters(), other.parameters(), strict=True):
            own.copy_((1 - t) * a + t * b)
        held = min(max(t, 0.0), 1.0)
        for name in ("running_mean", "running_var"):
            a, b = getattr(one[1], name), getattr(other[1], name)
            getattr(made[1], name).copy_((1 - held) * a + held * b)
    return made


def apart() -> tuple[nn.Module, nn.Module]:
    """Two networks that differ in everything: a frozen filter, too, and a variance that is a tenth of the other's."""
    one, other = conv_net(), conv_net()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
        other[1].running_mean.fill_(0.3)
        other[1].running_var.copy_(torch.tensor([0.1, 1.0, 3.0]))
        other[1].num_batches_tracked.fill_(77)
    for model in (one, other):
        model[0].weight.requires_grad_(False)
    return one, other


@pytest.mark.parametrize("kind", ["batch", "saved"])
def test_everything_goes_along_to_the_other_run(tmp_path: Path, kind: str) -> None:
    """At every point the loss is that of a network between the two: frozen weights move, and beyond the ends variances
    stay what they are there, since they would fall below zero; everything comes back."""
    one, other = apart()
    checkpoint(tmp_path / "one", 1, one)
    checkpoint(tmp_path / "two", 2, other)
    settings = {"target": str(tmp_path / "one"), "batch_norm": kind, "points": 5}
    made = session(image_task(), one, tmp_path / "parts", other=str(tmp_path / "two"), **settings)
    before = {name: tensor.clone() for name, tensor in one.state_dict().items()}
    pointers = [tensor.data_ptr() for tensor in one.state_dict().values()]

    found = TAKE["interpolation"](made)

    networks = [halfway(t, one, other) for t in found.result.points]
    losses = [session(image_task(), each, tmp_path / "p", batch_norm=kind).slices for each in networks]
    assert found.result.points == [-0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25]
    assert found.result.loss == pytest.approx([each.value_alone(each.point()).loss for each in losses], rel=1e-12)
    parameters = [torch.cat([p.detach().flatten() for p in each.parameters()]) for each in (one, other)]
    assert found.result.distance == pytest.approx(float((parameters[0] - parameters[1]).norm()), rel=1e-12)
    assert found.warnings == []
    assert all(torch.equal(tensor, before[name]) for name, tensor in one.state_dict().items())
    assert [tensor.data_ptr() for tensor in one.state_dict().values()] == pointers


class Ordered(nn.Module):
    """A network that looks at its inputs in an order of its own, which is no number that could be halved."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layer = nn.Linear(36, 4)
        self.register_buffer("order", torch.arange(36))
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.layer(x.flatten(1)[:, self.order])


def test_whole_numbers_that_differ_are_those_of_the_nearer_run(tmp_path: Path) -> None:
    """And that is said, since the loss may jump where they change."""
    one, other = Ordered(), Ordered()
    other.order.copy_(torch.randperm(36, generator=torch.Generator().manual_seed(1)))
    checkpoint(tmp_path / "one", 1, one)
    checkpoint(tmp_path / "two", 2, other)
    settings = {"target": str(tmp_path / "one"), "other": str(tmp_path / "two"), "points": 5}

    found = TAKE["interpolation"](session(image_task(), one, tmp_path / "parts", **settings))

    looked_at = [session(image_task(), each, tmp_path / "p") for each in (one, other)]
    ends = [each.slices.value_alone(each.slices.point()).loss for each in looked_at]
    assert found.result.loss == [ends[0]] * 3 + [ends[1]] * 4
    assert ends[0] != ends[1]
    assert "order" in found.warnings[0]


def test_the_way_to_another_run_is_the_same_for_every_number_of_ranks(tmp_path: Path) -> None:
    """To the bit, saved statistics included."""
    one, other = conv_net(), apart()[1]
    checkpoint(tmp_path / "one", 1, one)
    checkpoint(tmp_path / "two", 2, other)
    settings = {
        "target": str(tmp_path / "one"), "other": str(tmp_path / "two"), "batch_norm": "saved", "points": 4,
    }  # fmt: skip

    worlds = [
        run_ranks(taken_on_ranks, world, str(tmp_path / str(world)), ("interpolation",), settings) for world in (1, 2)
    ]

    alone, *pair = (arrays["interpolation_loss"].tobytes() for ranks in worlds for arrays in ranks)
    assert pair == [alone] * 2


def test_a_rank_holds_two_more_copies_of_the_weights_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While points are evaluated: the point and what the model looks at; the other run's stand in a file."""
    model, other = wide_net(), wide_net()
    checkpoint(tmp_path / "one", 1, model)
    checkpoint(tmp_path / "two", 2, other)
    size = 8 * sum(parameter.numel() for parameter in model.parameters())
    settings = {"target": str(tmp_path / "one"), "other": str(tmp_path / "two"), "points": 3}
    made = session(image_task(8), model, tmp_path / "parts", **settings)

    with Memory() as memory:

        def evaluated(*arguments: Any) -> Values:
            memory.peak = 0  # what was held before counts if it is still held
            return evaluate(*arguments)

        monkeypatch.setattr(interpolation, "evaluate", evaluated)
        TAKE["interpolation"](made)

    assert 1.9 * size < memory.peak < 2.3 * size


def test_a_run_of_another_task_or_size_is_refused(tmp_path: Path) -> None:
    """By name, and by the first tensor that does not fit, be it one too many."""
    checkpoint(tmp_path / "one", 1, conv_net())
    checkpoint(tmp_path / "strange", 1, two_layers(), "own")
    checkpoint(tmp_path / "narrow", 1, two_layers())
    checkpoint(tmp_path / "deep", 1, nn.Sequential(*conv_net(), nn.Linear(4, 4)))

    def refusal(other: str) -> str:
        settings = {"target": str(tmp_path / "one"), "other": str(tmp_path / other)}
        with pytest.raises(PacelineError) as refused:
            TAKE["interpolation"](session(image_task(), conv_net(), tmp_path / "parts", **settings))
        return str(refused.value)

    assert "of the task images" in refusal("strange")
    assert "0.weight" in refusal("narrow")
    assert "is missing here, and of shape" in refusal("deep")


# ---- the way that a run went


def test_the_plane_of_a_path_holds_what_singular_values_say() -> None:
    """Axes, shares and least-squares coordinates against numpy's own decomposition; the axes are orthonormal."""
    generator = np.random.default_rng(3)
    weights = generator.standard_normal((6, 5)) @ np.diag([5, 3, 1, 0.5, 0.1]) @ generator.standard_normal((5, 400))

    axes_found, xy, variance = principal_plane(weights)

    moved = weights[:-1] - weights[-1]
    _, values, axes = np.linalg.svd(moved, full_matrices=False)
    assert variance == pytest.approx(values**2 / (values**2).sum(), abs=1e-10)
    assert axes_found @ axes_found.T == pytest.approx(np.eye(2), abs=1e-10)
    assert np.abs(axes_found @ axes[:2].T) == pytest.approx(np.eye(2), abs=1e-8)
    nearest = np.linalg.lstsq(axes_found.T, moved.T, rcond=None)[0]
    assert np.allclose(xy[:-1], nearest.T, rtol=0, atol=1e-8)
    assert xy[-1].tolist() == [0, 0]


def test_a_path_on_a_straight_line_has_one_axis() -> None:
    """Its share is 1, and nothing is made up for the second."""
    weights = np.outer([3.0, 2.0, 0.5, 0.0], np.ones(7))

    axes_found, xy, variance = principal_plane(weights)

    assert variance[0] == pytest.approx(1.0, abs=1e-12)
    assert not axes_found[1].any()
    assert np.abs(xy[:, 0]) == pytest.approx(np.array([3.0, 2.0, 0.5, 0.0]) * np.sqrt(7))


def test_a_window_shows_the_whole_path() -> None:
    """With room on either side, and wider with a larger span."""
    values = np.array([-1.0, 0.0, 3.0])

    line = window(values, 1.0, 5)

    assert line[0] < -1.0
    assert line[-1] > 3.0
    assert np.ptp(window(values, 2.0, 5)) == pytest.approx(2 * np.ptp(line))
    assert np.ptp(window(np.zeros(3), 1.0, 5)) == 2.0


def path_session(folder: Path, places: list[list[float]], **settings: object) -> Session:
    """A quadratic with checkpoints at some places; it looks at the last."""
    for number, place in enumerate(places):
        checkpoint(folder / "run", 10 * (number + 1), Point(place), "quadratic")
    task = quadratic([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])
    last = Point(places[-1])
    return session(task, last, folder / "parts", run=folder / "run", target=str(folder / "run"), **settings)


PLACES = [[3.0, 1.0, 0.2], [2.0, -1.0, 0.1], [1.0, 0.5, 0.0], [0.1, 0.0, 0.0]]


def test_the_loss_along_a_path_is_that_of_the_checkpoints(tmp_path: Path) -> None:
    """Not of their places in the plane; steps stand beside it."""
    made = path_session(tmp_path, PLACES)

    found = TAKE["trajectory"](made)

    wanted = [0.5 * (a * a + 2 * b * b + 3 * c * c) for a, b, c in PLACES]
    assert found.result.loss == pytest.approx(wanted, abs=1e-12)
    assert found.result.steps == [10, 20, 30, 40]
    assert sum(found.result.variance) == pytest.approx(1.0, abs=0.02)
    assert found.arrays["trajectory_xy"].shape == (4, 2)


def test_a_surface_in_the_plane_of_the_path_passes_through_its_end(tmp_path: Path) -> None:
    """A point (x, y) of the surface is the last weights moved along the two axes of the path."""
    made = path_session(tmp_path, PLACES, plane="pca", measure="surface", points=5)

    found = TAKE["surface"](made)

    axes = np.load(tmp_path / "parts" / "path" / "plane.npy")
    for i, y in enumerate(found.arrays["surface_y"]):
        for j, x in enumerate(found.arrays["surface_x"]):
            w = np.array(PLACES[-1]) + x * axes[0] + y * axes[1]
            wanted = 0.5 * (w * w * [1, 2, 3]).sum()
            assert found.arrays["surface_loss"][i, j] == pytest.approx(wanted, abs=1e-8)
    xy = run_path(made).xy
    assert found.arrays["surface_x"].min() < xy[:, 0].min()
    assert found.arrays["surface_y"].max() > xy[:, 1].max()


def test_a_surface_of_a_straight_path_says_that_nothing_changes_across_it(tmp_path: Path) -> None:
    """There is no second axis, and none is made up."""
    straight = [[3.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.5, 0.5, 0.5]]
    settings = {"plane": "pca", "measure": "surface", "points": 3}

    flat = TAKE["surface"](path_session(tmp_path / "flat", straight, **settings))
    bent = TAKE["surface"](path_session(tmp_path / "bent", PLACES, **settings))

    assert ["straight line" in warning for warning in flat.warnings] == [True]
    assert bent.warnings == []


def test_two_checkpoints_make_no_plane(tmp_path: Path) -> None:
    """One message, with the flag that keeps more."""
    made = path_session(tmp_path, PLACES[:2])

    with pytest.raises(PacelineError) as refused:
        TAKE["trajectory"](made)

    assert "2 complete checkpoints" in refused.value.what
    assert "--keep 100" in refused.value.hint


def test_a_damaged_checkpoint_is_no_part_of_a_path(tmp_path: Path) -> None:
    """It is left out, as everywhere."""
    made = path_session(tmp_path, PLACES)
    damaged = tmp_path / "run" / "checkpoints" / "step-00000020" / MODEL_FILE
    damaged.write_bytes(safetensors.torch.save({"w": torch.zeros(3)}))

    found = TAKE["trajectory"](made).result

    assert found.steps == [10, 30, 40]


def test_a_path_is_written_a_checkpoint_at_a_time_or_not_at_all(tmp_path: Path) -> None:
    """A row that cannot be read leaves no file; whole ones are there as they came."""
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)

    def broken() -> Iterator[np.ndarray]:
        yield rows[0]
        raise PacelineError("no such checkpoint")

    with pytest.raises(PacelineError):
        save_rows(tmp_path / "rows.npy", broken(), 3)
    assert list(tmp_path.iterdir()) == []
    save_rows(tmp_path / "rows.npy", iter(rows), 3)
    assert np.array_equal(np.load(tmp_path / "rows.npy"), rows)
