"""A survey without a server: a form that saves a file, and what such files say together.

The same skills are asked before and after the course. Answers are plain TOML, whether they were written in an editor
or by the form's page; a word of the learner's own choice puts both halves together, and no name is asked for.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.records.errors import PacelineError
from paceline.records.rundir import write_atomic
from paceline_course.assess.text import visible
from paceline_course.instructor.archive import read_plain
from paceline_course.instructor.page import render

SKILLS = {
    "batch": "Say what a batch size does to training, in time and in accuracy",
    "convert": "Take a training script from one device to several",
    "prove": "Show that it still computes the same as on one device",
    "faults": "Find out why a data-parallel training hangs or is wrong",
    "scaling": "Predict and measure what more devices bring",
    "accuracy": "Keep the accuracy when the batch gets large",
}
LEVELS = ("not at all", "hardly", "with help", "mostly", "could teach it")
RATINGS = {
    "pace": ("The pace was", ("much too slow", "too slow", "right", "too fast", "much too fast")),
    "exercises": ("The exercises helped me to understand", ("not at all", "little", "somewhat", "well", "very well")),
    "checks": ("What the checks said helped me to go on", ("not at all", "little", "somewhat", "well", "very well")),
    "again": ("I would recommend the course", ("no", "rather not", "perhaps", "rather yes", "yes")),
}
TEXTS = {
    "best": "What was most useful?",
    "unclear": "What stayed unclear, or is missing?",
    "change": "What should be different next time?",
}
_HALVES = ("before", "after")
_MOST_BYTES, _LONGEST = 64 << 10, 2000
_CODE = re.compile(r"[\w.-]{1,40}")


@dataclass(frozen=True)
class Answers:
    """One file, or both halves of one person put together.

    Attributes:
        before, after: 1 to 5 by skill; what was not answered is not there.
        ratings: 1 to 5 by name.
        texts: by name, without empty ones.
    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    ratings: Mapping[str, int]
    texts: Mapping[str, str]


@dataclass(frozen=True)
class Collected:
    """What a folder holds.

    Attributes:
        answers: one a person.
        refused: file names, and why they were not read.
    """

    answers: list[Answers]
    refused: list[tuple[str, str]]


def write_form(folder: Path, learners: Sequence[str] = ()) -> list[Path]:
    """The form as a page and as text files; what was made.

    Args:
        folder: to write into.
        learners: ids, each of whom gets a text file; one file for all without.

    Raises:
        PacelineError: a text file is there already, and may hold answers.
    """
    texts = [folder / (f"survey-{name}.toml" if name else "survey.toml") for name in learners or ("",)]
    if held := [path for path in texts if path.exists()]:
        raise PacelineError(f"{held[0]} is there already", hint="--out names a new folder; answers are not overwritten")
    page = folder / "survey.html"
    write_atomic(page, form_page().encode())
    for path in texts:
        write_atomic(path, form_text().encode())
    return [page, *texts]


def form_text() -> str:
    """The form for an editor."""
    lines = [
        "# Survey of the course. It stays with whoever teaches; no name is asked for.",
        f"# How well can you do this? 1 {LEVELS[0]}, 2 {LEVELS[1]}, 3 {LEVELS[2]}, 4 {LEVELS[3]}, 5 {LEVELS[4]}.",
        "# 0 means no answer. Fill in [before] when you begin and the rest when you have finished.",
        "",
        "# A word of your own that nobody knows. Only needed when before and after are in two files: the same in both.",
        'code = ""',
    ]
    for half in _HALVES:
        lines += ["", f"[{half}]"]
        for name, skill in SKILLS.items():
            lines += [f"# {skill}", f"{name} = 0"]
    lines += ["", "[ratings]"]
    for name, (what, levels) in RATINGS.items():
        lines += [f"# {what}: " + ", ".join(f"{at} {word}" for at, word in enumerate(levels, 1)), f"{name} = 0"]
    lines += ["", "# Between the three signs, over several lines if you like.", "[texts]"]
    for name, question in TEXTS.items():
        lines += [f"# {question}", f"{name} = '''", "'''"]
    return "\n".join(lines) + "\n"


def form_page() -> str:
    """The form for a browser: it saves the same file, and sends nothing."""
    return render(
        "survey.html.j2",
        "Survey of the course",
        style="survey.css",
        script="survey.js",
        halves=_HALVES,
        skills=SKILLS,
        levels=LEVELS,
        ratings=RATINGS,
        texts=TEXTS,
    )


def read_answers(folder: Path) -> Collected:
    """All answer files in a folder, and in those below it.

    Raises:
        PacelineError: there is no such folder.
    """
    if not folder.is_dir():
        raise PacelineError(f"{folder} is no folder", hint="put the answer files into one")
    single: list[Answers] = []
    by_code: dict[str, list[Answers]] = {}
    refused = []
    for path in sorted(folder.rglob("*.toml")):
        if "assessment" in path.relative_to(folder).parts:
            continue
        try:
            code, answers = _read(path)
        except RecursionError:
            refused.append((visible(path.name, single=True), "it is nested too deep"))
            continue
        except (ValueError, OSError) as error:  # TOML's own errors are ValueErrors
            said = visible(str(error) or type(error).__name__, single=True)
            refused.append((visible(path.name, single=True), said))
            continue
        if not (answers.before or answers.after or answers.ratings or answers.texts):
            refused.append((visible(path.name, single=True), "it holds no answers"))
        elif code:
            by_code.setdefault(code, []).append(answers)
        else:
            single.append(answers)
    return Collected([*single, *(_joined(parts) for parts in by_code.values())], refused)


def _joined(parts: Sequence[Answers]) -> Answers:
    """One person's files; where they say something twice, what comes later in the folder counts."""
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    ratings: dict[str, int] = {}
    texts: dict[str, str] = {}
    for each in parts:
        before |= each.before
        after |= each.after
        ratings |= each.ratings
        texts |= each.texts
    return Answers(before, after, ratings, texts)


def _read(path: Path) -> tuple[str, Answers]:
    """A file's code and answers.

    Raises:
        ValueError: it is no answer file.
    """
    content = read_plain(path, _MOST_BYTES)
    if content is None:
        raise ValueError("it is no ordinary file, or too large")
    found = tomllib.loads(content[0].decode("utf-8-sig"))
    if not any(isinstance(found.get(name), dict) for name in (*_HALVES, "ratings", "texts")):
        raise ValueError("it is no answer file of this survey")
    code = str(found.get("code", "")).strip().casefold()
    if code and not _CODE.fullmatch(code):
        raise ValueError("its code has signs that a code cannot have")
    numbers = [dict(_numbers(found, part, names)) for part, names in _asked()]
    return code, Answers(numbers[0], numbers[1], numbers[2], dict(_texts(found)))


def _asked() -> list[tuple[str, Sequence[str]]]:
    return [("before", list(SKILLS)), ("after", list(SKILLS)), ("ratings", list(RATINGS))]


def _numbers(found: Mapping[str, Any], part: str, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    table = found.get(part, {})
    for name in names:
        value = table.get(name, 0) if isinstance(table, dict) else 0
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= len(LEVELS):
            raise ValueError(f"{part}.{name} is not a number from 0 to {len(LEVELS)}")
        if value:
            yield name, value


def _texts(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    table = found.get("texts", {})
    for name in TEXTS:
        value = table.get(name, "") if isinstance(table, dict) else ""
        if not isinstance(value, str):
            raise ValueError(f"texts.{name} is no text")
        shown = "".join(sign if sign.isprintable() else " " for sign in value)
        if text := " ".join(shown.split())[:_LONGEST]:
            yield name, text
