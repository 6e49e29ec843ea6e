"""Whatever is wrong with a request: one message with what, why and next, its exit code, nothing half-written."""

from __future__ import annotations

import json
import resource
import socket
from pathlib import Path

import pytest
from conftest import Paceline

from paceline.cli.main import call

EARLY = {
    "unknown task": (["train", "digitz"], "did you mean digits?"),
    "no task": (["train"], "no task was named"),
    "task file missing": (["train", "nope.py"], "there is no task file"),
    "no workers": (["train", "digits", "--workers", "0"], "nobody to train"),
    "workers not a number": (["train", "digits", "--workers", "many"], "is not a number"),
    "batch smaller than the world": (["train", "digits", "--workers", "3", "--global-batch", "2"], "cannot be shared"),
    "batch of nothing": (["train", "digits", "--global-batch", "0"], "--global-batch 0 is out of range"),
    "unknown optimizer": (["train", "digits", "--optimizer", "adm"], "did you mean adamw?"),
    "unknown schedule": (
        ["train", "digits", "--schedule", "steps"],
        "legal values: constant, linear, cosine, wsd, step",
    ),
    "unknown precision": (["train", "digits", "--precision", "fp8"], "legal values"),
    "unknown augmentation": (["train", "digits", "--augment", "blur"], "legal values: crop, flip, erase"),
    "negative rate": (["train", "digits", "--lr", "-1"], "--lr -1 is out of range"),
    "rate that is no number": (["train", "digits", "--lr", "nan"], "--lr nan is not a number"),
    "epochs and steps": (["train", "digits", "--epochs", "1", "--steps", "2"], "both given"),
    "odd target": (["train", "digits", "--target", "accuracy"], "METRIC=VALUE"),
    "odd warm-up": (["train", "digits", "--warmup", "a while"], "steps (--warmup 200) or epochs"),
    "evaluation never": (["train", "digits", "--eval-every", "0"], "at least one step"),
    "momentum for adamw": (["train", "digits", "--optimizer", "adamw", "--momentum", "0.9"], "does not take"),
    "smoothing of one": (["train", "digits", "--label-smoothing", "1"], "0 <= value < 1"),
    "unknown flag": (["train", "digits", "--lrr", "1"], "No such option"),
    "unknown verb": (["trane"], "No such command"),
    "nothing to resume": (["train", "--resume", "nowhere"], "is not a run directory"),
    "no run to resume": (["train", "--resume", "auto"], "there is no run to resume"),
    "report of nothing": (["report", "nowhere"], "is not a run directory"),
    "unknown data set": (["data", "fetch", "mnist"], "fashion-mnist"),
}


@pytest.mark.parametrize("name", EARLY)
def test_what_is_wrong_from_the_start_is_said_before_anything_is_made(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, one message on stderr that says what and what next, no traceback, no file."""
    arguments, expected = EARLY[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)

    code = call(arguments)

    shown = capsys.readouterr()
    assert code == 2
    assert expected in shown.err
    assert shown.err.startswith("error: ")
    assert shown.err.count("error: ") == 1
    assert "next: " in shown.err
    assert "Traceback" not in shown.err + shown.out
    assert list(tmp_path.iterdir()) == []


def refused(result, code: int, expected: str) -> None:
    """The one message that a failed command leaves."""
    assert result.returncode == code, result.stderr + result.stdout
    assert expected in result.stderr
    assert "Traceback" not in result.stderr


TASK_FILES = {
    "raises": ("raise KeyError('data')\n", "line 1: it cannot be imported", "KeyError"),
    "syntax": ("def task(:\n", "line 1: it cannot be imported", "SyntaxError"),
    "lacks": ("x = 1\n", "has no function task()", "define"),
    "returns": ("def task():\n    return 3\n", "returned int, not a Task", "return"),
    "fails": ("def task():\n    return 1 / 0\n", "line 2: task() failed", "ZeroDivisionError"),
}


@pytest.mark.parametrize("kind", TASK_FILES)
def test_a_faulty_task_file_is_named_with_its_line(kind: str, tmp_path: Path, paceline: Paceline) -> None:
    """The file, the line and the cause are named, and no run directory is left."""
    text, what, why = TASK_FILES[kind]
    (tmp_path / "mine.py").write_text(text)

    result = paceline("train", "mine.py", "--workers", "1")

    refused(result, 2, what)
    assert why in result.stderr
    assert not list(tmp_path.glob("runs/*"))


def test_a_loss_that_is_not_finite_ends_the_run_with_its_own_exit_code(tmp_path: Path, paceline: Paceline) -> None:
    """Exit code 3, the step is named, and what was checkpointed before stays complete."""
    result = paceline("train", "linear", "--lr", "1e30", "--epochs", "3", "--workers", "2", "--run-dir", "r")

    refused(result, 3, "the loss is")
    assert "--lr" in result.stderr
    last = json.loads((tmp_path / "r/events/rank-00000.jsonl").read_text().splitlines()[-1])
    assert (last["type"], last["reason"], last["exit_code"]) == ("end", "diverged", 3)


def test_a_full_disk_ends_the_run_and_leaves_no_half_checkpoint(tmp_path: Path, paceline: Paceline) -> None:
    """Exit code 4, one message, no checkpoint directory that looks complete."""

    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    result = paceline("train", "digits", "--epochs", "1", "--workers", "1", "--run-dir", "r", before=small_files_only)

    refused(result, 4, "cannot write")
    assert not list(tmp_path.glob("r/checkpoints/step-*"))
    assert not list(tmp_path.glob("r/checkpoints/.aside-*"))


def test_a_directory_that_cannot_be_made_is_refused_at_once(paceline: Paceline) -> None:
    """Exit code 4 and the path, before a worker starts."""
    result = paceline("train", "digits", "--run-dir", "/proc/nobody/run")

    refused(result, 4, "cannot write /proc/nobody/run")


def test_a_run_goes_on_only_as_what_it_was(tmp_path: Path, paceline: Paceline) -> None:
    """Another task, another recipe, a directory in use without --resume: each refused; checkpoints stay as they are."""
    made = paceline("train", "digits", "--epochs", "1", "--workers", "1", "--run-dir", "r")
    assert made.returncode == 0, made.stderr

    again = paceline("train", "digits", "--run-dir", "r")
    other_task = paceline("train", "linear", "--resume", "r")
    other_rate = paceline("train", "digits", "--resume", "r", "--lr", "0.5")
    other_place = paceline("train", "digits", "--resume", "r", "--run-dir", "q")

    refused(again, 2, "already holds a run")
    refused(other_task, 2, "has TASK digits, not TASK linear")
    refused(other_rate, 2, "has --lr 0.05, not --lr 0.5")
    refused(other_place, 2, "name two directories")
    assert not (tmp_path / "q").exists()


@pytest.mark.slow
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_message(tmp_path: Path, paceline: Paceline) -> None:
    """Torn or tampered: the next older one is taken, and both are named."""
    made = paceline("train", "digits", "--epochs", "3", "--workers", "1", "--run-dir", "r", "--keep", "3")
    assert made.returncode == 0, made.stderr
    newest = tmp_path / "r/checkpoints/step-00000069"
    middle = tmp_path / "r/checkpoints/step-00000046"
    (newest / "state.pt").write_bytes((newest / "state.pt").read_bytes()[:-7])
    content = bytearray((middle / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (middle / "model.safetensors").write_bytes(content)

    result = paceline("train", "--resume", "r")

    assert result.returncode == 0, result.stderr
    assert "passed over step-00000069: state.pt has" in result.stdout
    assert "passed over step-00000046: model.safetensors is not what was written" in result.stdout
    assert "resumed from step-00000023" in result.stdout


def test_a_port_in_use_is_said_in_one_message(paceline: Paceline) -> None:
    """Under torchrun's environment a taken MASTER_PORT ends in a message, not in a wall of text."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        env = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}

        result = paceline("train", "digits", env=env)

    refused(result, 1, "the ranks cannot find each other")
    assert "MASTER_PORT" in result.stderr


def test_a_target_that_is_not_measured_names_what_is(tmp_path: Path, paceline: Paceline) -> None:
    """The legal metrics are listed, and no run directory is left."""
    result = paceline("train", "linear", "--target", "accuracy=0.9", "--workers", "1")

    refused(result, 2, "is not measured by the task linear")
    assert "it measures: loss" in result.stderr
    assert not list(tmp_path.glob("runs/*"))


def damaged_data(root: Path, content: bytes) -> Path:
    """A directory that claims to hold Fashion-MNIST."""
    raw = root / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for name in (
        "train-images-idx3-ubyte",
        "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte",
    ):
        (raw / name).write_bytes(content)
    return root


def test_damaged_data_are_refused_and_left_alone(tmp_path: Path, paceline: Paceline) -> None:
    """The file, what was expected and what was found are named; the user's files are not touched."""
    root = damaged_data(tmp_path / "mine", b"\0\0\x08\x03")

    result = paceline("train", "fashion-mnist", "--data-dir", str(root))

    refused(result, 2, "idx")
    assert (root / "FashionMNIST/raw/train-images-idx3-ubyte").read_bytes() == b"\0\0\x08\x03"
    assert not list(tmp_path.glob("runs/*"))
