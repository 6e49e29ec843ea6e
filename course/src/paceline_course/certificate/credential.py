"""A certificate made of a grade: in the shape of an Open Badges 3.0 AchievementCredential, ours beside it, signed."""

from __future__ import annotations

import datetime
import re
import unicodedata
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import Any

import paceline
from paceline.records.errors import PacelineError
from paceline_course.assess.grade import PARTS, Grade, Line
from paceline_course.certificate import compact
from paceline_course.certificate.canonical import StrictJsonError, as_file
from paceline_course.certificate.keys import PrivateKey
from paceline_course.certificate.proof import signed
from paceline_course.certificate.shape import FORMAT, LONGEST_NAME, decimal, facts, read, total, unseen
from paceline_course.certificate.states import Level

TYPES = ["VerifiableCredential", "AchievementCredential"]
CONTEXT: list[Any] = [
    "https://www.w3.org/ns/credentials/v2",
    "https://purl.imsglobal.org/spec/ob/v3p0/context-3.0.3.json",
    {"paceline": {"@id": "urn:paceline:certificate", "@type": "@json"}},
]
"""The last one says that `paceline` is JSON as it stands, so that no vocabulary has to be hosted for it."""
NOTE = (
    "In the shape of an Open Badges 3.0 AchievementCredential with an eddsa-jcs-2022 proof, to be checked without a "
    "network. It is not a complete Open Badge: its issuer is a key without a hosted profile, it names neither a "
    "credentialStatus nor a credentialSchema, and `paceline` is explained in Paceline's documentation only."
)
VOUCHED: dict[Level, str] = {
    "self-checked": "graded and signed on the learner's own computer, with the learner's own key; nobody else vouches",
    "attested": "the issuer vouches that the grading was run under the issuer's control",
}


@dataclass(frozen=True)
class Holder:
    """Whom a certificate is for, at which level, and what the course is called."""

    name: str
    level: Level
    issuer: str
    course_title: str


def issue(grade: Grade, holder: Holder, key: PrivateKey, now: datetime.datetime) -> dict[str, Any]:
    """A signed certificate.

    Args:
        grade: a final one that passed.
        holder: name, level, issuer's name, title of the course.
        key: that signs.
        now: when it is issued.

    Raises:
        PacelineError: the grade makes no certificate, and what it lacks; a name that cannot stand on one.
    """
    must_be_fit(grade)
    name = clean_name(holder.name, "the learner's name")
    issuer = clean_name(holder.issuer, "the issuer's name")
    moment = as_text(now)
    subject: dict[str, Any] = {
        "type": ["AchievementSubject"],
        "achievement": _achievement(grade, holder.course_title),
        "result": _results(grade),
    }
    if name:
        subject["name"] = name
        subject["identifier"] = [
            {"type": "IdentityObject", "hashed": False, "identityHash": name, "identityType": "name"}
        ]
    document: dict[str, Any] = {
        "@context": CONTEXT,
        "id": f"urn:uuid:{uuid.uuid4()}",
        "type": TYPES,
        "issuer": {"id": key.public.did, "type": ["Profile"], "name": issuer},
        "validFrom": moment,
        "name": f"Certificate of the course: {holder.course_title}",
        "credentialSubject": subject,
        "paceline": _ours(grade, holder.level),
    }
    try:
        document["paceline"]["code"] = compact.made(facts(document), key)
        document = signed(document, key, moment)
        read(document)
        as_file(document)  # too large for its reader, it would be none
    except (StrictJsonError, ValueError) as error:
        raise PacelineError("the grade holds something that no certificate can hold", why=str(error)) from error
    return document


def as_text(moment: datetime.datetime) -> str:
    """UTC, to the second."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clean_name(name: str, what: str) -> str:
    """A name as it stands on a certificate.

    Raises:
        PacelineError: it is too long, or has signs that cannot be seen.
    """
    name = " ".join(unicodedata.normalize("NFC", name).split())
    if len(name) > LONGEST_NAME:
        raise PacelineError(f"{what} has {len(name)} signs", hint=f"at most {LONGEST_NAME}")
    # Those that are none yet are refused here only: a later Python may know them, and signs with them.
    odd = [*unseen(name), *(sign for sign in name if unicodedata.category(sign) in {"Cs", "Co", "Cn"})]
    if odd:
        raise PacelineError(f"{what} has a sign that cannot be seen: U+{ord(odd[0]):04X}", hint="type the name anew")
    return name


def must_be_fit(grade: Grade) -> None:
    """Whether a grade makes a certificate.

    Raises:
        PacelineError: it does not, and all that it lacks.
    """
    lacks = []
    if grade.kind != "final":
        lacks.append("it is a practice, not the final assessment")
    if not grade.complete:
        lacks.append("not every line was judged")
    if not grade.gate:
        failed = ", ".join(line.id for line in grade.lines if line.gate and line.state != "passed")
        lacks.append(f"lines that must pass did not: {failed}")
    if grade.points < grade.pass_points:
        lacks.append(f"it has {decimal(grade.points)} points, and {grade.pass_points} are needed")
    if lacks:
        raise PacelineError(
            "this grade makes no certificate",
            why="; ".join(lacks),
            hint="only a final, complete grade that passed does",
        )
    wrong = [line.id for line in grade.lines if not 0 <= line.points <= line.most]
    twice = [name for name, count in Counter(line.id for line in grade.lines).items() if count > 1]
    strange = [line.id for line in grade.lines if not re.match(r"[ABCD]\.", line.id)]
    for names, said in ((wrong, "more points than it can give"), (twice, "a second line"), (strange, "no part")):
        if names:
            raise PacelineError("the grade is damaged", why=f"{', '.join(names)} has {said}")
    if not grade.lines:
        raise PacelineError("the grade is damaged", why="it has no lines")


def _achievement(grade: Grade, title: str) -> dict[str, Any]:
    return {
        # The same for everyone who passes this version of the course.
        "id": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, f'paceline course {grade.course}')}",
        "type": ["Achievement"],
        "name": title,
        "description": "The final assessment of Paceline's course on data-parallel training with PyTorch.",
        "criteria": {
            "narrative": (
                "A training program for several workers was submitted, frozen, run by the grader with random numbers "
                f"drawn afterwards, and judged line by line. At least {grade.pass_points} points are needed, and every "
                f"line of the gate has to pass; with {grade.merit_points} it is passed with merit."
            )
        },
        "tag": ["data parallelism", "distributed training", "PyTorch"],
        "resultDescription": [
            {
                "id": _result_id(grade, word),
                "type": ["ResultDescription"],
                "name": name,
                "resultType": "RawScore",
                "valueMin": "0",
                "valueMax": most,
            }
            for word, name, _, most in _scores(grade)
        ],
    }


def _results(grade: Grade) -> list[dict[str, Any]]:
    return [
        {"type": ["Result"], "resultDescription": _result_id(grade, word), "value": points}
        for word, _, points, _ in _scores(grade)
    ]


def _scores(grade: Grade) -> list[tuple[str, str, str, str]]:
    """Of each part and of all: a word, a name, points, their maximum."""
    scores = []
    for letter, name in PARTS.items():
        points, most = grade.part(letter)
        scores.append((letter, f"Part {letter}: {name}", decimal(points), decimal(round(most, 1))))
    return [*scores, ("total", "Total", decimal(grade.points), _most(grade))]


def _most(grade: Grade) -> str:
    return total(line.most for line in grade.lines)


def _result_id(grade: Grade, word: str) -> str:
    return f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, f'paceline course {grade.course} result {word}')}"


def _ours(grade: Grade, level: Level) -> dict[str, Any]:
    parts = {letter: grade.part(letter) for letter in PARTS}
    return {
        "format": FORMAT,
        "level": level,
        "vouched": VOUCHED[level],
        "note": NOTE,
        "kind": grade.kind,
        "course": grade.course,
        "result": grade.result,
        "points": decimal(grade.points),
        "most": _most(grade),
        "pass_points": grade.pass_points,
        "merit_points": grade.merit_points,
        "target": decimal(grade.target),
        "parts": [
            {"letter": letter, "name": PARTS[letter], "points": decimal(points), "most": decimal(round(most, 1))}
            for letter, (points, most) in parts.items()
        ],
        "lines": [_line(line) for line in grade.lines],
        "submission": grade.submission,
        "grader": grade.grader,
        "nonce": grade.nonce,
        "seeds": {name: str(seed) for name, seed in grade.seeds.items()},
        "machine": grade.machine,
        "date": grade.started_at,
        "seconds": decimal(grade.seconds),
        "gaps": grade.gaps,
        "version": paceline.__version__,
    }


def _line(line: Line) -> dict[str, Any]:
    return {
        "id": line.id,
        "title": line.title,
        "points": decimal(line.points),
        "most": decimal(line.most),
        "state": line.state,
        "gate": line.gate,
    }
