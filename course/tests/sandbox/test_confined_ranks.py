"""Confined ranks: what one leaves in its folder is counted, read with care and removed, and it gains no rights."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.pool.warm_ranks import RankFailure, run_ranks
from paceline_course.sandbox.foreign_files import is_modest, read_foreign, remove_foreign
from paceline_course.sandbox.limits import Limits


def give_back(value: Any) -> Any:
    """Return the argument."""
    return value


def leave_files(many: int, size: int, deep: int) -> int:
    """In its folder, and folders in folders."""
    for number in range(many):
        Path(f"file-{number}").write_bytes(bytes(size))
    for _ in range(deep):
        Path("folder").mkdir()
        os.chdir("folder")
    sys.stdout.write("printed\n")
    return many


@pytest.mark.parametrize(
    ("given", "kept"), [((9, 10, 3), True), ((14, 1, 0), False), ((3, 30_000, 0), False), ((0, 0, 120), False)]
)
def test_of_a_folder_with_too_much_only_what_was_printed_is_kept(
    given: tuple[int, int, int], kept: bool, folder: Path
) -> None:
    """Too many files, too many bytes, or too deep for whoever tidies up: the next call finds room again."""
    limits = Limits(folder, left_files=13, left_bytes=80_000)

    if kept:
        assert run_ranks(leave_files, 1, *given, limits=limits, plain=True) == [given[0]]
        assert len(list(folder.iterdir())) == 11
    else:
        with pytest.raises(RankFailure, match="more files in its folder than are kept"):
            run_ranks(leave_files, 1, *given, limits=limits, plain=True)
        assert [path.name for path in folder.iterdir()] == ["rank-0.out"]
    assert limits.printed(0) == "printed\n"


def test_a_link_in_a_folder_is_removed_and_not_what_it_leads_to(folder: Path) -> None:
    """Neither counted nor followed."""
    (folder / "link").symlink_to(folder.parent)

    assert is_modest(folder, 1, 1 << 20)
    remove_foreign(folder / "link", folder / "not there")
    assert list(folder.iterdir()) == []
    assert (folder.parent / "secret.txt").exists()


def rights() -> dict[str, str]:
    """Read this process's rights and OOM score from /proc, and its temporary directory."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return {
        "no new rights": status["NoNewPrivs"],
        "first to go": Path("/proc/self/oom_score_adj").read_text().strip(),
        "temporary": tempfile.gettempdir(),
    }


@pytest.mark.skipif(sys.platform != "linux", reason="seen in /proc")
def test_a_confined_rank_can_gain_no_rights_and_is_the_first_to_go(folder: Path) -> None:
    """Programs like su give it nothing; memory that runs out does not end the judge; temporary files are its own."""
    (seen,) = run_ranks(rights, 1, limits=Limits(folder), plain=True)

    assert seen == {"no new rights": "1", "first to go": "1000", "temporary": str(folder)}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """With a secret beside it."""
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "work").mkdir()
    yield tmp_path / "work"
    assert (tmp_path / "secret.txt").read_text() == "secret"


def test_a_file_of_foreign_code_is_read_only_if_it_is_one(folder: Path) -> None:
    """No link is followed, no pipe is waited for, and of a long file only the beginning is read."""
    (folder.parent / "other.txt").write_text("secret, too")
    (folder / "link").symlink_to(folder.parent / "other.txt")
    (folder / "second").hardlink_to(folder.parent / "secret.txt")
    os.mkfifo(folder / "pipe")
    (folder / "file").write_bytes(b"0123456789")

    assert [read_foreign(folder / name) for name in ("link", "second", "pipe", "not there")] == [None] * 4
    assert read_foreign(folder / "file", 4) == b"0123"


def test_what_a_rank_printed_is_read_the_same_way(folder: Path) -> None:
    """A link in its place is nothing that it printed."""
    limits = Limits(folder)
    limits.output(0).write_bytes(b"hello \xff")
    limits.output(1).symlink_to(folder.parent / "secret.txt")

    assert [limits.printed(rank) for rank in range(3)] == ["hello \N{REPLACEMENT CHARACTER}", "", ""]


@pytest.mark.parametrize("kind", ["link", "second name"])
def test_a_rank_does_not_print_into_what_another_put_in_its_place(folder: Path, kind: str) -> None:
    """It opens its file before it gives up the caller's rights: a link would empty a file of the caller."""
    place, secret = folder / "rank-0.out", folder.parent / "secret.txt"
    place.symlink_to(secret) if kind == "link" else place.hardlink_to(secret)

    with pytest.raises(RankFailure, match="OSError"):
        run_ranks(give_back, 1, 1, limits=Limits(folder), plain=True)
