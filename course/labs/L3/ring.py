"""The ring of lab 3, as a row of pictures and as a film."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

Parts = list[list[frozenset[int]]]
"""[rank][chunk]: whose parts of the chunk a rank has added up."""
_WHOLE, _PART, _MOVING = "#2f855a", "#e2e8f0", "#c05621"
_PHASES = ("reduce-scatter", "all-gather")


@dataclass(frozen=True)
class Step:
    """One step of all ranks.

    Attributes:
        phase: its name.
        number: from 1.
        held: before it.
        sent: (world,) the chunk that each rank sends to the next one.
    """

    phase: str
    number: int
    held: Parts
    sent: list[int]

    def after(self) -> Parts:
        """What is held when all have received; a finished chunk replaces what was there."""
        held = [list(row) for row in self.held]
        world = len(held)
        for rank, chunk in enumerate(self.sent):
            right = (rank + 1) % world
            held[right][chunk] = self.held[rank][chunk] | self.held[right][chunk]
        return held


def steps(world: int) -> Iterator[Step]:
    """Those of an all-reduce: the sums come together, then they go round."""
    held: Parts = [[frozenset({rank})] * world for rank in range(world)]
    for phase, first in zip(_PHASES, (-1, 0), strict=True):
        for number in range(world - 1):
            step = Step(phase, number + 1, held, [(rank + first - number) % world for rank in range(world)])
            yield step
            held = step.after()


def pictures(world: int) -> None:
    """The reduce-scatter, step by step: what each rank holds of each chunk."""
    row = [step for step in steps(world) if step.phase == _PHASES[0]]
    _, axes = plt.subplots(1, world, figsize=(2.6 * world, 2.8), layout="constrained")
    for number, axis in enumerate(axes):
        held = row[number].held if number < len(row) else row[-1].after()
        for rank in range(world):
            for chunk in range(world):
                sends = number < len(row) and row[number].sent[rank] == chunk
                _cell(axis, chunk, -rank, held[rank][chunk], world, edge=_MOVING if sends else "white")
        axis.set(xlim=(-0.1, world), ylim=(-world + 0.8, 1.1))
        axis.set_title("begin" if number == 0 else f"after step {number}", fontsize=10)
        places = [each + 0.46 for each in range(world)]
        axis.set_xticks(places, [f"chunk {chunk}" for chunk in range(world)], fontsize=7)
        axis.set_yticks([-each + 0.42 for each in range(world)], [f"rank {each}" for each in range(world)], fontsize=8)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
    plt.show()


def film(world: int, frames: int = 4) -> object:
    """An all-reduce of `world` ranks in motion, as a picture for a notebook. It needs no script and no network.

    Args:
        world: ranks.
        frames: pictures a step.
    """
    from IPython.display import Image
    from matplotlib.animation import FuncAnimation, PillowWriter

    path = list(steps(world))
    figure, axis = plt.subplots(figsize=(5.4, 4.8), dpi=80)
    figure.subplots_adjust(0, 0, 1, 0.92)
    angles = np.pi / 2 - 2 * np.pi * np.arange(world) / world
    places = np.stack([2.6 * np.cos(angles), 2.2 * np.sin(angles)], axis=1)

    def draw(frame: int) -> list[object]:
        number, part = divmod(frame, frames)
        over = number >= len(path)
        step = path[-1] if over else path[number]
        held = step.after() if over else step.held
        axis.clear()
        axis.set(xlim=(-3.9, 3.9), ylim=(-2.9, 3.3))
        axis.axis("off")
        axis.set_title("every rank holds every sum" if over else f"{step.phase}, step {step.number} of {world - 1}")
        for rank, (x, y) in enumerate(places):
            axis.plot(*zip(places[rank], places[(rank + 1) % world], strict=True), color="0.85", zorder=0)
            axis.text(x, y + 0.45, f"rank {rank}", ha="center", fontsize=9)
            for chunk in range(world):
                _cell(axis, *_slot(places[rank], chunk, world), held[rank][chunk], world, scale=0.5)
        for rank, chunk in enumerate([] if over else step.sent):
            there = places[(rank + 1) % world]
            where = places[rank] + (there - places[rank]) * part / frames
            _cell(axis, *_slot(where, chunk, world), held[rank][chunk], world, scale=0.5, edge=_MOVING)
        return []

    hold = 2 * frames  # a while to look at the end
    animation = FuncAnimation(figure, draw, frames=len(path) * frames + hold)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ring.gif"
        animation.save(file, writer=PillowWriter(fps=6))
        picture = Image(data=file.read_bytes(), format="gif")
    plt.close(figure)
    return picture


def _slot(place: np.ndarray, chunk: int, world: int) -> tuple[float, float]:
    """Where a chunk of a rank at this place is drawn."""
    return float(place[0]) + (chunk - world / 2) * 0.5, float(place[1]) - 0.2


def _cell(
    axis: plt.Axes, x: float, y: float, parts: frozenset[int], world: int, *, edge: str = "white", scale: float = 1
) -> None:
    """A chunk: the ranks whose parts are in it; green when it is complete."""
    whole = len(parts) == world
    face = _WHOLE if whole else _PART
    width, height = 0.92 * scale, 0.85 * scale
    axis.add_patch(plt.Rectangle((x, y), width, height, facecolor=face, edgecolor=edge, linewidth=2.5 * scale**0.5))
    text = "".join(str(part) for part in sorted(parts))
    colour = "white" if whole else "black"
    axis.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9 * scale**0.5, color=colour)
