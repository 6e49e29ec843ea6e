"""The content of a checkpoint: bits come back, and reading runs no code."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from paceline.checkpoint import state
from paceline.records.errors import PacelineError


def drawn() -> list[object]:
    """Numbers of every kind from all three generators; normal ones come in pairs, of which one is kept back."""
    return [
        random.random(),
        random.gauss(0, 1),
        random.getrandbits(70),
        np.random.rand(3).tolist(),
        np.random.standard_normal(),
        np.random.permutation(9).tolist(),
        torch.rand(3).tolist(),
        torch.randn(20).tolist(),
        torch.randperm(9).tolist(),
    ]


def through_a_file(content: dict[str, object], folder: Path) -> dict[str, object]:
    """As a checkpoint does it: encoded, written, loaded with weights_only=True."""
    (folder / state.STATE_FILE).write_bytes(state.encode_state(content))
    return state.load_state(folder)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), normals=st.integers(0, 3))
def test_random_state_comes_back_to_the_bit(tmp_path_factory, seed: int, normals: int) -> None:
    """Python's, numpy's and torch's, in the middle of a pair of normal numbers too, through a file."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    for _ in range(normals):
        random.gauss(0, 1)
        np.random.standard_normal()
        torch.randn(1)

    captured = through_a_file(state.capture_random(), tmp_path_factory.mktemp("s"))
    first = drawn()
    drawn()
    state.restore_random(captured)

    assert drawn() == first


def test_a_kept_back_normal_number_is_part_of_the_state() -> None:
    """The second of a pair would otherwise differ after a resume."""
    random.seed(3)
    np.random.seed(3)
    random.gauss(0, 1)
    np.random.standard_normal()

    captured = state.capture_random()

    assert captured["numpy"][3] == 1
    assert captured["python"][2] is not None


def test_capturing_moves_no_generator() -> None:
    """Writing a checkpoint does not change the run."""
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    state.capture_random()

    assert states == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


def test_a_model_can_be_read_without_paceline(tmp_path: Path) -> None:
    """safetensors' numpy reader sees every value; strided, shared, empty, scalar and half tensors included."""
    shared = torch.arange(6.0)
    tensors = {
        "image": torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "column": torch.randn(4, 4)[:, 1],
        "a": shared,
        "b": shared[2:],
        "empty": torch.zeros(0, 3),
        "count": torch.tensor(7),
        "half": torch.tensor([1.5]).half(),
        "trained": nn.Parameter(torch.ones(2)),
    }

    (tmp_path / state.MODEL_FILE).write_bytes(state.encode_model(tensors))

    read = safetensors.numpy.load_file(tmp_path / state.MODEL_FILE)
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(read[name], tensor.detach().numpy())
    loaded = state.load_model(tmp_path)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_an_optimizers_state_comes_back_to_the_bit(tmp_path: Path, kind: str) -> None:
    """Through weights_only=True, with groups, numbers and tensors."""
    model = nn.Linear(3, 2)
    optimizer = {
        "sgd": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True),
        "adamw": torch.optim.AdamW(model.parameters(), lr=0.1, fused=True),
    }[kind]
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()

    loaded = through_a_file({"optimizer": optimizer.state_dict()}, tmp_path)["optimizer"]

    expected = optimizer.state_dict()
    assert loaded["param_groups"] == expected["param_groups"]
    for index, own in expected["state"].items():
        for name, value in own.items():
            assert torch.equal(torch.as_tensor(loaded["state"][index][name]), torch.as_tensor(value))


class Bomb:
    """Runs code when it is unpickled without care."""

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("exploded"),))


def test_reading_a_state_runs_no_code_from_it(tmp_path: Path, monkeypatch) -> None:
    """A foreign object is refused with one message."""
    monkeypatch.chdir(tmp_path)
    torch.save({"x": Bomb()}, tmp_path / state.STATE_FILE)

    with pytest.raises(PacelineError, match=r"state\.pt cannot be read"):
        state.load_state(tmp_path)

    assert not Path("exploded").exists()
    pickle.loads(pickle.dumps(Bomb()))
    assert Path("exploded").exists()


@pytest.mark.parametrize("content", [b"", b"garbage" * 10, None])
def test_files_that_cannot_be_read_are_one_message_each(tmp_path: Path, content: bytes | None) -> None:
    """Empty, garbage or missing; the file is named and the reason is one line, never a traceback."""
    for name, load in ((state.MODEL_FILE, state.load_model), (state.STATE_FILE, state.load_state)):
        if content is not None:
            (tmp_path / name).write_bytes(content)

        with pytest.raises(PacelineError, match="cannot be read") as caught:
            load(tmp_path)

        assert name in caught.value.what
        assert len(caught.value.why.splitlines()) == 1
