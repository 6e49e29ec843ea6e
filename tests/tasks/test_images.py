"""Whole-tensor augmentation against a slow reference that takes one image at a time."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.tasks.data.arrays import Draws, Like
from paceline.tasks.data.images import AUGMENT, PrepareImages, crop, erase, flip
from paceline.tasks.table import AUGMENTATIONS

SHAPES = st.tuples(st.integers(1, 12), st.integers(3, 12), st.integers(3, 12))
SEED = st.integers(0, 2**40)


def images_of(shape: tuple[int, int, int], seed: int) -> torch.Tensor:
    """Random images without black pixels, so that what was blacked out shows."""
    return torch.randint(1, 256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def draws_of(images: torch.Tensor, seed: int) -> Draws:
    """Draws for all of them."""
    return Draws(lambda: seed, len(images), 0, len(images))


@settings(max_examples=40)
@given(shape=SHAPES, seed=SEED, padding=st.integers(0, 4))
def test_a_crop_is_a_window_of_the_padded_image(shape, seed: int, padding: int) -> None:
    """numpy pads and cuts each image at the drawn place."""
    images = images_of(shape, seed)

    cropped = crop(images, draws_of(images, seed), padding)

    draws = draws_of(images, seed)
    rows, columns = draws.integers(2 * padding + 1).tolist(), draws.integers(2 * padding + 1).tolist()
    for number, image in enumerate(images.numpy()):
        padded = np.pad(image, padding)
        top, left = rows[number], columns[number]
        expected = padded[top : top + shape[1], left : left + shape[2]]
        np.testing.assert_array_equal(cropped[number].numpy(), expected)
    assert cropped.dtype == torch.uint8


@settings(max_examples=40)
@given(shape=SHAPES, seed=SEED)
def test_a_flip_mirrors_those_images_whose_draw_is_below_a_half(shape, seed: int) -> None:
    """numpy mirrors left and right."""
    images = images_of(shape, seed)

    flipped = flip(images, draws_of(images, seed))

    for number, drawn in enumerate(draws_of(images, seed).uniform().tolist()):
        image = images[number].numpy()
        np.testing.assert_array_equal(flipped[number].numpy(), np.fliplr(image) if drawn < 0.5 else image)


@settings(max_examples=40)
@given(shape=SHAPES, seed=SEED)
def test_an_erased_rectangle_lies_inside_and_is_black(shape, seed: int) -> None:
    """numpy blacks out each image's rectangle; all else stays."""
    images = images_of(shape, seed)

    erased = erase(images, draws_of(images, seed))

    draws = draws_of(images, seed)
    chosen, tall, wide, down, right = (draws.uniform().numpy() for _ in range(5))
    for number, image in enumerate(images.numpy()):
        expected = image.copy()
        height = math.ceil(np.float32(tall[number] * np.float32(0.4)) * np.float32(shape[1]))
        width = math.ceil(np.float32(wide[number] * np.float32(0.4)) * np.float32(shape[2]))
        top = math.floor(down[number] * np.float32(shape[1] - height + 1))
        left = math.floor(right[number] * np.float32(shape[2] - width + 1))
        assert 0 <= top <= top + height <= shape[1]
        assert 0 <= left <= left + width <= shape[2]
        if chosen[number] < 0.5:
            expected[top : top + height, left : left + width] = 0
        np.testing.assert_array_equal(erased[number].numpy(), expected)


@pytest.mark.parametrize("name", sorted(AUGMENT))
def test_each_augmentation_changes_something_and_leaves_its_input_alone(name: str) -> None:
    """Over a hundred images; the data set itself is never written to."""
    images = images_of((100, 10, 10), 3)
    kept = images.clone()

    changed = AUGMENT[name](images, draws_of(images, 4))

    assert torch.equal(images, kept)
    share = float((changed != images).flatten(1).any(dim=1).float().mean())
    assert 0.3 < share <= 1.0


def test_half_of_the_images_are_flipped_and_half_erased() -> None:
    """Of 4,000, within five standard deviations."""
    images = images_of((4000, 3, 4), 1)

    flipped = (flip(images, draws_of(images, 2)) != images).flatten(1).any(dim=1).sum()
    erased = (erase(images, draws_of(images, 2)) != images).flatten(1).any(dim=1).sum()

    assert abs(int(flipped) - 2000) < 160
    assert abs(int(erased) - 2000) < 160


def test_the_command_line_and_the_code_name_the_same_augmentations() -> None:
    """In the same order, which is the order in which they are applied."""
    assert tuple(AUGMENT) == AUGMENTATIONS


@settings(max_examples=25)
@given(seed=SEED, cuts=st.lists(st.integers(0, 17), max_size=3))
def test_an_augmented_batch_does_not_depend_on_how_it_is_shared(seed: int, cuts: list[int]) -> None:
    """All three augmentations, cut anywhere into parts, give the whole batch again, to the bit."""
    prepare = PrepareImages(0.3, 0.2, ("crop", "flip", "erase"))
    like = Like(torch.device("cpu"), torch.float32, channels_last=True)
    images, labels = images_of((17, 8, 9), seed), torch.arange(17, dtype=torch.uint8)
    whole = prepare((images, labels), Draws(lambda: seed, 17, 0, 17), like)

    edges = [0, *sorted(cuts), 17]
    parts = [
        prepare((images[a:b], labels[a:b]), Draws(lambda: seed, 17, a, b), like)
        for a, b in itertools.pairwise(edges)
        if a < b
    ]

    assert torch.equal(torch.cat([part[0] for part in parts]), whole[0])
    assert torch.equal(torch.cat([part[1] for part in parts]), whole[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_prepared_batch_is_normalised_images_and_whole_labels(dtype: torch.dtype) -> None:
    """(pixel / 255 - mean) / std, computed by numpy in double; shape (batch, 1, height, width)."""
    images, labels = images_of((5, 6, 7), 0), torch.tensor([0, 9, 3, 255, 1], dtype=torch.uint8)
    like = Like(torch.device("cpu"), dtype, channels_last=True)

    prepared, answers = PrepareImages(0.286, 0.353)((images, labels), None, like)

    expected = (images.numpy().astype(np.float64) / 255 - 0.286) / 0.353
    assert prepared.shape == (5, 1, 6, 7)
    assert prepared.dtype == dtype
    assert prepared.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(prepared[:, 0].numpy(), expected, atol=1e-6 if dtype == torch.float32 else 1e-14)
    assert answers.dtype == torch.int64
    assert answers.tolist() == [0, 9, 3, 255, 1]


def test_evaluation_is_never_augmented() -> None:
    """Without draws all augmentations rest."""
    images, labels = images_of((5, 6, 7), 0), torch.zeros(5, dtype=torch.uint8)
    like = Like(torch.device("cpu"), torch.float32, channels_last=False)

    plain, _ = PrepareImages(0.0, 1.0)((images, labels), None, like)
    with_names, _ = PrepareImages(0.0, 1.0, ("crop", "flip", "erase"))((images, labels), None, like)

    assert torch.equal(plain, with_names)
