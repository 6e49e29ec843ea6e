"""In what numbers a run computes, for processors that are only pretended."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paceline.tasks.digits import mlp
from paceline.tasks.linear import half_squared_error
from paceline.tasks.models.cnn import FashionCNN
from paceline.train import model
from paceline.train.model import choose, convolutional, fast_bf16

CPU = torch.device("cpu")
PROCESSORS = {
    "amx": (["processor\t: 0", "flags\t\t: fpu sse amx_bf16 amx_tile"], True, "the CPU has amx_bf16"),
    "avx512": (["flags : avx512f avx512_bf16"], True, "the CPU has avx512_bf16"),
    "old": (["flags : fpu sse avx2"], False, "the CPU has no bfloat16 instructions"),
    "arm": (["Features : fp asimd"], False, "the CPU has no bfloat16 instructions"),
    "unknown": ([], False, "the CPU has no bfloat16 instructions"),
    "only in the name": (
        ["model name : amx_bf16 inside", "flags : fpu"],
        False,
        "the CPU has no bfloat16 instructions",
    ),
}


@pytest.fixture(params=sorted(PROCESSORS))
def processor(request, monkeypatch):
    """A pretended processor: (whether it has fast bfloat16, what is said)."""
    lines, fast, words = PROCESSORS[request.param]
    monkeypatch.setattr(model, "cpu_info", lambda: lines)
    model._cpu_flags.cache_clear()
    yield fast, words
    model._cpu_flags.cache_clear()


def test_the_processors_flags_decide_whether_bfloat16_is_fast(processor) -> None:
    """AMX or AVX-512 BF16; where nothing is known nothing is assumed."""
    assert fast_bf16(CPU) == processor


def test_auto_is_bf16_for_convolutions_on_such_a_processor_only(processor) -> None:
    """And says why."""
    fast, words = processor

    chosen = choose("auto", FashionCNN(), CPU)

    assert chosen.name == ("bf16" if fast else "fp32")
    assert chosen.parameters == torch.float32
    assert words in chosen.reason


@pytest.mark.parametrize("model", [mlp(), nn.Linear(1, 1)], ids=["digits", "linear"])
def test_auto_is_never_bf16_for_small_dense_models(processor, model: nn.Module) -> None:
    """Whatever the processor has."""
    assert choose("auto", model, CPU).name == "fp32"


@pytest.mark.parametrize(
    ("name", "parameters", "product"),
    [
        ("fp32", torch.float32, torch.float32),
        ("fp64", torch.float64, torch.float64),
        ("bf16", torch.float32, torch.bfloat16),
    ],
)
def test_what_was_asked_for_is_done_on_any_processor(processor, name: str, parameters, product) -> None:
    """bf16 keeps its weights in float32 and multiplies in bfloat16."""
    chosen = choose(name, mlp(), CPU)

    x = torch.ones(2, 2, dtype=chosen.parameters)
    with chosen.autocast():
        found = (x @ x).dtype

    assert (chosen.name, chosen.parameters, chosen.reason) == (name, parameters, "asked for")
    assert found == product


def test_a_context_can_be_made_again_and_again() -> None:
    """One for each forward."""
    chosen = choose("bf16", mlp(), CPU)

    for _ in range(2):
        with chosen.autocast():
            assert torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("cpu")


def test_a_loss_under_autocast_is_still_a_number_of_its_parameters() -> None:
    """Sums stay in float32: the loss of 4,096 ones is exact, which bfloat16 could not hold."""
    chosen = choose("bf16", nn.Linear(1, 1), CPU)
    model = nn.Linear(1, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    ones = torch.ones(4097, 1)

    with chosen.autocast():
        loss = half_squared_error(model, (ones, ones))

    assert loss.sum.item() == 4097 / 2


def test_convolutional_means_that_images_are_convolved() -> None:
    """Anywhere in the model."""
    assert convolutional(FashionCNN())
    assert not convolutional(mlp())
    assert not convolutional(nn.Conv1d(1, 1, 1))
