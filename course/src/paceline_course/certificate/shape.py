"""What stands in a certificate, with types, and what of it has to agree with what. Numbers with a fraction are text."""

from __future__ import annotations

import datetime
import hashlib
import math
import unicodedata
from collections.abc import Iterable
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec

from paceline.records.errors import PacelineError
from paceline_course.assess.grade import PARTS
from paceline_course.certificate import compact
from paceline_course.certificate.canonical import canonical
from paceline_course.certificate.states import Level

FORMAT = 1
LONGEST_NAME = 100
_JOINERS = "\u200c\u200d"
"""Some scripts cannot be written without these two."""
# Patterns end with \Z: behind $, a line break could stand.
Number = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,30})?\Z", max_length=40)]
Points = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,4})(\.[0-9]{1,30})?\Z", max_length=40)]
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
Short = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Urn = Annotated[str, msgspec.Meta(pattern=r"^urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")]
Moment = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z")]
Letter = Literal["A", "B", "C", "D"]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the rubric."""

    id: Annotated[str, msgspec.Meta(pattern=r"^[ABCD]\.", max_length=80)]
    title: Annotated[str, msgspec.Meta(max_length=500)]
    points: Points
    most: Points
    state: Literal["passed", "partly", "failed", "untested"]
    gate: bool


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One of the four parts."""

    letter: Letter
    name: Short
    points: Points
    most: Points


class Ours(msgspec.Struct, frozen=True, kw_only=True):
    """What an Open Badge has no place for: the member `paceline`."""

    format: Annotated[int, msgspec.Meta(ge=1)]
    level: Level
    vouched: Text
    """The level in words."""
    note: Text
    kind: Literal["final"]
    course: Short
    """Version of the course."""
    result: Literal["merit", "passed"]
    points: Points
    most: Points
    pass_points: Annotated[int, msgspec.Meta(ge=0, le=10000)]
    merit_points: Annotated[int, msgspec.Meta(ge=0, le=10000)]
    target: Number
    """Accuracy that had to be reached, 0 to 1."""
    parts: list[Part]
    lines: list[Line]
    submission: Short
    grader: Short
    """Digests, sha256."""
    nonce: str
    seeds: dict[str, str]
    """Decimal digits: some do not fit into a number of JSON."""
    machine: dict[str, str]
    date: Short
    """When the grading began."""
    seconds: Number
    gaps: list[str]
    version: Short
    """Of Paceline, which wrote this."""
    code: Text
    """The text of the QR code; `compact` explains it."""


class Issuer(msgspec.Struct, frozen=True, kw_only=True):
    """Whose key signed."""

    id: Short
    type: list[str]
    name: Short


class Criteria(msgspec.Struct, frozen=True, kw_only=True):
    """What had to be done."""

    narrative: Text


class Achievement(msgspec.Struct, frozen=True, kw_only=True):
    """The course."""

    id: Urn
    type: list[str]
    name: Short
    description: Text
    criteria: Criteria


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Points of a part, or of all, as Open Badges has them."""

    type: list[str]
    value: Points


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The name once more, where Open Badges looks for it."""

    value: str = msgspec.field(name="identityHash")


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The learner."""

    type: list[str]
    achievement: Achievement
    result: list[Result]
    name: Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)] = ""
    identifier: list[Identity] = []


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """All of it but the proof."""

    context: list[Any] = msgspec.field(name="@context")
    id: Urn
    type: list[str]
    issuer: Issuer
    valid_from: Moment = msgspec.field(name="validFrom")
    name: Short
    subject: Subject = msgspec.field(name="credentialSubject")
    paceline: Ours


def read(document: dict[str, Any]) -> Certificate:
    """With types.

    Raises:
        ValueError: a field is missing or of another kind; the text names it.
    """
    return msgspec.convert(document, Certificate)


def facts(document: dict[str, Any]) -> compact.Facts:
    """What the QR code says of a certificate; its `code` and its proof have no part in it."""
    ours = {name: value for name, value in document["paceline"].items() if name != "code"}
    bare = {name: value for name, value in document.items() if name != "proof"} | {"paceline": ours}
    return compact.Facts(
        id=document["id"],
        level=ours["level"],
        result=ours["result"],
        points=ours["points"],
        most=ours["most"],
        digest=hashlib.sha256(canonical(bare)).hexdigest(),
    )


def contradiction(certificate: Certificate) -> str:
    """What in it does not agree with itself, though it was signed so; empty where all does."""
    ours = certificate.paceline
    try:
        datetime.datetime.fromisoformat(certificate.valid_from)
    except ValueError:
        return f"there is no date {certificate.valid_from}"
    ids = [line.id for line in ours.lines]
    if not ids or len(set(ids)) != len(ids):
        return "its lines are not told apart"
    if any(Decimal(line.points) > Decimal(line.most) for line in ours.lines):
        return "a line has more points than it can give"
    if [part.letter for part in ours.parts] != list(PARTS):
        return "it has not the four parts"
    for part in ours.parts:
        lines = [line for line in ours.lines if line.id[0] == part.letter]
        if (part.points, part.most) != _totals(lines):
            return f"the points of part {part.letter} are not those of its lines"
    if (ours.points, ours.most) != _totals(ours.lines):
        return "its points are not those of its lines"
    if [each.value for each in certificate.subject.result] != [*(part.points for part in ours.parts), ours.points]:
        return "its results are not its points"
    name = certificate.subject.name
    if unseen(name) or unseen(certificate.issuer.name) or unseen(certificate.subject.achievement.name):
        return "a name has signs that cannot be seen"
    if [each.value for each in certificate.subject.identifier] != ([name] if name else []):
        return "it names two people"
    if any(line.gate and line.state != "passed" for line in ours.lines) or float(ours.points) < ours.pass_points:
        return "it did not pass"
    if (ours.result == "merit") != (float(ours.points) >= ours.merit_points):
        return "its result is not that of its points"
    return ""


def unseen(name: str) -> list[str]:
    """Signs with which a name can look like another text: they control, turn the direction, break the line, or hide."""
    return [sign for sign in name if unicodedata.category(sign) in {"Cc", "Cf", "Zl", "Zp"} and sign not in _JOINERS]


def _totals(lines: list[Line]) -> tuple[str, str]:
    # As Grade adds them, with the same rounding: sums of fractions may differ in the last digit of a double.
    return total(float(line.points) for line in lines), total(float(line.most) for line in lines)


def total(points: Iterable[float]) -> str:
    """A sum of points as text, to a tenth."""
    return decimal(round(sum(points), 1))


def decimal(number: float) -> str:
    """A number of points as text, which gives the same number when it is read.

    Raises:
        PacelineError: it is below zero, or no number.
    """
    if not math.isfinite(number) or number < 0 or number >= 1e9:
        raise PacelineError(f"the grade is damaged: {number} stands where points should")
    text = format(Decimal(repr(float(number))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
