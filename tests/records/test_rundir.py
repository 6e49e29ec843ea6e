"""The run directory: names, run.json, atomic files and the lock of a live run."""

from __future__ import annotations

import datetime
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.records import rundir
from paceline.records.errors import Exit, PacelineError
from paceline.records.rundir import (
    RunDir,
    make_dirs,
    new_run_dir,
    read_info,
    run_lock,
    slug,
    write_atomic,
    write_info,
)
from paceline.records.schema import SCHEMA, Batch, Git, RunInfo, TaskFacts, Topology

INFO = RunInfo(
    schema=SCHEMA,
    verb="train",
    name="digits",
    command=["paceline", "train", "digits"],
    started_at="2026-01-31T12:00:00+00:00",
    versions={"torch": "2.9"},
    config={"lr": 0.05, "target": None},
    topology=Topology(
        world=2, nodes=1, backend="gloo", device="cpu", device_name="c", threads_per_rank=1, hostname="h", cores=2
    ),
    batch=Batch(per_rank=32, accumulation=1, world=2, global_batch=64),
    task=TaskFacts(
        name="digits", parameters=1, train_samples=2, eval_samples=3, steps_per_epoch=4, total_steps=5, data_source="s"
    ),
    precision="fp32",
    git=Git(commit="abc", dirty=True),
)


def test_run_json_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Every field, nested ones and missing ones included."""
    run = RunDir(tmp_path / "deep" / "run")

    write_info(run, INFO)

    assert read_info(run.path) == INFO
    assert run.exists()


def test_run_json_is_for_people_too(tmp_path: Path) -> None:
    """Indented, and ends with a newline."""
    write_info(RunDir(tmp_path), INFO)

    text = (tmp_path / "run.json").read_text()

    assert text.endswith("}\n")
    assert '\n  "schema": 1,' in text


def test_a_newer_schema_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """Its meaning may have changed, even if this version could decode it."""
    values = msgspec.to_builtins(INFO) | {"schema": SCHEMA + 1, "verb": "fly"}
    (tmp_path / "run.json").write_text(json.dumps(values))

    with pytest.raises(PacelineError) as caught:
        read_info(tmp_path)

    assert "newer Paceline" in caught.value.what
    assert "schema 2" in caught.value.why
    assert "pip install --upgrade" in caught.value.hint
    assert caught.value.exit_code == Exit.USAGE


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'"text"', b"\xff\x00", b'{"schema": 1}', b'{"schema": "one"}', b"{}", b"[" * 100_000],
    ids=["empty", "torn", "list", "string", "bytes", "fields missing", "schema is text", "no schema", "nested"],
)
def test_a_damaged_run_json_is_one_clear_message(tmp_path: Path, content: bytes) -> None:
    """Whatever is wrong with it, the message names the file."""
    (tmp_path / "run.json").write_bytes(content)

    with pytest.raises(PacelineError) as caught:
        read_info(tmp_path)

    assert caught.value.what == f"{tmp_path / 'run.json'} is damaged"
    assert caught.value.why


@pytest.mark.parametrize("cut", range(0, 700, 53))
def test_run_json_cut_off_anywhere_is_damaged_and_never_half_read(tmp_path: Path, cut: int) -> None:
    """No prefix of the file is taken for the whole."""
    write_info(RunDir(tmp_path), INFO)
    whole = (tmp_path / "run.json").read_bytes()
    assert cut < len(whole.rstrip())
    (tmp_path / "run.json").write_bytes(whole[:cut])

    with pytest.raises(PacelineError, match="is damaged"):
        read_info(tmp_path)


def test_what_is_no_run_directory_is_said_with_the_reason(tmp_path: Path) -> None:
    """An existing directory, a missing one and a file are told apart."""
    (tmp_path / "file").write_text("")

    reasons = {}
    for name in (".", "missing", "file"):
        with pytest.raises(PacelineError, match="is not a run directory") as caught:
            read_info(tmp_path / name)
        reasons[name] = caught.value.why

    assert reasons == {".": "it has no run.json", "missing": "there is no such directory", "file": "it has no run.json"}


def test_an_unreadable_run_json_says_why(tmp_path: Path) -> None:
    """A directory of that name stands for anything that the system refuses to read."""
    (tmp_path / "run.json").mkdir()

    with pytest.raises(PacelineError, match=r"cannot read .*run\.json\n  why:  Is a directory"):
        read_info(tmp_path)


def test_the_directory_has_date_time_and_name(tmp_path: Path) -> None:
    """Sorted by name they are sorted by time; odd characters of the name are replaced."""
    now = datetime.datetime(2026, 1, 31, 12, 5, 9)

    run = new_run_dir("my task/β", tmp_path / "runs", now)

    assert run.path == tmp_path / "runs" / "2026-01-31_12-05-09_my-task"
    assert run.path.is_dir()
    assert not run.exists()


def test_two_runs_of_one_second_get_two_directories(tmp_path: Path) -> None:
    """A number is appended."""
    now = datetime.datetime(2026, 1, 31)

    names = [new_run_dir("a", tmp_path, now).path.name for _ in range(3)]

    assert names == ["2026-01-31_00-00-00_a", "2026-01-31_00-00-00_a-2", "2026-01-31_00-00-00_a-3"]


def claim(root: str, number: int) -> list[str]:
    """Names that one process gets."""
    now = datetime.datetime(2026, 1, 31)
    return [new_run_dir("a", Path(root), now).path.name for _ in range(number)]


@pytest.mark.serial
def test_processes_that_start_at_once_never_share_a_directory(tmp_path: Path) -> None:
    """Four processes of one second, ten runs each: forty directories."""
    context = multiprocessing.get_context("spawn")

    with context.Pool(4) as pool:
        claimed = pool.starmap(claim, [(str(tmp_path), 10)] * 4)

    names = [name for each in claimed for name in each]
    assert len(set(names)) == 40
    assert {path.name for path in tmp_path.iterdir()} == set(names)


@given(st.text())
def test_a_slug_is_a_plain_file_name(name: str) -> None:
    """Never empty, never hidden, never a path, and stable under itself."""
    short = slug(name)

    assert short
    assert Path(short).name == short
    assert short[0] not in ".-"
    assert slug(short) == short


def test_a_file_where_a_directory_should_be_is_said(tmp_path: Path) -> None:
    """The user is told which file is in the way."""
    (tmp_path / "f").write_text("")

    with pytest.raises(PacelineError, match="is a file, not a directory"):
        make_dirs(tmp_path / "f")


def test_a_directory_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    """Exit code 4, as for every write that fails."""
    (tmp_path / "f").write_text("")

    with pytest.raises(PacelineError) as caught:
        make_dirs(tmp_path / "f" / "below")

    assert caught.value.exit_code == Exit.CANNOT_WRITE


def test_an_atomic_write_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    """Content is new, permissions are those of any new file, no temporary file is left."""
    path = tmp_path / "a" / "b"
    previous = os.umask(0o027)
    try:
        write_atomic(path, b"old")
        write_atomic(path, b"new")
    finally:
        os.umask(previous)

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in path.parent.iterdir()] == ["b"]


@pytest.mark.parametrize("fails", ["fsync", "replace", "write"])
def test_an_atomic_write_that_fails_keeps_the_old_file(tmp_path: Path, monkeypatch, fails: str) -> None:
    """Whichever step the disk refuses: the old content, no half file, one error with exit code 4."""
    path = tmp_path / "b"
    write_atomic(path, b"old")

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    if fails == "fsync":
        monkeypatch.setattr(rundir.os, "fsync", refuse)
    elif fails == "replace":
        monkeypatch.setattr(Path, "replace", refuse)
    else:
        real = os.fdopen

        def full_file(handle: int, mode: str) -> object:
            os.close(handle)
            return real(os.open("/dev/full", os.O_WRONLY), mode)

        monkeypatch.setattr(rundir.os, "fdopen", full_file)

    with pytest.raises(PacelineError) as caught:
        write_atomic(path, b"new" * 5000)
    monkeypatch.undo()

    assert caught.value.exit_code == Exit.CANNOT_WRITE
    assert caught.value.why == "No space left on device"
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["b"]


HOLDER = """
import sys, time
from paceline.records.rundir import RunDir, run_lock
with run_lock(RunDir(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.serial
def test_a_live_run_keeps_others_out_and_its_death_lets_them_in(tmp_path: Path) -> None:
    """Another process is refused with the holder's number; after kill -9 of the holder it is let in."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"

        with pytest.raises(PacelineError) as caught, run_lock(RunDir(tmp_path)):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with run_lock(RunDir(tmp_path)):
            entered = (tmp_path / "run.lock").read_text()
    finally:
        holder.kill()
        holder.wait()

    assert "is in use" in caught.value.what
    assert f"process {holder.pid} holds its lock" in caught.value.why
    assert entered == f"{os.getpid()}\n"


def test_the_lock_is_free_after_the_block_also_when_it_failed(tmp_path: Path) -> None:
    """Leaving by an exception unlocks."""
    with pytest.raises(ZeroDivisionError), run_lock(RunDir(tmp_path)):
        1 / 0  # noqa: B018

    with run_lock(RunDir(tmp_path)) as inside:
        assert inside is None


def test_a_full_disk_at_the_lock_is_one_message(tmp_path: Path, monkeypatch) -> None:
    """The lock is the first thing that a run writes, so it meets a full disk first."""

    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rundir.os, "pwrite", full)

    with pytest.raises(PacelineError, match="No space left") as caught, run_lock(RunDir(tmp_path)):
        pass

    assert caught.value.exit_code == Exit.CANNOT_WRITE


def test_a_lock_that_cannot_be_made_is_one_message(tmp_path: Path) -> None:
    """A directory stands where the lock file should be."""
    (tmp_path / "run.lock").mkdir()

    with pytest.raises(PacelineError, match=r"cannot write .*run\.lock"), run_lock(RunDir(tmp_path)):
        pass


def test_names_in_a_run_directory_are_those_of_the_schema() -> None:
    """Readers of other programs rely on them."""
    run = RunDir("r")

    names = [run.info, run.checkpoints, run.logs, run.findings, run.report, run.events(), run.events(12)]

    assert [str(name) for name in names] == [
        "r/run.json",
        "r/checkpoints",
        "r/logs",
        "r/findings.jsonl",
        "r/report.html",
        "r/events/rank-00000.jsonl",
        "r/events/rank-00012.jsonl",
    ]
