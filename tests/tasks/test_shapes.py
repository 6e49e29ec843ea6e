"""Procedural images: as many as asked for, the same for the same seed, and told apart by their form alone."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.tasks import shapes
from paceline.tasks.models.small_cnn import SmallCNN
from paceline.tasks.table import TaskOptions
from paceline.tasks.task_loader import load_task


def test_the_same_seed_gives_the_same_images_and_another_seed_others() -> None:
    """Labels and pixels."""
    images, labels = shapes.draw(50, seed=7)
    again, same = shapes.draw(50, seed=7)
    others, _ = shapes.draw(50, seed=8)

    np.testing.assert_array_equal(images, again)
    np.testing.assert_array_equal(labels, same)
    assert not np.allclose(images, others)
    assert (images.shape, images.dtype, labels.dtype) == ((50, 1, 20, 20), np.float32, np.int64)


def test_classes_are_drawn_equally_often_and_brightness_does_not_tell_them_apart() -> None:
    """Light and dark shapes are equally frequent in each class, so the mean of an image says little."""
    images, labels = shapes.draw(20_000, seed=1)

    counts = np.bincount(labels, minlength=10)
    assert np.all(np.abs(counts - 2000) < 200)
    means = np.array([images[labels == label].mean() for label in range(10)])
    assert np.all(np.abs(means) < 0.05)


@pytest.mark.parametrize(
    ("name", "area"),
    [
        ("disc", np.pi * 0.85**2),
        ("ring", np.pi * (0.88**2 - 0.56**2)),
        ("square", 1.5**2),
        ("cross", 2 * 1.9 * 0.48 - 0.48**2),
        ("bars", 2 * 1.8 * 0.4),
        ("pair", 2 * np.pi * 0.4**2),
        ("triangle", 3 * np.sqrt(3) * 0.5**2),
    ],
)
def test_a_shape_covers_the_area_of_its_geometry(name: str, area: float) -> None:
    """Integrated on a fine grid in the shape's own axes."""
    x, y = np.meshgrid(np.linspace(-2, 2, 1601), np.linspace(-2, 2, 1601))
    inside = shapes.DISTANCES[name](x, y) < 0

    assert inside.mean() * 16 == pytest.approx(area, rel=0.01)


def test_noise_is_a_dial() -> None:
    """Its spread is what was asked for, and none leaves flat ground."""
    clean, _ = shapes.draw(200, seed=3, noise=0.0)
    noisy, _ = shapes.draw(200, seed=3, noise=0.5)

    assert np.std(noisy - clean) == pytest.approx(0.5 / 0.3, rel=0.02)
    assert np.mean(clean == 0) > 0.5


def test_the_task_trains_and_evaluates_on_different_images() -> None:
    """8,192 and 2,048; a network of 10,990 parameters, whose logits have the shape (batch, 10)."""
    task = load_task("shapes", TaskOptions())

    assert (len(task.train_data), len(task.eval_data)) == (8192, 2048)
    assert not np.array_equal(task.train_data.columns[0][:100], task.eval_data.columns[0][:100])
    model = task.model()
    assert isinstance(model, SmallCNN)
    assert model(task.train_data.columns[0][:3]).shape == (3, 10)
    assert sum(p.numel() for p in model.parameters()) == 10_990
