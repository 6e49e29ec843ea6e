"""Confined ranks work as others do, and what they try beyond their limits ends with the call."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest
from course.tests.sandbox import hostile

from paceline.pool.mount_view import closed, installation
from paceline.pool.warm_ranks import RankFailure, RankTimeout, run_ranks
from paceline_course.sandbox import limits as subject
from paceline_course.sandbox.limits import Limits, free_user, gaps


@pytest.fixture
def limits(tmp_path: Path) -> Limits:
    """A folder that another user can reach."""
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o055)
    return Limits(tmp_path / "work", user=free_user(), file_bytes=1 << 20)


def alive(text: str) -> list[int]:
    """Processes with this text in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if text.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def living(user: int | None) -> list[str]:
    """Processes of a user that are not just waiting to be forgotten."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            status = (entry / "status").read_text() if entry.name.isdigit() else ""
            if f"\nUid:\t{user}\t" in status and "\nState:\tZ" not in status:
                found.append(status)
    return found


@pytest.mark.parametrize("world", [1, 2])
def test_a_confined_rank_works_as_a_free_one(limits: Limits, world: int) -> None:
    """Its own folder and user, the same group; what it printed is in its file."""
    answers = run_ranks(hostile.who_am_i, world, limits=limits)

    assert [each["sum"] for each in answers] == [world] * world
    assert {each["folder"] for each in answers} == {each["home"] for each in answers} == {str(limits.folder)}
    assert {each["user"] for each in answers} == {os.getuid() if limits.user is None else limits.user}
    assert (limits.folder / "mine.txt").read_text() == "written"
    assert limits.output(world - 1).read_text() == f"rank {world - 1} is here\n"


def test_a_rank_that_prints_without_end_is_stopped_by_the_size_of_its_file(limits: Limits) -> None:
    """The disk does not fill."""
    with pytest.raises(RankFailure, match="File too large"):
        run_ranks(hostile.print_without_end, 1, limits=limits, timeout_s=60)

    assert limits.output(0).stat().st_size <= limits.file_bytes


def test_a_rank_that_takes_too_much_memory_gets_an_error_of_its_own(limits: Limits) -> None:
    """And not the machine."""
    with pytest.raises(RankFailure, match="memory"):
        run_ranks(hostile.take_memory, 1, limits=limits)


@pytest.mark.skipif(free_user() is None, reason="limits on processes bind another user; that takes root")
def test_a_fork_bomb_ends_with_its_call(limits: Limits) -> None:
    """The machine goes on, and so does the pool."""
    with pytest.raises((RankTimeout, RankFailure)):
        run_ranks(hostile.fork_bomb, 1, limits=limits, timeout_s=3)

    assert not living(limits.user)
    assert run_ranks(hostile.who_am_i, 1, limits=limits)[0]["sum"] == 1


def test_a_process_in_a_session_of_its_own_does_not_outlive_the_call(limits: Limits) -> None:
    """Killing the group of a rank would miss it."""
    name = f"stray-{time.time_ns()}"
    run_ranks(hostile.stray, 1, name, limits=limits)

    assert not alive(name)


@pytest.mark.skipif(free_user() is None, reason="another user takes root")
def test_files_of_others_are_out_of_reach(limits: Limits, tmp_path: Path) -> None:
    """The user owns its folder and nothing else."""
    other = tmp_path / "other.txt"
    other.write_text("untouched")

    assert run_ranks(hostile.change, 1, str(other), limits=limits) == ["PermissionError"]
    assert other.read_text() == "untouched"


@pytest.mark.skipif(free_user() is None, reason="a view of its own takes root")
def test_a_closed_folder_on_the_way_to_python_is_empty_but_for_python(limits: Limits) -> None:
    """Such a rank reads Python below /root, and nothing else there."""
    for folder, paths in closed(installation()).items():
        (seen,) = run_ranks(hostile.names_in, 1, str(folder), limits=limits)
        assert set(seen) == {path.relative_to(folder).parts[0] for path in paths}


def test_closed_folders_are_found_from_outside_in(tmp_path: Path) -> None:
    """The outermost one stands in the way, whatever is below it."""
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent != Path("/tmp") and parent.stat().st_uid == os.getuid():
            parent.chmod(0o755)
    assert closed([inner]) == {}

    (tmp_path / "a").chmod(0o700)
    inner.chmod(0o700)
    assert closed([inner]) == {tmp_path / "a": [inner]}


@pytest.mark.skipif(free_user() is None, reason="another user takes root")
def test_a_user_who_has_a_process_is_not_taken() -> None:
    """Everything of the user is killed in the end."""
    user = free_user()
    with subprocess.Popen(["/bin/sleep", "60"], user=user) as somebody:
        try:
            assert free_user() != user
        finally:
            somebody.kill()


def test_without_a_group_ranks_find_what_a_script_finds_under_torchrun(limits: Limits) -> None:
    """It makes the group itself, from the environment."""
    assert run_ranks(hostile.with_the_environment_of_a_script, 2, group=False) == [(False, 2), (False, 2)]
    assert run_ranks(hostile.with_the_environment_of_a_script, 2, group=False, limits=limits) == [(False, 2)] * 2


def test_what_cannot_be_limited_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As root with an installation that nobody else can read; and as a plain user."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(subject, "closed", lambda paths: {Path("/home/secret"): list(paths)})
    monkeypatch.setattr(subject, "can_enclose", lambda: False)
    assert free_user() is None
    assert "as root: /home/secret" in gaps()[0]

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "as you (user 1000)" in gaps()[0]
    assert free_user() is None
