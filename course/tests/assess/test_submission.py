"""What is handed in is frozen: plain files, within limits, and a config.toml that can be graded by."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.records.errors import PacelineError
from paceline_course.assess.kit import kit_folder
from paceline_course.assess.submission import freeze, read_rows

CONFIG = """
learner = " Ada "
chosen = "large"

[[runs]]
name = "large"
workers = 2
batch = 512
epochs = 16
warmup = 0.05
"""


def handed_in(folder: Path, config: str = CONFIG) -> Path:
    """A folder that can be graded."""
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "config.toml").write_text(config)
    return folder


def test_code_configuration_and_logs_are_taken_and_nothing_else(tmp_path: Path) -> None:
    """Weights, hidden files, results and the like stay where they are."""
    source = handed_in(tmp_path / "in")
    (source / "tools").mkdir()
    for name in ("tools/dist.py", "epoch-0.pt", "notes.txt", ".secret.py", "checkpoint.pt"):
        (source / name).write_text("x = 1\n")
    for name in ("runs/large", "graded/old", "__pycache__"):
        (source / name).mkdir(parents=True)
    (source / "runs/large/log.csv").write_text("epoch\n0\n")
    (source / "runs/large/trained.py").write_text("")
    (source / "graded/old/train.py").write_text("")

    found = freeze(source, tmp_path / "frozen")

    assert found.files == ("config.toml", "runs/large/log.csv", "tools/dist.py", "train.py")
    assert found.learner == "Ada"
    assert found.chosen_run.settings["warmup"] == 0.05
    assert (found.chosen_run.batch, found.chosen_run.workers) == (512, 2)


def test_the_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    """One changed byte, or a renamed file, makes another submission; the time of a file does not."""
    source = handed_in(tmp_path / "in")
    first = freeze(source, tmp_path / "1").digest
    os.utime(source / "train.py", (1, 1))
    assert freeze(source, tmp_path / "2").digest == first
    (source / "train.py").write_text("print('hallo')\n")
    second = freeze(source, tmp_path / "3").digest
    (source / "more.py").write_text("")
    third = freeze(source, tmp_path / "4").digest
    assert len({first, second, third}) == 3


def test_given_files_that_were_changed_are_not_taken_and_are_named(tmp_path: Path) -> None:
    """The grader has its own."""
    source = handed_in(tmp_path / "in")
    (source / "sync_norm.py").write_bytes((kit_folder() / "sync_norm.py").read_bytes())
    (source / "signals.py").write_text("NOISE = 0\n")

    found = freeze(source, tmp_path / "frozen")

    assert found.changed == ("signals.py",)
    assert not (tmp_path / "frozen" / "signals.py").exists()


def linked(folder: Path) -> None:
    """A link in the place of a file."""
    (folder / "more.py").symlink_to("/etc/hostname")


def piped(folder: Path) -> None:
    """A pipe on which a reader would wait for ever."""
    os.mkfifo(folder / "more.py")


def huge(folder: Path) -> None:
    """More than a person writes."""
    (folder / "weights.py").write_bytes(b"#" * (2 << 20))


def many(folder: Path) -> None:
    """One file more than there may be."""
    for number in range(201):
        (folder / f"m{number}.py").write_text("")


def strangely_named(folder: Path) -> None:
    """A name that is no text, as old archives have it."""
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.py")).write_text("")


def programless(folder: Path) -> None:
    """Nothing to run."""
    (folder / "train.py").unlink()


def unconfigured(folder: Path) -> None:
    """No configurations."""
    (folder / "config.toml").unlink()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (linked, "more.py is no ordinary file"),
        (piped, "more.py is no ordinary file"),
        (huge, "weights.py is larger than"),
        (many, "more than 200 files"),
        (strangely_named, "a file has the name 'caf"),
        (programless, "has no train.py"),
        (unconfigured, "there is no config.toml"),
    ],
)
def test_what_cannot_be_handed_in_is_refused_by_name(spoil, said: str, tmp_path: Path) -> None:
    """One message, before anything is run."""
    source = handed_in(tmp_path / "in")
    spoil(source)
    with pytest.raises(PacelineError, match=said):
        freeze(source, tmp_path / "frozen")


def test_a_folder_behind_a_link_is_not_followed(tmp_path: Path) -> None:
    """It may lead anywhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "private.py").write_text("")
    source = handed_in(tmp_path / "in")
    (source / "link").symlink_to(tmp_path / "elsewhere")
    assert freeze(source, tmp_path / "frozen").files == ("config.toml", "train.py")


def test_logs_behind_a_link_are_not_taken(tmp_path: Path) -> None:
    """As with code."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "log.csv").write_text("epoch\n0\n")
    source = handed_in(tmp_path / "in")
    (source / "runs").mkdir()
    (source / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    assert freeze(source, tmp_path / "frozen").files == ("config.toml", "train.py")


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    """Its subfolders belong to it all the same."""
    source = handed_in(tmp_path / "in")
    (source / "tools").mkdir()
    (source / "tools" / "dist.py").write_text("")
    (tmp_path / "link").symlink_to(source)
    assert "tools/dist.py" in freeze(tmp_path / "link", tmp_path / "frozen").files


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("chosen = [", "is no TOML"),
        ("chosen = 'a'", r"has no \[\[runs\]\]"),
        ("runs = 3", r"has no \[\[runs\]\]"),
        (CONFIG.replace('chosen = "large"', 'chosen = "other"'), "chosen is 'other', which is none of the runs"),
        (CONFIG + CONFIG[CONFIG.index("[[runs]]") :], "two runs named large"),
        (CONFIG.replace('name = "large"', 'name = "../large"'), "name is '../large'"),
        (CONFIG.replace("batch = 512", "batch = '512'"), "batch is '512'"),
        (CONFIG.replace("batch = 512", "batch = 0"), "batch is 0"),
        (CONFIG.replace("epochs = 16", "epochs = 21"), "epochs is 21"),
        (CONFIG.replace("workers = 2", "workers = true"), "workers is True"),
        (CONFIG.replace("workers = 2\n", ""), "workers is None"),
        (CONFIG + "seed = 99999999999999999999\n", "run large: seed is too large"),
        (CONFIG + f"seed = {-(2**31)}\n", "run large: seed is too large"),
    ],
)
def test_a_configuration_that_cannot_be_graded_is_named(config: str, said: str, tmp_path: Path) -> None:
    """Which run, which key, what would be right."""
    with pytest.raises(PacelineError, match=said):
        freeze(handed_in(tmp_path / "in", config), tmp_path / "frozen")


def test_rows_of_a_damaged_table_are_read_as_far_as_they_go() -> None:
    """Foreign text never fails the reader."""
    assert read_rows(b"epoch,loss\n0,1.5\n1\n") == [{"epoch": "0", "loss": "1.5"}, {"epoch": "1", "loss": "None"}]
    assert read_rows(None) == []
    assert read_rows(b"\xff\xfe\0\n\0\0") is not None
    assert len(read_rows(b"a\n" + b"1\n" * 50, most=10)) == 10
