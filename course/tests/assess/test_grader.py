"""A grading as a whole: it stops at the gate, says what it drew, and a kill leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from course.tests.test_hostile import users_of_processes

from paceline.records.errors import PacelineError
from paceline_course.assess.grade import Line, read_grade
from paceline_course.assess.grader import Wish, draw_seeds, grade_submission
from paceline_course.assess.rubric import content_folder, load_rubric
from paceline_course.assess.task_folder import begin_final, read_state, start
from paceline_course.sandbox.limits import free_user
from paceline_course.sandbox.quarantine import lacking

pytestmark = pytest.mark.serial
SOLUTION = content_folder() / "solution"


def learners(folder: Path) -> Path:
    """A learner's folder with our solution in it."""
    start(folder)
    for path in SOLUTION.iterdir():
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    return folder


def paceline(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command as a person gives it."""
    command = [sys.executable, "-m", "paceline", "learn", "assess", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=280, check=False)


def test_our_solution_passes_every_line_of_the_gate(tmp_path: Path) -> None:
    """And the record says on what, with which seeds, by which grader."""
    told: list[Line] = []
    wish = Wish(seed=11, until="A.resume", told=told.append)
    grade = grade_submission(learners(tmp_path / "a"), tmp_path / "out", wish)

    gate = [line for line in grade.lines if line.gate]
    assert [(line.id, line.state) for line in gate] == [(line.id, "passed") for line in gate]
    assert [line.id for line in told] == [line.id for line in gate]
    assert grade.gate
    assert grade.points == sum(line.most for line in gate) == 40
    assert not grade.passed
    assert not grade.complete
    assert read_grade(tmp_path / "out") == grade
    assert grade.seeds == draw_seeds("practice-11", "")


def test_a_fault_closes_the_gate_and_the_rest_is_not_reached(tmp_path: Path) -> None:
    """Processes that train each for itself: the weights of the processes differ, and with them it stops."""
    folder = learners(tmp_path / "a")
    program = folder / "train.py"
    code = program.read_text()
    program.write_text(
        code.replace(
            "import torch\n",
            "import torch\nimport torch.nn.parallel\n\n\nclass _Alone(torch.nn.Module):\n"
            "    def __init__(self, module, *_, **__):\n        super().__init__()\n        self.module = module\n\n"
            "    def forward(self, *inputs):\n        return self.module(*inputs)\n\n\n"
            "torch.nn.parallel.DistributedDataParallel = _Alone\n",
            1,
        )
    )
    grade = grade_submission(folder, tmp_path / "out", Wish(seed=3))

    assert grade.line("A.ranks").state == "failed"
    assert grade.line("A.ranks").message == "ranks-differ"
    behind = [line.id for line in grade.lines][[line.id for line in grade.lines].index("A.ranks") + 1 :]
    assert {grade.line(name).state for name in behind} == {"untested"}
    assert not grade.gate


def test_seeds_follow_from_nonce_submission_and_grader() -> None:
    """Another submission, or another nonce, draws others."""
    first = draw_seeds("practice-1", "a" * 64)
    assert first == draw_seeds("practice-1", "a" * 64)
    assert first != draw_seeds("practice-2", "a" * 64)
    assert first != draw_seeds("practice-1", "b" * 64)
    assert len(set(first.values())) == len(first)
    assert all(10 <= seed < 900_010 for seed in first.values())


def test_the_command_grades_in_a_quarantine_and_writes_record_and_page(tmp_path: Path) -> None:
    """From `start` to the report; exit code 1, since one line is no pass."""
    assert paceline("start", cwd=tmp_path).returncode == 0
    learners(tmp_path / "assessment")
    done = paceline("--practice", "--until", "A.coverage", "--seed", "5", cwd=tmp_path)

    assert done.returncode == 1, done.stderr
    assert "A.coverage" in done.stdout
    (result,) = (tmp_path / "assessment" / "graded").iterdir()
    assert {path.name for path in result.iterdir()} == {"grade.json", "report.html"}
    assert read_grade(result).nonce == "practice-5"
    again = paceline("--practice", "--until", "A.runs", "--format", "json", "--dir", "assessment", cwd=tmp_path)
    assert json.loads(again.stdout)["kind"] == "practice"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say which grading it is"),
        (["--practice", "--final"], "say which grading it is"),
        (["--final", "--seed", "3"], "a final grading draws its own seeds"),
        (["--practice", "--until", "A.nothing"], "there is no line A.nothing"),
        (["--practice", "--dir", "elsewhere"], "is no folder of the assessment"),
    ],
)
def test_what_cannot_be_graded_is_said_in_one_message(words: list[str], said: str, tmp_path: Path) -> None:
    """Exit code 2, and nothing is made."""
    start(tmp_path / "assessment")
    done = paceline(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "assessment" / "graded").exists()


def refused(kind: str, tmp_path: Path) -> None:
    """A new folder with a slip of the pen in config.toml is not graded, and the message names the file."""
    start(tmp_path / "assessment")
    (tmp_path / "assessment" / "config.toml").write_text("chosen = 3\n")
    done = paceline(kind, cwd=tmp_path)
    assert done.returncode == 2
    assert "config.toml has no [[runs]]" in done.stderr


def test_a_submission_that_cannot_be_graded_leaves_no_result(tmp_path: Path) -> None:
    """The message names the file; the folder of the results is gone again."""
    refused("--practice", tmp_path)
    assert not list((tmp_path / "assessment" / "graded").iterdir())


@pytest.mark.parametrize("kind", ["--practice", "--final"])
def test_results_are_not_written_behind_a_link(kind: str, tmp_path: Path) -> None:
    """In a learner's folder it may lead anywhere, and whoever grades may be root."""
    start(tmp_path / "assessment")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "assessment" / "graded").symlink_to(tmp_path / "elsewhere")
    done = paceline(kind, cwd=tmp_path)
    assert done.returncode == 2
    assert "graded is a link" in done.stderr
    assert not list((tmp_path / "elsewhere").iterdir())
    assert read_state(tmp_path / "assessment").finals == []


def test_a_final_of_a_folder_that_is_refused_does_not_count(tmp_path: Path) -> None:
    """A slip of the pen in config.toml costs none of the three."""
    refused("--final", tmp_path)
    assert read_state(tmp_path / "assessment").finals == []
    assert not (tmp_path / "assessment" / "graded").exists()


def test_finals_are_three_a_day(tmp_path: Path) -> None:
    """Of the last 24 hours; older ones do not count."""
    folder = learners(tmp_path / "a")
    most = load_rubric().finals_a_day
    for _ in range(most):
        begin_final(folder, most)
    with pytest.raises(PacelineError, match="final gradings were made in the last 24 hours"):
        begin_final(folder, most)
    state = json.loads((folder / "assessment.json").read_bytes())
    state["finals"] = [each.replace("20", "19", 1) for each in state["finals"]]
    (folder / "assessment.json").write_bytes(msgspec.json.encode(state))
    begin_final(folder, most)


def test_a_killed_grading_leaves_no_process_and_no_half_result(tmp_path: Path) -> None:
    """SIGKILL of the command, while the submission runs."""
    if free_user() is None or lacking() is not None:
        pytest.skip("takes root outside of a quarantine")
    folder = learners(tmp_path / "assessment")
    words = [sys.executable, "-m", "paceline", "learn", "assess", "--practice", "--dir", str(folder)]
    grading = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 120
    while not _foreign_users() and time.monotonic() < end:
        time.sleep(0.05)
    assert _foreign_users()
    os.kill(grading.pid, signal.SIGKILL)
    grading.wait()
    end = time.monotonic() + 20
    while _foreign_users() and time.monotonic() < end:
        time.sleep(0.05)

    assert not _foreign_users()
    assert not list((folder / "graded").rglob("grade.json"))


def test_a_stopped_grading_says_so_and_writes_nothing(tmp_path: Path) -> None:
    """Ctrl-C, whose exit code is 130 as everywhere."""
    folder = learners(tmp_path / "assessment")
    words = [sys.executable, "-m", "paceline", "learn", "assess", "--practice", "--dir", str(folder)]
    grading = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert grading.stdout is not None
    assert "A.runs" in grading.stdout.readline()
    grading.send_signal(signal.SIGINT)
    _, said = grading.communicate(timeout=60)

    assert grading.returncode == 130
    assert "stopped; nothing was written" in said
    assert "Traceback" not in said
    assert not list((folder / "graded").iterdir())


def _foreign_users() -> set[int]:
    return {user for user in users_of_processes() if 61_200 <= user < 65_200}
