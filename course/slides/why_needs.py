"""Deck D1: figures of data, computing and models."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from paceline_course.checking import load_module
from paceline_course.slides.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, VIOLET, Canvas
from paceline_course.slides.registry import Record, figure

_base = load_module(Path(__file__).with_name("why.py"), "paceline_course_slides_why")
_case = _base._case
CURVES = _base.CURVES
DEVICES = _base.DEVICES
H100_16_BIT = _base.H100_16_BIT
H100_64_BIT_MATRIX = _base.H100_64_BIT_MATRIX
JAGUAR_PEAK = _base.JAGUAR_PEAK
JAGUAR_LINPACK = _base.JAGUAR_LINPACK
LANGUAGE = _base.LANGUAGE
RESNETS = _base.RESNETS


# ---------------------------------------------------------------------------------------------------------------------
# Figures of D1: computing and data


@figure("why-then-and-now")
def then_and_now(canvas: Canvas) -> str:
    """The fastest machine of 2009 beside eight devices, in the same precision and in another."""
    axes = canvas.axes()
    rows = (
        ("Jaguar, 2009\n64 bits, peak", JAGUAR_PEAK, GREY, 0),
        ("Jaguar, 2009\n64 bits, measured", JAGUAR_LINPACK, GREY, 0),
        ("8 × H100\n64 bits, peak", 8 * H100_64_BIT_MATRIX / 1e15, BLUE, 1),
        ("8 × H100\n16 bits, peak", round(8 * H100_16_BIT / 1e15, 2), ORANGE, 2),
    )
    axes.set(xlim=(0, 9), ylim=(len(rows) - 0.4, -0.6), xlabel="PFLOP/s")
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
    for place, (_, speed, colour, step) in enumerate(rows):
        (bar,) = axes.barh(place, speed, color=colour, height=0.62)
        text = axes.text(
            speed + 0.12, place, f"{speed:.2f}" if speed < 1 else f"{speed:g}", va="center", fontsize=15, weight="bold"
        )
        if step:
            canvas.step(bar, step)
            canvas.step(text, step)
    return (
        "Bars: Jaguar had a peak of 2.3 PFLOP/s in 64 bits and reached 1.76; eight H100 have 0.54 in 64 bits and "
        "7.92 in 16 bits"
    )


@figure("why-growth")
def growth(canvas: Canvas) -> str:
    """One device and one training, in multiples of 2016."""
    axes = canvas.axes()
    years = np.array([when for _, when, *_ in DEVICES])
    for column, name, colour in ((4, "16 bits", ORANGE), (2, "64 bits; 32 alike", GREEN)):
        peaks = np.array([float(device[column]) for device in DEVICES])
        times = peaks[-1] / peaks[0]
        axes.plot(years, peaks / peaks[0], "o-", color=colour, markersize=8)
        axes.annotate(f"one device, {name}: × {times:.0f}", (years[-1], times), (12, 0), textcoords="offset points",
                      color=colour, va="center", weight="bold")  # fmt: skip
    for name, when, *_ in DEVICES:
        axes.annotate(name, (when, 0.52), ha="center", color=INK, fontsize=12)
    span = years[-1] - years[0]
    low, high = 4.0**span, 5.0**span
    axes.fill_between([years[0], years[-1]], [1, low], [1, high], color=VIOLET, alpha=0.35, linewidth=0)
    times = f"× {round(low, -2):,.0f} to {round(high, -2):,.0f}"
    axes.annotate(f"training of notable models:\n4 to 5 times a year,\n{times}",
                  (years[-1], math.sqrt(low * high)), (12, 0), textcoords="offset points", color=VIOLET, va="center",
                  weight="bold")  # fmt: skip
    axes.set(yscale="log", ylabel="times as much as in 2016", xlim=(2015.9, 2025.2), ylim=(0.4, 4e4))
    axes.set_xticks([2016, 2018, 2020, 2022])
    axes.set_yticks([1, 10, 100, 1000, 10000], ["1", "10", "100", "1,000", "10,000"])
    axes.minorticks_off()
    return (
        "From 2016 to 2022 the peak of one device grew 6 times in 64 and 32 bits and 47 times in 16 bits; the "
        "computing of notable trainings, at 4 to 5 times a year, grew thousands of times"
    )


@figure("why-power-law", CURVES)
def power_law(canvas: Canvas, record: Record) -> str:
    """Error against training images: measured, fitted, predicted."""
    axes = canvas.axes()
    case = _case(record)
    law, beyond = case["law"], case["beyond"]
    sizes = np.array([n for n, _ in case["points"]])
    many = np.geomspace(sizes.min() * 0.9, beyond * 1.1, 60)
    axes.plot(
        many, 100 * (law["floor"] + law["scale"] * many ** -law["exponent"]), color=GREY, label="fitted power law"
    )
    axes.plot(sizes, [100 * error for _, error in case["points"]], "o", color=BLUE, label="measured, used for the fit")
    inside = (100 * (case["predicted"] - case["low"]), 100 * (case["high"] - case["predicted"]))
    axes.errorbar([beyond], [100 * case["predicted"]], [[inside[0]], [inside[1]]], color=ORANGE, capsize=9, marker="_",
                  markersize=14, elinewidth=3, capthick=3, linestyle="", label="predicted, 90 %")  # fmt: skip
    crosses = axes.plot([beyond] * len(case["runs"]), [100 * e for e in case["runs"]], "x", color=RED, markersize=10,
                        markeredgewidth=2.5, label="measured afterwards")  # fmt: skip
    canvas.step(crosses[0], 1)
    axes.set(xscale="log", yscale="log", xlabel="training images", ylabel="test error, %")
    ticks = sorted({int(n) for n in sizes} | {beyond})
    axes.set_xticks(ticks, [f"{n:,}" for n in ticks])
    axes.set_yticks([7, 10, 14, 18], ["7", "10", "14", "18"])
    axes.minorticks_off()
    axes.legend(fontsize=12)
    return "Test error falls along a straight line in a log-log plot; the errors at all images lie in the predicted bar"


@figure("why-halving", CURVES)
def halving(canvas: Canvas, record: Record) -> str:
    """How many times the data half the error takes, over the exponent."""
    axes = canvas.axes()
    exponents = np.linspace(0.06, 0.5, 200)
    axes.plot(exponents, 2 ** (1 / exponents), color=BLUE)
    axes.axvspan(0.07, 0.35, color=VIOLET, alpha=0.2, linewidth=0)
    axes.text(0.21, 4e4, "published", color=VIOLET, ha="center", weight="bold")
    ours = _case(record)["law"]["exponent"]
    axes.plot([ours], [2 ** (1 / ours)], "o", color=ORANGE, markersize=11)
    axes.annotate(f"ours: × {2 ** (1 / ours):.0f}", (ours, 2 ** (1 / ours)), (12, 12), textcoords="offset points",
                  color=ORANGE, weight="bold")  # fmt: skip
    for exponent, shift in ((0.07, (10, -2)), (0.35, (4, 12))):
        times = 2 ** (1 / exponent)
        axes.plot([exponent], [times], "o", color=VIOLET, markersize=9)
        axes.annotate(
            f"× {float(f'{times:.2g}'):,.0f}", (exponent, times), shift, textcoords="offset points", color=VIOLET
        )
    axes.set(yscale="log", xlabel="exponent of the power law", ylabel="data for half the error", ylim=(2, 1e5))
    axes.set_yticks([10, 100, 1e3, 1e4, 1e5], ["× 10", "× 100", "× 1,000", "× 10,000", "× 100,000"])
    axes.minorticks_off()
    return "The data that half the error takes: 7 times for an exponent of 0.35, twenty thousand times for 0.07"


@figure("why-models-and-data")
def models_and_data(canvas: Canvas) -> str:
    """Parameters and tokens of published language models, with lines of equal computing."""
    axes = canvas.axes()
    sizes = np.geomspace(4e10, 1e12, 20)
    for days in (1e3, 1e4, 1e5, 1e6):
        tokens = days * 8.64e19 / 6 / sizes
        axes.plot(sizes, tokens, "--", color=GREY, linewidth=1.2)
        at = sizes[0] * 1.06 if days < 1e6 else 1.75e11
        axes.text(at, 1.07 * days * 8.64e19 / 6 / at, f"{days:,.0f} PF/s-days", color=GREY, fontsize=11, rotation=-23,
                  rotation_mode="anchor", va="bottom")  # fmt: skip
    for (name, parameters, tokens), colour in zip(LANGUAGE, (BLUE, GREEN, ORANGE, RED), strict=True):
        axes.plot([parameters], [tokens], "o", color=colour, markersize=12)
        shift = {"GPT-3": (-11, -19), "Chinchilla": (11, -19)}.get(name, (11, 7))
        axes.annotate(name, (parameters, tokens), shift, textcoords="offset points", color=colour, weight="bold",
                      ha="right" if name == "GPT-3" else "left")  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="parameters, billions", ylabel="training tokens, billions",
             xlim=(4e10, 1.05e12), ylim=(1.5e11, 1e14))  # fmt: skip
    axes.set_yticks([3e11, 1e12, 3e12, 1e13, 3e13], ["300", "1,000", "3,000", "10,000", "30,000"])
    axes.set_xticks([5e10, 1e11, 2e11, 5e11, 1e12], ["50", "100", "200", "500", "1,000"])
    axes.minorticks_off()
    return "GPT-3 and Gopher saw 0.3 trillion tokens, Chinchilla 1.4 with fewer parameters, Llama 3 15.6 with more"


@figure("why-resnets")
def resnets(canvas: Canvas) -> str:
    """Error against operations within one family of networks."""
    axes = canvas.axes()
    axes.plot([work for _, work, _ in RESNETS], [error for *_, error in RESNETS], "o-", color=BLUE, markersize=9)
    for name, work, error in RESNETS:
        shift = {"34": (12, 4), "50": (12, 4), "101": (0, 12), "152": (-6, 12)}[name]
        axes.annotate(f"ResNet-{name}", (work, error), shift, textcoords="offset points", color=BLUE, weight="bold",
                      ha="left" if name in ("34", "50") else "center")  # fmt: skip
    axes.set(
        xlabel="billion multiply-adds an image",
        ylabel="top-1 error on ImageNet, %",
        xlim=(2.5, 12.6),
        ylim=(20.8, 25.2),
    )
    axes.set_yticks([21, 22, 23, 24, 25])
    return "Error falls from 24.5 to 21.4 percent as operations grow from 3.6 to 11.3 billion, ever more slowly"
