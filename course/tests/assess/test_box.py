"""What a submission leaves behind is read as foreign: nothing in it can run, block or mislead the reader."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paceline.pool.warm_ranks import RankFailure
from paceline_course.assess.box import _again, _check_ends, read_seen, read_weights
from paceline_course.assess.submission_process import EVALUATE, SEEN, TRAIN


class Bomb:
    """Runs a command wherever it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return (os.system, ("touch exploded",))


def test_weights_come_back_as_they_were_saved(tmp_path: Path) -> None:
    """Names, shapes, values, types."""
    torch.save({"a.weight": torch.arange(6.0).double().reshape(2, 3), "n": torch.tensor(3)}, tmp_path / "w.pt")
    found = read_weights(tmp_path / "w.pt")
    assert isinstance(found, dict)
    assert found["a.weight"].dtype == np.float64
    np.testing.assert_array_equal(found["a.weight"], np.arange(6.0).reshape(2, 3))
    assert found["n"] == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is missing"),
        (b"", "cannot be read"),
        (b"PK\x03\x04 torn", "cannot be read"),
        (pickle.dumps(Bomb()), "cannot be read"),
        ([1, 2], "holds a list"),
        ({}, "holds a dict"),
        ({"a": 3}, "more than tensors"),
        ({3: torch.ones(1)}, "more than tensors"),
        (torch.nn.Linear(2, 2), "cannot be read"),
    ],
)
def test_a_file_that_holds_no_weights_is_said_in_words(
    content: object, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands in it; and nothing of it runs."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "epoch-0.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    found = read_weights(path)
    assert isinstance(found, str)
    assert said in found
    assert not (tmp_path / "exploded").exists()


def test_links_pipes_and_huge_files_are_no_weights(tmp_path: Path) -> None:
    """The reader neither follows nor waits nor fills the memory."""
    torch.save({"a": torch.ones(1)}, tmp_path / "real.pt")
    (tmp_path / "link.pt").symlink_to(tmp_path / "real.pt")
    os.link(tmp_path / "real.pt", tmp_path / "second.pt")
    os.mkfifo(tmp_path / "pipe.pt")
    torch.save({"a": torch.ones(3 << 20)}, tmp_path / "huge.pt")
    for name in ("link", "second", "pipe"):
        assert read_weights(tmp_path / f"{name}.pt") == f"{name}.pt is missing"
    assert "larger than" in str(read_weights(tmp_path / "huge.pt"))


def held_ever_after() -> torch.nn.Parameter:
    """A weight that was saved with a `detach` of its own."""
    weight = torch.nn.Parameter(torch.ones(1))
    weight.detach = 3  # type: ignore[assignment,method-assign]
    return weight


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (torch.zeros(1).expand(10**13), "more than 4,194,304 numbers"),
        (torch.sparse_coo_tensor([[0]], [1.0], (3,), check_invariants=True), "is not dense: a"),
        (torch.zeros(3).to(torch.float8_e4m3fn), "cannot be read"),
        (torch.zeros(3, device="meta"), "cannot be read"),
        (torch.zeros(3, dtype=torch.complex64).conj(), "cannot be read"),
        (held_ever_after(), "cannot be read"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_no_arrays_are_said_in_words(value: torch.Tensor, said: str, tmp_path: Path) -> None:
    """Whatever their type; and a small file cannot claim more memory than there is."""
    torch.save({"a": value}, tmp_path / "epoch-0.pt")
    assert said in str(read_weights(tmp_path / "epoch-0.pt"))


def test_an_archive_that_unpacks_to_much_more_is_no_weights(tmp_path: Path) -> None:
    """Torch would unpack it without asking how long it becomes."""
    torch.save({"a": torch.zeros(3 << 20)}, tmp_path / "plain.pt")
    with (
        zipfile.ZipFile(tmp_path / "plain.pt") as plain,
        zipfile.ZipFile(tmp_path / "epoch-0.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    assert (tmp_path / "epoch-0.pt").stat().st_size < 1 << 20
    assert "when it is unpacked" in str(read_weights(tmp_path / "epoch-0.pt"))


@pytest.mark.parametrize("end", [None, 5, "done", [], {"first": 3}, {"first": [{}]}])
def test_an_end_that_the_box_would_not_send_is_a_failure_of_its_rank(end: Any) -> None:
    """Whoever attacks its own process can send what it likes."""
    with pytest.raises(RankFailure, match="no answer that can be read") as failure:
        _check_ends([{"first": ["48:ab"]}, end])
    assert failure.value.rank == 1


def test_a_folder_is_run_in_again_also_where_the_record_was_removed(tmp_path: Path) -> None:
    """By the program, which works there."""
    (tmp_path / SEEN).mkdir()
    (tmp_path / f"{SEEN}-1").mkdir()
    assert _again(tmp_path) == _again(tmp_path) == tmp_path
    assert [path.name for path in sorted(tmp_path.iterdir())] == [f"{SEEN}-1", f"{SEEN}-2"]


def noted(folder: Path, *pieces: tuple[int, list[int]]) -> Path:
    """A record of readings."""
    (folder / SEEN).mkdir(exist_ok=True)
    path = folder / SEEN / "reads-0.bin"
    path.write_bytes(b"".join(np.array([role, len(each), *each], "<i4").tobytes() for role, each in pieces))
    return path


def test_readings_of_one_role_are_joined(tmp_path: Path) -> None:
    """In the order in which they were made."""
    noted(tmp_path, (TRAIN, [3, 1]), (TRAIN, [2]), (EVALUATE, [0]), (TRAIN, [5]), (TRAIN, []))
    seen = read_seen(tmp_path, 0)
    assert [(block.role, block.numbers.tolist()) for block in seen.blocks] == [
        (TRAIN, [3, 1, 2]),
        (EVALUATE, [0]),
        (TRAIN, [5]),
    ]
    assert seen.numbers(TRAIN).tolist() == [3, 1, 2, 5]


@pytest.mark.parametrize("damage", [b"", b"\x01", b"\0" * 7, b"\xff" * 64, os.urandom(4096)])
def test_a_damaged_record_is_read_as_far_as_it_goes(damage: bytes, tmp_path: Path) -> None:
    """A process that is killed tears it; one that lies writes anything."""
    path = noted(tmp_path, (TRAIN, [3, 1]))
    path.write_bytes(path.read_bytes() + damage)
    for name in ("steps-0.txt", "writes-0.txt", "trace-0.jsonl"):
        (tmp_path / SEEN / name).write_bytes(damage)
    seen = read_seen(tmp_path, 0)
    assert seen.numbers(TRAIN).tolist()[:2] == [3, 1]
    assert seen.calls == []


def test_nothing_was_noted_where_the_program_never_began(tmp_path: Path) -> None:
    """A syntax error, for instance."""
    seen = read_seen(tmp_path, 3)
    assert (seen.blocks, seen.steps, seen.writes, seen.calls) == ([], [], [], [])
