"""`paceline learn`: from an empty folder to a solved exercise, as a learner types it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Protocol

import pytest

from paceline.cli.main import call
from paceline_course.content import load_course

SOLVED = "def gradient(x, y, w, b):\n    r = w * x + b - y\n    return 2 * (r * x).mean(), 2 * r.mean()\n"


class Learn(Protocol):
    """Type `paceline learn ...` in a folder; what is printed, both streams."""

    def __call__(self, folder: Path, *words: str, code: int = 0, answers: str = "") -> str:
        """`answers` is what is typed."""


@pytest.fixture
def learn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Learn:
    """In this process: torch is loaded once for all tests of a worker."""

    def run(folder: Path, *words: str, code: int = 0, answers: str = "") -> str:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "stdin", io.StringIO(answers))
        capsys.readouterr()
        ended = call(["learn", *words])
        said = capsys.readouterr()
        assert ended == code, said.out + said.err
        return said.out + said.err

    return run


@pytest.fixture
def folder(learn: Learn, tmp_path: Path) -> Path:
    """A course folder with lab 1."""
    learn(tmp_path, "start", "L1")
    return tmp_path / "paceline-course"


def test_a_learner_goes_from_an_empty_folder_to_a_solved_exercise(learn: Learn, folder: Path) -> None:
    """start, next, check, hint, check, solution, status: each says what comes after."""
    assert (folder / "L1_gradient_descent_and_noise.ipynb").is_file()
    assert "L1.1 · The gradient by hand" in learn(folder, "next")

    said = learn(folder, "check", "L1.1", code=1)
    assert "message todo" in said
    assert "hint 1 of 3" in learn(folder, "hint", "L1.1")
    assert "not solved yet" in learn(folder, "solution", "L1.1", code=2)

    (folder / "work" / "L1_1.py").write_text(SOLVED)
    assert "paceline learn solution L1.1" in learn(folder, "check", "L1.1")
    assert "residual = w * x + b - y" in learn(folder, "solution", "L1.1")
    assert "next: L1.2" in learn(folder, "status")
    assert "L1.2 · When to stop" in learn(folder, "next")
    known = json.loads(learn(folder, "status", "--format", "json"))["exercises"]["L1.1"]
    assert (known["attempts"], known["attempts_to_pass"], known["hints"]) == (2, 2, 1)


def test_a_check_for_programs_is_one_json_object(learn: Learn, folder: Path) -> None:
    """With the exit code 1 where the answer is not right."""
    found = json.loads(learn(folder, "check", "L1.1", "--format", "json", "--seed", "3", code=1))

    assert (found["exercise"], found["passed"], found["seed"]) == ("L1.1", False, 3)
    assert found["verdicts"][0]["message"] == "todo"


def test_a_quiz_is_asked_and_scored(learn: Learn, folder: Path) -> None:
    """From the keyboard, or all at once; a quiz that is left notes nothing."""
    assert "0 of 5 right" in learn(folder, "quiz", "L1", answers=5 * "nonsense\n")
    left = learn(folder, "quiz", "L2", code=2, answers="nonsense\n")
    assert "left before its end" in left
    assert "quiz" not in learn(folder, "status").partition("L2 ")[2].splitlines()[0]
    asked = learn(folder, "quiz", "L1", "--seed", "4", "--answers", "1,2,3,a,b")
    assert "the same numbers again: --seed 4" in asked
    assert "quiz" in learn(folder, "status")


def test_reset_brings_the_starter_back_and_keeps_the_answer(learn: Learn, folder: Path) -> None:
    """Beside it."""
    (folder / "work" / "L1_1.py").write_text(SOLVED)

    assert "yours is L1_1.before-reset-1.py" in learn(folder, "reset", "L1.1")
    assert (folder / "work" / "L1_1.before-reset-1.py").read_text() == SOLVED


def test_progress_of_two_machines_is_merged(learn: Learn, folder: Path, tmp_path: Path) -> None:
    """What passed on the other one has passed here."""
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"exercises": {"L1.2": {"passed_at": "2026-01-01", "attempts": 4}}}))

    assert "1 of" in learn(folder, "status", "--merge", str(other))
    assert "no file" in learn(folder, "status", "--merge", "nowhere.json", code=2)


def test_a_tampered_progress_file_is_put_aside_and_said(learn: Learn, folder: Path) -> None:
    """And the learner goes on."""
    (folder / "progress.json").write_text("{]")

    assert "progress.damaged-1.json" in learn(folder, "status")
    assert "0 of" in learn(folder, "status")


def test_wrong_words_are_refused_with_the_right_ones(learn: Learn, folder: Path, tmp_path: Path) -> None:
    """Unknown exercise, lab, track; no course folder; somebody else's folder."""
    assert "L1.1, L1.2" in learn(folder, "check", "L1.9", code=2)
    assert "there is no lab L77" in learn(folder, "start", "L77", code=2)
    assert "there is no track" in learn(folder, "list", "--track", "never", code=2)
    empty = tmp_path / "elsewhere"
    empty.mkdir()
    assert "paceline learn start makes one" in learn(empty, "status", code=2)
    (empty / "paper.txt").write_text("mine")
    assert "something else" in learn(empty, "start", "--dir", str(empty), code=2)


def test_watching_checks_a_file_when_it_is_saved(folder: Path) -> None:
    """And goes on watching."""
    command = [sys.executable, "-u", "-m", "paceline", "learn", "watch", "L1.1"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert "watching" in process.stdout.readline()
            time.sleep(0.5)
            (folder / "work" / "L1_1.py").write_text(SOLVED)
            lines = [process.stdout.readline() for _ in range(3)]
            assert any("ok  the gradient equals" in line for line in lines), lines
        finally:
            process.kill()


def test_a_file_runs_as_a_program_on_several_workers(
    folder: Path,
) -> None:
    """As torchrun starts them, with its own arguments."""
    (folder / "work" / "L1_1.py").write_text(
        # In one piece: workers write without a buffer, and pieces of two would mix.
        "import os, sys\nprint(f'rank {os.environ.get(\"RANK\")} {sys.argv[1:]}')\n"
    )
    for words, said in (([], "rank None ['--fast']"), (["--workers", "2"], "rank 1 ['--fast']")):
        command = [sys.executable, "-m", "paceline", "learn", "run", "L1.1", *words, "--", "--fast"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        assert said in done.stdout, done.stdout + done.stderr


def test_the_list_shows_every_exercise_of_the_course(learn: Learn, folder: Path) -> None:
    """By id and title."""
    text = learn(folder, "list")

    assert all(f"{each.id:<6} {each.title}" in text for lab in load_course().labs for each in lab.exercises)
