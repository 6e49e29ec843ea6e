"""Directions: as long as what they belong to, independent, the same for everybody."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.curvature.weights import FlatWeights
from paceline.landscape.directions import random_direction, require_length, require_plane, step
from paceline.landscape.kept_parts import save_rows
from paceline.landscape.measures import TAKE
from paceline.records.errors import PacelineError
from tests.landscape.problems import conv_net, image_task, session


def flat(model: torch.nn.Module) -> tuple[torch.Tensor, tuple]:
    """The weights and where each stands."""
    weights = FlatWeights(model)
    return weights.point(), weights.layout


def test_each_filter_is_as_long_as_the_filter_it_belongs_to() -> None:
    """Rows of matrices and filters of convolutions keep their lengths, biases and norms stay where they are."""
    weights, layout = flat(conv_net())

    direction = random_direction(weights, layout, kind="filter", seed=1, number=0)

    for place in layout:
        own = weights[place.start : place.stop].view(place.shape)
        drawn = direction[place.start : place.stop].view(place.shape)
        if len(place.shape) < 2:
            assert not drawn.any()
        else:
            wanted = [float(filter_.norm()) for filter_ in own]
            assert [float(filter_.norm()) for filter_ in drawn] == pytest.approx(wanted, rel=1e-8)
    assert {len(place.shape) for place in layout} == {1, 2, 4}


def test_a_raw_direction_is_as_long_as_the_weights_as_a_whole() -> None:
    """Filters get what chance gives them; biases move, too."""
    weights, layout = flat(conv_net())

    direction = random_direction(weights, layout, kind="raw", seed=1, number=0)

    assert float(direction.norm()) == pytest.approx(float(weights.norm()), rel=1e-12)
    assert bool((direction != 0).all())


def test_directions_that_lead_nowhere_are_refused() -> None:
    """A model of biases only has no filter; one of zeros has no length at all; anything else has directions."""
    weights, layout = flat(conv_net())
    require_length(weights, layout, "filter")
    still = torch.cat([weights[p.start : p.stop] * (len(p.shape) < 2) for p in layout])

    require_length(still, layout, "raw")
    with pytest.raises(PacelineError, match="length 0") as refused:
        require_length(still, layout, "filter")
    assert refused.value.hint == "--directions raw"
    with pytest.raises(PacelineError, match="length 0"):
        require_length(torch.zeros_like(weights), layout, "raw")


def test_two_directions_that_span_no_plane_are_refused() -> None:
    """Filters of one weight each leave a sign to chance; the whole vector of two weights spans a plane."""
    single, other = flat(torch.nn.Linear(1, 1).double()), flat(conv_net())

    require_plane(*other, kind="filter", seed=0)
    require_plane(*single, kind="raw", seed=0)
    with pytest.raises(PacelineError, match="parallel") as refused:
        require_plane(*single, kind="filter", seed=0)
    assert "--directions raw" in refused.value.hint
    assert "their cosine is" in refused.value.why
    assert "1.000000" in refused.value.why
    with pytest.raises(PacelineError, match="parallel") as refused:
        require_plane(*flat(torch.nn.Linear(1, 1, bias=False).double()), kind="raw", seed=0)
    assert "--seed" not in refused.value.hint


def test_directions_depend_on_seed_and_number_only() -> None:
    """The same once more, others for another number or seed, and hardly any angle less than a right one."""
    model = torch.nn.Linear(300, 40).double()
    weights, layout = flat(model)

    def made(seed: int, number: int) -> torch.Tensor:
        return random_direction(weights, layout, kind="filter", seed=seed, number=number)

    one, two = made(1, 0), made(1, 1)
    assert torch.equal(one, made(1, 0))
    assert not torch.equal(one, made(2, 0))
    cosine = float(one @ two / one.norm() / two.norm())
    assert 0 < abs(cosine) < 4 / np.sqrt(300 * 40)


def test_a_step_is_the_sum_of_the_axes(tmp_path: Path) -> None:
    """Against plain arithmetic, over more than one block of the file."""
    rows = np.random.default_rng(0).standard_normal((2, (1 << 18) + 5))
    save_rows(tmp_path / "axes.npy", rows, 2)
    axes = np.load(tmp_path / "axes.npy", mmap_mode="r")
    start = torch.ones(rows.shape[1], dtype=torch.float64)

    moved = step(start.clone(), axes, (0.5, -2.0))

    assert np.allclose(moved.numpy(), 1 + 0.5 * rows[0] - 2.0 * rows[1], rtol=0, atol=1e-12)


def rescaled() -> torch.nn.Module:
    """`conv_net` with its convolution times 10, which the batch norm takes back."""
    model = conv_net()
    with torch.no_grad():
        model[0].weight.mul_(10)
    return model


@pytest.mark.parametrize(("kind", "same"), [("filter", True), ("raw", False)])
def test_rescaling_a_layer_before_a_batch_norm_changes_raw_curves_only(tmp_path: Path, kind: str, same: bool) -> None:
    """Filter-normalised curves agree to 1e-4 of the loss; raw ones are off by a tenth somewhere."""
    task = image_task()

    curves = [
        TAKE["line"](session(task, model, tmp_path / name, directions=kind, points=5)).arrays["line_loss"]
        for name, model in (("plain", conv_net()), ("rescaled", rescaled()))
    ]

    apart = np.abs(curves[1] / curves[0] - 1).max()
    assert (apart < 1e-4) if same else (apart > 0.1)
    assert np.ptp(curves[0]) > 0.05
