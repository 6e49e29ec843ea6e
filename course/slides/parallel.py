"""What the drawings of decks D3 and D5 are made with, and the names of their records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from paceline_course.slides.pictures import BLUE, GREY, INK, ORANGE, VIOLET, Canvas

THROUGHPUT, SPEED, TO_ACCURACY = "2026-11-28_throughput", "2026-11-28_plan_speed", "2026-11-28_time_to_accuracy"
LIGHT, HEAVY = "8 ms + 0.5 ms a sample, 4 MB", "20 ms + 0.2 ms a sample, 32 MB"
BATCHES = (64, 128, 512)
RANKS = (BLUE, ORANGE, VIOLET)
"""A colour for each of three ranks."""


@dataclass(frozen=True)
class Board:
    """Axes in inches, on which boxes, arrows and words are put.

    Attributes:
        canvas: for steps.
        axes: matplotlib's.
    """

    canvas: Canvas
    axes: Any

    @classmethod
    def wide(cls, canvas: Canvas) -> Board:
        """For a figure below the text."""
        return cls(canvas, canvas.blank(11.2, 4.1))

    @classmethod
    def square(cls, canvas: Canvas) -> Board:
        """For a figure beside the text."""
        return cls(canvas, canvas.blank(6.2, 5.0))

    def box(
        self, where: tuple[float, float, float, float], text: str = "", *, colour: str = GREY, size: float = 13,
        fill: float = 0.22, step: int = 0, bold: bool = False, dashed: bool = False,
    ) -> None:  # fmt: skip
        """A box with words in its middle; `where` is x and y of its lower left corner, width and height."""
        x, y, width, height = where
        frame = FancyBboxPatch(
            (x, y), width, height, boxstyle="round,pad=0,rounding_size=0.06", linewidth=1.6,
            facecolor=(*_rgb(colour), fill), edgecolor=colour, linestyle="--" if dashed else "-",
        )  # fmt: skip
        self._add(frame, step)
        if text:
            self.words((x + width / 2, y + height / 2), text, size=size, step=step, bold=bold)

    def words(
        self, at: tuple[float, float], text: str, *, size: float = 13, step: int = 0, bold: bool = False,
        colour: str = INK, ha: str = "center", va: str = "center",
    ) -> None:  # fmt: skip
        """Words at x and y."""
        weight = "bold" if bold else "normal"
        said = self.axes.text(*at, text, ha=ha, va=va, fontsize=size, weight=weight, color=colour, linespacing=1.15)
        if step:
            self.canvas.step(said, step)

    def arrow(
        self, begin: tuple[float, float], end: tuple[float, float], *, colour: str = GREY, step: int = 0,
        style: str = "-|>", bend: float = 0.0, dotted: bool = False,
    ) -> None:  # fmt: skip
        """An arrow, straight or bent."""
        self._add(
            FancyArrowPatch(
                begin, end, arrowstyle=style, mutation_scale=16, color=colour, linewidth=2, shrinkA=0, shrinkB=0,
                connectionstyle=f"arc3,rad={bend}", linestyle=":" if dotted else "-",
            ),
            step,
        )  # fmt: skip

    def line(
        self, begin: tuple[float, float], end: tuple[float, float], *, colour: str = GREY, width: float = 0.8,
        step: int = 0,
    ) -> None:  # fmt: skip
        """A thin line."""
        (drawn,) = self.axes.plot(*zip(begin, end, strict=True), color=colour, linewidth=width)
        if step:
            self.canvas.step(drawn, step)

    def _add(self, artist: Any, step: int) -> None:
        self.axes.add_patch(artist)
        if step:
            self.canvas.step(artist, step)


def _rgb(colour: str) -> tuple[float, float, float]:
    return int(colour[1:3], 16) / 255, int(colour[3:5], 16) / 255, int(colour[5:7], 16) / 255
