"""Build decks: first all is looked up and drawn, all problems are said at once; only then is a file written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from paceline.records.errors import Exit, PacelineError, choices
from paceline.records.rundir import write_atomic
from paceline_course.browser import chromium, overflowing, print_pdf
from paceline_course.content import Course
from paceline_course.slides.deck import read_deck
from paceline_course.slides.fill import FilledDeck, fill
from paceline_course.slides.html import as_html
from paceline_course.slides.registry import load_registry

Format = Literal["html", "pptx", "pdf"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True)
class Built:
    """What was made of one deck.

    Attributes:
        deck: its name.
        slides: how many.
        files: that were written.
        checked: whether a browser has looked for what does not fit.
    """

    deck: str
    slides: int
    files: tuple[Path, ...]
    checked: bool


def deck_files(course: Course) -> dict[str, Path]:
    """Every deck's file, by its name, in order."""
    return {path.stem: path for path in sorted((Path(course.folder) / "slides").glob("D*.md"))}


def records_folder(course: Course) -> Path:
    """Where records stand: beside the content in an installed package, in `bench` in a checkout."""
    beside = Path(course.folder).parent / "bench" / "records"
    return beside if beside.is_dir() else Path(course.folder).with_name("records")


def build(
    course: Course,
    names: Sequence[str],
    formats: Iterable[Format],
    folder: Path,
    tell: Callable[[str], None] = lambda _: None,
    *,
    look: bool = True,
) -> Iterator[Built]:
    """Build decks into a folder.

    Args:
        course: whose.
        names: of decks, as `D1` or whole; all of them for none.
        formats: to make.
        folder: made when it is missing.
        tell: is told of each step that takes a while.
        look: have a browser, where there is one, look for what does not fit.

    Raises:
        PacelineError: no such deck; or problems in a deck, all of them, before anything of it is written.
    """
    registry = load_registry(Path(course.folder) / "slides", records_folder(course))
    wanted = list(formats)
    if "pdf" in wanted and chromium() is None:
        raise PacelineError(
            "PDF needs a Chromium on PATH", hint="install one, or --format html and print from a browser"
        )
    for name, path in chosen(course, names).items():
        tell(f"{name}: filling and drawing")
        deck = fill(read_deck(path), registry)
        _refuse(deck, deck.problems)
        folder.mkdir(parents=True, exist_ok=True)
        yield _written(deck, wanted, folder, tell, look)


def chosen(course: Course, names: Sequence[str]) -> dict[str, Path]:
    """The decks of these names.

    Raises:
        PacelineError: there is no such deck.
    """
    every = deck_files(course)
    if not names:
        return every
    found = {}
    for name in names:
        fitting = [
            full for full in every if full.lower() == name.lower() or full.lower().startswith(f"{name.lower()}_")
        ]
        if not fitting:
            raise PacelineError(f"there is no deck {name}", hint=f"one of {choices(every)}")
        found[fitting[0]] = every[fitting[0]]
    return found


def _written(
    deck: FilledDeck, formats: Sequence[Format], folder: Path, tell: Callable[[str], None], look: bool
) -> Built:
    files, checked = [], False
    page = folder / f"{deck.name}.html"
    if "html" in formats or "pdf" in formats:
        write_atomic(page, as_html(deck).encode())
        files.append(page)
        if look and chromium() is not None:
            tell(f"{deck.name}: looking for what does not fit")
            over, checked = overflowing(page), True
            _refuse(deck, [f"{deck.name}, slide {number}: it does not fit" for number in over])
    if "pdf" in formats:
        tell(f"{deck.name}: printing")
        print_pdf(page, page.with_suffix(".pdf"))
        files.append(page.with_suffix(".pdf"))
    if "pptx" in formats:
        from paceline_course.slides.pptx import write_pptx

        tell(f"{deck.name}: PPTX")
        _refuse(deck, write_pptx(deck, page.with_suffix(".pptx")))
        files.append(page.with_suffix(".pptx"))
    return Built(deck.name, len(deck.slides), tuple(files), checked)


def _refuse(deck: FilledDeck, problems: Iterable[str]) -> None:
    said = list(problems)
    if said:
        raise PacelineError(f"{deck.name} cannot be built", why="; ".join(said), exit_code=Exit.FAILED)
