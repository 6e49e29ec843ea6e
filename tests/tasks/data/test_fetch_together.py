"""Several processes that want the same data set, and what a process that died leaves to the next one."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from paceline.tasks.data import fetch_lock
from paceline.tasks.data.obtain import obtain


def test_a_lock_file_that_lost_its_name_protects_nothing_and_is_not_trusted(tiny, cache, monkeypatch):
    """Its holder removed the file between opening and locking: then the new file of that name is locked instead."""
    folder = cache / tiny.dataset.folder
    real_lock = fetch_lock._try_lock
    removed = []

    def lock_then_lose(handle):
        result = real_lock(handle)
        if not removed:
            removed.append((folder / fetch_lock.LOCK_NAME).unlink())
        return result

    monkeypatch.setattr(fetch_lock, "_try_lock", lock_then_lose)

    with fetch_lock.fetch_lock(folder, lambda holder: None), (folder / fetch_lock.LOCK_NAME).open() as other:
        holder = other.read()
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)

    assert removed
    assert holder == f"{os.getpid()}\n"


def test_a_killed_fetch_leaves_no_file_that_looks_complete(tiny, mirror, cache, script):
    """Kill -9 while the second file is being written: no final name exists; the next fetch cleans up and succeeds."""
    released = threading.Event()

    def stop_at_the_second_file():
        if len(mirror.requests) == 2:
            released.wait(60)

    mirror.before_half = stop_at_the_second_file
    process = subprocess.Popen([sys.executable, "-c", script("obtain('tiny')")], stderr=subprocess.PIPE)
    folder = cache / tiny.dataset.folder
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and len(list(folder.glob(".paceline-fetch-*/ready/*"))) < 2:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    released.set()

    left = [path.name for path in folder.rglob("*") if path.is_file()]
    assert "train-images-idx3-ubyte" in left  # aside, in the scratch directory
    assert not tiny.dataset.raw(cache).exists()

    obtain("tiny")

    assert tiny.is_whole(cache)


def test_four_processes_fetch_once(tiny, mirror, cache, script, tmp_path):
    """Four that start together: each file is asked for once, three wait for the fourth, all get the same."""
    ready = tmp_path / "ready"
    ready.mkdir()
    mirror.before_half = lambda: time.sleep(0.2)
    program = script(
        f"ready = Path({str(ready)!r}); (ready / str(os.getpid())).touch()\n"
        "while len(list(ready.iterdir())) < 4: time.sleep(0.005)\n"
        "told = []\n"
        "obtained = obtain('tiny', on_progress=told.append)\n"
        "waited = any('waiting for process' in progress.message for progress in told)\n"
        "print(obtained.root, waited, len(obtained.notes))\n"
    )

    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = [process.communicate(timeout=60)[0].strip() for process in processes]

    assert sorted(mirror.requests) == sorted(mirror.files)
    assert sorted(said) == [f"{cache} False 0"] + [f"{cache} True 1"] * 3
    assert tiny.is_whole(cache)


def test_those_who_wait_go_on_when_the_fetcher_fails(tiny, mirror, cache, script, tmp_path):
    """The first process's disk is full; the one that waits for it takes its turn, and succeeds."""
    mirror.before_half = lambda: time.sleep(0.2)
    started = tmp_path / "started"
    failing = script(
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        f"obtain('tiny', on_progress=lambda progress: Path({str(started)!r}).touch())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", failing], stderr=subprocess.DEVNULL)
    while not started.exists():
        time.sleep(0.01)

    told = []
    obtained = obtain("tiny", on_progress=told.append)
    process.wait(30)

    assert process.returncode == 1
    assert any(f"waiting for process {process.pid}" in progress.message for progress in told)
    assert obtained.source == mirror.address
    assert tiny.is_whole(cache)
