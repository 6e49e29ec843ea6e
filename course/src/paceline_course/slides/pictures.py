"""Figures of slides: drawn by matplotlib, once as SVG that follows light and dark, once as PNG."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any

from paceline_course.slides.registry import Drawing

INK = "#101418"
"""The colour of text and lines; in SVG it becomes that of the page."""
GREY = "#808890"
BLUE, RED, GREEN, VIOLET, ORANGE = "#3b7dd8", "#d1495b", "#2f9e6e", "#8a63d2", "#d98324"
COLOURS = (BLUE, RED, GREEN, VIOLET, ORANGE)
_DPI = 200
_STYLE: Any = {
    "svg.fonttype": "none", "svg.hashsalt": "paceline", "font.family": "sans-serif", "font.size": 13,
    "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False, "axes.titlesize": 14,
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none", "lines.linewidth": 2.2,
}  # fmt: skip


@dataclass(frozen=True)
class Canvas:
    """What a figure draws on.

    Attributes:
        figure: matplotlib's, of the size that the slide has room for.
    """

    figure: Any

    def axes(self, rows: int = 1, columns: int = 1, **kwargs: Any) -> Any:
        """As `figure.subplots`."""
        return self.figure.subplots(rows, columns, **kwargs)

    def blank(self, width: float, height: float) -> Any:
        """Axes without ticks and lines, from (0, 0) to (width, height), both of one scale: for drawings."""
        axes = self.figure.subplots()
        axes.set(xlim=(0, width), ylim=(0, height), aspect="equal")
        axes.axis("off")
        return axes

    @staticmethod
    def step(artist: Any, number: int) -> Any:
        """Let an artist appear with the slide's step of this number, from 1."""
        artist.set_gid(f"step-{number}")
        return artist


@dataclass(frozen=True)
class Picture:
    """A figure that was drawn.

    Attributes:
        svg: text, to stand inside a page.
        png: bytes, dark on nothing.
        alt: what it shows.
        steps: after which all of it is seen.
        provenance: of what it shows.
        size: (width, height) in inches.
    """

    svg: str
    png: bytes
    alt: str
    steps: int
    provenance: str
    size: tuple[float, float]


def draw(name: str, drawing: Drawing, *, side: bool) -> Picture:
    """Draw a figure for its place: below the text it is wide, beside it nearly square.

    Args:
        name: of the figure, by which its parts are told from those of other figures on the same page.
        drawing: what draws it.
        side: whether it stands beside the text.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    size = (6.2, 5.0) if side else (11.2, 4.1)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        alt = drawing.draw(Canvas(figure))
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
        figure.savefig(png, format="png", dpi=_DPI)
    text = _for_page(svg.getvalue(), alt, name)
    steps = max((int(number) for number in re.findall(r'data-step="(\d+)"', text)), default=0)
    return Picture(text, png.getvalue(), alt, steps, drawing.provenance, size)


def _for_page(svg: str, alt: str, name: str) -> str:
    """Without the head of a file; ink in the colour of the page; steps as data; a name for those who cannot see.

    Ids get the figure's name: a page has one name space, and a clip of a slide that is not shown clips all away.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = body.replace(INK, "currentColor").replace(INK.upper(), "currentColor")
    body = re.sub(r'<g id="step-(\d+)"', r'<g data-step="\1"', body)
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", body)
    named = alt.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return body.replace("<svg ", f'<svg role="img" aria-label="{named}" ', 1)
