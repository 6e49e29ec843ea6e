"""Who is in a class: `roster.csv`, one line a person, which may be edited by hand."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.records.errors import PacelineError
from paceline.records.rundir import write_atomic
from paceline_course.instructor.classroom import Classroom

COLUMNS = ("id", "name", "email")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_MOST_BYTES, _MOST_PEOPLE, _MOST_SHOWN, _LONGEST = 1 << 20, 2000, 10, 200


class Person(msgspec.Struct, frozen=True):
    """One learner."""

    id: str
    """Names folders; holds nothing about the person where it was made here."""
    name: str
    email: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Who this is, whatever the id."""
        return plain_name(self.name), self.email.casefold()


@dataclass(frozen=True)
class Imported:
    """What an import did.

    Attributes:
        people: the class afterwards.
        new: ids that were not there before.
        made: ids that were made because the file had none.
        ignored: columns that were not read.
    """

    people: list[Person]
    new: list[str]
    made: list[str]
    ignored: list[str]


def plain_name(text: str) -> str:
    """A name as it is compared: case, width, accents and what stands between words set aside."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    kept = "".join(" " if not sign.isalnum() else sign for sign in folded if not unicodedata.combining(sign))
    return " ".join(kept.split())


def read_roster(room: Classroom) -> list[Person]:
    """The people of a class, in the order of the file; none where there is no file.

    Raises:
        PacelineError: a line of it cannot be used, or a person stands there twice.
    """
    if not room.roster.exists():
        return []
    people, _, _ = _parse(room.roster, [])
    return people


def import_people(room: Classroom, source: Path) -> Imported:
    """Take over the people of a file; those who are in the class already stay, with what the file says newly.

    Raises:
        PacelineError: the file cannot be used; every bad line is named, and nothing is changed.
    """
    held = read_roster(room)
    found, made, ignored = _parse(source, held)
    room.make()
    by_id = {person.id: person for person in held}
    new = [person.id for person in found if person.id not in by_id]
    by_id |= {person.id: person for person in found}
    people = list(by_id.values())
    write_roster(room, people)
    return Imported(people, new, [name for name in made if name in new], ignored)


def write_roster(room: Classroom, people: Sequence[Person]) -> None:
    """Write it whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows((person.id, person.name, person.email) for person in people)
    write_atomic(room.roster, text.getvalue().encode())


def _parse(path: Path, held: Sequence[Person]) -> tuple[list[Person], list[str], list[str]]:
    """People, ids that were made, columns that are not known."""
    rows = _rows(path)
    first = next(rows, None)
    if first is None:
        return [], [], []
    names = [plain_name(cell).replace("e mail", "email") for cell in first[1]]
    if "name" not in names:
        raise PacelineError(f"{path} has no column name", hint="its first line names the columns: name,email")
    if twice := [name for name in COLUMNS if names.count(name) > 1]:
        raise PacelineError(f"{path} has the column {twice[0]} twice")
    places = {name: names.index(name) for name in COLUMNS if name in names}
    ignored = [cell for cell, name in zip(first[1], names, strict=True) if name not in COLUMNS and cell.strip()]
    reader = _Reader(held)
    for line, cells in rows:
        reader.take(line, {name: cells[at].strip() if at < len(cells) else "" for name, at in places.items()})
        if len(cells) > len(names) and any(cell.strip() for cell in cells[len(names) :]):
            reader.bad.append(f"line {line}: it has more cells than the first line")
        if len(reader.people) > _MOST_PEOPLE:
            raise PacelineError(f"{path} has more than {_MOST_PEOPLE} people")
    if reader.bad:
        more = len(reader.bad) - _MOST_SHOWN
        shown = reader.bad[:_MOST_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        raise PacelineError(
            f"{path} cannot be used as it is", why="; ".join(shown), hint="mend these lines; nothing was changed"
        )
    return reader.people, reader.made, ignored


class _Reader:
    """Lines to people; what is wrong with a line is noted."""

    def __init__(self, held: Sequence[Person]) -> None:
        self.people: list[Person] = []
        self.made: list[str] = []
        self.bad: list[str] = []
        self._known = {person.key: person for person in held}
        self._by_name: dict[str, list[Person]] = {}
        for person in held:
            self._by_name.setdefault(person.key[0], []).append(person)
        self._spelt = {person.id.casefold(): person.id for person in held}
        self._taken = {person.id.casefold() for person in held}
        self._ids: dict[str, int] = {}
        self._persons: dict[tuple[str, str], int] = {}

    def take(self, line: int, cells: dict[str, str]) -> None:
        """One line of the file."""
        name, email, given = " ".join(cells["name"].split()), cells.get("email", ""), cells.get("id", "")
        if trouble := _trouble(name, email, given):
            self.bad.append(f"line {line}: {trouble}")
            return
        given = self._spelt.get(given.casefold(), given)
        person = Person(given, name, email)
        if given.casefold() in self._ids:
            self.bad.append(f"line {line}: the id {given} stands in line {self._ids[given.casefold()]} already")
            return
        if person.key in self._persons and not given:
            self.bad.append(f"line {line}: {name} stands in line {self._persons[person.key]} already")
            return
        if not given:
            before = self._before(person)
            person = Person(before.id, name, email or before.email) if before else Person(self._free(), name, email)
            if before is None:
                self.made.append(person.id)
        self._ids[person.id.casefold()] = line
        self._persons[person.key] = line
        self._taken.add(person.id.casefold())
        self.people.append(person)

    def _before(self, person: Person) -> Person | None:
        """Who this was so far: of the same name and address, or of that name alone where one has no address."""
        alike = self._by_name.get(person.key[0], [])
        if person.key in self._known or len(alike) != 1:
            return self._known.get(person.key)
        return alike[0] if not (person.email and alike[0].email) and alike[0].id.casefold() not in self._ids else None

    def _free(self) -> str:
        number = 1
        while (free := f"p{number:02d}") in self._taken:
            number += 1
        return free


def _trouble(name: str, email: str, given: str) -> str:
    if not name:
        return "it has no name"
    if len(name) > _LONGEST or not name.isprintable():
        return "the name is too long, or has signs that cannot be shown"
    if email and (email.count("@") != 1 or not email.isprintable() or " " in email or len(email) > _LONGEST):
        return f"{email[:60]!r} is no e-mail address"
    if given and not _ID.fullmatch(given):
        return f"{given[:60]!r} is no id: letters without accents, digits, dots, dashes; 40 at most"
    return ""


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every line that is not empty."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PacelineError(f"{path} cannot be read", why=error.strerror or str(error)) from error
    if len(content) > _MOST_BYTES:
        raise PacelineError(f"{path} is larger than a list of people", hint="a CSV file: name,email")
    try:
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise PacelineError(
            f"{path} is no text in UTF-8", why=f"line {line}", hint="save it as CSV UTF-8 in the spreadsheet"
        ) from error
    if "\0" in text:
        raise PacelineError(f"{path} is no CSV file", hint="save the table as CSV UTF-8")
    head = text.partition("\n")[0]
    delimiter = max(",;\t", key=head.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise PacelineError(f"{path} is no CSV file", why=f"line {reader.line_num}: {error}") from error
