"""Deck D1: figures of cost and of time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from paceline.plan.compute import bill, pfs_days, training_flop, transformer_flop
from paceline.plan.trends import IMAGES, PUBLISHED, trends
from paceline_course.checking import load_module
from paceline_course.slides.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, Canvas
from paceline_course.slides.registry import figure

_base = load_module(Path(__file__).with_name("why.py"), "paceline_course_slides_why")
_box = _base._box
_h100 = _base._h100
_llama = _base._llama
H100_8_BIT = _base.H100_8_BIT
LLAMA_HOURS = _base.LLAMA_HOURS


# ---------------------------------------------------------------------------------------------------------------------
# Figures of D1: cost and time


@figure("why-one-precision")
def one_precision(canvas: Canvas) -> str:
    """Device-hours of one training, computed in several ways, beside the published ones."""
    axes = canvas.axes()
    rows = (
        ("peak of 16 bits, all of it", bill(_llama(), _h100(utilisation=1.0), 1).device_hours, GREY),
        ("40 % of the peak of 8 bits", bill(_llama(), _h100(peak=H100_8_BIT), 1).device_hours, RED),
        ("40 % of the peak of 16 bits", bill(_llama(), _h100(), 1).device_hours, GREEN),
        ("published", LLAMA_HOURS, BLUE),
    )
    for place, (_, hours, colour) in enumerate(rows):
        axes.barh(place, hours / 1e6, color=colour, height=0.62)
        axes.text(hours / 1e6 + 0.4, place, f"{hours / 1e6:.1f}", va="center", fontsize=15, weight="bold")
    axes.set(xlim=(0, 35), ylim=(len(rows) - 0.4, -0.6), xlabel="million device-hours")
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
    return (
        "Million device-hours: 10.6 at the full peak, 13.3 with the peak of 8 bits, 26.6 with 40 percent of the peak "
        "of 16 bits, 30.8 published"
    )


@figure("why-device-days")
def device_days(canvas: Canvas) -> str:
    """How long trainings take on so many devices, at a stated utilisation and with perfect scaling."""
    axes = canvas.axes()
    devices = 4.0 ** np.arange(8)
    trainings = (
        ("ResNet-50, 90 epochs", training_flop(2 * 3.8e9, 90 * IMAGES), GREEN, "o"),
        ("Chinchilla", transformer_flop(70e9, 1.4e12), ORANGE, "s"),
        ("Llama 3, 405 B", _llama(), RED, "^"),
    )
    for name, flop, colour, mark in trainings:
        used = devices[:5] if flop < 1e20 else devices
        days = [bill(flop, _h100(), int(n)).hours / 24 for n in used]
        axes.plot(used, days, mark + "-", color=colour, markersize=7)
        amount = f"{pfs_days(flop):,.{2 if flop < 1e20 else 0}f} PF/s-days"
        axes.annotate(f"{name}: {amount}", (used[-1], days[-1]), (12, 0), textcoords="offset points", color=colour,
                      va="center", weight="bold")  # fmt: skip
    for days, name in (
        (1 / 1440, "a minute"),
        (1 / 24, "an hour"),
        (1, "a day"),
        (30, "a month"),
        (365, "a year"),
        (36500, "a century"),
    ):
        axes.axhline(days, color=GREY, linewidth=0.8, linestyle=":", xmax=0.62)
        axes.text(0.7, days, name, ha="right", va="center", fontsize=12)
    axes.set(xscale="log", yscale="log", xlabel="devices", xlim=(0.8, 1.4e7), ylim=(1e-4, 3e6))
    axes.set_xticks(devices, [f"{int(n):,}" for n in devices], fontsize=11)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.minorticks_off()
    return (
        "Computed: ResNet-50 takes under two hours on one device and less with more; Chinchilla decades on one and "
        "days on some thousands; Llama 3 millennia on one and two months on 16,384"
    )


@figure("why-loop")
def loop(canvas: Canvas) -> str:
    """Idea, code, experiment; and how many answers a week has."""
    axes = canvas.blank(22, 8)
    places = {"idea": (3.6, 6.6), "code": (6.2, 2.2), "experiment": (1.4, 2.2)}
    around = list(places)
    for name, to in zip(around, around[1:] + around[:1], strict=True):
        (x, y), (to_x, to_y) = places[name], places[to]
        axes.annotate("", (to_x, to_y), (x, y), arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 2.5,
                      "shrinkA": 34, "shrinkB": 34, "connectionstyle": "arc3,rad=-0.25"})  # fmt: skip
        axes.text(x, y, name, ha="center", va="center", fontsize=15, weight="bold")
    week, left, width = 168.0, 9.6, 12.0
    for (hours, name, colour), y in zip(
        ((29.0, "29 hours an answer", ORANGE), (1.0, "1 hour an answer", GREEN)), (5.0, 1.6), strict=True
    ):
        whole = int(week // hours)
        for number in range(whole):
            axes.add_patch(_box(left + width * number * hours / week, y, 0.86 * width * hours / week, 1.4, colour))
        axes.text(left, y + 1.75, f"{name}: {whole} in a week", fontsize=15, weight="bold", color=colour)
    axes.plot([left, left + width], [1.0, 1.0], color=INK, linewidth=1.2)
    for day in range(8):
        axes.plot([left + width * day / 7] * 2, [0.85, 1.0], color=INK, linewidth=1.2)
    axes.text(left + width / 2, 0.1, "seven days", ha="center", fontsize=13)
    return "A circle of idea, code and experiment; a week has room for 5 experiments of 29 hours, or 168 of one hour"


@figure("why-resnet-minutes")
def resnet_minutes(canvas: Canvas) -> str:
    """Published trainings of ResNet-50: minutes over the years."""
    axes = canvas.axes()
    for one in PUBLISHED:
        colour = GREEN if one.series else BLUE
        axes.plot([one.year], [one.minutes], "o", color=colour, markersize=9)
        if one.devices == 768:
            continue  # no room for its name: it lies between its neighbours
        shift = (11, {"Mikami et al.": -8, "Akiba et al.": 7}.get(one.who, 0))
        name = "" if one.series else f"{one.who}: "
        axes.annotate(f"{name}{one.devices:,} {one.hardware}, {_minutes(one.minutes)}", (one.year, one.minutes), shift,
                      textcoords="offset points", color=colour, va="center", fontsize=13)  # fmt: skip
    axes.set(yscale="log", xlim=(2015.7, 2025.3), ylim=(0.1, 4e3), ylabel="minutes")
    axes.set_yticks([0.1, 1, 10, 100, 1000], ["0.1", "1", "10", "100", "1,000"])
    axes.set_xticks([2016, 2017, 2018, 2019, 2023], ["2016", "2017", "2018", "2019", "2023 (MLPerf)"])
    axes.minorticks_off()
    return (
        "Training ResNet-50 took 29 hours on 8 devices in 2016, an hour on 256 in 2017, and 11 seconds on 3,584 in 2023"
    )


def _minutes(minutes: float) -> str:
    if minutes >= 120:
        return f"{minutes / 60:.0f} h"
    return (
        f"{minutes:.0f} min" if minutes >= 10 else f"{minutes:.1f} min" if minutes >= 1.9 else f"{60 * minutes:.0f} s"
    )


@figure("why-efficiency")
def efficiency(canvas: Canvas) -> str:
    """What MLPerf's times say of strong scaling."""
    left, right = canvas.axes(1, 2)
    rows = [one for one in trends().records if one.efficiency is not None]
    devices = [one.devices for one in rows]
    first = rows[0]
    left.plot(devices, [first.minutes * first.devices / n for n in devices], "--", color=GREY, label="perfect")
    left.plot(devices, [one.minutes for one in rows], "o-", color=GREEN, markersize=8, label="published")
    left.set(xscale="log", yscale="log", xlabel="devices", ylabel="minutes")
    left.set_yticks([0.03, 0.1, 0.3, 1, 3, 10], ["0.03", "0.1", "0.3", "1", "3", "10"])
    left.legend()
    right.plot(devices, [100 * one.efficiency for one in rows], "o-", color=ORANGE, markersize=8)
    for one in rows:
        percent = 100 * one.efficiency
        shift = (-42, -14) if one.devices == 768 else (6, 9)
        right.annotate(f"{percent:.0f} %", (one.devices, percent), shift, textcoords="offset points", color=ORANGE,
                       weight="bold")  # fmt: skip
    right.set(xscale="log", xlabel="devices", ylabel="efficiency, %", ylim=(0, 112))
    for axes in (left, right):
        axes.set_xticks(devices, ["8", "64", "512", "", "3,584"])
        axes.minorticks_off()
    return (
        "Times fall with devices more slowly than they would with perfect scaling: efficiency 63, 41, 38 and 16 percent"
    )
