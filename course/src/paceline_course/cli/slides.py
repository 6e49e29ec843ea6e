"""`paceline learn slides`: the decks. The work is done in `paceline_course.slides`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from paceline.records.errors import PacelineError, choices


def list_decks() -> None:
    """List all decks with their topics."""
    from paceline_course.content import load_course
    from paceline_course.slides.build import deck_files
    from paceline_course.slides.deck import read_deck

    for name, path in deck_files(load_course()).items():
        deck = read_deck(path)
        print(f"{name:<28} {len(deck.slides):>2} slides   {deck.title}")


def build(
    decks: Annotated[
        list[str] | None, typer.Argument(metavar="[DECK]...", help="Deck ids, for example D1. [default: all]")
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", metavar="NAME", help="html, pptx or pdf; can be repeated. [default: html]"),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write into.")] = Path("slides"),
) -> None:
    """Build decks as HTML, editable PPTX, or PDF where a Chromium is installed."""
    from paceline_course.content import load_course
    from paceline_course.slides import build as building

    wanted: list[building.Format] = []
    for word in formats or ["html"]:
        if word not in building.FORMATS:
            raise PacelineError(f"there is no format {word}", hint=f"one of {choices(building.FORMATS)}")
        wanted.append(word)

    def tell(said: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{said} ...")
            sys.stderr.flush()

    unchecked = False
    for deck in building.build(load_course(), decks or [], wanted, out, tell):
        tell("")
        print(f"{deck.deck}: {deck.slides} slides, {', '.join(str(path) for path in deck.files)}", flush=True)
        unchecked = unchecked or ("html" in wanted and not deck.checked)
    if unchecked:
        print("whether everything fits was not looked at: that needs a Chromium on PATH")
