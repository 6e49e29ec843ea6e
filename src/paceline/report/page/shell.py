"""What every page is made in: one HTML file with its style, its script, its data and Plotly, nothing from the network.

What comes from a run is escaped by Jinja, or travels as JSON in which no character can end a script element. The
page's content security policy allows exactly the scripts written here, by their hashes, and no request at all; so
even a mistake in the escaping could neither run nor send anything.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from paceline import __version__
from paceline.records.errors import PacelineError
from paceline.records.rundir import write_atomic
from paceline.report.page.theme import stylesheet_variables

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Parts:
    """Files of one kind of page, in its folder; `frame.*`, `parts.html.j2` and `page.css` of this folder are shared.

    Attributes:
        folder: where they are.
        template: extends `frame.html.j2`.
        script: runs after `frame.js`, which it uses.
        style: added to `page.css`; empty for none.
        kind: one word in the page's head.
    """

    folder: Path
    template: str
    script: str
    style: str = ""
    kind: str = "report"


def render(parts: Parts, title: str, data: object, **context: Any) -> str:
    """One self-contained page.

    Args:
        parts: what it is made of.
        title: text.
        data: what its script gets, as JSON.
        context: what its template gets; text in it is escaped.
    """
    script = "\n".join(_read(path) for path in (_HERE / "frame.js", parts.folder / parts.script))
    styles = [_HERE / "page.css"] + ([parts.folder / parts.style] if parts.style else [])
    scripts = [plotly_script(), script]
    return template(parts).render(
        title=title,
        kind=parts.kind,
        version=__version__,
        policy=policy(scripts),
        style=Markup(stylesheet_variables() + "".join(_read(path) for path in styles)),
        scripts=[Markup(script) for script in scripts],
        data=Markup(safe_json(data)),
        **context,
    )


@functools.cache
def template(parts: Parts) -> jinja2.Template:
    """The compiled template of a page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([parts.folder, _HERE]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(parts.template)


def write_html(html: str, path: Path) -> None:
    """Write a page whole or not at all.

    Raises:
        PacelineError: it cannot be written; an older page of that name is untouched.
    """
    try:
        # Names in a file system need not be text; what cannot be encoded is shown as a question mark.
        write_atomic(path, html.encode(errors="replace"))
    except PacelineError as error:
        hint = "paceline report RUN --output FILE writes the page elsewhere"
        raise PacelineError(error.what, why=error.why, hint=hint, exit_code=error.exit_code) from error


def safe_json(value: object) -> str:
    """JSON that can stand in a script element whatever text is in it."""
    # Inside a script element only `<` matters, but `>` and `&` cost nothing and spare the next reader the proof.
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def policy(scripts: Sequence[str]) -> str:
    """A content security policy: these scripts, inline styles, pictures that they make, and nothing else."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@functools.cache
def plotly_script() -> str:
    """Plotly's own script, whole."""
    # Read as a file: importing plotly takes a second, and only its script is wanted.
    import importlib.util

    found = importlib.util.find_spec("plotly")
    assert found is not None
    assert found.origin is not None
    script = (Path(found.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    if "</script" in script.lower():
        raise RuntimeError("this version of plotly's script cannot stand in a page")
    # A carriage return would be changed by the HTML parser, and the script's hash with it.
    return script.replace("\r\n", "\n").replace("\r", "\n")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
