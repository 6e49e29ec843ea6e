"""What the course's notebooks use: `check`, `hint`, `solution`, `predict`, `reveal`, `quiz`, and the exercise cell.

    from paceline_course.notebook import *

Loading it adds the cell magic `%%exercise L4.2`, which puts the cell's code into `work/L4_2.py`: the file is what is
checked, so the notebook, an editor and a terminal always work on the same answer.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import EllipsisType
from typing import Any, ParamSpec, TypeVar

from paceline.records.errors import PacelineError
from paceline_course import figures, progress
from paceline_course.checking import load_module
from paceline_course.content import load_course
from paceline_course.files import code_of, first_line_of
from paceline_course.outcome import as_text
from paceline_course.plain import plain
from paceline_course.quiz import ask, draw_quiz
from paceline_course.runner import begin_ready
from paceline_course.runner import check as run_check
from paceline_course.workspace import Workspace, find_workspace

__all__ = ["check", "hint", "lab", "predict", "quiz", "reveal", "solution"]


P = ParamSpec("P")
T = TypeVar("T")


def _plainly(function: Callable[P, T]) -> Callable[P, T | None]:
    """What the user can act on is printed, without the stack of our own code."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return function(*args, **kwargs)
        except PacelineError as error:
            _say(str(error))
            return None

    return call


@_plainly
def check(name: str, seed: int | None = None) -> None:
    """Check the answer in `work/` and print what was found."""
    workspace = _workspace()
    exercise = workspace.course.exercise(name)
    outcome = run_check(workspace.course, exercise, workspace.file(exercise), seed=seed)
    workspace.record(outcome)
    _say(as_text(outcome))
    if outcome.passed:
        _say(f'\n  how we did it, and why: solution("{exercise.id}")')


@_plainly
def hint(name: str) -> None:
    """The next of three hints."""
    workspace = _workspace()
    number, text = workspace.next_hint(workspace.course.exercise(name))
    _show(f"**Hint {number} of 3.** {text}")


@_plainly
def solution(name: str) -> None:
    """Our answer with its explanation, once yours has passed or all hints were taken."""
    workspace = _workspace()
    exercise = workspace.course.exercise(name)
    found = workspace.solution(exercise)
    if found is None:
        _say(f'{exercise.id} is not solved yet: hint("{exercise.id}") gives up to three hints, then this opens')
    else:
        _show(f"```python\n{found[0]}\n```\n\n{found[1]}")


@_plainly
def predict(key: str, unit: str = "", **expected: float | EllipsisType) -> None:
    """Store what you expect before the experiment: predict("L7.2", "times", speedup=1.7).

    What was said first counts; a later call does not change it. Dots stand for a number that is not said yet.
    """
    numbers = {name: value for name, value in expected.items() if isinstance(value, int | float)}
    if open_ones := [name for name, value in expected.items() if value is ...]:
        _say(f"put your number in the place of the dots of {' and '.join(open_ones)}; nothing is noted yet")
        return
    if not expected or len(numbers) < len(expected):
        _say("a prediction is a name and a number: predict('L7.2', speedup=1.7)")
        return
    with _workspace().progress() as known:
        for name, value in numbers.items():
            held = known.predictions.get(f"{key}:{name}")
            if held is None:
                known.predictions[f"{key}:{name}"] = progress.Prediction(
                    expected=float(value), at=progress.now(), unit=unit
                )
                _say(f"noted: {name} = {value:g} {unit}".rstrip())
            else:
                _say(f"you said {name} = {held.expected:g} {held.unit}".rstrip() + "; the first word counts")


@_plainly
def reveal(key: str, **measured: float) -> None:
    """Store and show what came out beside what was predicted. It returns nothing, which a cell would show as well."""
    units: dict[str, str] = {}
    pairs: dict[str, tuple[float | None, float]] = {}
    with _workspace().progress() as known:
        for name, value in measured.items():
            held = known.predictions.get(f"{key}:{name}")
            if held is not None:
                held.measured, held.measured_at = float(value), progress.now()
                units[name] = held.unit
            pairs[name] = (None if held is None else held.expected, float(value))
            said = "no prediction" if held is None else f"you said {held.expected:g}"
            _say(f"{name}: measured {value:.4g}, {said}")
    figures.pairs(pairs, units)


@_plainly
def quiz(name: str, answers: list[Any] | None = None, seed: int | None = None) -> None:
    """The quiz of a lab, asked one question after the other; or all at once with `answers` and the seed of the try."""
    workspace = _workspace()
    found = workspace.course.lab(name)
    _, questions = draw_quiz(workspace.course, found, seed)

    def answer(number: int) -> str:
        if answers is None:
            return input("   your answer: ")
        return str(answers[number]) if number < len(answers) else ""

    right = ask(questions, answer, _say)
    workspace.record_quiz(found, right, len(questions))
    _say(f"\n{right} of {len(questions)} right; another try has other numbers")


def lab(name: str) -> Any:
    """The pictures and helpers of a lab, as a module."""
    course = load_course()
    found = course.lab(name)
    return load_module(course.lab_folder(found) / "show.py", f"paceline_course_{found.id}_show")


@_plainly
def exercise_cell(line: str, cell: str) -> None:
    """%%exercise L4.2: put this cell into the exercise's file, and define here what the file defines."""
    words = line.split()
    overwrite = "--overwrite" in words
    names = [word for word in words if not word.startswith("-")]
    if len(names) != 1:
        _say("%%exercise takes the id of one exercise: %%exercise L4.2")
        return
    workspace = _workspace()
    exercise = workspace.course.exercise(names[0])
    path = workspace.file(exercise)
    written = workspace.write_from_notebook(exercise, cell, overwrite=overwrite)
    _define(path)
    if written:
        _say(f"{path.relative_to(workspace.path)} holds this cell")
        return
    held = code_of(path.read_text(encoding="utf-8", errors="replace"))
    _say(
        f"{path.relative_to(workspace.path)} was changed outside this notebook, so it was left alone.\n"
        f"  to keep this cell:  %%exercise {exercise.id} --overwrite\n"
        f"  to keep the file, put this into the cell:\n\n%%exercise {exercise.id}\n{held}"
    )


def _define(path: Path) -> None:
    """Run the file's code in the notebook; errors show the file's own lines."""
    text = path.read_text(encoding="utf-8", errors="replace")
    padded = "\n" * (first_line_of(text) - 1) + code_of(text)
    namespace = _namespace()
    name = namespace.get("__name__")
    namespace["__name__"] = path.stem  # what is under `if __name__ == "__main__"` is for when the file is run
    try:
        exec(compile(padded, str(path), "exec"), namespace)
    finally:
        namespace["__name__"] = name


def _namespace() -> dict[str, Any]:
    from IPython import get_ipython

    shell = get_ipython()
    namespace: dict[str, Any] = {} if shell is None else shell.user_ns
    return namespace


def _workspace() -> Workspace:
    return find_workspace(load_course())


def _show(markdown: str) -> None:
    """As a notebook renders it; in a terminal as plain text."""
    from IPython import get_ipython
    from IPython.display import Markdown, display

    shell = get_ipython()
    if shell is not None and getattr(shell, "kernel", None) is not None:
        display(Markdown(markdown))
    else:
        _say(plain(markdown))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _register() -> None:
    """Add the magic where there is IPython."""
    try:
        from IPython import get_ipython
    except ImportError:
        return
    shell = get_ipython()
    if shell is not None:
        shell.register_magic_function(exercise_cell, magic_kind="cell", magic_name="exercise")
        if getattr(shell, "kernel", None) is not None:
            begin_ready()  # the first check comes soon, and would wait for it


_register()
