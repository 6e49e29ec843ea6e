"""Signals and refused writes of the command itself: one line and the documented exit code, at any moment."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.audits.job_failure import RankFailed
from paceline.cli.exits import exit_code_of, name_flag, numbers_first
from paceline.records import rundir
from paceline.records.errors import REFUSAL_FILE, Exit, PacelineError
from paceline.records.rundir import write_atomic, write_error
from paceline.records.validation import Refusal

WITHIN_AN_IMPORT = """
import os, signal, sys
from paceline.cli import signals
signals.take_over()
if sys.argv[2] == "later":
    signals.imported()
sys.path.insert(0, sys.argv[1])
import swallows
print("went on", flush=True)
"""
SWALLOWS = """
import os, signal, sys
try:
    os.kill(os.getpid(), getattr(signal, sys.argv[3]))
    sum(range(1000))
except BaseException:
    pass
"""


def listen() -> None:
    """In the new process: what a shell starts in the background ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("when", ["start", "later"])
@pytest.mark.parametrize(("name", "code", "words"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")])
def test_a_signal_within_an_import_ends_the_command_with_one_line(
    when: str, name: str, code: int, words: str, tmp_path: Path
) -> None:
    """Exceptions are lost in an import's callbacks: Ctrl-C while torch loads would do nothing, or print a traceback."""
    (tmp_path / "swallows.py").write_text(SWALLOWS)

    done = subprocess.run(
        [sys.executable, "-c", WITHIN_AN_IMPORT, str(tmp_path), when, name],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=listen,
    )

    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"\n{words}\n")


def test_a_command_that_ends_at_once_leaves_no_litter(tmp_path: Path) -> None:
    """Ctrl-C while torch loads: the run directory that was just made is gone."""
    (tmp_path / "swallows.py").write_text(SWALLOWS)
    litter = tmp_path / "run"
    litter.mkdir()
    code = WITHIN_AN_IMPORT.replace(
        "import swallows",
        f"""
import pathlib
with signals.cleaning(pathlib.Path({str(litter)!r}).rmdir):
    import swallows
""",
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), "later", "SIGTERM"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (143, "\nterminated\n")
    assert not litter.exists()


def test_a_save_signal_before_there_is_anything_to_save_is_a_line_and_no_end(tmp_path: Path) -> None:
    """Slurm sends it by the clock, perhaps while the job still loads its data."""
    (tmp_path / "swallows.py").write_text(SWALLOWS)

    done = subprocess.run(
        [sys.executable, "-c", WITHIN_AN_IMPORT, str(tmp_path), "start", "SIGUSR1"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "went on\n")
    assert done.stderr == "\nSIGUSR1: there is nothing to save at this moment; going on\n"


@pytest.mark.serial
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("verb", ["report nowhere", "train digits --workers x", "plan cost --help", "data list"])
def test_a_signal_in_the_first_half_second_of_a_verb_is_never_a_traceback_of_ours(
    verb: str, number: signal.Signals, tmp_path: Path
) -> None:
    """Wherever it meets the imports. Before Python has read the first line of ours, it is Python's or the kernel's."""
    for delay_s in (0.06, 0.1, 0.2, 0.4):
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline", *verb.split()],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=listen,
        )
        time.sleep(delay_s)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]

        assert "paceline/" not in said or "Traceback" not in said
        assert process.returncode in (128 + number, -number, 0, 1, 2)


@pytest.mark.parametrize("words", ["--version", "--help", "train --help", "data --help", "run --help", "data list"])
def test_output_that_cannot_be_written_is_a_message_and_4(words: str) -> None:
    """/dev/full refuses every byte, as a full disk does."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "paceline", *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == Exit.CANNOT_WRITE
    assert done.stderr.startswith("error: cannot write the output\n  why:  No space left on device\n  next: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "what"),
    [
        (OSError(errno.EROFS, "Read-only file system", "/mnt/x"), 4, "cannot write /mnt/x"),
        (OSError(errno.ENOSPC, "No space left on device"), 4, "cannot write the output"),
        (PermissionError(errno.EACCES, "Permission denied", "/nowhere/new"), 4, "cannot write /nowhere/new"),
        (PermissionError(errno.EACCES, "Permission denied", "/"), 2, "cannot use /"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/gone"), 2, "cannot use /gone"),
        (BrokenPipeError(), 1, ""),
        (KeyboardInterrupt(), 130, "interrupted"),
        (KeyboardInterrupt(int(signal.SIGTERM)), 143, "terminated"),
        (KeyboardInterrupt(int(signal.SIGHUP)), 143, "the terminal was closed"),
    ],
)
def test_what_no_verb_put_into_words_still_ends_as_documented(
    error: BaseException, code: int, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One place for all verbs: what the system refused, who left, who stopped it."""

    def fails() -> int:
        raise error

    assert exit_code_of(fails) == code
    assert what in capsys.readouterr().err


def test_a_refusal_is_left_as_data_for_the_command_that_started_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All its parts, and the card of a rank that failed; people read the same on stderr."""
    monkeypatch.setenv(REFUSAL_FILE, str(tmp_path / "refusal.json"))

    def fails() -> int:
        raise RankFailed("the card", "resume it")

    assert exit_code_of(fails) == Exit.FAILED
    assert capsys.readouterr().err == "the card\n  next: resume it\n"
    assert Refusal.read(tmp_path / "refusal.json") == Refusal(
        what="a rank failed", why="the card", hint="resume it", exit_code=1
    )
    assert Refusal.read(tmp_path / "nothing.json") is None


@pytest.mark.parametrize(
    ("verb", "words"),
    [("train", "write elsewhere (--run-dir)"), ("report", "write elsewhere (--output)"), ("data", "write elsewhere;")],
)
def test_a_refused_write_names_the_flag_of_the_verb(verb: str, words: str) -> None:
    """And no flag that this verb does not have."""
    error = write_error(Path("x"), OSError(errno.ENOSPC, "No space left on device"))

    assert words in name_flag(error, verb).hint


def test_numbers_are_shown_before_a_page_that_cannot_be_written_is_reported() -> None:
    """They are what was asked for; the page is a way to look at them."""
    shown = []

    def refuse() -> None:
        raise PacelineError("cannot write", exit_code=Exit.CANNOT_WRITE)

    def verb() -> None:
        with numbers_first() as attempt:
            attempt(refuse)
            shown.append("card")

    with pytest.raises(PacelineError, match="cannot write"):
        verb()

    assert shown == ["card"]


def test_ctrl_c_in_a_write_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the file nor the one beside it."""

    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rundir.os, "fsync", interrupt)

    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "page.html", b"page")

    assert os.listdir(tmp_path) == []  # noqa: PTH208
