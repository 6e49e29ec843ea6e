"""What the checks of a lab are written with (`course/labs/<lab>/checks.py`).

    @proves("L1.1", "the gradient equals finite differences on random data")
    def gradient(answer: Answer) -> None:
        x, y = answer.draw.normal(size=(2, 50))
        got = answer.call(call_gradient, x, y)              # in a fresh process, which loads the learner's file
        expected = ...
        if not np.allclose(got, expected):
            raise Wrong("sum-not-mean", ran="50 random points", expected=expected, got=got)

    def call_gradient(x, y):                                # runs over there
        return learners("gradient")(x, y)

**Over there things are done, here they are judged.** A process that has loaded a learner's code may have a torch in
which everything is equal to everything; so what is called in it returns data, and nothing more.

A check tests properties, on fresh random numbers each time; it never looks at the text of an answer.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from paceline.records.errors import PacelineError
from paceline_course.answer import Answer, Traced
from paceline_course.answer_process import MissingName, learners
from paceline_course.content import Course, Exercise

__all__ = ["Answer", "Message", "MissingName", "Property", "Traced", "Wrong", "learners", "load_checks", "proves"]

_PROVES = "_paceline_proves"


@dataclass(frozen=True)
class Message:
    """What a learner is told about one kind of mistake, besides what was run, expected and got.

    Attributes:
        likely: the likely cause, one sentence.
        look: where to look, one sentence.
    """

    likely: str
    look: str


class Wrong(Exception):  # noqa: N818  what a check says of an answer
    """An answer does not have a property.

    Args:
        message: id of a `Message`.
        ran: what was run, in words.
        expected, got: what should have come out, and what did.
        where: a place in the learner's file, where one is known.
    """

    def __init__(self, message: str, *, ran: str = "", expected: Any = "", got: Any = "", where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.ran, self.expected, self.got, self.where = ran, str(expected), str(got), where


@dataclass(frozen=True)
class Property:
    """One thing that an answer has to have.

    Attributes:
        statement: what it is, as a sentence.
        test: raises `Wrong` where an answer lacks it.
        slow: left out of the quick tier of the course's own tests.
    """

    statement: str
    test: Callable[[Answer], None]
    slow: bool = False


def proves(exercise: str, statement: str, *, slow: bool = False) -> Callable[[Callable[[Answer], None]], Any]:
    """Mark a function as the test of one property; properties are tested in the order in which they stand."""

    def mark(test: Callable[[Answer], None]) -> Callable[[Answer], None]:
        setattr(test, _PROVES, (exercise, Property(statement, test, slow)))
        return test

    return mark


@dataclass(frozen=True)
class Checks:
    """The checks of a lab.

    Attributes:
        properties: of each exercise, in order.
        messages: by id.
        path: of the module.
    """

    properties: Mapping[str, tuple[Property, ...]]
    messages: Mapping[str, Message]
    path: Path

    def of(self, exercise: Exercise) -> tuple[Property, ...]:
        """The properties of one exercise.

        Raises:
            PacelineError: it has none.
        """
        found = self.properties.get(exercise.id, ())
        if not found:
            raise PacelineError(f"{exercise.id} has no check", hint="a defect of the course: please report it")
        return found


def load_checks(course: Course, exercise: Exercise) -> Checks:
    """The checks of the lab of an exercise, with the messages of the lab: `checks.py`, and `checks_*.py` beside it."""
    lab = course.lab_of(exercise)
    first = course.lab_folder(lab) / "checks.py"
    found: dict[str, list[Property]] = {}
    messages: dict[str, Message] = {}
    for path in [first, *sorted(first.parent.glob("checks_*.py"))]:
        module = load_module(path, f"paceline_course_{lab.id}_{path.stem}")
        messages |= getattr(module, "MESSAGES", {})
        for value in vars(module).values():
            marked = getattr(value, _PROVES, None)
            if marked is not None and value.__module__ == module.__name__:
                found.setdefault(marked[0], []).append(marked[1])
    return Checks({name: tuple(properties) for name, properties in found.items()}, messages, first)


def load_module(path: Path, name: str) -> ModuleType:
    """A module of the course's content, loaded once.

    Raises:
        PacelineError: it is not there.
    """
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(path):
        return sys.modules[name]
    if not path.is_file():
        raise PacelineError(f"{path} is missing", hint="a part of the course: install paceline anew")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PacelineError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
