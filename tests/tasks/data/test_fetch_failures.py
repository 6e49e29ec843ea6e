"""A fetch that fails leaves nothing behind and says everything in one message."""

import contextlib
import errno
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from paceline.records.errors import Exit, PacelineError
from paceline.tasks.data import download, fetched_files
from paceline.tasks.data.obtain import obtain


def all_below(directory):
    """Every path below a directory, for "nothing is left"."""
    return sorted(directory.rglob("*"))


def test_when_nothing_works_each_place_is_named_with_its_reason(tiny, mirror, tmp_path, monkeypatch):
    """One message: all six places in the order of the search, why each failed, and the next step."""
    mirror.files.clear()
    monkeypatch.setenv("PATH", str(tmp_path / "no-tools"))
    tiny.use(debian_package="dataset-tiny", debian_dir=str(tmp_path / "not-installed"))

    with pytest.raises(PacelineError) as caught:
        obtain("tiny", tmp_path / "named")

    reasons = caught.value.why.splitlines()[1:]
    expected = [
        ("--data-dir", "no such directory"),
        ("./data", "no such directory"),
        ("your cache", "no such directory"),
        ("not-installed", "no such directory"),
        (mirror.address, "train-images-idx3-ubyte.gz: HTTP 404"),
        ("apt", "apt-get and dpkg-deb not found"),
    ]
    assert len(reasons) == len(expected)
    assert all(place in line and why in line for line, (place, why) in zip(reasons, expected, strict=True))
    assert "paceline data fetch tiny --data-dir" in caught.value.hint
    assert caught.value.exit_code == Exit.USAGE
    assert not (tmp_path / "named").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda body: body[:-20], "is truncated"),
        (lambda body: b"\x1f\x8b" + bytes(50), "its compression is wrong"),
        (lambda body: b"<html></html>", "has 13 bytes, and"),
        (lambda body: b"", "has 0 bytes, and"),
        (lambda body: bytes(200_000), "has more than"),
    ],
    ids=["truncated", "bad compression", "a login page", "empty", "endless"],
)
def test_a_mirror_that_sends_something_else_is_not_believed(tiny, mirror, cache, change, says):
    """What a mirror sends is used only if it is the file, byte for byte; nothing of it stays."""
    name = "/t10k-labels-idx1-ubyte.gz"
    mirror.files[name] = change(mirror.files[name])

    with pytest.raises(PacelineError) as caught:
        obtain("tiny")

    assert f"{mirror.address}: t10k-labels-idx1-ubyte" in caught.value.why
    assert says in caught.value.why
    assert not cache.exists()


def test_a_mirror_with_one_wrong_bit_is_not_believed(tiny, mirror, cache):
    """Right size, wrong content: found by the checksum of the decompressed bytes."""
    true = tiny.content["train-images-idx3-ubyte"]
    mirror.files["/train-images-idx3-ubyte.gz"] = gzip.compress(true[:-1] + bytes([true[-1] ^ 1]))

    with pytest.raises(PacelineError, match="Tiny is not on this machine") as caught:
        obtain("tiny")

    assert "wrong checksum" in caught.value.why
    assert not cache.exists()


def test_a_connection_that_breaks_is_not_believed(tiny, mirror, cache):
    """The server closes before it has sent what it announced; compressed data that end early are refused."""
    mirror.files = {path: body[: len(body) // 2] for path, body in mirror.files.items()}
    mirror.lie_about_length = 1000

    with pytest.raises(PacelineError) as caught:
        obtain("tiny")

    assert "train-images-idx3-ubyte is truncated" in caught.value.why
    assert not cache.exists()


def test_a_server_that_is_silent_is_given_up(tiny, mirror, cache, monkeypatch):
    """No byte for the time limit: the mirror counts as failed; nobody waits forever."""
    monkeypatch.setattr(download, "TIMEOUT_S", 0.3)
    released = threading.Event()
    mirror.before_half = lambda: released.wait(20)

    start = time.monotonic()
    with pytest.raises(PacelineError) as caught:
        obtain("tiny")
    took = time.monotonic() - start
    released.set()

    assert "no answer for" in caught.value.why
    assert took < 10


def test_a_server_that_only_trickles_is_given_up(tiny, mirror, monkeypatch):
    """Each byte comes in time, and yet the whole never would: the average speed decides."""
    monkeypatch.setattr(download, "STALL_AFTER_S", 0.2)
    monkeypatch.setattr(download, "STALL_BYTES_PER_S", 1e9)
    mirror.dribble_s = 0.01  # a quarter of an hour for all

    start = time.monotonic()
    with pytest.raises(PacelineError) as caught:
        obtain("tiny")
    took = time.monotonic() - start
    mirror.dribble_s = 0.0

    assert "too slow" in caught.value.why
    assert took < 10


def test_a_full_disk_is_one_message_and_leaves_nothing(tiny, mirror, cache, monkeypatch):
    """The disk takes 20,000 bytes and then no more: exit code 4, no other place is tried, no file is left."""
    room = 20_000
    real_write = os.write

    def write(handle, data):
        nonlocal room
        if len(data) > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room -= len(data)
        return real_write(handle, data)

    tiny.use(mirrors=(mirror.address, mirror.address))
    monkeypatch.setattr(fetched_files.os, "write", write)

    with pytest.raises(PacelineError) as caught:
        obtain("tiny")

    assert caught.value.exit_code == Exit.CANNOT_WRITE
    assert caught.value.why == "No space left on device"
    assert caught.value.what == f"cannot write {cache / tiny.dataset.folder}"
    assert "--data-dir" in caught.value.hint
    assert mirror.requests == ["/train-images-idx3-ubyte.gz"]
    assert not cache.exists()


def test_a_file_size_limit_of_the_system_is_one_message(tiny, mirror, cache, script):
    """A real refusal by the kernel (RLIMIT_FSIZE), in a process of its own."""
    program = script(
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "try: obtain('tiny')\n"
        "except PacelineError as error: print(error.exit_code, error.why); sys.exit(9)\n"
    )

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert (result.returncode, result.stdout, result.stderr) == (9, "4 File too large\n", "")
    assert not cache.exists()


def test_a_full_disk_during_a_repair_keeps_the_files_that_are_right(tiny, mirror, cache, monkeypatch):
    """The cache lacks one file, and that cannot be written: the other three stay."""
    tiny.write(cache, train_images_idx3_ubyte=None)
    before = all_below(cache)

    def write(handle, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(fetched_files.os, "write", write)

    with pytest.raises(PacelineError, match="cannot write"):
        obtain("tiny")

    assert all_below(cache) == before


@pytest.fixture
def guarded():
    """A directory that this process cannot write into, also when the tests run as root."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o555)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)  # nobody
    yield directory
    if was_root:
        os.seteuid(0)
    for path in (directory, *all_below(directory)):
        if path.is_dir():
            path.chmod(0o755)  # else only root could remove what is in it
    shutil.rmtree(directory)


def test_an_unwritable_directory_is_one_message(tiny, guarded):
    """Exit code 4, the directory and the reason; nothing is made."""
    with pytest.raises(PacelineError) as caught:
        obtain("tiny", guarded / "data")

    assert caught.value.exit_code == Exit.CANNOT_WRITE
    assert caught.value.what == f"cannot write {guarded / 'data' / tiny.dataset.folder}"
    assert caught.value.why == "Permission denied"
    assert all_below(guarded) == []


def test_damage_in_a_read_only_data_dir_is_damage(tiny, guarded):
    """What is wrong with the file is said, and not that the directory cannot be written."""
    os.seteuid(os.getuid())
    guarded.chmod(0o755)
    tiny.write(guarded, train_labels_idx1_ubyte=b"bad")
    for path in (guarded, guarded / tiny.dataset.folder, tiny.dataset.raw(guarded)):
        path.chmod(0o555)
    if os.getuid() == 0:
        os.seteuid(65534)

    with pytest.raises(PacelineError, match="train-labels-idx1-ubyte has 3 bytes"):
        obtain("tiny", guarded)


def test_a_place_is_tried_only_once(tiny, tmp_path):
    """`--data-dir data` is ./data: the list of reasons has it once."""
    with pytest.raises(PacelineError) as caught:
        obtain("tiny", Path("data"))

    assert caught.value.why.count("no such directory") == 2  # itself and the cache
    assert not (tmp_path / "work" / "data").exists()


def test_a_read_only_data_dir_that_is_whole_needs_no_writing(tiny, tmp_path):
    """Checking takes no lock and writes nothing: the set may lie on a read-only disk."""
    named = tiny.write(tmp_path / "named")
    before = {path: path.stat().st_mtime_ns for path in (named, *all_below(named))}

    obtain("tiny", named)

    assert {path: path.stat().st_mtime_ns for path in (named, *all_below(named))} == before


def test_ctrl_c_leaves_nothing(tiny, mirror, cache):
    """An interrupt in the middle of a fetch removes what was written."""

    def interrupt(progress):
        if progress.done_bytes:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        obtain("tiny", on_progress=interrupt)

    assert mirror.requests
    assert not cache.exists()
