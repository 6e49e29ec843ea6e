"""Checkpoints on disk: complete or ignored, whatever happens while they are written, kept or removed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.checkpoint import manifest
from paceline.records.errors import Exit, PacelineError

CONTENTS = {"model.safetensors": b"weights" * 100, "state.pt": memoryview(b"state" * 50)}


def put(checkpoints: Path, *steps: int) -> list[Path]:
    """Write complete checkpoints."""
    for step in steps:
        manifest.write(checkpoints, step, 2, "digits", {**CONTENTS, "which": f"{step}".encode()})
    return [checkpoints / manifest.directory_name(step) for step in steps]


def names(folder: Path) -> list[str]:
    """What stands in a directory, hidden names included."""
    return sorted(path.name for path in folder.iterdir())


def test_a_written_checkpoint_is_complete_and_says_what_is_in_it(tmp_path: Path) -> None:
    """Bytes, sizes and sha256 as hashlib has them; the size of all files is returned."""
    size = manifest.write(tmp_path / "c", 1200, 2, "digits", CONTENTS)

    path = tmp_path / "c" / "step-00001200"
    raw = json.loads((path / "manifest.json").read_text())
    assert manifest.damage(path) is None
    assert names(tmp_path / "c") == ["step-00001200"]
    assert size == sum(len(content) for content in CONTENTS.values())
    assert (raw["schema"], raw["step"], raw["world"], raw["task"]) == (1, 1200, 2, "digits")
    for name, content in CONTENTS.items():
        assert (path / name).read_bytes() == bytes(content)
        assert raw["files"][name] == {
            "size_bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    assert manifest.require(path) == manifest.read_manifest(path)


@settings(max_examples=40)
@given(file=st.sampled_from(sorted(CONTENTS)), data=st.data())
def test_one_changed_byte_in_any_file_is_found(file: str, data: st.DataObject) -> None:
    """The size is the same, so only the sum tells."""
    with tempfile.TemporaryDirectory() as folder:
        (path,) = put(Path(folder), 1)
        content = bytearray((path / file).read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
        (path / file).write_bytes(content)

        reason = manifest.damage(path)

    assert reason == f"{file} is not what was written (sha256 differs)"


@settings(max_examples=60)
@given(data=st.data())
def test_one_changed_byte_in_the_manifest_never_lets_other_files_pass(data: st.DataObject) -> None:
    """Either it is found, or the list of files with their sums is still the true one."""
    with tempfile.TemporaryDirectory() as folder:
        (path,) = put(Path(folder), 1)
        true = manifest.read_manifest(path)
        content = bytearray((path / manifest.MANIFEST).read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        (path / manifest.MANIFEST).write_bytes(content)

        reason = manifest.damage(path)
        files = None if reason else manifest.read_manifest(path).files

    assert reason or files == true.files


@pytest.mark.parametrize("file", [*CONTENTS, manifest.MANIFEST])
def test_a_torn_file_is_found(tmp_path: Path, file: str) -> None:
    """Cut off in the middle, and cut off to nothing."""
    for cut in (0.5, 0):
        (path,) = put(tmp_path, 1)
        content = (path / file).read_bytes()
        (path / file).write_bytes(content[: int(len(content) * cut)])

        assert manifest.damage(path)
        assert manifest.newest_complete(tmp_path)[0] is None


def test_every_kind_of_damage_has_its_reason(tmp_path: Path) -> None:
    """The words go into the note that a resumed run shows."""
    sizes, gone, unfinished, newer, broken = put(tmp_path, 1, 2, 3, 4, 5)
    with (sizes / "state.pt").open("ab") as file:
        file.write(b"!" * 1000)
    (gone / "state.pt").unlink()
    (unfinished / "manifest.json").unlink()
    text = (newer / "manifest.json").read_text()
    (newer / "manifest.json").write_text(text.replace('"schema": 1', '"schema": 2'))
    (broken / "manifest.json").write_text("{}")

    reasons = [manifest.damage(path) for path in (sizes, gone, unfinished, newer, broken)]

    assert reasons[0] == "state.pt has 1,250 bytes instead of 250"
    assert reasons[1] == "state.pt cannot be read (No such file or directory)"
    assert reasons[2] == "it has no manifest, so it was never finished"
    assert reasons[3] == "it has schema 2, written by a newer Paceline"
    assert reasons[4].startswith("its manifest is damaged (")


def test_the_newest_complete_one_is_taken_and_newer_ones_are_named(tmp_path: Path) -> None:
    """By step, not by time or by text: 100,000,000 comes after 99,999,999."""
    _, good, torn, tampered = put(tmp_path, 5, 90, 99_999_999, 100_000_000)
    put(tmp_path, 5)  # the oldest, written last
    (torn / "manifest.json").unlink()
    (tampered / "state.pt").write_bytes(b"x" * 250)

    path, passed = manifest.newest_complete(tmp_path)

    assert path == good
    assert [skipped.path for skipped in passed] == [tampered, torn]
    assert "sha256" in passed[0].reason
    assert "no manifest" in passed[1].reason


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_text("")])
def test_where_there_are_no_checkpoints_there_is_none_to_take(tmp_path: Path, make) -> None:
    """No directory, an empty one, or a file of that name."""
    make(tmp_path / "c")

    assert manifest.newest_complete(tmp_path / "c") == (None, [])


def test_other_names_are_no_checkpoints(tmp_path: Path) -> None:
    """What is written aside, a short number, and files are passed over without a word."""
    for name in (".aside-step-00000009-1", "step-9", "step-00000009.bak", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-00000008").write_text("")

    assert manifest.newest_complete(tmp_path) == (None, [])


def test_a_checkpoint_that_the_user_names_is_refused_with_its_damage(tmp_path: Path) -> None:
    """And with the way out."""
    (path,) = put(tmp_path, 1)
    (path / "state.pt").unlink()

    with pytest.raises(PacelineError) as caught:
        manifest.require(path)

    assert str(path) in caught.value.what
    assert "state.pt" in caught.value.why
    assert "--resume auto" in caught.value.hint


def test_writing_a_step_again_replaces_it_whole(tmp_path: Path) -> None:
    """No file of the old one stays, and nothing is left beside it."""
    (path,) = put(tmp_path, 7)

    manifest.write(tmp_path, 7, 1, "other", {"state.pt": b"new"})

    assert names(tmp_path) == ["step-00000007"]
    assert names(path) == ["manifest.json", "state.pt"]
    assert manifest.require(path).task == "other"


FAILURES = ["write", "fsync", "rename"]


@pytest.mark.parametrize("same_step", [False, True])
@pytest.mark.parametrize("fails", FAILURES)
def test_a_full_disk_leaves_nothing_new_and_the_old_ones_whole(tmp_path, monkeypatch, fails, same_step) -> None:
    """Whichever call is refused, the older checkpoints are complete afterwards, one of the same step included."""
    old = put(tmp_path, 1, 2)
    before = names(tmp_path)

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    if fails == "fsync":
        monkeypatch.setattr(manifest.os, "fsync", full)
    elif fails == "rename":
        monkeypatch.setattr(Path, "rename", full)
    else:
        real = Path.open
        monkeypatch.setattr(Path, "open", lambda self, *a: real(Path("/dev/full") if self.name == "b" else self, *a))
    with pytest.raises(PacelineError) as caught:
        manifest.write(tmp_path, 2 if same_step else 3, 1, "t", {"a": b"x" * 100, "b": b"y" * 100_000})
    monkeypatch.undo()

    assert caught.value.exit_code == Exit.CANNOT_WRITE
    assert caught.value.why == "No space left on device"
    assert names(tmp_path) == before
    assert [manifest.damage(path) for path in old] == [None, None]
    assert (old[1] / "which").read_bytes() == b"2"


def test_when_the_new_one_cannot_take_its_place_the_old_one_comes_back(tmp_path: Path, monkeypatch) -> None:
    """The second of the two renames is refused."""
    (path,) = put(tmp_path, 2)
    real = Path.rename

    def second_refused(self: Path, target: Path) -> Path:
        if manifest.MANIFEST in names(self) and target == path and "old" not in self.name:
            raise OSError(5, "Input/output error")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", second_refused)
    with pytest.raises(PacelineError, match="Input/output error"):
        put(tmp_path, 2)
    monkeypatch.undo()

    assert names(tmp_path) == ["step-00000002"]
    assert manifest.damage(path) is None


WRITES_FOR_EVER = """
import sys
from pathlib import Path
from paceline.checkpoint import manifest
folder, step = Path(sys.argv[1]), int(sys.argv[2])
manifest.clear_aside(folder)
while True:
    step += 1
    name = str(step).encode()
    manifest.write(folder, step, 1, "t", {"model": name * 20_000, "state": name * 3})
    manifest.prune(folder, 2, step)
    if step % 3 == 0:
        manifest.write(folder, step, 1, "t", {"model": name * 20_000, "state": name * 3})
    print(step, flush=True)
"""


@pytest.mark.serial
def test_killed_at_any_moment_while_writing_a_good_checkpoint_is_always_found(tmp_path: Path) -> None:
    """Twelve kills -9 of a process that does nothing but write: at most the newest step is lost."""
    done = 0
    for number in range(12):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITES_FOR_EVER, str(tmp_path), str(done)], stdout=subprocess.PIPE, text=True
        )
        first = int(process.stdout.readline())
        time.sleep(0.003 * number)
        process.send_signal(signal.SIGKILL)
        last = int(("\n" + process.stdout.read()).rpartition("\n")[0].rpartition("\n")[2] or first)
        process.wait()
        process.stdout.close()

        found, _ = manifest.newest_complete(tmp_path)

        assert found is not None
        step = manifest.read_manifest(found).step
        assert last - 1 <= step <= last + 1
        assert found.name == manifest.directory_name(step)
        assert (found / "model").read_bytes() == str(step).encode() * 20_000
        done = step


def test_pruning_keeps_the_newest(tmp_path: Path) -> None:
    """As many as were asked for, and everything when there are fewer."""
    put(tmp_path, 10, 20, 30, 40)

    manifest.prune(tmp_path, 2, 40)
    manifest.prune(tmp_path, 9, 40)

    assert names(tmp_path) == ["step-00000030", "step-00000040"]


def test_damaged_checkpoints_of_later_steps_do_not_push_out_good_ones(tmp_path: Path) -> None:
    """A run that was resumed before them keeps what it writes, also with --keep 1."""
    *_, torn, tampered = put(tmp_path, 100, 200, 300)
    (torn / "manifest.json").unlink()
    (tampered / "state.pt").write_bytes(b"")
    put(tmp_path, 150)

    manifest.prune(tmp_path, 1, 150)

    found, passed = manifest.newest_complete(tmp_path)
    assert found == tmp_path / "step-00000150"
    assert len(passed) == 2


def test_an_interrupted_removal_is_not_taken_for_a_checkpoint(tmp_path: Path, monkeypatch) -> None:
    """The manifest goes first, so that what is left has none."""
    old, _ = put(tmp_path, 1, 2)
    seen: list[list[str]] = []
    monkeypatch.setattr(manifest.shutil, "rmtree", lambda path, **_: seen.append(names(path)))

    manifest.prune(tmp_path, 1, 2)

    assert seen == [["model.safetensors", "state.pt", "which"]]
    assert manifest.damage(old) == "it has no manifest, so it was never finished"


def test_what_killed_runs_had_begun_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    """Also where there is no directory at all."""
    put(tmp_path, 1)
    (tmp_path / f".aside-step-00000002-{os.getpid()}").mkdir()
    (tmp_path / ".aside-old-step-00000001-77").mkdir()
    (tmp_path / ".aside-old-step-00000001-77" / "model").write_text("half")

    manifest.clear_aside(tmp_path)
    with contextlib.suppress(PacelineError):
        manifest.clear_aside(tmp_path / "missing")

    assert names(tmp_path) == ["step-00000001"]
