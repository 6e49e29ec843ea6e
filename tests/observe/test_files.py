"""Files that a script opens: which, how, by which line; not those of imports and of the system."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.optim import SGD

from paceline.records.observed_rank import FileTouched
from tests.observe.watched import Watched, line_of


def touched(watched: Watched, folder: Path) -> list[tuple[str, str, str]]:
    """Name, mode and function of files below a folder."""
    seen = [each for each in watched.of(FileTouched) if each.path.startswith(str(folder))]
    return [(os.path.relpath(each.path, folder), each.mode, each.by) for each in seen if each.path != str(folder)]


def test_torch_save_and_load_are_named_with_their_path(watched: Watched, tmp_path: Path) -> None:
    """The writer of torch opens files without Python; a file object was opened by the script."""
    torch.save({}, tmp_path / "a.pt")  # saved
    torch.save(obj={}, f=str(tmp_path / "b.pt"))
    with (tmp_path / "c.pt").open("wb") as file:
        torch.save({}, file)
    torch.load(tmp_path / "a.pt")

    assert touched(watched, tmp_path)[:4] == [
        ("a.pt", "write", "torch.save"),
        ("b.pt", "write", "torch.save"),
        ("c.pt", "write", "open"),
        ("a.pt", "read", "torch.load"),
    ]
    saved = next(each for each in watched.of(FileTouched) if each.path.endswith("a.pt"))
    assert saved.place.line == line_of("saved", __file__)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("r", "read"), ("rb", "read"), ("w", "write"), ("x", "write"), ("wb", "write"), ("a", "append"), ("r+", "write")],
)
def test_modes_of_open(watched: Watched, tmp_path: Path, mode: str, expected: str) -> None:
    """A file that is read and written counts as written."""
    path = tmp_path / "file"
    if "x" not in mode:
        path.touch()
    path.open(mode).close()

    assert touched(watched, tmp_path)[-1] == ("file", expected, "open")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(os.O_RDONLY, "read"), (os.O_WRONLY | os.O_CREAT, "write"), (os.O_WRONLY | os.O_APPEND | os.O_CREAT, "append")],
)
def test_flags_of_the_operating_system(watched: Watched, tmp_path: Path, flags: int, expected: str) -> None:
    """As libraries open files that must not be inherited."""
    (tmp_path / "file").write_text("")
    os.close(os.open(tmp_path / "file", flags))

    assert touched(watched, tmp_path)[-1] == ("file", expected, "open")


def test_directories_and_renamed_files(watched: Watched, tmp_path: Path) -> None:
    """Each with the name that it has afterwards; `os.makedirs` makes one directory after the other."""
    os.makedirs(tmp_path / "a" / "b")  # noqa: PTH103
    (tmp_path / "c").mkdir()
    (tmp_path / "new").write_text("{}")
    os.replace(tmp_path / "new", tmp_path / "latest")  # noqa: PTH105

    assert touched(watched, tmp_path) == [
        ("a", "directory", "mkdir"),
        ("a/b", "directory", "mkdir"),
        ("c", "directory", "mkdir"),
        ("new", "write", "open"),
        ("latest", "rename", "rename"),
    ]


def test_files_that_libraries_open_for_the_script_are_its_own(watched: Watched, tmp_path: Path) -> None:
    """The line is the script's."""
    np.save(tmp_path / "data.npy", np.zeros(2))  # numpy
    np.load(tmp_path / "data.npy")

    assert touched(watched, tmp_path) == [("data.npy", "write", "open"), ("data.npy", "read", "open")]
    assert watched.of(FileTouched)[-2].place.line == line_of("numpy", __file__)


def test_imports_and_files_of_the_system_are_none_of_the_script(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor what a library reads while it is imported, nor caches."""
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "reads_while_imported.py").write_text(
        "import json, pathlib\nX = json.loads(pathlib.Path(__file__).with_name('x.json').read_text())\n"
    )
    (library / "x.json").write_text(json.dumps(1))
    (tmp_path / "__pycache__").mkdir()
    before = len(watched.of(FileTouched))
    monkeypatch.syspath_prepend(str(library))
    __import__("reads_while_imported")
    sys.modules.pop("reads_while_imported")
    Path("/etc/hostname").read_text()
    Path("/proc/self/stat").read_text()
    (tmp_path / "__pycache__" / "x").write_text("")
    (tmp_path / "module.py").write_text("")

    assert watched.of(FileTouched)[before:] == []


def test_a_file_that_is_opened_ever_again_is_named_three_times_a_mode(watched: Watched, tmp_path: Path) -> None:
    """A log is opened at every step."""
    for _ in range(9):
        with (tmp_path / "log").open("a") as file:
            file.write("x")
    (tmp_path / "log").read_text()

    assert touched(watched, tmp_path) == [("log", "append", "open")] * 3 + [("log", "read", "open")]


def test_a_file_says_how_far_the_script_was(group: None, watched: Watched, tmp_path: Path) -> None:
    """Steps and collectives order what ranks do with one file."""
    optimizer = SGD(nn.Linear(4, 2).parameters(), 0.1)
    (tmp_path / "first").write_text("")
    optimizer.step()
    dist.barrier()
    dist.barrier()
    (tmp_path / "second").write_text("")

    seen = [each for each in watched.of(FileTouched) if Path(each.path).name in ("first", "second")]
    assert [(each.step, each.collectives) for each in seen] == [(0, 0), (1, 2)]


def test_relative_paths_are_those_of_the_directory_at_that_time(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script may change it."""
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    Path("file").write_text("")

    assert touched(watched, tmp_path)[-1] == ("below/file", "write", "open")
