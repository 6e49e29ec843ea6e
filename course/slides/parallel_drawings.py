"""Deck D3: drawings of data and model parallelism, and of a training step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paceline_course.checking import load_module
from paceline_course.slides.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, VIOLET, Canvas
from paceline_course.slides.registry import figure

_base = load_module(Path(__file__).with_name("parallel.py"), "paceline_course_slides_parallel")
Board = _base.Board
RANKS = _base.RANKS


@figure("parallel-two-wishes")
def two_wishes(canvas: Canvas) -> str:
    """Work that takes too long is shared out; a model that is too large is cut."""
    board = Board.wide(canvas)
    board.words((2.6, 3.9), "It takes too long", size=16, bold=True)
    board.box((0.2, 2.95, 4.8, 0.5), "all samples, one device", colour=BLUE)
    for device in range(3):
        y = 1.75 - 0.6 * device
        board.box((0.2, y, 1.6, 0.45), colour=RANKS[device], step=1)
        board.words((2.0, y + 0.22), f"a third of them, device {device}", step=1, ha="left")
    board.arrow((0.2, 0.2), (5.0, 0.2))
    board.words((5.15, 0.2), "time", ha="left")
    board.words((8.8, 3.9), "It does not fit", size=16, bold=True)
    board.box((6.6, 2.2, 2.1, 0.95), colour=GREY, fill=0.06, dashed=True)
    board.words((7.65, 3.35), "memory of one device", size=13)
    board.box((6.75, 2.35, 4.2, 0.65), "a large model", colour=RED)
    for part in range(2):
        x = 6.6 + 2.35 * part
        board.box((x, 0.75, 2.1, 0.95), "", colour=GREY, fill=0.06, dashed=True, step=2)
        board.box((x + 0.15, 0.9, 1.8, 0.65), f"part {part + 1}", colour=GREEN, step=2)
        board.words((x + 1.05, 0.45), f"device {part}", step=2)
    return (
        "Left: a long bar of samples on one device becomes three short bars on three devices. Right: a model that "
        "sticks out of a device's memory becomes two parts in the memories of two devices"
    )


def _layers(board: Board, x: float, y: float, numbers: Sequence[int], colours: Sequence[str], step: int = 0) -> None:
    for place, (number, colour) in enumerate(zip(numbers, colours, strict=True)):
        board.box((x + 0.95 * place, y, 0.8, 0.9), f"layer\n{number}", colour=colour, step=step, size=12)


@figure("parallel-replicas")
def replicas(canvas: Canvas) -> str:
    """Two devices with the whole model each, other samples, and gradients between them."""
    board = Board.wide(canvas)
    for device, y in ((0, 2.45), (1, 0.25)):
        board.box((3.0, y, 5.0, 1.45), "", colour=GREY, fill=0.05, dashed=True)
        board.words((3.1, y + 1.27), f"device {device}: the whole model", ha="left", size=13, bold=True)
        _layers(board, 3.65, y + 0.12, (1, 2, 3, 4), (BLUE,) * 4)
        board.box((0.3, y + 0.25, 1.9, 0.7), ("first half\nof the batch", "second half\nof the batch")[device],
                  colour=RANKS[device])  # fmt: skip
        board.arrow((2.25, y + 0.6), (3.55, y + 0.6), colour=RANKS[device], step=1)
        board.arrow((7.45, y + 0.6), (8.75, y + 0.6), colour=RANKS[device], step=1)
        board.box((8.85, y + 0.25, 1.9, 0.7), "gradient of\nits half", colour=RANKS[device], step=1)
    board.arrow((9.8, 1.25), (9.8, 2.65), colour=GREEN, step=2, style="<|-|>")
    board.words((9.65, 1.95), "averaged: each gets the mean", ha="right", size=13, step=2, bold=True)
    board.words((5.5, 1.95), "same weights, before and after", size=13, step=3, ha="right")
    return (
        "Two devices hold the same four layers. Each computes the gradient of its half of the batch; the two "
        "gradients are averaged, so both update to the same weights"
    )


@figure("parallel-stages")
def split(canvas: Canvas) -> str:
    """Two devices with two layers each, the whole batch, and activations between them."""
    board = Board.wide(canvas)
    for device, x in ((0, 2.6), (1, 7.0)):
        board.box((x, 1.2, 2.4, 1.9), "", colour=GREY, fill=0.05, dashed=True)
        board.words((x + 1.2, 2.85), f"device {device}", size=13, bold=True)
        _layers(board, x + 0.33, 1.5, (1, 2) if not device else (3, 4), (BLUE, BLUE) if not device else (ORANGE,) * 2)
    board.box((0.2, 1.6, 1.55, 0.7), "the whole\nbatch", colour=GREY)
    board.arrow((1.8, 1.95), (2.5, 1.95), step=1)
    board.arrow((5.05, 2.35), (6.95, 2.35), colour=GREEN, step=2)
    board.words((6.0, 2.65), "activations", size=13, step=2, bold=True)
    board.arrow((9.45, 1.95), (9.9, 1.95), step=3)
    board.box((9.95, 1.65, 0.95, 0.6), "loss", colour=GREY, step=3)
    board.arrow((6.95, 1.6), (5.05, 1.6), colour=RED, step=4)
    board.words((6.0, 1.28), "gradients\nof activations", size=13, step=4, bold=True, va="top")
    board.words((3.8, 0.85), "has its own weights,\nupdates them alone", size=12.5, step=5, va="top")
    board.words((8.2, 0.85), "has other weights,\nupdates them alone", size=12.5, step=5, va="top")
    board.words((5.6, 3.65), "while one computes, the other waits", size=14, step=6)
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
        board.words((0.1, y + 0.27), name, ha="left", size=14, bold=True)
        board.line((_LEFT, y - 0.1), (11.1, y - 0.1))
    for slot, stage in enumerate(_SLOTS):
        x, on_host = _x(slot), stage in _HOST
        y, colour = (host, BLUE) if on_host else (device, ORANGE)
        height = 0.55
        if stage == 3:
            y, height, colour = device, host - device + 0.55, VIOLET
        if stage == 10:
            colour = GREEN
        board.box((x + 0.03, y, _SLOT - 0.06, height), str(stage), colour=colour, step=stage, size=15, bold=True,
                  dashed=stage == 10, fill=0.0 if stage == 10 else 0.25)  # fmt: skip
    for stage, name in enumerate(STAGES, start=1):
        slots = [slot for slot, of in enumerate(_SLOTS) if of == stage]
        x = _x(slots[0]) + _SLOT * len(slots) / 2
        if stage == 15:
            board.words((11.08, host - 0.2), name, size=12.5, step=stage, ha="right", va="top")
            continue
        far = stage in (2, 5, 7, 9, 11, 14)
        up = stage in _HOST or stage == 3
        y = (3.1 + 0.55 * far) if up else (1.18 - 0.6 * far)
        board.words((x, y), name, size=12.5, step=stage, va="bottom" if up else "top")
        if far:
            board.line((x, 3.05 if up else 1.24), (x, 3.62 if up else 0.62), step=stage)
    middle = (_x(3) + _x(13)) / 2
    board.words((middle, host + 0.27), "queues the work of the device, and may run ahead", size=12.5, step=6)
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
        board.words((0.0, y + 0.28), f"device {device}", ha="left", size=13, bold=True)
    board.words((0.0, 0.37), "between\nthem", ha="left", size=13, bold=True)
    for slot, stage in enumerate(_SLOTS):
        x = _x(slot)
        colour = BLUE if stage in _HOST else VIOLET if stage == 3 else GREY if stage == 10 else ORANGE
        for y in lanes:
            text = "wait" if stage == 10 else str(stage)
            board.box((x + 0.03, y, _SLOT - 0.06, 0.55), text, colour=colour, step=steps[slot], dashed=stage == 10,
                      size=11 if stage == 10 else 15, bold=stage != 10, fill=0.0 if stage == 10 else 0.25)  # fmt: skip
    for piece, slot in enumerate((9, 10)):
        x = _x(slot)
        board.box((x + 0.03, 0.1, _SLOT - 0.06, 0.55), "10", colour=GREEN, step=4 + piece, size=15, bold=True, fill=0.4)
        for y in (0.68, 1.8, 2.55):
            top = {0.68: lanes[2], 1.8: lanes[1], 2.55: lanes[0]}[y]
            board.arrow((x, top), (x, y), colour=GREEN, step=4 + piece, style="-", dotted=True)
    for first, last, name, step in ((0, 4, "data", 1), (5, 7, "forward", 2), (8, 9, "backward", 3),
                                    (11, 12, "update", 6), (13, 15, "host", 7)):  # fmt: skip
        board.words(((_x(first) + _x(last + 1)) / 2, 3.5), name, size=14, step=step, va="baseline")
    board.words(
        (_x(9) - 0.15, 0.37), "gradients of the last layers:\nhidden behind backward", ha="right", size=13, step=4
    )
    board.words((_x(11) + 0.15, 0.37), "gradients of the first layers:\nall wait for them", ha="left", size=13, step=5)
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
    board.words((6.1, 0.2), "time", ha="right", size=13)
    for device in range(3):
        y = 3.5 - 1.15 * device
        board.words((0.0, y + 0.35), f"device\n{device}", ha="left", size=13, bold=True)
        for step in range(3):
            x = 0.95 + 1.72 * step
            width = (0.95, 1.4, 0.85)[device]
            board.box((x, y, width, 0.7), "computes" if device == 1 else "", colour=ORANGE, size=12.5)
            if device != 1:
                board.box((x + width + 0.03, y, 1.4 - width - 0.03, 0.7), "wait", colour=GREY, dashed=True, fill=0.0,
                          size=11.5, step=1)  # fmt: skip
    for step in range(3):
        x = 0.95 + 1.72 * step + 1.4 + 0.04
        board.box((x, 0.95, 0.24, 3.5), "10", colour=GREEN, size=11.5, fill=0.4)
    board.words((3.5, 4.75), "one is slow: all are", size=15, bold=True, step=1)
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
        board.box((0.1, y, 3.1, 0.9), question, colour=GREY, fill=0.06, size=14, step=step)
        board.arrow((3.25, y + 0.45), (4.45, y + 0.45), step=step)
        if place < 2:
            board.words((3.8, y + 0.68), "yes", size=13, step=step)
        board.box((4.5, y, 2.5, 0.9), answer, colour=colour, size=15, bold=True, step=step)
        board.words((7.3, y + 0.45), price, ha="left", size=14, step=step)
        if place < 2:
            board.arrow((1.65, y - 0.04), (1.65, y - 0.46), step=step + 1)
            board.words((1.85, y - 0.25), "no", ha="left", size=13, step=step + 1)
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


# D3: pipelines and shards


@figure("parallel-pipeline")
def pipeline(canvas: Canvas) -> str:
    """Three stages: with the whole batch, and with four micro-batches."""
    board = Board.wide(canvas)
    devices, micro, unit, left = 3, 4, 0.4, 1.15
    height = 0.42
    for top, cut, name in ((3.65, False, "one batch"), (1.75, True, "four micro-batches")):
        board.words((left, top + 0.18), name, ha="left", size=14, bold=True, step=2 if cut else 0)
        for device in range(devices):
            y = top - 0.1 - (device + 1) * (height + 0.05)
            board.words((0.0, y + height / 2), f"device {device}", ha="left", size=13, step=2 if cut else 0)
            if cut:
                ahead = [(device + part, str(part + 1), BLUE) for part in range(micro)]
                total = micro + devices - 1
                back = [(total + devices - 1 - device + part, str(micro - part), ORANGE) for part in range(micro)]
                for slot, text, colour in ahead + back:
                    board.box((left + unit * slot + 0.02, y, unit - 0.04, height), text, colour=colour, size=12, step=2)
            else:
                for slot, text, colour in ((device, "forward", BLUE), (2 * devices - 1 - device, "backward", ORANGE)):
                    width = unit * micro
                    board.box((left + width * slot + 0.02, y, width - 0.04, height), text, colour=colour, size=12.5)
    end = left + unit * 2 * (micro + devices - 1)
    board.words((end + 0.25, 0.85), "the same work,\nless waiting", ha="left", size=14, step=3, bold=True)
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
