"""Workers' output, kept and shown."""

import io
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from torch.distributed.elastic.multiprocessing import Std

from paceline.launch import capture
from paceline.launch.bounded_log import BoundedLog
from paceline.launch.capture import CapturedLogs, Channel, OutputPump, shower


@pytest.fixture
def streams(tmp_path, monkeypatch):
    """Our stdout and stderr, as two files; `shown(name)` is what went there."""
    files = {name: (tmp_path / f"our-{name}").open("w+") for name in ("stdout", "stderr")}
    # Not sys.stdout itself, which pytest puts back between set-up and test.
    monkeypatch.setattr(capture, "sys", SimpleNamespace(**files))
    yield SimpleNamespace(shown=lambda name: (tmp_path / f"our-{name}").read_bytes(), **files)
    for file in files.values():
        file.close()


def wait_for(condition, patience_s=20.0):
    """Wait until something holds, and say whether it does."""
    end = time.monotonic() + patience_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def envs(count):
    """What the agent hands over for each rank."""
    return {rank: {"TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "0"} for rank in range(count)}


def write(path, data):
    """Write as a worker does whose stream the agent opened."""
    with open(path, "wb", buffering=0) as worker:  # noqa: PTH123
        worker.write(data)


def test_output_is_shown_byte_for_byte_as_it_comes_and_kept(tmp_path, streams):
    """Also half lines, when no more comes (a prompt), and bytes that are no text."""
    channel = Channel(tmp_path / "stdout.log", streams.stdout)
    pump = OutputPump([channel])

    write(channel.name, b"one\nhalf")

    assert wait_for(lambda: streams.shown("stdout") == b"one\nhalf")
    write(channel.name, b" a line\n\xff\xfe")
    pump.stop()
    assert streams.shown("stdout") == b"one\nhalf a line\n\xff\xfe"
    assert (tmp_path / "stdout.log").read_bytes() == b"one\nhalf a line\n\xff\xfe"


def test_ranks_do_not_cut_into_each_others_lines(tmp_path, streams):
    """A line whose end is still to come waits for it, while another rank's whole line goes through."""
    channels = [Channel(tmp_path / f"{rank}.log", streams.stdout) for rank in range(2)]
    write(channels[0].name, b"first ")
    write(channels[1].name, b"other\n")
    write(channels[0].name, b"rest\n")

    OutputPump(channels).stop()

    assert sorted(streams.shown("stdout").splitlines()) == [b"first rest", b"other"]


def test_more_than_a_pipe_holds_arrives_whole(tmp_path, streams):
    """The worker waits for us, as it would for any reader."""
    channel = Channel(tmp_path / "stdout.log", streams.stdout)
    pump = OutputPump([channel])
    data = b"".join(b"%d\n" % number for number in range(200_000))

    write(channel.name, data)
    pump.stop()

    assert streams.shown("stdout") == data


@pytest.fixture
def terminal(monkeypatch):
    """Our stdout and stderr are one terminal; gives its other side."""
    outside, inside = os.openpty()
    capture._like_terminal(inside, SimpleNamespace(fileno=lambda: inside))
    stream = os.fdopen(inside, "w")
    monkeypatch.setattr(capture, "sys", SimpleNamespace(stdout=stream, stderr=stream))
    yield outside
    stream.close()
    os.close(outside)


def test_on_a_terminal_workers_get_one_terminal_for_both_streams_in_the_order_of_their_writes(tmp_path, terminal):
    """tqdm.write clears its bar on stderr, writes to stdout and draws the bar again: that takes the right order."""
    logs = CapturedLogs(str(tmp_path), Std.NONE, Std.NONE, None)
    chosen = logs.reify(envs(1))
    program = (
        "import os, sys; os.write(2, f'{sys.stdout.isatty()} {sys.stderr.isatty()}\\n'.encode());"
        "[os.write(1 + number % 2, f'{number}\\r'.encode()) for number in range(500)]"
    )

    with open(chosen.stdouts[0], "w") as out, open(chosen.stderrs[0], "w") as err:  # noqa: PTH123  as the agent does
        subprocess.run([sys.executable, "-c", program], stdout=out, stderr=err, check=True)
    logs.stop()

    wanted = b"True True\n" + b"".join(b"%d\r" % number for number in range(500))
    assert os.read(terminal, 1 << 16) == wanted
    assert (logs.attempt / "0" / "output.log").read_bytes() == wanted


def test_a_terminal_that_changes_its_width_is_followed(tmp_path, terminal):
    """Progress bars ask for the width each time."""
    channel = Channel(tmp_path / "log", capture.sys.stdout)
    pump = OutputPump([channel])

    subprocess.run(["stty", "cols", "57"], stdin=capture.sys.stdout.fileno(), check=True)

    assert wait_for(lambda: os.get_terminal_size(channel.writer).columns == 57)
    pump.stop()


def test_streams_of_the_user_are_left_to_torchrun(tmp_path, streams):
    """A redirected or teed stream is written where torchrun writes it, and not shown twice."""
    logs = CapturedLogs(str(tmp_path), Std.NONE, {1: Std.ALL}, None)

    chosen = logs.reify(envs(2))

    assert all(path[0].startswith("/proc/") for path in (chosen.stdouts, chosen.stderrs))
    assert chosen.stderrs[1] == chosen.tee_stderrs[1]
    assert chosen.stdouts[1] == chosen.tee_stdouts[1]
    logs.stop()


def test_a_filtered_rank_is_kept_and_not_shown(tmp_path, streams):
    """--local-ranks-filter hides it from the terminal; the card may still need it."""
    logs = CapturedLogs(str(tmp_path), Std.NONE, Std.NONE, {0})

    chosen = logs.reify(envs(2))
    for rank in range(2):
        write(chosen.stdouts[rank], f"rank {rank}\n".encode())
    logs.stop()

    assert streams.shown("stdout") == b"rank 0\n"
    assert (logs.attempt / "1" / "stdout.log").read_text() == "rank 1\n"


def test_the_logs_of_an_attempt_that_torch_would_delete_are_set_aside(tmp_path, streams):
    """After a change of membership the same attempt starts again, and torch removes its directory."""
    logs = CapturedLogs(str(tmp_path), Std.NONE, Std.NONE, None)
    write(logs.reify(envs(1)).stdouts[0], b"before\n")

    aside = logs.set_aside()
    logs.reify(envs(1))
    logs.stop()

    assert (aside / "0" / "stdout.log").read_text() == "before\n"
    assert logs.attempt != aside


def test_without_a_log_directory_nothing_is_touched(streams):
    """torchrun's own way to keep no logs is --log-dir /dev/null."""
    logs = CapturedLogs(os.devnull, Std.NONE, Std.NONE, None)

    chosen = logs.reify(envs(1))

    assert (chosen.stdouts, chosen.stderrs) == ({0: ""}, {0: ""})
    logs.stop()


def test_a_reader_that_went_away_does_not_stop_the_workers():
    """`paceline run ... 2>&1 | head` must not kill a job by a broken pipe in a thread."""
    closed = io.TextIOWrapper(io.BytesIO())
    closed.close()

    shower(closed)(b"words\n")


def test_a_long_log_keeps_its_beginning_and_its_end(tmp_path):
    """Its size is bounded, and the number of bytes that are missing is stated."""
    path = tmp_path / "log"
    log = BoundedLog(path, limit=1000, keep=200)
    data = b"".join(b"%06d\n" % number for number in range(5000))

    for start in range(0, len(data), 90):
        log.write(data[start : start + 90])
    log.close()

    kept = path.read_bytes()
    head, rest = kept[:200], kept[200:]
    marker, newest = rest[1:].split(b"\n", 1)
    assert len(kept) <= 1000
    assert data.startswith(head)
    assert data.endswith(newest)
    assert len(newest) >= 200
    assert int(marker.split()[1]) == len(data) - len(head) - len(newest)


def test_a_full_disk_ends_the_log_and_not_the_worker(tmp_path, streams):
    """What cannot be kept is still shown."""
    channel = Channel(tmp_path / "log", streams.stdout)
    channel.log.close()
    channel.log = BoundedLog(tmp_path / "full")
    channel.log._file = open("/dev/full", "w+b", buffering=0)  # noqa: PTH123, SIM115
    pump = OutputPump([channel])

    write(channel.name, b"words\n")
    pump.stop()

    assert streams.shown("stdout") == b"words\n"
