"""The frame of this kit's pages: one HTML file in the colours of the reports, with as little script as may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from paceline import __version__
from paceline.report.page import shell
from paceline.report.page.theme import stylesheet_variables

_HERE = Path(__file__).parent
_SHARED = Path(shell.__file__).parent


def render(template: str, title: str, *, style: str = "class.css", script: str = "", **context: Any) -> str:
    """One self-contained page; whatever is in the context is escaped.

    Args:
        template: in this folder; extends `frame_class.html.j2`.
        title: text.
        style: added to that of all pages.
        script: in this folder, run after the switch between light and dark; empty for none.
        context: what the template gets.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([_HERE, _SHARED]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    scripts = [_read(_HERE / name) for name in ("theme.js", script) if name]
    styles = stylesheet_variables() + _read(_SHARED / "page.css") + _read(_HERE / style)
    return environment.get_template(template).render(
        title=title,
        version=__version__,
        policy=shell.policy(scripts),
        style=Markup(styles),
        scripts=[Markup(text) for text in scripts],
        **context,
    )


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
