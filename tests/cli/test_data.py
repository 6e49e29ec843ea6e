"""`paceline data`: what it prints, for people and for programs."""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import pty
import struct
import subprocess
import sys

import pytest

from paceline.cli.main import call
from paceline.records.errors import Exit
from paceline.tasks.data.catalog import CATALOG, DataFile, DataSet

CONTENT = {
    "train-labels-idx1-ubyte": struct.pack(">BBBBI", 0, 0, 8, 1, 5) + bytes(5),
    "t10k-labels-idx1-ubyte": struct.pack(">BBBBI", 0, 0, 8, 1, 2) + bytes(2),
}


@pytest.fixture(autouse=True)
def mirror(tmp_path, monkeypatch):
    """A user with an empty cache, and a data set `tiny` whose mirror is a directory of this machine."""
    work = tmp_path / "work"
    mirror = tmp_path / "mirror"
    work.mkdir()
    mirror.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(work)
    files = []
    for name, content in CONTENT.items():
        (mirror / f"{name}.gz").write_bytes(content)
        files.append(DataFile(name, len(content), hashlib.sha256(content).hexdigest()))
    dataset = DataSet(
        name="tiny",
        title="Tiny",
        folder="TinySet",
        files=tuple(files),
        samples={"train": 5, "eval": 2},
        licence="none at all",
        mirrors=(f"file://{mirror}/",),
    )
    monkeypatch.setitem(CATALOG, "tiny", dataset)
    return mirror


@dataclasses.dataclass
class Result:
    """What a command printed, and its exit code."""

    exit_code: int
    stdout: str
    stderr: str


def run(*arguments):
    """The result of `paceline data ARGUMENTS`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = call(["data", *arguments])
    return Result(code, out.getvalue(), err.getvalue())


def test_fetch_says_what_is_there_and_where_it_came_from(tmp_path, mirror):
    """Samples, source, directory and the line that opens it, on standard output; what goes on, on standard error."""
    result = run("fetch", "tiny", "--data-dir", str(tmp_path / "sets"))

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Tiny is ready: 5 training and 2 evaluation samples, 0.0 MB, every checksum right",
        f"  from  file://{mirror}/",
        f"  in    {tmp_path}/sets/TinySet/raw",
        f"  use   torchvision.datasets.TinySet('{tmp_path}/sets', download=False)",
    ]
    assert (tmp_path / "sets" / "TinySet" / "raw" / "t10k-labels-idx1-ubyte").read_bytes() == CONTENT[
        "t10k-labels-idx1-ubyte"
    ]


def test_without_a_terminal_each_message_is_one_line(mirror):
    """No control characters and no repetition on standard error, however often progress is told."""
    result = run("fetch", "tiny")

    assert result.stderr.splitlines() == [
        f"connecting to file://{mirror}/",
        f"getting Tiny from file://{mirror}/",
    ]


def test_fetch_as_json_is_one_object(tmp_path, mirror):
    """Programs get the root, the source and every file with its checksum; nothing else is on standard output."""
    result = run("fetch", "tiny", "--format", "json")

    got = json.loads(result.stdout)
    assert got["name"] == "tiny"
    assert got["root"] == str(tmp_path / "cache" / "paceline" / "data")
    assert got["source"] == f"file://{mirror}/"
    assert got["notes"] == []
    assert {file["path"].rpartition("/")[2]: file["sha256"] for file in got["files"]} == {
        name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()
    }


def test_fetch_prints_notes(tmp_path, mirror):
    """A damaged copy that was passed over is told."""
    raw = tmp_path / "work" / "data" / "TinySet" / "raw"
    raw.mkdir(parents=True)
    (raw / "train-labels-idx1-ubyte").write_bytes(b"bad")

    result = run("fetch", "tiny")

    assert "  note  ./data (torchvision's layout): train-labels-idx1-ubyte has 3 bytes" in result.stdout


def test_an_unknown_data_set_is_one_message():
    """Exit code 2, without a traceback."""
    result = run("fetch", "nothing")

    assert result.exit_code == Exit.USAGE
    assert "no data set called 'nothing'" in result.stderr


def test_list_says_where_each_set_is(tmp_path):
    """Before the fetch: not here, with the command that gets it. Afterwards: the place."""
    before = run("list").stdout
    run("fetch", "tiny")
    after = run("list").stdout

    assert "tiny  5 training and 2 evaluation samples, 0.0 MB\n  not here (get it: paceline data fetch tiny)" in before
    assert f"  is in    {tmp_path}/cache/paceline/data (your cache)\n" in after
    assert "fashion-mnist  60,000 training and 10,000 evaluation samples, 55.0 MB" in after


def test_list_as_json_names_every_set(tmp_path):
    """One entry for each data set of the table, with a place or null; nothing is fetched."""
    result = run("list", "--format", "json")

    got = {row["name"]: row for row in json.loads(result.stdout)["datasets"]}
    assert set(got) == set(CATALOG)
    assert got["tiny"]["place"] is None
    assert got["tiny"]["size_bytes"] == sum(len(content) for content in CONTENT.values())
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("command", ["fetch", "list"])
def test_help_shows_an_example(command):
    """Each command's help has a line to copy."""
    result = run(command, "--help")

    assert f"Example:\n  paceline data {command}" in result.stdout


def test_an_unknown_format_is_refused_with_the_legal_ones():
    """Exit code 2, and both values are named."""
    result = run("list", "--format", "yaml")

    assert result.exit_code == 2
    assert "text" in result.stderr
    assert "json" in result.stderr


def on_terminal(program):
    """What a program draws on a terminal of its own, and its exit code."""
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=terminal,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
    )
    os.close(terminal)
    drawn = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:  # how Linux says that nobody is left at the other end
            break
        if not piece:
            break
        drawn += piece
    os.close(main)
    return drawn.decode(), process.wait(60)


PROGRAM = """
import time
from paceline.cli import data
from paceline.tasks.data.fetched_files import Progress
data.BAR_AFTER_S = {bar_after_s}
with data.show_progress() as tell:
    for done in range(0, 5_000_001, 500_000):
        tell(Progress("getting Tiny [from] somewhere", done, 5_000_000))
        time.sleep(0.05)
"""


def test_a_long_fetch_draws_a_bar_on_a_terminal():
    """The message (brackets as they are), the bytes done and the total appear once the time is over."""
    drawn, code = on_terminal(PROGRAM.format(bar_after_s=0.1))

    assert code == 0
    assert "getting Tiny [from] somewhere" in drawn
    assert "5.0/5.0 MB" in drawn


def test_a_short_fetch_draws_nothing_on_a_terminal():
    """What ends before the bar's time leaves the terminal as it was."""
    drawn, code = on_terminal(PROGRAM.format(bar_after_s=60))

    assert (drawn, code) == ("", 0)


def test_an_entry_without_samples_of_a_known_split_is_still_printed(monkeypatch):
    """Other splits are printed by their own names."""
    monkeypatch.setitem(CATALOG, "tiny", dataclasses.replace(CATALOG["tiny"], samples={"validation": 3}))

    assert "tiny  3 validation samples" in run("list").stdout
