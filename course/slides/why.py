"""Values and figures of D1, why several devices, and D2, real networks.

Points of published trainings, machines and devices are those of the sources that the slides cite. Figures without a
record are computed from them, or drawings of an example; neither is a measurement of ours.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from paceline.learn.slides.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, VIOLET, Canvas
from paceline.learn.slides.registry import Record, figure, value
from paceline.plan.compute import Device, bill, pfs_days, training_flop, transformer_flop
from paceline.plan.trends import IMAGES, PUBLISHED, trends
from paceline.tasks.linear import best_fit
from paceline.tasks.linear import points as column_points

CURVES = "2026-11-28_learning_curves"
SURFACE = "2026-11-28_landscape"

# ---------------------------------------------------------------------------------------------------------------------
# Published numbers. Peaks in TFLOP/s without sparsity; 64 bits without, and where named with, matrix units.

DEVICES = (("P100", 2016.3, 5.3, 10.6, 21.2), ("V100", 2017.4, 7.8, 15.7, 125.0), ("A100", 2020.4, 9.7, 19.5, 312.0),
           ("H100", 2022.2, 33.5, 66.9, 989.4))  # fmt: skip
H100_16_BIT, H100_8_BIT, H100_64_BIT_MATRIX = 989.4e12, 1978.9e12, 66.9e12
JAGUAR_PEAK, JAGUAR_LINPACK = 2.3, 1.76
LANGUAGE = (
    ("GPT-3", 175e9, 300e9),
    ("Gopher", 280e9, 300e9),
    ("Chinchilla", 70e9, 1.4e12),
    ("Llama 3", 405e9, 15.6e12),
)
LLAMA_HOURS = 30.84e6
RESNETS = (("34", 3.6, 24.52), ("50", 3.8, 22.85), ("101", 7.6, 21.75), ("152", 11.3, 21.43))
UTILISATION = 0.4


def _h100(peak: float = H100_16_BIT, utilisation: float = UTILISATION) -> Device:
    return Device("H100", peak, "bf16", utilisation)


def _llama() -> float:
    _, parameters, tokens = LANGUAGE[-1]
    return transformer_flop(parameters, tokens)


# ---------------------------------------------------------------------------------------------------------------------
# Values: error against data


def _case(record: Record) -> dict[str, Any]:
    """Fashion-MNIST's error, predicted for all images from a quarter of them."""
    return next(one for one in record.result["cases"] if one["case"].startswith("fashion-mnist, error, 60,000"))


def _loss_case(record: Record) -> dict[str, Any]:
    return next(one for one in record.result["cases"] if one["case"].startswith("fashion-mnist, loss"))


@value("why.data.exponent", CURVES)
def data_exponent(record: Record) -> str:
    """Of the fitted law."""
    return f"{_case(record)['law']['exponent']:.2f}"


@value("why.data.doubled", CURVES)
def data_doubled(record: Record) -> str:
    """By how much twice the data lower the error, by the law."""
    law = _case(record)["law"]
    if law["floor"]:
        raise ValueError("the law has a floor")
    return f"{100 * (1 - 2 ** -law['exponent']):.0f} %"


@value("why.data.halved", CURVES)
def data_halved(record: Record) -> str:
    """How many times the data half the error takes, by the law."""
    return f"{2 ** (1 / _case(record)['law']['exponent']):.0f} times"


@value("why.data.predicted", CURVES)
def data_predicted(record: Record) -> str:
    """Error and interval."""
    case = _case(record)
    return f"{100 * case['predicted']:.1f} % ({100 * case['low']:.1f} to {100 * case['high']:.1f} %)"


@value("why.data.measured", CURVES)
def data_measured(record: Record) -> str:
    """Mean of the runs."""
    return f"{100 * _case(record)['measured']:.1f} %"


@value("why.data.runs", CURVES)
def data_runs(record: Record) -> str:
    """At all images."""
    return str(len(_case(record)["runs"]))


@value("why.data.most", CURVES)
def data_most(record: Record) -> str:
    """Samples at most that the law was fitted to."""
    return f"{max(n for n, _ in _case(record)['points']):,}"


@value("why.data.beyond", CURVES)
def data_beyond(record: Record) -> str:
    """Samples that it predicted."""
    return f"{_case(record)['beyond']:,}"


@value("why.data.inside", CURVES)
def data_inside(record: Record) -> str:
    """How many of all predictions had the measurement in their interval."""
    cases = record.result["cases"]
    return f"{sum(one['inside'] for one in cases)} of {len(cases)}"


@value("why.data.loss-predicted", CURVES)
def data_loss_predicted(record: Record) -> str:
    """The one that failed."""
    case = _loss_case(record)
    if case["inside"]:
        raise ValueError("it did not fail")
    return f"{case['predicted']:.2f} ({case['low']:.2f} to {case['high']:.2f})"


@value("why.data.loss-measured", CURVES)
def data_loss_measured(record: Record) -> str:
    """Mean of the runs."""
    return f"{_loss_case(record)['measured']:.2f}"


# ---------------------------------------------------------------------------------------------------------------------
# Values: a real network


def _cell(record: Record, setting: str) -> dict[str, Any]:
    return next(cell for cell in record.cells if cell["setting"] == setting and cell["seed"] == 0)


@value("why.net.parameters", "minima")
def net_parameters(record: Record) -> str:
    """Of the CNN."""
    return f"{_cell(record, 'small-sharpness')['result']['parameters']:,}"


@value("why.net.accuracy", "minima")
def net_accuracy(record: Record) -> str:
    """Of the run at the small batch, on the test images."""
    return f"{100 * _cell(record, 'small')['training']['evaluations'][-1]['metrics']['accuracy']:.1f} %"


@value("why.net.steps", "minima")
def net_steps(record: Record) -> str:
    """Of that run."""
    return f"{_cell(record, 'small')['training']['steps']:,}"


@value("why.net.batch", "minima")
def net_batch(record: Record) -> str:
    """Of that run."""
    return str(_cell(record, "small")["training"]["global_batch"])


@value("why.net.images", "minima")
def net_images(record: Record) -> str:
    """In its training set."""
    return f"{_cell(record, 'small')['training']['train_samples']:,}"


@value("why.net.barrier", "minima")
def net_barrier(record: Record) -> str:
    """Between the two minima."""
    return f"{_between(record)['barrier']:.2f}"


@value("why.net.gradient", "minima")
def net_gradient(record: Record) -> str:
    """Length of the gradient at the end of the run at the small batch."""
    return f"{_cell(record, 'small-sharpness')['result']['gradient_norm']:.2f}"


@value("why.surface.points", SURFACE)
def surface_points(record: Record) -> str:
    """Of the grid."""
    points = record.result["environment"]["size"]["points"]
    return f"{points} × {points}"


@value("why.surface.samples", SURFACE)
def surface_samples(record: Record) -> str:
    """On which the loss is measured at each point."""
    return f"{record.result['environment']['size']['samples']:,}"


@value("why.surface.minutes", SURFACE)
def surface_minutes(record: Record) -> str:
    """That the surface took with two workers."""
    return f"{record.result['seconds']['paceline-2']['surface_s'][0] / 60:.0f} minutes"


def _between(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = _cell(record, "small-to-large")["result"]["interpolation"]
    return found


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


def _box(x: float, y: float, width: float, height: float, colour: str, **kwargs: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, facecolor=colour, edgecolor="none", **kwargs)


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


# ---------------------------------------------------------------------------------------------------------------------
# Figures of lab 1's line: an example of 100 points, as the lab has it


def _points() -> tuple[np.ndarray, np.ndarray]:
    x, y = column_points(100, 1)
    return x[:, 0], y[:, 0]


def _loss(w: Any, b: Any) -> Any:
    x, y = _points()
    w, b = np.asarray(w, dtype=float), np.asarray(b, dtype=float)
    return np.mean((w[..., None] * x + b[..., None] - y) ** 2, axis=-1)


def _path(epochs: int, size: int, rate: float = 0.1) -> np.ndarray:
    """(steps + 1, 2): w and b, from 0 and 0."""
    x, y = _points()
    at, path = np.zeros(2), [np.zeros(2)]
    for rows in _rows(len(x), size, epochs):
        residual = at[0] * x[rows] + at[1] - y[rows]
        at = at - rate * 2 * np.array([(residual * x[rows]).mean(), residual.mean()])
        path.append(at)
    return np.array(path)


def _rows(samples: int, size: int, epochs: int) -> Iterator[np.ndarray]:
    generator = np.random.default_rng(0)
    for _ in range(epochs):
        order = generator.permutation(samples)
        yield from (order[start : start + size] for start in range(0, samples, size))


def _bowl(axes: Any) -> None:
    """The surface of the line from above, with its lowest point."""
    w, b = np.meshgrid(np.linspace(-0.3, 3.2, 90), np.linspace(-2.3, 0.5, 90))
    axes.contourf(w, b, np.log10(_loss(w, b)), levels=14, cmap="Blues_r", alpha=0.85)
    x, y = _points()
    slope, intercept, _ = best_fit(x[:, None], y[:, None])
    axes.plot(slope, intercept, "*", color="gold", markersize=17, markeredgecolor="#000000", zorder=5)
    axes.set_xlabel("w")
    axes.set_ylabel("b", rotation=0)


@figure("why-neuron")
def neuron(canvas: Canvas) -> str:
    """A neuron with one input, and the points that it is to fit."""
    left, right = canvas.axes(1, 2)
    left.set(xlim=(0, 10), ylim=(0, 6))
    left.axis("off")
    for x, y, name in ((1.2, 4.2, "x"), (1.2, 1.6, "1"), (8.3, 3, "w x + b")):
        left.text(x, y, name, ha="center", va="center", fontsize=20)
    left.plot([5.2], [3], "o", color=BLUE, markersize=52)
    left.text(5.2, 3, "+", ha="center", va="center", fontsize=26, color="#ffffff")
    for start, name, y in (((1.6, 4.1), "w", 4.15), ((1.6, 1.7), "b", 1.7)):
        left.annotate(
            "",
            (4.5, 3 + (0.3 if y > 3 else -0.3)),
            start,
            arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 2.5},
        )
        left.text(3.0, y, name, fontsize=18, color=ORANGE, weight="bold", ha="center")
    left.annotate("", (7.1, 3), (5.9, 3), arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 2.5})
    x, y = _points()
    slope, intercept, _ = best_fit(x[:, None], y[:, None])
    right.plot(x, y, "o", color=BLUE, markersize=5, alpha=0.8)
    ends = np.array([-1.0, 1.0])
    (line,) = right.plot(ends, slope * ends + intercept, color=ORANGE, linewidth=3)
    canvas.step(line, 1)
    right.set(xlabel="x", xticks=[-1, 0, 1])
    right.set_ylabel("y", rotation=0)
    return "A neuron adds w times x and b; beside it a hundred points that scatter about a line"


@figure("why-descent")
def descent(canvas: Canvas) -> str:
    """Gradient descent on the surface of the line, and the loss along it."""
    left, right = canvas.axes(1, 2)
    path = _path(40, 100)
    _bowl(left)
    left.plot(path[:, 0], path[:, 1], ".-", color=ORANGE, markersize=8, linewidth=1.8)
    right.plot(_loss(path[:, 0], path[:, 1]), ".-", color=ORANGE, markersize=8)
    right.set(yscale="log", xlabel="step", ylabel="loss")
    right.set_yticks([0.3, 1, 3], ["0.3", "1", "3"])
    right.minorticks_off()
    return "Left, the loss over w and b, a bowl, with the path of forty steps to its lowest point; right, the loss"


def _stops(losses: list[float], patience: int, tolerance: float = 1e-3) -> int:
    """The epoch at which lab 1's rule says stop."""
    for epoch in range(patience + 1, len(losses) + 1):
        before, recent = min(losses[: epoch - patience]), min(losses[epoch - patience : epoch])
        if recent >= before * (1 - tolerance):
            return epoch
    return len(losses)


@figure("why-stop")
def stop(canvas: Canvas) -> str:
    """Losses of an example that fall noisily, and where two rules stop."""
    axes = canvas.axes()
    epochs = np.arange(1, 31)
    noise = np.random.default_rng(51).normal(0, 0.045, len(epochs))
    losses = list(0.25 + 1.9 * np.exp(-epochs / 5.0) + noise * (1 + np.exp(-epochs / 8)))
    axes.plot(epochs, losses, "o-", color=BLUE)
    for patience, colour, step, name in (
        (1, RED, 1, "the first epoch that is not better"),
        (3, GREEN, 2, "three epochs without a better one"),
    ):
        at = _stops(losses, patience)
        text = axes.annotate(f"{name}: stops at {at}", (at, losses[at - 1]), (30, 62 if patience == 1 else 50),
                             textcoords="offset points", color=colour, weight="bold", fontsize=14,
                             arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2})  # fmt: skip
        canvas.step(text, step)
    axes.set(xlabel="epoch", ylabel="loss", ylim=(0, 2.1), yticks=[0, 0.5, 1, 1.5, 2])
    return "A loss that falls with noise: one rule stops at the first epoch that is no better, a patient one later"


@figure("why-batches")
def batches(canvas: Canvas) -> str:
    """A hundred samples in batches of 16: six whole ones and one of four."""
    axes = canvas.blank(22.5, 8)
    colours = (BLUE, ORANGE, GREEN, VIOLET, RED, GREY, INK)
    of = np.empty(100, dtype=int)
    for number, rows in enumerate(_rows(100, 16, 1)):
        of[rows] = number
    for sample in range(100):
        column, row = sample % 10, sample // 10
        axes.add_patch(_box(0.2 + 0.75 * column, 6.9 - 0.75 * row, 0.62, 0.62, colours[of[sample]]))
    axes.annotate("", (10.6, 3.9), (8.4, 3.9), arrowprops={"arrowstyle": "-|>", "color": INK, "linewidth": 2.5})
    axes.text(9.5, 4.4, "shuffle", ha="center", fontsize=13)
    for number in range(7):
        size = int((of == number).sum())
        for place in range(size):
            box = axes.add_patch(_box(11.2 + 0.5 * place, 6.85 - 1.1 * number, 0.42, 0.7, colours[number]))
            canvas.step(box, 1)
        text = axes.text(19.5, 7.2 - 1.1 * number, f"step {number + 1}: {size}", va="center", fontsize=15)
        canvas.step(text, 1)
    return "A hundred samples, shuffled, become six batches of sixteen and one of four: seven steps an epoch"


# ---------------------------------------------------------------------------------------------------------------------
# Figures of D2: what a network adds


@figure("why-bend")
def bend(canvas: Canvas) -> str:
    """Two layers without and with a nonlinearity, fitted to the same example."""
    x = np.linspace(-1, 1, 60)
    target = np.sin(3.4 * x) * (1 - 0.35 * x)
    noisy = target + np.random.default_rng(2).normal(0, 0.12, len(x))
    for axes, units, name, colour in zip(
        canvas.axes(1, 2, sharey=True), (0, 8), ("linear, linear", "linear, ReLU, linear"), (RED, GREEN), strict=True
    ):
        knots = np.linspace(-1, 0.8, units) if units else np.array([])
        design = np.column_stack([np.ones_like(x), x, *(np.maximum(x - knot, 0) for knot in knots)])
        weights = np.linalg.lstsq(design, noisy, rcond=None)[0]
        axes.plot(x, noisy, "o", color=BLUE, markersize=4.5, alpha=0.7)
        axes.plot(x, design @ weights, color=colour, linewidth=3.5)
        axes.set(title=name, xlabel="x", xticks=[-1, 0, 1])
    return "Two linear layers can only draw a line through bent points; with a ReLU between them the curve bends along"


@figure("why-connections")
def connections(canvas: Canvas) -> str:
    """All connections beside those of a convolution, whose weights are shared."""
    axes = canvas.blank(22, 8)
    for left, name, note in (
        (1.5, "all connected", "every line a weight of its own: 49"),
        (13.0, "convolution", "three weights, used again at every place"),
    ):
        top = np.linspace(left, left + 6.6, 7)
        for one, low in enumerate(top):
            for other, high in enumerate(top):
                near = other - one
                if left < 5:
                    axes.plot([low, high], [2.1, 5.6], color=GREY, linewidth=0.9)
                elif abs(near) <= 1:
                    axes.plot([low, high], [2.1, 5.6], color=(BLUE, ORANGE, GREEN)[near + 1], linewidth=2.4)
        axes.plot(top, [2.1] * 7, "o", color=INK, markersize=12)
        axes.plot(top, [5.6] * 7, "o", color=INK, markersize=12)
        axes.text(left + 3.3, 6.9, name, ha="center", fontsize=17, weight="bold")
        axes.text(left + 3.3, 0.7, note, ha="center", fontsize=14)
    return "Seven inputs and seven outputs: all connected by 49 lines, or each to three by shared weights"


@figure("why-layers")
def layers(canvas: Canvas) -> str:
    """Weights and multiply-adds of each layer of the task's network, counted from its shapes."""
    names = ("convolution 1", "convolution 2", "linear 1", "linear 2")
    weights = (9 * 32, 9 * 32 * 64, 64 * 49 * 128, 128 * 10)
    work = (28 * 28 * weights[0], 14 * 14 * weights[1], weights[2], weights[3])
    left, right = canvas.axes(1, 2, sharey=True)
    for axes, counts, title, colour in (
        (left, weights, "weights", BLUE),
        (right, work, "multiply-adds an image", ORANGE),
    ):
        axes.barh(range(4), counts, color=colour, height=0.62)
        for place, count in enumerate(counts):
            axes.text(count * 1.2, place, f"{count:,}", va="center", fontsize=13, weight="bold")
        axes.set(xscale="log", xlim=(100, max(counts) * 30), title=title, ylim=(3.6, -0.6))
        axes.set_yticks(range(4), names)
        axes.minorticks_off()
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
    return (
        "The linear layer has most of the weights, 401,408; the second convolution does most of the work, 3.6 million"
    )


@figure("why-skip")
def skip(canvas: Canvas) -> str:
    """A block without and with a connection past it."""
    axes = canvas.blank(12, 10)
    for left, residual in ((2.8, False), (9.0, True)):
        colour = GREEN if residual else GREY
        for y, text in ((6.8, "layer"), (4.6, "layer")):
            axes.text(left, y, text, ha="center", va="center", fontsize=15,
                      bbox={"boxstyle": "round,pad=0.55", "facecolor": "none", "edgecolor": INK})  # fmt: skip
        for high, low in ((8.9, 7.5), (6.1, 5.3), (3.9, 2.6 if residual else 1.4)):
            axes.annotate(
                "", (left, low), (left, high), arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 2}
            )
        axes.text(left, 9.3, "x", ha="center", fontsize=17)
        if residual:
            axes.plot([left, left + 2.1, left + 2.1], [8.5, 8.5, 2.2], color=colour, linewidth=3.5)
            axes.annotate(
                "",
                (left + 0.4, 2.2),
                (left + 2.15, 2.2),
                arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 3.5},
            )
            axes.text(left, 2.2, "+", ha="center", va="center", fontsize=22, weight="bold", color=colour)
            axes.annotate("", (left, 1.1), (left, 1.8), arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 2})
        axes.text(left, 0.4, "x + F(x)" if residual else "F(x)", ha="center", fontsize=17)
    return (
        "A plain block gives F of x; with a skip connection x goes past the two layers and is added to what they give"
    )


@figure("why-batch-norm")
def batch_norm(canvas: Canvas) -> str:
    """Outputs of three channels before and after they are normalised over a batch: an example."""
    generator = np.random.default_rng(4)
    channels = [generator.normal(mean, spread, 400) for mean, spread in ((-2.5, 0.5), (0.5, 1.6), (3.5, 0.9))]
    bins = np.linspace(-6, 7, 53)
    for axes, title, normalise in zip(canvas.axes(2, 1, sharex=True), ("before", "after"), (False, True), strict=True):
        for channel, colour in zip(channels, (BLUE, ORANGE, GREEN), strict=True):
            shown = (channel - channel.mean()) / channel.std() if normalise else channel
            axes.hist(shown, bins=bins, color=colour, alpha=0.6)
        axes.set_title(title, loc="left")
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    return "Three channels with different means and spreads; after normalisation all lie on each other, about zero"


# ---------------------------------------------------------------------------------------------------------------------
# Figures of D2: surfaces


@figure("why-two-surfaces", SURFACE)
def two_surfaces(canvas: Canvas, record: Record) -> str:
    """The bowl of the line, beside a plane through the weights of the trained network."""
    measured = json.loads((record.folder / "measurements" / "0-paceline-2.json").read_text(encoding="utf-8"))
    network = np.array(measured["loss"])
    along = np.linspace(-1, 1, len(network))
    x, y = _points()
    slope, intercept, _ = best_fit(x[:, None], y[:, None])
    w, b = np.meshgrid(slope + 2 * along, intercept + 2 * along)
    line = _loss(w, b)
    for place, (heights, name, up) in enumerate(
        ((line, "the line: computed", 34), (network, "a network: measured", 34)), start=1
    ):
        axes = canvas.figure.add_subplot(1, 2, place, projection="3d")
        across, deep = np.meshgrid(along, along)
        axes.plot_surface(
            across, deep, heights, cmap="viridis", rstride=1, cstride=1, edgecolor="#00000030", linewidth=0.3
        )
        axes.view_init(elev=up, azim=-56)
        axes.set_axis_off()
        axes.set_title(name, y=-0.12)
        axes.set_box_aspect((1, 1, 0.62), zoom=1.22)
    return "Two surfaces: that of the line is a smooth bowl; that of the network has one valley with uneven, bent walls"


@figure("why-between", "minima")
def between(canvas: Canvas, record: Record) -> str:
    """Loss on the straight line between two trained networks."""
    axes = canvas.axes()
    found = _between(record)
    points, losses, ends = found["points"], found["loss"], found["ends"]
    shown = [(at, loss) for at, loss in zip(points, losses, strict=True) if -0.13 <= at <= 1.13]
    axes.plot([at for at, _ in shown], [loss for _, loss in shown], color=BLUE, linewidth=3)
    axes.plot([0, 1], ends, "o", color=ORANGE, markersize=12, zorder=4)
    axes.annotate(
        "batch 128", (0, ends[0]), (-10, -26), textcoords="offset points", color=ORANGE, weight="bold", ha="center"
    )
    axes.annotate(
        "batch 4096", (1, ends[1]), (0, -26), textcoords="offset points", color=ORANGE, weight="bold", ha="center"
    )
    (chord,) = axes.plot([0, 1], ends, "--", color=GREY)
    at = found["barrier_at"]
    straight = ends[0] + at * (ends[1] - ends[0])
    arrow = axes.annotate(
        "",
        (at, straight + found["barrier"]),
        (at, straight),
        arrowprops={"arrowstyle": "<|-|>", "color": RED, "linewidth": 2},
    )
    text = axes.text(
        at + 0.015, straight + 0.45 * found["barrier"], f"barrier {found['barrier']:.2f}", color=RED, weight="bold"
    )
    for artist in (chord, arrow, text):
        canvas.step(artist, 1)
    axes.set(xlabel="part of the way", ylabel="training loss", ylim=(-0.04, 0.46))
    return "On the way between two trained networks the loss rises well above the straight line between its ends"


@figure("why-slices", "minima")
def slices(canvas: Canvas, record: Record) -> str:
    """Loss along one filter-normalised direction through each of three ends."""
    axes = canvas.axes()
    for setting, name, colour in (
        ("small", "batch 128", BLUE),
        ("large", "batch 4096, same rate", ORANGE),
        ("large-muon", "batch 4096, Muon", GREEN),
    ):
        line = _cell(record, f"{setting}-sharpness")["result"]["line"]
        axes.plot(line["points"], line["loss"], color=colour, label=name)
    axes.set(yscale="log", xlabel="distance, in lengths of the filters", ylabel="training loss")
    axes.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    axes.minorticks_off()
    axes.legend(fontsize=12, loc="upper center")
    return "Three slices: each falls to one lowest point at distance zero and rises on both sides, unevenly"


@figure("why-depth")
def depth(canvas: Canvas) -> str:
    """Published errors of networks of two depths, without and with skip connections."""
    axes = canvas.axes()
    for name, errors, colour in (("without skips", (27.94, 28.54), RED), ("with skips", (27.88, 25.03), GREEN)):
        axes.plot([18, 34], errors, "o-", color=colour, markersize=11, linewidth=3)
        axes.annotate(
            f"{name}: {errors[1]:.2f} %",
            (34, errors[1]),
            (12, 0),
            textcoords="offset points",
            color=colour,
            weight="bold",
            va="center",
        )
    axes.set(xlabel="layers", ylabel="top-1 error on ImageNet, %", xlim=(15, 58), ylim=(24, 29.5))
    axes.set_xticks([18, 34])
    return "From 18 to 34 layers the error rises without skip connections and falls by nearly three points with them"


@figure("why-saddle")
def saddle(canvas: Canvas) -> str:
    """Two weights in a row that are to multiply by one: a curve of minima, and a saddle at zero. An example."""
    axes = canvas.axes()
    first, second = np.meshgrid(np.linspace(-2.4, 2.4, 120), np.linspace(-2.4, 2.4, 120))
    axes.contourf(first, second, np.log10((first * second - 1) ** 2 / 2 + 0.02), levels=14, cmap="Blues_r", alpha=0.85)
    curve = np.linspace(0.42, 2.4, 60)
    for sign in (1, -1):
        axes.plot(sign * curve, sign / curve, color="gold", linewidth=4)
    for start, colour in (((-1.9, 1.75), ORANGE), ((0.35, -0.3), RED), ((1.4, -1.55), ORANGE), ((-0.05, -0.6), RED)):
        at, path = np.array(start), [np.array(start)]
        for _ in range(400):
            at = at - 0.03 * (at[0] * at[1] - 1) * at[::-1]
            path.append(at)
        axes.plot(*np.array(path).T, color=colour, linewidth=2.2)
        axes.plot(*path[0], "o", color=colour, markersize=7)
    axes.plot(0, 0, "X", color="#ffffff", markersize=13, markeredgecolor="#000000")
    axes.set(xlabel="w₁", ylabel="w₂", aspect="equal", xlim=(-2.4, 2.4), ylim=(-2.4, 2.4))
    return "Loss over two weights: minima form two curves, between them a saddle, which paths from four starts go round"


@figure("why-paths")
def paths(canvas: Canvas) -> str:
    """Paths on the surface of the line with all points, 16 and one at a time."""
    kinds = ((100, 40, ORANGE, "all 100 points"), (16, 5, GREEN, "batches of 16"), (1, 5, RED, "one at a time"))
    for axes, (size, epochs, colour, name) in zip(canvas.axes(1, 3, sharey=True), kinds, strict=True):
        path = _path(epochs, size)
        _bowl(axes)
        axes.label_outer()
        axes.plot(path[:, 0], path[:, 1], ".-", color=colour, markersize=5, linewidth=1.3)
        axes.set_title(f"{name}:\n{epochs} epochs, {len(path) - 1} steps")
    return "Three paths: smooth with all points, staggering with batches of 16, a wide cloud with one at a time"
