"""Which submissions look alike. Advisory only: a short task has few good answers, and the given code is everybody's.

Of each program the shape is compared, not the text: names, numbers, texts, comments and order of definitions do not
count. A fingerprint is a set of small pieces of the syntax tree; what two programs have in common is its share of all
pieces of both (Jaccard), less the pieces of the program that was given to all.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.records.errors import PacelineError
from paceline_course.instructor.classroom import Classroom
from paceline_course.instructor.roster import Person, read_roster

THRESHOLD = 0.6
_PIECE = 5
"""Nodes of the tree in one piece."""
_FEWEST = 30
"""With fewer pieces of their own, two programs are not compared: there is too little that could differ."""
_LOGS = ("log.csv", "events.jsonl")
_SMALLEST_LOG = 64
_MOST_BYTES = 1 << 20
_MOST_FILES = 500


@dataclass(frozen=True)
class Pair:
    """Two programs.

    Attributes:
        one, other: whose.
        similarity: share of pieces in common, 0 to 1.
        pieces: of the smaller one.
    """

    one: Person
    other: Person
    similarity: float
    pieces: int


@dataclass(frozen=True)
class SameLog:
    """A log that several handed in, byte for byte.

    Attributes:
        people: who.
        names: of the file, at each of them.
    """

    people: list[Person]
    names: list[str]


@dataclass(frozen=True)
class Report:
    """What was found.

    Attributes:
        compared: how many programs.
        threshold: from which similarity on a pair is listed.
        pairs: the most similar first.
        closest: the largest similarity of any pair; None where there was none to compare.
        logs: handed in by more than one.
        skipped: of whom no program could be compared, and why.
    """

    compared: int
    threshold: float
    pairs: list[Pair]
    closest: float | None
    logs: list[SameLog]
    skipped: list[tuple[Person, str]]


def fingerprint(source: str) -> frozenset[int]:
    """The pieces of a program.

    Raises:
        SyntaxError: it is no Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an odd escape in somebody's text is not our matter
        tree = ast.parse(source)
    pieces: set[int] = set()
    for definition in _definitions(tree):
        words = list(_words(definition))
        for at in range(max(1, len(words) - _PIECE + 1)):
            piece = " ".join(words[at : at + _PIECE])
            pieces.add(int.from_bytes(hashlib.blake2b(piece.encode(), digest_size=8).digest(), "big"))
    return frozenset(pieces)


def _definitions(tree: ast.Module) -> Iterator[ast.AST]:
    """What stands at the top: each function, each method, each statement; so their order does not count."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from node.body
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def _words(node: ast.AST) -> Iterator[str]:
    """The tree from left to right, without names, values and texts; attributes stay: they say what is called."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a text that stands alone: documentation
    if isinstance(node, ast.expr_context):
        return
    yield f".{node.attr}" if isinstance(node, ast.Attribute) else type(node).__name__
    for child in ast.iter_child_nodes(node):
        if not isinstance(node, ast.arg | ast.AnnAssign) or child is not getattr(node, "annotation", None):
            yield from _words(child)


def compare(room: Classroom, given: Path | None = None, threshold: float = THRESHOLD) -> Report:
    """Look at all collected assessments.

    Args:
        room: the class.
        given: the program that all began with.
        threshold: from which similarity on a pair is listed, 0 to 1.

    Raises:
        PacelineError: the given program cannot be read.
    """
    known = {person.id: person for person in read_roster(room)}
    people = [known.get(name, Person(name, name)) for name in room.handed_in()]
    common = _given(given) if given is not None else frozenset()
    prints: list[tuple[Person, frozenset[int]]] = []
    skipped: list[tuple[Person, str]] = []
    logs: dict[str, list[tuple[Person, str]]] = {}
    for person in people:
        folder = room.of(person.id) / "assessment"
        if not (folder / "train.py").is_file():
            continue
        for digest, name in _logs(folder):
            logs.setdefault(digest, []).append((person, name))
        try:
            found = fingerprint(_text(folder / "train.py")) - common
        except (SyntaxError, ValueError, RecursionError, MemoryError, PacelineError) as error:
            skipped.append((person, f"train.py cannot be read ({type(error).__name__})"))
            continue
        if len(found) < _FEWEST:
            skipped.append((person, f"only {len(found)} pieces differ from what was given"))
            continue
        prints.append((person, found))
    every = sorted(_pairs(prints), key=lambda pair: -pair.similarity)
    return Report(
        compared=len(prints),
        threshold=threshold,
        pairs=[pair for pair in every if pair.similarity >= threshold],
        closest=every[0].similarity if every else None,
        logs=[
            SameLog([person for person, _ in who], [name for _, name in who])
            for who in logs.values()
            if len({person.id for person, _ in who}) > 1
        ],
        skipped=skipped,
    )


def _given(path: Path) -> frozenset[int]:
    try:
        return fingerprint(_text(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise PacelineError(f"{path} is no Python program that can be read", why=str(error)) from error


def _pairs(prints: Sequence[tuple[Person, frozenset[int]]]) -> Iterator[Pair]:
    for (one, first), (other, second) in itertools.combinations(prints, 2):
        yield Pair(one, other, len(first & second) / len(first | second), min(len(first), len(second)))


def _text(path: Path) -> str:
    if path.stat().st_size > _MOST_BYTES:
        raise PacelineError(f"{path} is too large")
    return path.read_text(encoding="utf-8", errors="replace")


def _logs(folder: Path) -> Iterator[tuple[str, str]]:
    """Digest and name of each log; empty and very short ones may be equal by accident."""
    paths = (path for path in sorted((folder / "runs").rglob("*")) if path.name in _LOGS)
    for path in itertools.islice(paths, _MOST_FILES):
        if path.is_file() and not path.is_symlink() and path.stat().st_size >= _SMALLEST_LOG:
            yield hashlib.sha256(path.read_bytes()).hexdigest(), path.relative_to(folder).as_posix()


def as_text(report: Report) -> str:
    """For a terminal; no newline at the end."""
    programs = "program" if report.compared == 1 else "programs"
    lines = [f"{report.compared} {programs} compared; pairs from {report.threshold:.0%} on:"]
    for pair in report.pairs:
        lines.append(
            f"  {pair.similarity:>4.0%}  {_who([pair.one, pair.other])}  ({pair.pieces} pieces in the smaller one)"
        )
    if not report.pairs:
        lines.append("  none" + (f"; the closest have {report.closest:.0%}" if report.closest is not None else ""))
    if report.logs:
        lines += ["", "the same log, byte for byte:"]
        lines += [f"  {_who(each.people)}: {', '.join(sorted(set(each.names))[:3])}" for each in report.logs]
    lines += [f"  not compared: {person.name}, {why}" for person, why in report.skipped]
    return "\n".join(
        [
            *lines,
            "",
            "Advisory only. People who learnt from the same labs write alike, and a short task has few good answers.",
            "It says where to look, and never what happened: talk with people before you conclude anything.",
        ]
    )


def _who(people: Sequence[Person]) -> str:
    return " and ".join(f"{person.name} ({person.id})" for person in {each.id: each for each in people}.values())
