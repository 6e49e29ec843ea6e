"""Colours of the page, declared once for light and dark, and how several runs are told apart.

Runs differ by colour, by dash and by marker, so that neither print in grey nor colour blindness merges two. The
hues keep the order of Okabe and Ito's palette (blue, vermilion, green, purple, ...), darkened on light ground and
lightened on dark until each has a contrast of at least 3 to 1 (WCAG 2.2, 1.4.11); text has at least 4.5 to 1 (1.4.3).
"""

from __future__ import annotations

from dataclasses import dataclass

LIGHT = {
    "paper": "#fcfbf8",
    "panel": "#f4f2ec",
    "ink": "#1d2126",
    "soft": "#59616b",
    "line": "#dedad0",
    "grid": "#eae7de",
    "accent": "#1a5a96",
    "warn": "#8f3a00",
    "run-0": "#1a5a96",
    "run-1": "#c24e00",
    "run-2": "#00795a",
    "run-3": "#a0468c",
    "run-4": "#8a6a00",
    "run-5": "#2f86b7",
    "phase-0": "#8b98a8",
    "phase-1": "#5b9bd0",
    "phase-2": "#1a5a96",
    "phase-3": "#00795a",
    "phase-4": "#c99a1e",
    "phase-5": "#c26a2e",
    "phase-6": "#d3cec2",
}
DARK = {
    "paper": "#15181c",
    "panel": "#1d2126",
    "ink": "#e9e7e2",
    "soft": "#a2a9b2",
    "line": "#343a42",
    "grid": "#272c33",
    "accent": "#83bdf0",
    "warn": "#ffb27a",
    "run-0": "#6fb3ef",
    "run-1": "#ff9a57",
    "run-2": "#4ccba4",
    "run-3": "#e197cf",
    "run-4": "#e0c04a",
    "run-5": "#a8d8f2",
    "phase-0": "#8390a0",
    "phase-1": "#9ccbf3",
    "phase-2": "#4d97db",
    "phase-3": "#4ccba4",
    "phase-4": "#e0c04a",
    "phase-5": "#f0935a",
    "phase-6": "#4a515b",
}

COLOURS = 6
_DASHES = ("", "7 4", "2 3", "8 3 2 3", "12 4", "12 3 2 3 2 3")
_MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
_PATHS = {
    "circle": "M16 8m-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0",
    "square": "M12.7 4.7h6.6v6.6h-6.6z",
    "diamond": "M16 3.4l4.6 4.6l-4.6 4.6l-4.6-4.6z",
    "triangle-up": "M16 3.6l4.4 7.6h-8.8z",
    "cross": "M14.6 3.8h2.8v2.8h2.8v2.8h-2.8v2.8h-2.8v-2.8h-2.8v-2.8h2.8z",
    "x": "M12.9 6.4l1.5-1.5l1.6 1.6l1.6-1.6l1.5 1.5l-1.6 1.6l1.6 1.6l-1.5 1.5l-1.6-1.6l-1.6 1.6l-1.5-1.5l1.6-1.6z",
}


@dataclass(frozen=True)
class Look:
    """How one run is drawn."""

    colour: int
    """Index of a `run-N` colour."""
    dash: str
    """SVG's stroke-dasharray, empty for a solid line."""
    marker: str
    """Plotly's name."""
    path: str
    """The marker as an SVG path in a box of 32 x 16."""


def look(index: int) -> Look:
    """The look of the run at that place; no two of the first 36 have colour and dash in common."""
    turn = index // COLOURS
    marker = _MARKERS[(index + turn) % len(_MARKERS)]
    return Look(index % COLOURS, _DASHES[(index + turn) % len(_DASHES)], marker, _PATHS[marker])


def stylesheet_variables() -> str:
    """CSS that sets every colour: light, dark by the system's wish, either by choice, and light on paper."""
    light = _block(LIGHT)
    dark = _block(DARK)
    return (
        f":root {{ color-scheme: light; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {dark} }} }}\n"
        f":root[data-theme=light] {{ color-scheme: light; {light} }}\n"
        f":root[data-theme=dark] {{ color-scheme: dark; {dark} }}\n"
        f"@media print {{ :root, :root[data-theme] {{ color-scheme: light; {light} }} }}\n"
    )


def _block(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colours.items())
