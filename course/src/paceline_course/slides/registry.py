"""What slides may name: measured values, figures, and sources.

Values and figures are functions in `course/slides/*.py`:

    @value("regimes.steps.512", "regimes")
    def steps_at_512(record: Record) -> str: ...

    @figure("ring")
    def ring(canvas: Canvas) -> str: ...       # draws, and returns what it shows, for those who cannot see it

Sources stand in `course/slides/sources.toml`, each with a name, a title and a link.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from paceline.records.errors import PacelineError, choices
from paceline_course.checking import load_module


@dataclass(frozen=True)
class Record:
    """What one benchmark or study left behind.

    Attributes:
        name: of its folder.
        folder: where it stands.
    """

    name: str
    folder: Path

    @cached_property
    def result(self) -> Any:
        """Its result.json."""
        return self._read(self.folder / "result.json")

    @cached_property
    def cells(self) -> list[Any]:
        """Of a study: the content of each of its cells."""
        return [self._read(path) for path in sorted((self.folder / "cells").glob("*.json"))]

    @property
    def provenance(self) -> str:
        """The command that made it, and on what."""
        whole = (self.folder / "result.json").is_file()
        about = self.result if whole else self.cells[0]
        words = about.get("command") or []
        # A study's cells have commands of their own; the one to repeat is the study's.
        command = " ".join(str(word) for word in words) if whole else f"python -m bench.studies.{self.name}"
        where = about.get("environment", {})
        cores = where.get("cores")
        said = [f"record {self.name}", command, str(where.get("cpu", "")), f"{cores} cores" if cores else ""]
        return ", ".join(word for word in said if word)

    @staticmethod
    def _read(path: Path) -> Any:
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise PacelineError(f"{path} cannot be read", why=str(error)) from error


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Something published."""

    short: str
    """As it is cited: Goyal et al. 2017."""
    title: str
    link: str


@dataclass(frozen=True)
class Filled:
    """A value with where it is from."""

    text: str
    provenance: str


@dataclass(frozen=True)
class Drawing:
    """A figure that may be drawn.

    Attributes:
        draw: onto a canvas; returns what is seen, in words.
        provenance: of what it shows; empty for a drawing.
    """

    draw: Callable[[Any], str]
    provenance: str


@dataclass
class Registry:
    """All that slides may name.

    Attributes:
        records: folder of the records.
        values, figures, sources: by name.
    """

    records: Path
    values: dict[str, Callable[[], Filled]] = field(default_factory=dict)
    figures: dict[str, Callable[[], Drawing]] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)

    def record(self, name: str) -> Record:
        """The record in this folder.

        Raises:
            PacelineError: there is none.
        """
        folder = self.records / name
        if not folder.is_dir():
            raise PacelineError(f"there is no record {name}", hint=f"measure it first; records stand in {self.records}")
        return Record(name, folder)

    def value(self, name: str) -> Filled:
        """A measured value.

        Raises:
            PacelineError: nothing is called so, or its record is missing or lacks it.
        """
        if name not in self.values:
            raise PacelineError(f"there is no value {name}", hint=f"one of {choices(sorted(self.values))}")
        return self.values[name]()

    def figure(self, name: str) -> Drawing:
        """A figure.

        Raises:
            PacelineError: nothing is called so, or its record is missing.
        """
        if name not in self.figures:
            raise PacelineError(f"there is no figure {name}", hint=f"one of {choices(sorted(self.figures))}")
        return self.figures[name]()

    def filler(self, name: str, record: str, function: Callable[[Record], str]) -> Callable[[], Filled]:
        """What fills a value when it is asked for."""

        def fill() -> Filled:
            found = self.record(record)
            try:
                return Filled(function(found), found.provenance)
            except (KeyError, IndexError, TypeError, ValueError, StopIteration, ZeroDivisionError) as error:
                raise PacelineError(f"record {record} does not hold {name}", why=repr(error)) from error

        return fill

    def drawer(self, name: str, record: str, function: Callable[..., str]) -> Callable[[], Drawing]:
        """What makes a figure ready when it is asked for."""
        del name

        def make() -> Drawing:
            if not record:
                return Drawing(function, "")
            found = self.record(record)
            return Drawing(lambda canvas: function(canvas, found), found.provenance)

        return make

    def source(self, name: str) -> Source:
        """Something published.

        Raises:
            PacelineError: nothing is called so.
        """
        if name not in self.sources:
            raise PacelineError(f"there is no source {name}", hint=f"one of {choices(sorted(self.sources))}")
        return self.sources[name]


def value(name: str, record: str) -> Callable[[Callable[[Record], str]], Callable[[Record], str]]:
    """The function makes the value's text from its record."""

    def mark(function: Callable[[Record], str]) -> Callable[[Record], str]:
        function.__dict__["slides_value"] = (name, record)
        return function

    return mark


def figure(name: str, record: str = "") -> Callable[[Callable[..., str]], Callable[..., str]]:
    """The function draws onto a canvas; where a record is named, it gets that as well."""

    def mark(function: Callable[..., str]) -> Callable[..., str]:
        function.__dict__["slides_figure"] = (name, record)
        return function

    return mark


def load_registry(slides: Path, records: Path) -> Registry:
    """Everything that `course/slides` defines.

    Args:
        slides: that folder.
        records: where records stand.

    Raises:
        PacelineError: sources.toml cannot be read, or a name is defined twice.
    """
    registry = Registry(records)
    path = slides / "sources.toml"
    try:
        registry.sources = msgspec.toml.decode(path.read_bytes(), type=dict[str, Source])
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise PacelineError(f"{path} cannot be read", why=str(error)) from error
    for file in sorted(slides.glob("*.py")):
        module = load_module(file, f"paceline_course_slides_{file.stem}")
        for function in vars(module).values():
            for kind, table, wrap in (
                ("slides_value", registry.values, registry.filler),
                ("slides_figure", registry.figures, registry.drawer),
            ):
                marked = getattr(function, "__dict__", {}).get(kind)
                if marked is not None and getattr(function, "__module__", "") == module.__name__:
                    _add(table, marked[0], wrap(marked[0], marked[1], function))
    return registry


def _add(table: dict[str, Any], name: str, entry: Any) -> None:
    if name in table:
        raise PacelineError(f"{name} is defined twice in course/slides")
    table[name] = entry
