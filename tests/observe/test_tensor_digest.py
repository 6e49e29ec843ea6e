"""Equal bits have equal digests whatever their layout, and any changed element shows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.observe.tensor_digest import sampled_digest, tensor_digest

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.complex64,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]
SIZES = st.one_of(st.integers(1, 70), st.integers(16300, 16500), st.integers(40000, 40010))
"""In bytes: small ones are hashed as they are, those above 16 KiB by their sums over blocks of 4 KiB."""


def tensor(dtype: torch.dtype, size: int, seed: int) -> torch.Tensor:
    """Random bits of about that many bytes; Booleans are 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    count = max(1, size // dtype.itemsize)
    content = torch.randint(0, 256, (count * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return (content % 2).bool() if dtype is torch.bool else content.view(dtype)


def layouts(made: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same elements in the same order, elsewhere in memory."""
    wide = torch.zeros(made.numel(), 3, dtype=made.dtype)
    wide[:, 1] = made
    shifted = torch.zeros(made.numel() + 1, dtype=made.dtype)
    shifted[1:] = made
    found = {"copy": made.clone(), "strided": wide[:, 1], "shifted": shifted[1:], "leaf": made.clone()}
    if made.dtype.is_floating_point and made.dtype.itemsize > 1:
        found["leaf"] = found["leaf"].requires_grad_()
    if made.is_complex():
        found["conjugated"] = made.conj().resolve_conj().conj()
    return found


@settings(max_examples=150)
@given(st.sampled_from(DTYPES), SIZES, st.integers(0, 5))
def test_equal_bits_have_equal_digests_in_every_layout(dtype: torch.dtype, size: int, seed: int) -> None:
    """Contiguous or not, at an odd address or not, conjugated lazily or not."""
    made = tensor(dtype, size, seed)

    assert {name: tensor_digest(each) for name, each in layouts(made).items()} == dict.fromkeys(
        layouts(made), tensor_digest(made)
    )


@settings(max_examples=150)
@given(st.sampled_from(DTYPES), SIZES, st.integers(0, 5), st.data())
def test_any_single_changed_bit_changes_the_digest(dtype: torch.dtype, size: int, seed: int, data) -> None:
    """Also the sign of a zero and the payload of a NaN."""
    made = tensor(dtype, size, seed)
    changed = made.clone()
    bits = changed.view(torch.uint8)
    bit = 0 if dtype is torch.bool else data.draw(st.integers(0, 7), label="bit")
    bits[data.draw(st.integers(0, bits.numel() - 1), label="byte")] ^= 1 << bit

    assert tensor_digest(changed) != tensor_digest(made)


def test_shape_and_type_are_part_of_the_digest() -> None:
    """Equal bytes of another type or shape are another tensor; a scalar and an empty tensor have digests as well."""
    zeros = [
        torch.zeros(4),
        torch.zeros(2, 2),
        torch.zeros(1, 4),
        torch.zeros(4, dtype=torch.int32),
        torch.zeros(2, dtype=torch.float64),
        torch.zeros(()),
        torch.zeros(0),
        torch.zeros(0, 3),
    ]

    assert len({tensor_digest(each) for each in zeros}) == len(zeros)


def test_a_transposed_tensor_has_the_digest_of_its_contiguous_copy() -> None:
    """Which is another one than that of the tensor itself: its elements stand in another order."""
    made = torch.arange(6000.0).view(60, 100)

    assert tensor_digest(made.t()) == tensor_digest(made.t().contiguous()) != tensor_digest(made)


@pytest.mark.parametrize("elements", [5, 4096, 100_000])
def test_a_sampled_digest_is_that_of_elements_spread_evenly(elements: int) -> None:
    """Every `elements // 4096`-th one counts; equal elements say nothing, so they have no digest."""
    made = torch.arange(float(elements))
    step = max(1, elements // 4096)
    changed = made.clone()
    changed[step * 2] += 0.5

    assert sampled_digest(made) == sampled_digest(made.clone()) == tensor_digest(made[::step])
    assert sampled_digest(changed) != sampled_digest(made)
    assert sampled_digest(torch.full((elements,), 3.0)) == ""
    assert sampled_digest(torch.zeros(0)) == ""
