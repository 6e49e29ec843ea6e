"""From slides as they are written to slides with values, sources and figures in them; what is wrong is collected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.records.errors import PacelineError
from paceline_course.slides.deck import Deck, Slide
from paceline_course.slides.pictures import Picture, draw
from paceline_course.slides.registry import Registry

_NAMED = re.compile(r"\{\{(value|cite): *([\w.-]+) *\}\}")
_OPEN = re.compile(r"\{\{[^}]*\}\}")
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]*)\)")
_WEB = re.compile(r"https://[\w-]+(\.[\w-]+)+(/\S*)?")
_NUMBER = re.compile(r"\d")
# Numbers that are names: labs, decks, files, versions of a thing that has no other name.
_NAMES = re.compile(
    r"\b(?:[Ll]abs?|L|D|[Ss]tage|[Ss]tep|ResNet|float|bf|fp|int|v|rank|GPU|node)[ -]?\d[\d.]*\b|\bD\d\b"
)


@dataclass(frozen=True)
class FilledSlide:
    """One slide as it is built.

    Attributes:
        number, title, notes, side: as written.
        text: Markdown without anything to fill.
        picture: its figure; None for none.
        measured: provenances of its values and its figure, each once.
    """

    number: int
    title: str
    text: str
    notes: str
    side: bool
    picture: Picture | None
    measured: tuple[str, ...]


@dataclass(frozen=True)
class FilledDeck:
    """A deck as it is built.

    Attributes:
        name, title: as written.
        slides: in order.
        problems: for which the build fails, each with its slide.
    """

    name: str
    title: str
    slides: tuple[FilledSlide, ...]
    problems: tuple[str, ...]


def fill(deck: Deck, registry: Registry) -> FilledDeck:
    """Look everything up that a deck names; nothing is raised for a slide, its problem is noted."""
    problems: list[str] = []
    slides = [_filled(slide, registry, problems, f"{deck.name}, slide {slide.number}") for slide in deck.slides]
    return FilledDeck(deck.name, deck.title, tuple(slides), tuple(problems))


def _filled(slide: Slide, registry: Registry, problems: list[str], where: str) -> FilledSlide:
    measured: list[str] = []

    def look_up(found: re.Match[str]) -> str:
        kind, name = found.groups()
        try:
            if kind == "cite":
                source = registry.source(name)
                return f"[{source.short}]({source.link})"
            value = registry.value(name)
        except PacelineError as error:
            problems.append(f"{where}: {_said(error)}")
            return found[0]
        measured.append(value.provenance)
        return value.text

    text, notes = _NAMED.sub(look_up, slide.text), _NAMED.sub(look_up, slide.notes)
    picture = None
    if slide.figure:
        try:
            picture = draw(slide.figure, registry.figure(slide.figure), side=slide.side)
        except PacelineError as error:
            problems.append(f"{where}: {_said(error)}")
        else:
            measured += [picture.provenance] if picture.provenance else []
    problems += [f"{where}: {said}" for said in _wrong(slide, text, notes)]
    return FilledSlide(
        number=slide.number,
        title=slide.title,
        text=text,
        notes=notes,
        side=slide.side,
        picture=picture,
        measured=tuple(dict.fromkeys(measured)),
    )


def _wrong(slide: Slide, text: str, notes: str) -> Iterator[str]:
    if not notes:
        yield "it has no notes"
    for left in _OPEN.findall(_NAMED.sub("", text + notes)):
        yield f"{left} is not known: value, cite, figure, and example in notes"
    for _, link in _LINK.findall(text + notes):
        if not _WEB.fullmatch(link):
            yield f"the link {link or 'without an address'} leads nowhere"
    # What is left when values and sources are taken out was typed by hand.
    typed = _NAMES.sub("", _CODE.sub("", _NAMED.sub("", slide.text)))
    cited = "{{cite:" in slide.text or slide.example
    if not cited and (numbers := [line.strip() for line in typed.splitlines() if _NUMBER.search(_unlisted(line))]):
        yield f"a number without a record, a source or a word that it is an example: {numbers[0]}"


def _unlisted(line: str) -> str:
    return re.sub(r"^\s*\d+\.\s", "", line)


def _said(error: PacelineError) -> str:
    return f"{error.what}, {error.why}" if error.why else error.what
