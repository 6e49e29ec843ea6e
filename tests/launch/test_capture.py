"""Workers' stderr, kept and shown."""

import io
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from torch.distributed.elastic.multiprocessing import Std

from paceline.launch import capture
from paceline.launch.capture import CapturedLogs, FileCopier, TerminalCopier


class Screen:
    """Stands for stderr: keeps the bytes, one entry a write."""

    def __init__(self, terminal=False):
        self.buffer = self
        self.writes = []
        self._terminal = terminal

    def write(self, data):
        """Keep it."""
        self.writes.append(bytes(data))

    def flush(self):
        """Nothing waits."""

    def isatty(self):
        """Whether workers should see a terminal."""
        return self._terminal

    def fileno(self):
        """A screen without a size."""
        raise OSError

    @property
    def text(self):
        """All that was shown."""
        return b"".join(self.writes)


@pytest.fixture
def screen(monkeypatch):
    """What is shown, instead of the test's own stderr."""
    shown = Screen()
    # Not sys.stderr itself, which pytest puts back between set-up and test.
    monkeypatch.setattr(capture, "sys", SimpleNamespace(stderr=shown))
    return shown


def wait_for(condition, patience_s=10.0):
    """Wait until something holds, and say whether it does."""
    end = time.monotonic() + patience_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def envs(count):
    """What the agent hands over for each rank."""
    return {rank: {"TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "0"} for rank in range(count)}


def test_a_file_is_shown_byte_for_byte_while_it_grows(tmp_path, screen):
    """Also half lines, when no more comes, and bytes that are no text."""
    path = tmp_path / "stderr.log"
    with path.open("wb", buffering=0) as worker:
        copier = FileCopier(path)

        worker.write(b"one\nhalf")

        assert wait_for(lambda: screen.text == b"one\nhalf")
        worker.write(b" a line\n\xff\xfe")
        copier.stop()
    assert screen.text == b"one\nhalf a line\n\xff\xfe"


def test_lines_are_shown_whole(tmp_path, screen):
    """Two ranks do not cut into each other's lines."""
    path = tmp_path / "stderr.log"
    path.write_bytes(b"a" * 200_000 + b"\nrest")

    FileCopier(path).stop()

    assert screen.writes[0] == b"a" * 200_000 + b"\n"
    assert screen.text.endswith(b"\nrest")


def test_a_terminal_is_one_for_the_worker_and_its_output_is_kept_as_it_is(tmp_path, screen):
    """Progress bars ask whether they write to a terminal; carriage returns and newlines stay what they are."""
    log = tmp_path / "stderr.log"
    copier = TerminalCopier(log)
    program = "import os, sys; os.write(2, f'{sys.stderr.isatty()} 10%\\r100%\\n'.encode())"

    with open(copier.name, "w") as stderr:  # noqa: PTH123  as the agent does
        subprocess.run([sys.executable, "-c", program], stderr=stderr, check=True)
    copier.stop()

    assert screen.text == log.read_bytes() == b"True 10%\r100%\n"


def test_streams_of_the_user_are_left_to_torchrun(tmp_path, screen):
    """A redirected or teed stderr is written where torchrun writes it, and not shown twice."""
    logs = CapturedLogs(str(tmp_path), Std.NONE, {1: Std.ERR}, None)

    chosen = logs.reify(envs(2))

    assert os.path.basename(chosen.stderrs[0]) == "stderr.log"  # noqa: PTH119  torch's paths are texts
    assert chosen.stderrs[1] == chosen.tee_stderrs[1]
    assert chosen.stdouts == {0: "", 1: ""}
    assert len(logs._copiers) == 1
    logs.stop()


def test_a_filtered_rank_is_kept_and_not_shown(tmp_path, screen):
    """--local-ranks-filter hides it from the terminal; the card may still need it."""
    logs = CapturedLogs(str(tmp_path), Std.NONE, Std.NONE, {0})

    chosen = logs.reify(envs(2))
    for rank in range(2):
        with open(chosen.stderrs[rank], "w") as worker:  # noqa: PTH123  as the agent does
            worker.write(f"rank {rank}\n")
    logs.stop()

    assert screen.text == b"rank 0\n"
    assert open(chosen.stderrs[1]).read() == "rank 1\n"  # noqa: PTH123, SIM115


def test_on_a_terminal_workers_get_a_terminal(tmp_path, monkeypatch):
    """Each its own, and the log is kept all the same."""
    monkeypatch.setattr(capture, "sys", SimpleNamespace(stderr=Screen(terminal=True)))
    logs = CapturedLogs(str(tmp_path), Std.NONE, Std.NONE, None)

    chosen = logs.reify(envs(2))

    assert all(path.startswith("/dev/") for path in chosen.stderrs.values())
    assert chosen.stderrs[0] != chosen.stderrs[1]
    assert len(list(tmp_path.rglob("stderr.log"))) == 2
    logs.stop()


def test_without_a_log_directory_nothing_is_touched(screen):
    """torchrun's own way to keep no logs is --log-dir /dev/null."""
    logs = CapturedLogs(os.devnull, Std.NONE, Std.NONE, None)

    chosen = logs.reify(envs(1))

    assert chosen.stderrs == {0: ""}
    logs.stop()


def test_a_reader_that_went_away_does_not_stop_the_workers(monkeypatch):
    """`paceline run ... 2>&1 | head` must not kill a job by a broken pipe in a thread."""
    closed = io.TextIOWrapper(io.BytesIO())
    closed.close()
    monkeypatch.setattr(capture, "sys", SimpleNamespace(stderr=closed))

    capture.show(b"words\n")
