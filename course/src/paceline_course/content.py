"""What the course consists of: `course/course.toml`, read once, and the folders that it names.

One file holds every title, time, number of points and threshold; nothing else repeats them.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec

from paceline.records.errors import PacelineError, choices

_ID = re.compile(r"L\d+(\.\d+)?")


class Exercise(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to write."""

    id: str
    """Of its lab, a dot, a number: L4.2."""
    title: str
    minutes: int
    """That a person takes."""
    points: int = 10

    @property
    def file_name(self) -> str:
        """Of the learner's file: L4_2.py."""
        return f"{self.id.replace('.', '_')}.py"


class Lab(msgspec.Struct, frozen=True, kw_only=True):
    """One lab."""

    id: str
    slug: str
    """Words for file names."""
    title: str
    goal: str
    """One sentence: what one can do afterwards."""
    minutes: int
    """That a person takes, exercises included."""
    machine_s: int
    """That its experiments and checks take at most on 2 busy cores."""
    exercises: list[Exercise] = []

    @property
    def notebook_name(self) -> str:
        """Of the learner's notebook."""
        return f"{self.id}_{self.slug}.ipynb"

    @property
    def text_name(self) -> str:
        """Of the lab's text, for those who read in an editor or a terminal."""
        return f"{self.id}_{self.slug}.md"


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """A way through the course."""

    name: str
    title: str
    labs: list[str]


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """What comes at the end; its lines and points stand in assessment/rubric.toml."""

    minutes: int
    """That a person takes."""


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    title: str
    version: str
    labs: list[Lab]
    tracks: list[Track]
    assessment: Assessment | None = None
    folder: str = ""
    """Where it was read from."""

    def lab(self, name: str) -> Lab:
        """The lab with this id, in any case of letters.

        Raises:
            PacelineError: there is none.
        """
        for lab in self.labs:
            if lab.id.lower() == name.lower():
                return lab
        raise PacelineError(f"there is no lab {name}", hint=f"one of {choices(lab.id for lab in self.labs)}")

    def exercise(self, name: str) -> Exercise:
        """The exercise with this id, in any case of letters; L4_2 and L4_2.py mean L4.2.

        Raises:
            PacelineError: there is none.
        """
        wanted = name.lower().removesuffix(".py").replace("_", ".")
        for lab in self.labs:
            for exercise in lab.exercises:
                if exercise.id.lower() == wanted:
                    return exercise
        lab_id = wanted.partition(".")[0]
        near = [each.id for lab in self.labs if lab.id.lower() == lab_id for each in lab.exercises]
        hint = f"one of {choices(near)}" if near else "paceline learn list shows all"
        raise PacelineError(f"there is no exercise {name}", hint=hint)

    def lab_of(self, exercise: Exercise) -> Lab:
        """The lab that it belongs to."""
        return self.lab(exercise.id.partition(".")[0])

    def lab_folder(self, lab: Lab) -> Path:
        """Where its master and its checks stand."""
        return Path(self.folder) / "labs" / lab.id


def course_folder() -> Path:
    """Where the content stands: inside an installed package, or beside `src` in a checkout.

    Raises:
        PacelineError: nowhere.
    """
    here = Path(__file__).resolve()
    for folder in (here.parent / "course", here.parents[2]):
        if (folder / "course.toml").is_file():
            return folder
    raise PacelineError("the content of the course is missing", hint="reinstall paceline-course")


@cache
def load_course(folder: Path | None = None) -> Course:
    """The course.

    Args:
        folder: of its content; the one that came with this installation by default.

    Raises:
        PacelineError: course.toml is damaged, or contradicts itself.
    """
    folder = folder or course_folder()
    path = folder / "course.toml"
    try:
        course = msgspec.toml.decode(path.read_bytes(), type=Course)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise PacelineError(f"{path} cannot be read", why=str(error)) from error
    if problems := contradictions(course):
        raise PacelineError(f"{path} contradicts itself", why="; ".join(problems))
    return msgspec.structs.replace(course, folder=str(folder))


def contradictions(course: Course) -> list[str]:
    """What cannot be: ids that repeat, exercises of another lab, tracks of labs that do not exist."""
    said = []
    ids = [lab.id for lab in course.labs] + [each.id for lab in course.labs for each in lab.exercises]
    said += [f"{name} stands there twice" for name in sorted({name for name in ids if ids.count(name) > 1})]
    said += [f"{name} is no id" for name in ids if not _ID.fullmatch(name)]
    for lab in course.labs:
        strangers = [each.id for each in lab.exercises if each.id.partition(".")[0] != lab.id]
        said += [f"{name} stands in lab {lab.id}" for name in strangers]
        if sum(each.minutes for each in lab.exercises) > lab.minutes:
            said.append(f"the exercises of {lab.id} take longer than the lab")
    known = {lab.id for lab in course.labs}
    said += [f"track {track.name} names {name}" for track in course.tracks for name in track.labs if name not in known]
    return said
