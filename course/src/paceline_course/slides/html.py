"""A deck as one HTML file, which needs nothing else: keys, steps, notes, print, light and dark, and a phone's width."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup

from paceline_course.slides.fill import FilledDeck, FilledSlide


def as_html(deck: FilledDeck) -> str:
    """The page."""
    return _template().render(deck=deck, slides=[_slide(slide) for slide in deck.slides])


def markdown() -> MarkdownIt:
    """The Markdown of slides: CommonMark with tables, and no HTML in it."""
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _slide(slide: FilledSlide) -> dict[str, Any]:
    return {
        "number": slide.number,
        "first": slide.number == 1,
        "title": slide.title,
        "text": Markup(markdown().render(slide.text)),
        "figure": Markup(slide.picture.svg) if slide.picture else "",
        "side": slide.side and slide.picture is not None,
        "steps": slide.picture.steps if slide.picture else 0,
        "measured": slide.measured,
        "notes": Markup(markdown().render(slide.notes)),
    }


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(Path(__file__).with_name("deck.html.j2").read_text(encoding="utf-8"))
