"""The folder of the assessment: made once, never overwritten; its texts say what the rubric says."""

from __future__ import annotations

import datetime
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paceline.records.errors import Exit, PacelineError
from paceline_course.answer_process import load_file
from paceline_course.assess import task_folder
from paceline_course.assess.kit import kit_folder
from paceline_course.assess.planted import planted
from paceline_course.assess.rubric import content_folder, load_rubric
from paceline_course.assess.task_folder import FolderState, begin_final, read_state, start, write_state
from paceline_course.content import load_course

GIVEN = {"TASK.md", "answers.toml", "config.toml", "measure.py", "signals.py", "sync_norm.py", "train.py"}


def test_a_new_folder_holds_the_task_its_files_and_the_notebook(tmp_path: Path) -> None:
    """What was made is told, and is all there is."""
    made = start(tmp_path / "mine")

    names = {path.relative_to(tmp_path / "mine").as_posix() for path in made}
    there = {path.relative_to(tmp_path / "mine").as_posix() for path in (tmp_path / "mine").rglob("*.*")}
    assert names == there
    assert names >= GIVEN | {"assessment.ipynb", "assessment.json", "hang.txt"}
    assert (tmp_path / "mine" / "train.py").read_bytes() == (kit_folder() / "train.py").read_bytes()


def test_nothing_is_overwritten_and_what_is_missing_comes_back(tmp_path: Path) -> None:
    """Also hang.txt, which is the folder's own and stays the same."""
    start(tmp_path)
    hang = (tmp_path / "hang.txt").read_text()
    (tmp_path / "train.py").write_text("mine")
    (tmp_path / "assessment.ipynb").write_text("mine, too")
    (tmp_path / "hang.txt").unlink()
    (tmp_path / "measure.py").unlink()

    assert {path.name for path in start(tmp_path)} == {"hang.txt", "measure.py"}
    assert (tmp_path / "train.py").read_text() == "mine"
    assert (tmp_path / "assessment.ipynb").read_text() == "mine, too"
    assert (tmp_path / "hang.txt").read_text() == hang
    assert start(tmp_path) == []


def test_hang_txt_follows_from_what_the_folder_holds(tmp_path: Path) -> None:
    """The grader finds the answer from the number alone."""
    start(tmp_path)

    assert (tmp_path / "hang.txt").read_text() == planted(read_state(tmp_path).hang_seed).text


def test_a_folder_of_something_else_or_a_file_is_refused(tmp_path: Path) -> None:
    """Nothing is put beside it."""
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(PacelineError, match="something else"):
        start(tmp_path)
    with pytest.raises(PacelineError, match="is a file"):
        start(tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_cannot_be_made_is_an_error_in_words(tmp_path: Path) -> None:
    """With the exit code of what cannot be written."""
    (tmp_path / "file").write_text("")

    with pytest.raises(PacelineError, match="cannot be made") as refused:
        start(tmp_path / "file" / "mine")
    assert refused.value.exit_code == Exit.CANNOT_WRITE


def test_where_the_notebook_cannot_be_made_nothing_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No half of a folder."""

    def fail() -> str:
        raise PacelineError("the course needs libraries that are not installed")

    monkeypatch.setattr(task_folder, "notebook_text", fail)

    with pytest.raises(PacelineError, match="libraries"):
        start(tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    """With a way out."""
    start(tmp_path)
    for damaged in ("{", '{"hang_seed": ' + "[" * 100_000):
        (tmp_path / "assessment.json").write_text(damaged)

        with pytest.raises(PacelineError, match=r"assessment\.json cannot be read"):
            start(tmp_path)


def test_three_finals_a_day_and_then_the_time_of_the_next(tmp_path: Path) -> None:
    """Each is noted when it begins; a refused one is not."""
    start(tmp_path)
    most = load_rubric().finals_a_day
    for _ in range(most):
        begin_final(tmp_path, most)

    first = datetime.datetime.fromisoformat(read_state(tmp_path).finals[0])
    with pytest.raises(PacelineError, match=f"{most} final gradings") as refused:
        begin_final(tmp_path, most)
    assert f"{first:%H:%M} UTC" in str(refused.value)
    assert len(read_state(tmp_path).finals) == most


def test_finals_of_the_day_before_and_lines_that_are_no_time_do_not_count(tmp_path: Path) -> None:
    """A day is 24 hours."""
    start(tmp_path)
    now = datetime.datetime.now(datetime.UTC)
    ago = [(now - datetime.timedelta(hours=hours)).isoformat() for hours in (30, 25, 24.1, 23)]
    write_state(tmp_path, FolderState(hang_seed=1, finals=[*ago, "yesterday"]))

    begin_final(tmp_path, 3)
    begin_final(tmp_path, 3)
    with pytest.raises(PacelineError):
        begin_final(tmp_path, 3)


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+00:00", "2200-01-01"])
def test_finals_of_another_time_do_not_close_the_folder(moment: str, tmp_path: Path) -> None:
    """A clock that was wrong once, or a file that was written by hand."""
    start(tmp_path)
    write_state(tmp_path, FolderState(hang_seed=1, finals=[moment] * 5))

    begin_final(tmp_path, 3)

    assert len(read_state(tmp_path).finals) == 6


def test_the_task_says_what_the_rubric_says() -> None:
    """Marks, points of each part, the chosen configuration, and how many finals a day."""
    text = " ".join((kit_folder() / "TASK.md").read_text().split())
    rubric = load_rubric()
    points = {letter: sum(line.points for line in rubric.lines if line.id[0] == letter) for letter in "ABCD"}
    (each,) = {line.points for line in rubric.lines if line.id.startswith("D.")}
    count = {3: "three"}[rubric.finals_a_day]

    assert f"100 points; {rubric.pass_points} pass, {rubric.merit_points} with merit" in text
    assert {part: float(said) for part, said in re.findall(r"\| ([A-D]) \w+ \| (\d+) \|", text)} == points
    assert f"Each is worth {each:g} points" in text
    assert f"a batch of {rubric.task.least_batch} or more on two or more workers, in at most" in text
    assert f"in at most {rubric.task.most_epochs} epochs" in text
    assert rubric.task.least_workers == 2
    assert f"that one device has with batch {rubric.task.base_batch}" in text
    assert f"fresh seeds, {count} a day" in text
    assert rubric.task.least_runs == 4
    assert "your configurations, four or more" in text


def test_the_given_training_has_the_rubrics_sizes() -> None:
    """Defaults of the program, and its configuration for one device."""
    code, task = (kit_folder() / "train.py").read_text(), load_rubric().task
    defaults = dict(re.findall(r'"--([a-z-]+)", type=\w+, default=([\d.]+)', code))
    (one,) = (run for run in tomllib.loads((kit_folder() / "config.toml").read_text())["runs"] if run["workers"] == 1)

    given = {key: float(defaults[key]) for key in ("samples", "eval-samples", "batch", "lr", "epochs")}
    assert given == {
        "samples": task.samples,
        "eval-samples": task.eval_samples,
        "batch": task.base_batch,
        "lr": task.base_rate,
        "epochs": task.base_epochs,
    }
    assert (one["batch"], one["lr"], one["epochs"]) == (task.base_batch, task.base_rate, task.base_epochs)


def test_the_slides_say_what_the_rubric_says() -> None:
    """Deck 7 has a row a part, and the marks."""
    (deck,) = (Path(load_course().folder) / "slides").glob("D7_*.md")
    text, rubric = deck.read_text(), load_rubric()
    points = {letter: sum(line.points for line in rubric.lines if line.id[0] == letter) for letter in "ABCD"}

    assert {part: float(said) for part, said in re.findall(r"^\| ([A-D]) \w+ \| (\d+) \|", text, re.M)} == points
    assert f"{rubric.pass_points} pass, {rubric.merit_points} with merit" in text
    assert f"{ {3: 'three'}[rubric.finals_a_day] } finals a day" in text


def test_the_notebook_names_labs_that_exist_and_no_line_of_our_solution() -> None:
    """What it points to can be found; what it is about is left to the learner."""
    cells = json.loads(task_folder.notebook_text())["cells"]
    text = "".join("".join(cell["source"]) for cell in cells)
    known = {each.id for lab in load_course().labs for each in lab.exercises}
    named = set(re.findall(r"\bL\d+\.\d+\b", text))
    solution = (content_folder() / "solution" / "train.py").read_text()
    given = (kit_folder() / "train.py").read_text()
    lines = {line.strip() for line in solution.splitlines() if len(line.strip()) > 12} - {
        line.strip() for line in given.splitlines()
    }

    assert len(named) > 10
    assert named <= known
    assert load_course().assessment is not None
    assert f"{ {90: 'ninety'}[load_course().assessment.minutes] } minutes" in " ".join(text.split())
    assert len(lines) > 50
    assert [line for line in lines if line in text] == []


@pytest.fixture
def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The notebook's helpers, in a fresh folder of the assessment."""
    pytest.importorskip("IPython")
    monkeypatch.setenv("MPLBACKEND", "agg")
    start(tmp_path / "assessment")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACELINE_QUICK", "1")
    helpers = load_file(content_folder() / "show.py", "paceline_assessment_show_tested")
    helpers.enter()
    return helpers


def test_helpers_say_what_is_missing_instead_of_failing(show: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """In a folder in which nothing was written yet."""
    capsys.readouterr()

    for call, said in (
        (lambda: show.processes(2), "still the one that was given"),
        (lambda: show.train(""), "put names"),
        (lambda: show.train("nobody"), "no run named nobody"),
        (show.curves, "train something first"),
        (show.messages, "comm.csv and compute.csv"),
        (show.report, "no report yet"),
        (show.certificate, "no final grading"),
        (show.answers, "open: steps_an_epoch, linear, sqrt"),
        (show.configurations, "2 of the 4 configurations"),
    ):
        call()
        assert said in capsys.readouterr().out
    Path("answers.toml").write_text("[rates]\nlinear = 0.4\n")
    show.answers()
    text = capsys.readouterr().out
    assert "open: steps_an_epoch, sqrt" in text
    assert "open: rank, cause" in text
    Path("answers.toml").write_text("[rates")
    show.answers()
    assert "is no TOML" in capsys.readouterr().out


QUICK_TRAINING = """
import pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
out.mkdir(parents=True)
(out / "log.csv").write_text("samples,right,counted,seconds\\n512,100,211,0.5\\n1024,150,211,0.5\\n")
print("epoch 0: well")
print("epoch 1: better")
"""
"""Takes the place of a training, which would load torch."""


def test_helpers_train_into_runs_and_draw_what_is_there(show: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """The command is shown as one types it; a log that is damaged is named, others are drawn."""
    Path("train.py").write_text(QUICK_TRAINING)
    show.train("one-device", seeds=(0, 1))
    text = capsys.readouterr().out

    assert "$ python train.py --config config.toml --name one-device --seed 1 --out runs/one-device-1" in text
    assert "epoch 1: better" in text
    assert {path.name for path in Path("runs").iterdir()} == {"one-device", "one-device-1"}
    Path("runs/torn").mkdir()
    Path("runs/torn/log.csv").write_text("epoch,samples\n0,x\n")
    axes = drawn(show.curves)
    assert "runs/torn/log.csv is left out" in capsys.readouterr().out
    first, second = (axis.get_lines()[0].get_xdata().tolist() for axis in axes)
    assert (first, second) == ([512, 1024], [0.5, 1.0])
    assert axes[0].get_lines()[1].get_ydata().tolist() == [100 / 211, 150 / 211]


def drawn(draw: Callable[[], None]) -> list[Any]:
    """The axes of the figure that a helper draws."""
    from matplotlib import pyplot

    pyplot.close("all")
    draw()
    return pyplot.gcf().axes


def test_a_program_that_fails_is_told_with_its_last_words(show: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """And no error ends the cell."""
    Path("train.py").write_text("raise SystemExit('the last words')\n")

    show.processes(1)
    text = capsys.readouterr().out
    assert "it failed" in text
    assert "the last words" in text
