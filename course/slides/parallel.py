"""Decks D3 and D5: drawings of data and model parallelism, of a training step and of DDP; what its exchange costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from paceline.learn.slides.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, VIOLET, Canvas
from paceline.learn.slides.registry import Record, figure, value

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
        self, x: float, y: float, width: float, height: float, text: str = "", *, colour: str = GREY, size: float = 13,
        fill: float = 0.22, step: int = 0, bold: bool = False, dashed: bool = False,
    ) -> None:  # fmt: skip
        """A box from its lower left corner, with words in its middle."""
        frame = FancyBboxPatch(
            (x, y), width, height, boxstyle="round,pad=0,rounding_size=0.06", linewidth=1.6,
            facecolor=(*_rgb(colour), fill), edgecolor=colour, linestyle="--" if dashed else "-",
        )  # fmt: skip
        self._add(frame, step)
        if text:
            self.words(x + width / 2, y + height / 2, text, size=size, step=step, bold=bold)

    def words(
        self, x: float, y: float, text: str, *, size: float = 13, step: int = 0, bold: bool = False,
        colour: str = INK, ha: str = "center", va: str = "center",
    ) -> None:  # fmt: skip
        """Words at a place."""
        weight = "bold" if bold else "normal"
        said = self.axes.text(x, y, text, ha=ha, va=va, fontsize=size, weight=weight, color=colour, linespacing=1.15)
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


# D3: two wishes, two ways


@figure("parallel-two-wishes")
def two_wishes(canvas: Canvas) -> str:
    """Work that takes too long is shared out; a model that is too large is cut."""
    board = Board.wide(canvas)
    board.words(2.6, 3.9, "It takes too long", size=16, bold=True)
    board.box(0.2, 2.95, 4.8, 0.5, "all samples, one device", colour=BLUE)
    for device in range(3):
        y = 1.75 - 0.6 * device
        board.box(0.2, y, 1.6, 0.45, colour=RANKS[device], step=1)
        board.words(2.0, y + 0.22, f"a third of them, device {device}", step=1, ha="left")
    board.arrow((0.2, 0.2), (5.0, 0.2))
    board.words(5.15, 0.2, "time", ha="left")
    board.words(8.8, 3.9, "It does not fit", size=16, bold=True)
    board.box(6.6, 2.2, 2.1, 0.95, colour=GREY, fill=0.06, dashed=True)
    board.words(7.65, 3.35, "memory of one device", size=13)
    board.box(6.75, 2.35, 4.2, 0.65, "a large model", colour=RED)
    for part in range(2):
        x = 6.6 + 2.35 * part
        board.box(x, 0.75, 2.1, 0.95, "", colour=GREY, fill=0.06, dashed=True, step=2)
        board.box(x + 0.15, 0.9, 1.8, 0.65, f"part {part + 1}", colour=GREEN, step=2)
        board.words(x + 1.05, 0.45, f"device {part}", step=2)
    return (
        "Left: a long bar of samples on one device becomes three short bars on three devices. Right: a model that "
        "sticks out of a device's memory becomes two parts in the memories of two devices"
    )


def _layers(board: Board, x: float, y: float, numbers: Sequence[int], colours: Sequence[str], step: int = 0) -> None:
    for place, (number, colour) in enumerate(zip(numbers, colours, strict=True)):
        board.box(x + 0.95 * place, y, 0.8, 0.9, f"layer\n{number}", colour=colour, step=step, size=12)


@figure("parallel-replicas")
def replicas(canvas: Canvas) -> str:
    """Two devices with the whole model each, other samples, and gradients between them."""
    board = Board.wide(canvas)
    for device, y in ((0, 2.45), (1, 0.25)):
        board.box(3.0, y, 5.0, 1.45, "", colour=GREY, fill=0.05, dashed=True)
        board.words(3.1, y + 1.27, f"device {device}: the whole model", ha="left", size=13, bold=True)
        _layers(board, 3.65, y + 0.12, (1, 2, 3, 4), (BLUE,) * 4)
        board.box(0.3, y + 0.25, 1.9, 0.7, ("first half\nof the batch", "second half\nof the batch")[device],
                  colour=RANKS[device])  # fmt: skip
        board.arrow((2.25, y + 0.6), (3.55, y + 0.6), colour=RANKS[device], step=1)
        board.arrow((7.45, y + 0.6), (8.75, y + 0.6), colour=RANKS[device], step=1)
        board.box(8.85, y + 0.25, 1.9, 0.7, "gradient of\nits half", colour=RANKS[device], step=1)
    board.arrow((9.8, 1.25), (9.8, 2.65), colour=GREEN, step=2, style="<|-|>")
    board.words(9.65, 1.95, "averaged: each gets the mean", ha="right", size=13, step=2, bold=True)
    board.words(5.5, 1.95, "same weights, before and after", size=13, step=3, ha="right")
    return (
        "Two devices hold the same four layers. Each computes the gradient of its half of the batch; the two "
        "gradients are averaged, so both update to the same weights"
    )


@figure("parallel-stages")
def split(canvas: Canvas) -> str:
    """Two devices with two layers each, the whole batch, and activations between them."""
    board = Board.wide(canvas)
    for device, x in ((0, 2.6), (1, 7.0)):
        board.box(x, 1.2, 2.4, 1.9, "", colour=GREY, fill=0.05, dashed=True)
        board.words(x + 1.2, 2.85, f"device {device}", size=13, bold=True)
        _layers(board, x + 0.33, 1.5, (1, 2) if not device else (3, 4), (BLUE, BLUE) if not device else (ORANGE,) * 2)
    board.box(0.2, 1.6, 1.55, 0.7, "the whole\nbatch", colour=GREY)
    board.arrow((1.8, 1.95), (2.5, 1.95), step=1)
    board.arrow((5.05, 2.35), (6.95, 2.35), colour=GREEN, step=2)
    board.words(6.0, 2.65, "activations", size=13, step=2, bold=True)
    board.arrow((9.45, 1.95), (9.9, 1.95), step=3)
    board.box(9.95, 1.65, 0.95, 0.6, "loss", colour=GREY, step=3)
    board.arrow((6.95, 1.6), (5.05, 1.6), colour=RED, step=4)
    board.words(6.0, 1.28, "gradients\nof activations", size=13, step=4, bold=True, va="top")
    board.words(3.8, 0.85, "has its own weights,\nupdates them alone", size=12.5, step=5, va="top")
    board.words(8.2, 0.85, "has other weights,\nupdates them alone", size=12.5, step=5, va="top")
    board.words(5.6, 3.65, "while one computes, the other waits", size=14, step=6)
    return (
        "Device 0 has layers 1 and 2, device 1 has layers 3 and 4. The whole batch goes into device 0; activations "
        "go on to device 1, and their gradients come back"
    )


# D3: the numbered stages, as in lab 7

STAGES = (
    "read\nsamples", "decode\nthem", "move to\nthe device", "augment,\nnormalise", "queue\nthe batch",
    "forward:\nfirst layers", "forward:\nlast layers", "loss", "backward: last,\nthen first layers",
    "average:\nno others", "clip", "update\nweights", "schedule\nthe rate", "log",
    "next step:\ncontrol returns",
)  # fmt: skip
"""Stage 1 and on, with the numbers of lab 7."""
_SLOTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10, 11, 12, 13, 14, 15)
"""Which stage each place in time belongs to: backward has two, one for the last layers and one for the first."""
_HOST = (1, 2, 13, 14, 15)
_LEFT, _SLOT = 1.05, 0.625


def _x(slot: int) -> float:
    return _LEFT + _SLOT * slot


@figure("parallel-step-one")
def step_one(canvas: Canvas) -> str:
    """A step on one device, stage by stage."""
    board = Board.wide(canvas)
    host, device = 2.45, 1.35
    for y, name in ((host, "host"), (device, "device")):
        board.words(0.1, y + 0.27, name, ha="left", size=14, bold=True)
        board.line((_LEFT, y - 0.1), (11.1, y - 0.1))
    for slot, stage in enumerate(_SLOTS):
        x, on_host = _x(slot), stage in _HOST
        y, colour = (host, BLUE) if on_host else (device, ORANGE)
        height = 0.55
        if stage == 3:
            y, height, colour = device, host - device + 0.55, VIOLET
        if stage == 10:
            colour = GREEN
        board.box(x + 0.03, y, _SLOT - 0.06, height, str(stage), colour=colour, step=stage, size=15, bold=True,
                  dashed=stage == 10, fill=0.0 if stage == 10 else 0.25)  # fmt: skip
    for stage, name in enumerate(STAGES, start=1):
        slots = [slot for slot, of in enumerate(_SLOTS) if of == stage]
        x = _x(slots[0]) + _SLOT * len(slots) / 2
        if stage == 15:
            board.words(11.08, host - 0.2, name, size=12.5, step=stage, ha="right", va="top")
            continue
        far = stage in (2, 5, 7, 9, 11, 14)
        up = stage in _HOST or stage == 3
        y = (3.1 + 0.55 * far) if up else (1.18 - 0.6 * far)
        board.words(x, y, name, size=12.5, step=stage, va="bottom" if up else "top")
        if far:
            board.line((x, 3.05 if up else 1.24), (x, 3.62 if up else 0.62), step=stage)
    middle = (_x(3) + _x(13)) / 2
    board.words(middle, host + 0.27, "queues the work of the device, and may run ahead", size=12.5, step=6)
    return (
        "Fifteen numbered stages in time. On the host: read, decode; then to the device: move, augment, queue, "
        "forward of first and last layers, loss, backward of last and first layers, clip, update; on the host again: "
        "schedule, log, next step. The place of stage 10, averaging gradients, is empty"
    )


@figure("parallel-step-three")
def step_three(canvas: Canvas) -> str:
    """The same stages on three devices, with the exchange in two pieces, of which one is hidden."""
    board = Board.wide(canvas)
    # What appears with which key: data, forward, backward and exchange piece by piece, update, host.
    steps = (1, 1, 1, 1, 1, 2, 2, 2, 3, 4, 5, 6, 6, 7, 7, 7)
    lanes = [2.75 - 0.75 * device for device in range(3)]
    for device, y in enumerate(lanes):
        board.words(0.0, y + 0.28, f"device {device}", ha="left", size=13, bold=True)
    board.words(0.0, 0.37, "between\nthem", ha="left", size=13, bold=True)
    for slot, stage in enumerate(_SLOTS):
        x = _x(slot)
        colour = BLUE if stage in _HOST else VIOLET if stage == 3 else GREY if stage == 10 else ORANGE
        for y in lanes:
            text = "wait" if stage == 10 else str(stage)
            board.box(x + 0.03, y, _SLOT - 0.06, 0.55, text, colour=colour, step=steps[slot], dashed=stage == 10,
                      size=11 if stage == 10 else 15, bold=stage != 10, fill=0.0 if stage == 10 else 0.25)  # fmt: skip
    for piece, slot in enumerate((9, 10)):
        x = _x(slot)
        board.box(x + 0.03, 0.1, _SLOT - 0.06, 0.55, "10", colour=GREEN, step=4 + piece, size=15, bold=True, fill=0.4)
        for y in (0.68, 1.8, 2.55):
            top = {0.68: lanes[2], 1.8: lanes[1], 2.55: lanes[0]}[y]
            board.arrow((x, top), (x, y), colour=GREEN, step=4 + piece, style="-", dotted=True)
    for first, last, name, step in ((0, 4, "data", 1), (5, 7, "forward", 2), (8, 9, "backward", 3),
                                    (11, 12, "update", 6), (13, 15, "host", 7)):  # fmt: skip
        board.words((_x(first) + _x(last + 1)) / 2, 3.5, name, size=14, step=step, va="baseline")
    board.words(
        _x(9) - 0.15, 0.37, "gradients of the last layers:\nhidden behind backward", ha="right", size=13, step=4
    )
    board.words(_x(11) + 0.15, 0.37, "gradients of the first layers:\nall wait for them", ha="left", size=13, step=5)
    return (
        "Three devices go through the same stages side by side, each with samples of its own. Gradients of the last "
        "layers are averaged while backward goes on with the first layers; the average of the first layers is waited "
        "for by all; then each updates its own copy"
    )


@figure("parallel-late")
def late(canvas: Canvas) -> str:
    """Three devices over three steps, of which one is slower."""
    board = Board.square(canvas)
    board.line((0.95, 0.45), (6.1, 0.45), colour=INK, width=1.2)
    board.words(6.1, 0.2, "time", ha="right", size=13)
    for device in range(3):
        y = 3.5 - 1.15 * device
        board.words(0.0, y + 0.35, f"device\n{device}", ha="left", size=13, bold=True)
        for step in range(3):
            x = 0.95 + 1.72 * step
            width = (0.95, 1.4, 0.85)[device]
            board.box(x, y, width, 0.7, "computes" if device == 1 else "", colour=ORANGE, size=12.5)
            if device != 1:
                board.box(x + width + 0.03, y, 1.4 - width - 0.03, 0.7, "wait", colour=GREY, dashed=True, fill=0.0,
                          size=11.5, step=1)  # fmt: skip
    for step in range(3):
        x = 0.95 + 1.72 * step + 1.4 + 0.04
        board.box(x, 0.95, 0.24, 3.5, "10", colour=GREEN, size=11.5, fill=0.4)
    board.words(3.5, 4.75, "one is slow: all are", size=15, bold=True, step=1)
    return (
        "Three devices over three steps: device 1 computes longest, and the other two wait for it before each exchange"
    )


@figure("parallel-which")
def which(canvas: Canvas) -> str:
    """Questions in order, and what follows from each answer."""
    board = Board.wide(canvas)
    rows = (
        ("Does it fit\non one device?", "replicas", "each device works all the time", BLUE),
        ("Only with less state\nand fewer gradients?", "sharded replicas", "more messages, same samples", VIOLET),
        ("Neither", "a cut model", "devices wait for each other", ORANGE),
    )
    for place, (question, answer, price, colour) in enumerate(rows):
        y = 3.05 - 1.4 * place
        step = place
        board.box(0.1, y, 3.1, 0.9, question, colour=GREY, fill=0.06, size=14, step=step)
        board.arrow((3.25, y + 0.45), (4.45, y + 0.45), step=step)
        if place < 2:
            board.words(3.8, y + 0.68, "yes", size=13, step=step)
        board.box(4.5, y, 2.5, 0.9, answer, colour=colour, size=15, bold=True, step=step)
        board.words(7.3, y + 0.45, price, ha="left", size=14, step=step)
        if place < 2:
            board.arrow((1.65, y - 0.04), (1.65, y - 0.46), step=step + 1)
            board.words(1.85, y - 0.25, "no", ha="left", size=13, step=step + 1)
    return (
        "If it fits on one device: replicas. If not, but it would with less state and fewer gradients: sharded "
        "replicas. If neither: a cut model, whose devices wait for each other"
    )


# D3: bytes

FEATURES, HIDDEN, CLASSES = 64, 256, 10
"""The network that lab 7 cuts in two."""


@figure("parallel-bytes")
def bytes_of_a_step(canvas: Canvas) -> str:
    """What two devices send in a step, by the batch, for lab 7's network as replicas and as two parts."""
    parameters = (FEATURES + 1) * HIDDEN + (HIDDEN + 1) * CLASSES
    batches = 2.0 ** np.arange(2, 11)
    axes = canvas.axes()
    axes.plot(batches, np.full(len(batches), 4 * parameters / 1e3), "o-", color=BLUE)
    axes.plot(batches, 2 * 4 * HIDDEN * batches / 1e3, "s-", color=ORANGE)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel="samples in the batch", ylabel="kB a step, computed", xlim=(3.5, 2600))
    axes.set_xticks(batches, [f"{batch:.0f}" for batch in batches])
    axes.text(1150, 4 * parameters / 1e3, "two replicas:\ngradients", color=BLUE, va="center", fontsize=14)
    axes.text(1150, 2 * 4 * HIDDEN * 1024 / 1e3, "two parts:\nactivations", color=ORANGE, va="center", fontsize=14)
    return (
        "Kilobytes a step over the batch: constant for replicas, in proportion to the batch for two parts; the lines "
        "cross below a batch of 64"
    )


# D3: measured


def _rate(record: Record, world: int, batch: int, who: str) -> float:
    """Samples a second of all workers together, the median of its blocks."""
    cell = next(cell for cell in record.result["cells"] if (cell["world"], cell["batch"]) == (world, batch))
    return float(median(cell["contestants"][who]["images_per_s"]))


def _efficiency(record: Record, batch: int) -> float:
    return _rate(record, 2, batch, "hand") / (2 * _rate(record, 1, batch, "hand"))


def _exchange(record: Record, batch: int) -> tuple[float, float]:
    """Milliseconds of a step of two workers without synchronisation, and what it adds."""
    alone, together = (2e3 * batch / _rate(record, 2, batch, who) for who in ("limit-no-sync", "limit"))
    return alone, together - alone


@value("parallel.efficiency.64", THROUGHPUT)
def efficiency_64(record: Record) -> str:
    """Weak scaling of the hand-written loop, small batch."""
    return f"{_efficiency(record, 64):.0%}"


@value("parallel.efficiency.512", THROUGHPUT)
def efficiency_512(record: Record) -> str:
    """Weak scaling of the hand-written loop, large batch."""
    return f"{_efficiency(record, 512):.0%}"


@value("parallel.exchange.64", THROUGHPUT)
def exchange_64(record: Record) -> str:
    """Its share of a step, small batch."""
    alone, added = _exchange(record, 64)
    return f"{added / (alone + added):.0%}"


@value("parallel.exchange.512", THROUGHPUT)
def exchange_512(record: Record) -> str:
    """Its share of a step, large batch."""
    alone, added = _exchange(record, 512)
    return f"{added / (alone + added):.0%}"


@figure("parallel-rates", THROUGHPUT)
def rates(canvas: Canvas, record: Record) -> str:
    """Samples a second of one and of two workers, by the batch of a worker."""
    axes = canvas.axes()
    for place, batch in enumerate(BATCHES):
        one, two = (_rate(record, world, batch, "hand") for world in (1, 2))
        axes.bar(place - 0.2, one, 0.36, color=BLUE, label="one worker" if not place else None)
        axes.bar(place + 0.2, two, 0.36, color=ORANGE, label="two workers" if not place else None)
        axes.plot([place + 0.0, place + 0.4], [2 * one, 2 * one], color=INK, linewidth=1.6, linestyle="--",
                  label="twice one worker" if not place else None)  # fmt: skip
        axes.text(place + 0.2, 0.5 * two, f"{_efficiency(record, batch):.0%}", ha="center", va="center", fontsize=15,
                  weight="bold")  # fmt: skip
    axes.set_xticks(range(3), [f"{batch} samples a worker" for batch in BATCHES])
    axes.set(ylabel="samples a second, all together", xlim=(-0.6, 4.0))
    axes.legend(loc="center right", fontsize=13)
    shares = ", ".join(f"{_efficiency(record, batch):.0%} at {batch}" for batch in BATCHES)
    return (
        f"Samples a second of one and two workers beside twice the rate of one; efficiency: {shares} samples a worker"
    )


@figure("parallel-exchange", THROUGHPUT)
def exchange(canvas: Canvas, record: Record) -> str:
    """A step of two workers without synchronisation, and what synchronising adds."""
    axes = canvas.axes()
    for place, batch in enumerate(BATCHES):
        alone, added = _exchange(record, batch)
        axes.barh(2 - place, alone, 0.55, color=ORANGE, label="without exchange" if not place else None)
        axes.barh(2 - place, added, 0.55, left=alone, color=GREEN, label="exchange adds" if not place else None)
        axes.text(alone + added + 2, 2 - place, f"+ {added:.1f} ms: {added / (alone + added):.0%} of the step",
                  va="center", fontsize=14)  # fmt: skip
    axes.set_yticks([2, 1, 0], [f"{batch} samples" for batch in BATCHES])
    axes.set(xlabel="ms a step, two workers", xlim=(0, 215), ylim=(-0.5, 2.9))
    axes.legend(loc="upper right", ncols=2, fontsize=13)
    return (
        "Time of a step of two workers for three batches; the exchange adds nearly the same to each, so its share falls"
    )


def _probed(record: Record) -> list[tuple[int, float, float]]:
    """(ranks, bytes, seconds) of the all-reduces that the probe timed."""
    return [
        (int(ranks), float(size), float(s)) for ranks, size, s in record.result["scenes"][LIGHT]["network"]["probed"]
    ]


def _probed_s(record: Record, ranks: int, largest: bool) -> float:
    times = {size: s for count, size, s in _probed(record) if count == ranks}
    return times[max(times) if largest else min(times)]


@value("parallel.all-reduce.smallest", SPEED)
def all_reduce_smallest(record: Record) -> str:
    """Two ranks, 4 kB."""
    return f"{1e3 * _probed_s(record, 2, False):.1f} ms"


@value("parallel.all-reduce.largest", SPEED)
def all_reduce_largest(record: Record) -> str:
    """Two ranks, 134 MB."""
    return f"{1e3 * _probed_s(record, 2, True):.0f} ms"


@figure("parallel-all-reduce", SPEED)
def all_reduce(canvas: Canvas, record: Record) -> str:
    """Time of an all-reduce by its size, between two, three and four processes."""
    axes = canvas.axes()
    for ranks, colour, mark in ((2, BLUE, "o"), (3, ORANGE, "s"), (4, VIOLET, "^")):
        found = [(size, 1e3 * s) for count, size, s in _probed(record) if count == ranks]
        axes.loglog(*zip(*found, strict=True), f"{mark}-", color=colour, label=f"{ranks} processes", base=10)
    axes.set(xlabel="bytes of the tensor", ylabel="ms an all-reduce")
    axes.legend(fontsize=14)
    return (
        "Milliseconds of an all-reduce over bytes, for two, three and four processes: flat up to about a megabyte, "
        "then in proportion to the bytes"
    )


def _weak(record: Record, scene: str, micro: int) -> dict[int, float]:
    """Efficiency by workers, with the same samples on each; one worker is the base."""
    rows = {row["workers"]: row["measured"] for row in record.result["scenes"][scene]["rows"] if row["micro"] == micro}
    return {workers: rows[1] / seconds for workers, seconds in sorted(rows.items())}


@value("parallel.weak.light", SPEED)
def weak_light(record: Record) -> str:
    """Four workers of 512 samples, 4 MB of gradients."""
    return f"{_weak(record, LIGHT, 512)[4]:.0%}"


@value("parallel.weak.heavy", SPEED)
def weak_heavy(record: Record) -> str:
    """Four workers of 512 samples, 32 MB of gradients."""
    return f"{_weak(record, HEAVY, 512)[4]:.0%}"


@figure("parallel-weak", SPEED)
def weak(canvas: Canvas, record: Record) -> str:
    """Efficiency of one, two and four workers, for little and much to exchange."""
    for axes, scene, name in zip(canvas.axes(1, 2, sharey=True), (LIGHT, HEAVY), ("4 MB", "32 MB"), strict=True):
        for micro, colour, mark in ((512, BLUE, "o"), (1024, ORANGE, "s"), (2048, VIOLET, "^")):
            found = _weak(record, scene, micro)
            axes.plot(list(found), list(found.values()), f"{mark}-", color=colour, label=f"{micro} samples a worker")
        axes.axhline(1, color=GREY, linewidth=1, linestyle="--")
        axes.set(title=f"{name} of gradients", xlabel="workers", ylim=(0, 1.08))
        axes.set_xticks([1, 2, 4])
    canvas.figure.axes[0].set_ylabel("efficiency")
    canvas.figure.axes[0].legend(fontsize=13, loc="lower left")
    return (
        "Efficiency of one, two and four workers: near one where 4 MB are exchanged, falling where 32 MB are, and the "
        "less the more samples a worker has"
    )


def _rows(record: Record) -> list[Any]:
    return [row for scene in record.result["scenes"].values() for row in scene["rows"]]


@value("parallel.plan.error", SPEED)
def plan_error(record: Record) -> str:
    """Median error of predicted steps."""
    return f"{median(abs(row['predicted'] / row['measured'] - 1) for row in _rows(record)):.1%}"


@value("parallel.plan.worst", SPEED)
def plan_worst(record: Record) -> str:
    """Largest error of predicted steps."""
    return f"{max(abs(row['predicted'] / row['measured'] - 1) for row in _rows(record)):.0%}"


@value("parallel.plan.perfect", SPEED)
def plan_perfect(record: Record) -> str:
    """Largest error of perfect scaling."""
    return f"{max(abs(row['perfect'] / row['measured'] - 1) for row in _rows(record)):.0%}"


@value("parallel.plan.inside", SPEED)
def plan_inside(record: Record) -> str:
    """How many measured times lie in their interval."""
    rows = _rows(record)
    return f"{sum(row['low'] <= row['measured'] <= row['high'] for row in rows)} of {len(rows)}"


@figure("parallel-plan", SPEED)
def plan(canvas: Canvas, record: Record) -> str:
    """Predicted against measured steps, and what perfect scaling would say."""
    axes = canvas.axes()
    rows = _rows(record)
    measured = [1e3 * row["measured"] for row in rows]
    axes.loglog([18, 1400], [18, 1400], color=GREY, linewidth=1.2, linestyle="--", label="equal")
    axes.loglog(measured, [1e3 * row["perfect"] for row in rows], "x", color=RED, markersize=8, markeredgewidth=2,
                label="perfect scaling")  # fmt: skip
    axes.loglog(measured, [1e3 * row["predicted"] for row in rows], "o", color=BLUE, markersize=8, label="plan speed")
    axes.set(xlabel="measured, ms a step", ylabel="predicted, ms a step")
    axes.legend(fontsize=14)
    return "Predicted over measured step times: plan speed lies near the diagonal, perfect scaling below it"


def _to_accuracy(record: Record, who: str) -> list[float]:
    found = next(row for row in record.result["summary"] if (row["target"], row["contestant"]) == (0.9, who))
    return [float(seconds) for seconds in found["total_s"]["values"]]


@value("parallel.to-accuracy.tutorial", TO_ACCURACY)
def to_accuracy_tutorial(record: Record) -> str:
    """Median seconds."""
    return f"{median(_to_accuracy(record, 'tutorial')):.0f} s"


@value("parallel.to-accuracy.paceline", TO_ACCURACY)
def to_accuracy_paceline(record: Record) -> str:
    """Median seconds."""
    return f"{median(_to_accuracy(record, 'paceline')):.0f} s"


@figure("parallel-to-accuracy", TO_ACCURACY)
def to_accuracy(canvas: Canvas, record: Record) -> str:
    """Seconds to the target of every seed, for two programs on the same two workers."""
    axes = canvas.axes()
    for place, (who, name, colour) in enumerate(
        (("paceline", "prepared data,\nbf16", BLUE), ("tutorial", "samples decoded\none by one, fp32", ORANGE))
    ):
        seconds = _to_accuracy(record, who)
        axes.plot(seconds, [1 - place] * len(seconds), "o", color=colour, markersize=11, alpha=0.6)
        axes.plot([median(seconds)] * 2, [0.75 - place, 1.25 - place], color=colour, linewidth=4)
        axes.text(median(seconds), 1.36 - place, f"{median(seconds):.0f} s", ha="center", fontsize=15)
        axes.text(-3, 1 - place, name, ha="right", va="center", fontsize=14)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set(xlabel="seconds to an accuracy of 0.90, two workers; every dot a seed, the bar their median",
             xlim=(0, 180), ylim=(-0.5, 1.65))  # fmt: skip
    return "Seconds to the target: five seeds of each program; the one that decodes samples one by one needs far longer"


# D3: pipelines and shards


@figure("parallel-pipeline")
def pipeline(canvas: Canvas) -> str:
    """Three stages: with the whole batch, and with four micro-batches."""
    board = Board.wide(canvas)
    devices, micro, unit, left = 3, 4, 0.4, 1.15
    height = 0.42
    for top, cut, name in ((3.65, False, "one batch"), (1.75, True, "four micro-batches")):
        board.words(left, top + 0.18, name, ha="left", size=14, bold=True, step=2 if cut else 0)
        for device in range(devices):
            y = top - 0.1 - (device + 1) * (height + 0.05)
            board.words(0.0, y + height / 2, f"device {device}", ha="left", size=13, step=2 if cut else 0)
            if cut:
                ahead = [(device + part, str(part + 1), BLUE) for part in range(micro)]
                total = micro + devices - 1
                back = [(total + devices - 1 - device + part, str(micro - part), ORANGE) for part in range(micro)]
                for slot, text, colour in ahead + back:
                    board.box(left + unit * slot + 0.02, y, unit - 0.04, height, text, colour=colour, size=12, step=2)
            else:
                for slot, text, colour in ((device, "forward", BLUE), (2 * devices - 1 - device, "backward", ORANGE)):
                    width = unit * micro
                    board.box(left + width * slot + 0.02, y, width - 0.04, height, text, colour=colour, size=12.5)
    end = left + unit * 2 * (micro + devices - 1)
    board.words(end + 0.25, 0.85, "the same work,\nless waiting", ha="left", size=14, step=3, bold=True)
    board.axes.set_xlim(0, 11.2)
    return (
        "Three devices in a pipeline. Above, with one batch, one device works at a time; below, with four "
        "micro-batches, devices work side by side but for the beginning, the middle and the end"
    )


@figure("parallel-shards")
def shards(canvas: Canvas) -> str:
    """Bytes a parameter on each of eight devices, by what is sharded; by the formulae of the paper."""
    axes = canvas.axes()
    devices = 8
    rows = (("whole copies", 1, 1, 1), ("state sharded", 1, 1, devices), ("and gradients", 1, devices, devices),
            ("and weights", devices, devices, devices))  # fmt: skip
    for place, (_, weights, gradients, state) in enumerate(rows):
        left = 0.0
        for size, colour, name in ((2 / weights, BLUE, "weights"), (2 / gradients, ORANGE, "gradients"),
                                   (12 / state, VIOLET, "optimizer state")):  # fmt: skip
            axes.barh(3 - place, size, 0.6, left=left, color=colour, label=name if not place else None)
            left += size
        axes.text(left + 0.2, 3 - place, f"{left:g}", va="center", fontsize=15)
    axes.set_yticks([3, 2, 1, 0], [row[0] for row in rows])
    axes.set(xlabel="bytes a parameter on each of eight devices, computed", xlim=(0, 19), xticks=range(0, 17, 2))
    axes.legend(fontsize=13, loc="lower right")
    return "Bytes a parameter on each of eight devices: 16 with whole copies, then 5.5, 3.75 and 2 as more is sharded"


# D5: processes


@figure("ddp-replicas")
def ddp_replicas(canvas: Canvas) -> str:
    """What each of three processes has of its own, and what is equal."""
    board = Board.square(canvas)
    for rank in range(3):
        x = 0.15 + 2.05 * rank
        board.words(x + 0.9, 4.75, f"rank {rank}", size=15, bold=True, colour=RANKS[rank])
        board.box(x, 3.75, 1.8, 0.65, "own samples", colour=RANKS[rank], size=12.5)
        board.arrow((x + 0.9, 3.7), (x + 0.9, 3.3))
        board.box(x, 2.6, 1.8, 0.65, "own gradient", colour=RANKS[rank], size=12.5)
        board.arrow((x + 0.9, 2.55), (x + 0.9, 2.1), step=1)
        board.arrow((x + 0.9, 1.45), (x + 0.9, 1.0), step=2)
        board.box(x, 0.3, 1.8, 0.65, "same weights", colour=GREEN, step=2, size=12.5)
    board.box(0.15, 1.5, 5.9, 0.55, "mean of the gradients, the same for all", colour=GREEN, step=1, fill=0.35)
    return "Three processes: own samples and own gradients; their mean is the same for all, and so are the new weights"


@figure("ddp-places")
def ddp_places(canvas: Canvas) -> str:
    """Two nodes with two devices each."""
    board = Board.wide(canvas)
    for node in range(2):
        left = 0.3 + 5.5 * node
        board.box(left, 0.55, 5.1, 3.0, "", colour=GREY, fill=0.05)
        board.words(left + 0.15, 3.28, f"node {node}", ha="left", size=15, bold=True)
        for local in range(2):
            x = left + 0.2 + 2.45 * local
            rank = 2 * node + local
            colour = (BLUE, ORANGE, VIOLET, GREEN)[rank]
            board.box(x, 0.75, 2.25, 2.25, "", colour=colour)
            board.words(x + 1.12, 2.6, "process", size=13)
            board.words(x + 1.12, 2.15, f"rank {rank}", size=17, step=1, bold=True)
            board.words(x + 1.12, 1.7, f"local rank {local}", size=14, step=2)
            board.words(x + 1.12, 1.15, f"cuda:{local}", size=14, step=3)
    board.words(5.6, 0.2, "world size 4", size=15, bold=True, step=1)
    return (
        "Two nodes with two processes each. Ranks 0 and 1 on node 0, ranks 2 and 3 on node 1; local ranks 0 and 1 on "
        "each node; each process has the device of its local rank"
    )


@figure("ddp-barrier")
def ddp_barrier(canvas: Canvas) -> str:
    """Who downloads and who waits, on two nodes."""
    board = Board.square(canvas)
    barrier = 3.75
    for rank in range(4):
        node, local = divmod(rank, 2)
        y = 3.75 - 0.85 * rank - 0.35 * node
        board.words(0.0, y + 0.25, f"node {node}\nlocal {local}", ha="left", size=12)
        if local == 0:
            board.box(0.95, y, 2.1 + 0.6 * node, 0.5, "download", colour=BLUE, size=13)
        else:
            board.box(0.95, y, 0.2, 0.5, "", colour=GREY)
            board.words(1.3, y + 0.25, "waits", ha="left", size=13, step=1)
        board.box(barrier + 0.15, y, 1.9, 0.5, "reads", colour=GREEN, size=13, step=2)
    board.line((barrier, 0.35), (barrier, 4.55), colour=RED, width=3, step=1)
    board.words(barrier, 4.75, "barrier", size=14, bold=True, step=1, colour=RED)
    return "Time runs to the right: local rank 0 of each node downloads, the others wait at the barrier, then all read"


@figure("ddp-same-start")
def ddp_same_start(canvas: Canvas) -> str:
    """Rank 0's weights and buffers go to all."""
    board = Board.square(canvas)
    for rank in range(3):
        y = 3.7 - 1.5 * rank
        board.words(0.0, y + 0.4, f"rank {rank}", ha="left", size=14, bold=True, colour=RANKS[rank])
        board.box(1.0, y, 1.5, 0.8, "own random\nweights", colour=RANKS[rank], size=12)
        board.box(4.4, y, 1.7, 0.8, "weights\nof rank 0", colour=RANKS[0], size=12, step=1)
        if rank:
            board.arrow((2.55, 4.1), (4.35, y + 0.4), colour=RANKS[0], step=1)
        else:
            board.arrow((2.55, 4.1), (4.35, 4.1), colour=RANKS[0], step=1)
    return "Before wrapping each rank has weights of its own; the constructor sends those of rank 0 to all"


@figure("ddp-overlap")
def ddp_overlap(canvas: Canvas) -> str:
    """Backward of four layers, with one exchange at the end and with two buckets on the way."""
    board = Board.wide(canvas)
    left, unit, height = 2.0, 1.05, 0.5
    layers = (BLUE, BLUE, ORANGE, ORANGE)
    for top, buckets in ((3.0, False), (1.05, True)):
        step = 1 if buckets else 0
        title = "buckets, sent on the way" if buckets else "all at the end"
        board.words(left - 1.95, top + 0.72, title, ha="left", size=14, bold=True, step=step)
        for row, name in enumerate(("computes", "exchanges")):
            board.words(0.05, top + 0.25 - row * (height + 0.08), name, ha="left", size=13, step=step)
        for place in range(4):
            board.box(left + unit * place + 0.02, top, unit - 0.04, height, f"layer {4 - place}", colour=layers[place],
                      size=13, step=step)  # fmt: skip
        below = top - height - 0.08
        if buckets:
            board.box(left + 2 * unit + 0.02, below, 1.9 * unit - 0.04, height, "layers 4 and 3", colour=BLUE, step=2)
            board.box(left + 4 * unit + 0.02, below, 1.9 * unit - 0.04, height, "layers 2 and 1", colour=ORANGE, step=3)
            board.box(left + 5.9 * unit + 0.02, top, unit * 0.8, height, "step", colour=GREEN, step=4)
            board.arrow((left + 6.8 * unit, 0.15), (left + 8.5 * unit, 0.15), colour=GREY, step=4, style="<|-|>")
            board.words(left + 7.65 * unit, 0.38, "saved", size=13, step=4)
        else:
            board.box(left + 4 * unit + 0.02, below, 3.6 * unit - 0.04, height, "layers 4, 3, 2, 1", colour=GREY)
            board.box(left + 7.6 * unit + 0.02, top, unit * 0.8, height, "step", colour=GREEN)
    return (
        "Backward goes from layer 4 to layer 1. Above, one exchange after it; below, the bucket of layers 4 and 3 is "
        "exchanged while layers 2 and 1 are computed, so that the step comes earlier"
    )


# D5: samples


@figure("ddp-indices")
def ddp_indices(canvas: Canvas) -> str:
    """Ten samples, three ranks: shuffle, fill up, deal out; two epochs, as torch's own sampler does it."""
    import torch
    from torch.utils.data.distributed import DistributedSampler

    board = Board.wide(canvas)
    samples, world, width = 10, 3, 0.5
    for epoch in range(2):
        top = 2.95 - 2.1 * epoch
        order = torch.randperm(samples, generator=torch.Generator().manual_seed(epoch)).tolist()
        parts = []
        for rank in range(world):
            sampler: DistributedSampler[Any] = DistributedSampler(range(samples), world, rank, seed=0)  # type: ignore[arg-type]
            sampler.set_epoch(epoch)
            parts.append(list(sampler))
        filled = order + order[: -samples % world]
        if parts != [filled[rank::world] for rank in range(world)]:
            raise ValueError("the sampler of this torch deals out in another way")
        step = 3 * epoch
        board.words(0.0, top + 0.25, f"epoch {epoch}", ha="left", size=14, bold=True, step=step)
        for place, index in enumerate(filled):
            padding = place >= samples
            board.box(1.05 + width * place + 0.02, top, width - 0.04, 0.5, str(index), colour=RANKS[place % world],
                      size=15, dashed=padding, step=step + padding, fill=0.0 if padding else 0.22)  # fmt: skip
        if not epoch:
            board.words(1.05 + width * 11, top + 0.62, "filled up", size=12.5, step=1, va="bottom")
            board.words(1.05 + width * 5, top + 0.62, "shuffled by seed and epoch", size=12.5, va="bottom")
        for rank, part in enumerate(parts):
            y = top + 0.55 - 0.55 * rank
            board.words(7.6, y + 0.2, f"rank {rank}", ha="left", size=13, bold=True, colour=RANKS[rank], step=step + 2)
            for place, index in enumerate(part):
                twice = place * world + rank >= samples
                board.box(8.5 + width * place + 0.02, y, width - 0.04, 0.45, str(index), colour=RANKS[rank], size=14,
                          dashed=twice, fill=0.0 if twice else 0.22, step=step + 2)  # fmt: skip
        board.words(10.65, top + 0.2, "4 each", ha="left", size=12.5, step=step + 2)
    return (
        "Ten indices in a random order, filled up to twelve with the first two, and dealt out to three ranks in turn; "
        "another order in the second epoch"
    )


@figure("ddp-batches")
def ddp_batches(canvas: Canvas) -> str:
    """Two ways to go from one process to four."""
    board = Board.wide(canvas)
    board.words(1.2, 3.6, "one process", size=15, bold=True)
    board.box(0.2, 2.1, 2.0, 0.95, "64", colour=BLUE, size=20)
    board.words(1.2, 1.75, "64 in all", size=14, va="top")
    for left, each, width, name, said in (
        (3.1, 16, 0.6, "global batch kept", "64 in all: the same training,\nless work a rank"),
        (6.5, 64, 1.05, "batch of a rank kept", "256 in all: another training,\nas much work a rank"),
    ):
        step = 1 if each == 16 else 2
        board.words(left + 2 * width + 0.1, 3.6, name, size=15, bold=True, step=step)
        for rank in range(4):
            board.box(left + (width + 0.08) * rank, 2.1, width, 0.95, str(each), size=20, step=step,
                      colour=(BLUE, ORANGE, VIOLET, GREEN)[rank])  # fmt: skip
        board.words(left + 2 * width + 0.1, 1.75, said, size=14, step=step, va="top")
    return (
        "A batch of 64 on one process becomes four of 16, the same global batch, or four of 64, a global batch of 256"
    )


@figure("ddp-means")
def ddp_means(canvas: Canvas) -> str:
    """Ten samples on three ranks: the mean of means is not the accuracy."""
    board = Board.square(canvas)
    counted, right = (4, 3, 3), (4, 2, 1)
    for rank in range(3):
        y = 4.1 - 0.8 * rank
        board.words(0.0, y + 0.25, f"rank {rank}", ha="left", size=14, bold=True, colour=RANKS[rank])
        for place in range(counted[rank]):
            good = place < right[rank]
            board.box(1.0 + 0.55 * place, y, 0.5, 0.5, "✓" if good else "✗", colour=GREEN if good else RED, size=14)
        board.words(3.45, y + 0.25, f"{right[rank]} of {counted[rank]}", ha="left", size=14)
        board.words(4.85, y + 0.25, f"{right[rank] / counted[rank]:.3f}", ha="left", size=14)
    mean = sum(r / c for r, c in zip(right, counted, strict=True)) / 3
    board.line((0.0, 2.3), (6.1, 2.3))
    board.words(0.0, 1.75, "mean of means", ha="left", size=14, step=1)
    board.words(4.85, 1.75, f"{mean:.3f}", ha="left", size=16, step=1, bold=True, colour=RED)
    board.words(0.0, 1.0, f"sums, divided once:  {sum(right)} of {sum(counted)}", ha="left", size=14, step=2)
    board.words(4.85, 1.0, f"{sum(right) / sum(counted):.3f}", ha="left", size=16, step=2, bold=True, colour=GREEN)
    return "Ranks have 4 of 4, 2 of 3 and 1 of 3 right: the mean of their accuracies is 0.667, the accuracy is 0.700"
