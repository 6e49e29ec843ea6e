"""Values and figures of the deck on large batches: the ladder, and the minima, both from records."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy import stats

from paceline_course.slides.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, Canvas
from paceline_course.slides.registry import Record, figure, value

WAYS = (("small", "batch 128", BLUE), ("large", "4096, same rate", ORANGE), ("large-muon", "4096, Muon", GREEN))
"""Of the study of minima: how a network was trained, in the record and in words."""


def accuracies(cell: Mapping[str, Any]) -> list[float]:
    """Of a run, evaluation by evaluation."""
    return [entry["metrics"]["accuracy"] for entry in cell["training"]["evaluations"]]


def _range(numbers: Iterable[float]) -> str:
    found = [round(number) for number in numbers]
    low, high = min(found), max(found)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


# The ladder


def rung(record: Record, name: str) -> Mapping[str, Any]:
    """Of the large batch."""
    return next(found for found in record.result["large"]["rungs"] if found["rung"] == name)


def tried(record: Record, name: str, kind: str = "tried") -> dict[str, float]:
    """What was tried on a rung, with its accuracy on held-out images in percent."""
    return {found["name"]: 100 * found["accuracy"] for found in rung(record, name)[kind]}


def _bars(axes: Any, found: Mapping[str, float], colours: Mapping[str, str], least: float) -> None:
    names = list(found)[::-1]
    axes.barh(names, [found[name] - least for name in names], left=least, color=[colours[n] for n in names])
    for place, name in enumerate(names):
        axes.text(found[name] + 0.01 * (100 - least), place, f"{found[name]:.1f}", va="center", fontsize=14)
    axes.set_xlim(least, 100)
    axes.tick_params(axis="y", labelsize=14)


@figure("rules-ours", "ladder_search")
def rules_ours(canvas: Canvas, record: Record) -> str:
    """The first two rungs."""
    words = {"no-rule": "rate of 128", "sqrt": "root rule", "linear": "linear rule",
             "sqrt-2ep": "root, warm-up", "linear-2ep": "linear, warm-up"}  # fmt: skip
    found = {words[name]: number for part in ("rule", "warmup") for name, number in tried(record, part).items()}
    colours = {name: ORANGE if "warm" in name else BLUE for name in found}
    axes = canvas.axes()
    _bars(axes, found, colours, 0)
    axes.set_xlim(0, 108)
    axes.set_xlabel("held-out accuracy, %; batch 4096, SGD")
    return "At batch 4096 the rate of 128 gives most, the root less, the linear rule chance, with a warm-up hardly more"


@figure("optimizers-ours", "ladder_search")
def optimizers_ours(canvas: Canvas, record: Record) -> str:
    """Every optimizer's better rate of the two that were screened."""
    best: dict[str, float] = {}
    for name, number in tried(record, "optimizer", "screened").items():
        label = {"lars": "LARS", "lamb": "LAMB", "novograd": "NovoGrad", "muon": "Muon", "adamw": "AdamW"}
        kind = label[name.split("-")[0]]
        best[kind] = max(number, best.get(kind, 0))
    axes = canvas.axes()
    ordered = dict(sorted(best.items(), key=lambda pair: -pair[1]))
    _bars(axes, ordered, {name: GREEN if name == "Muon" else BLUE for name in ordered}, 60)
    axes.set_xlabel("held-out accuracy after 3 epochs, %")
    return "After three epochs at batch 4096 Muon is the most accurate, then LAMB and LARS, NovoGrad, AdamW"


@figure("longer-ours", "ladder_search")
def longer_ours(canvas: Canvas, record: Record) -> str:
    """What longer training added on the last rung."""
    longer = tried(record, "longer")
    found = {"10": 100 * rung(record, "longer")["before"], "20": longer["2x"], "40": longer["4x"]}
    axes = canvas.axes()
    axes.plot(list(found), list(found.values()), "o-", color=GREEN, label="batch 4096")
    for place, number in enumerate(found.values()):
        axes.text(place, number + 0.12, f"{number:.1f}", ha="center", fontsize=15)
    axes.set(xlabel="epochs", ylabel="held-out accuracy, %", ylim=(92, 94.8), xlim=(-0.4, 2.4))
    axes.legend(loc="lower right", fontsize=13)
    return "Held-out accuracy of batch 4096 rises with twice, and again with four times the epochs"


@figure("ladder", "ladder_search")
def ladder(canvas: Canvas, record: Record) -> str:
    """Best so far after each rung, for both sides."""
    axes = canvas.axes()
    words = {"rule": "rule", "warmup": "warm-up", "optimizer": "optimizer", "norm": "batch norm", "average": "average",
             "augment": "augment", "longer": "longer"}  # fmt: skip
    for side, label, colour, marker in (("large", "batch 4096", GREEN, "o"), ("baseline", "batch 128", BLUE, "s")):
        after = [100 * found["after"] for found in record.result[side]["rungs"]]
        axes.plot(range(len(after)), after, color=colour, marker=marker, drawstyle="steps-post", label=label)
    for place, found in enumerate(record.result["large"]["rungs"]):
        for one in found["tried"]:
            if one["accuracy"] > 0.8 and one["name"] != found["kept"]:
                axes.plot(place, 100 * one["accuracy"], "x", color=GREEN, markersize=9)
    axes.plot([], [], "x", color=GREEN, markersize=9, label="tried at 4096, not kept")
    axes.set_xticks(range(len(words)), list(words.values()))
    axes.set(ylabel="held-out accuracy, %", ylim=(81, 95))
    axes.legend(loc="lower right", fontsize=14)
    return (
        "Best accuracy after each rung: batch 4096 climbs from 88.7 by a change of optimizer to 92.1 and by longer "
        "training to 94.2 percent; batch 128 stays near 93.3"
    )


@figure("ladder-confirm", "ladder_confirm")
def ladder_confirm(canvas: Canvas, record: Record) -> str:
    """Every new seed a dot; beside it the difference of means."""
    left, right = canvas.axes(1, 2, width_ratios=(3, 2))
    sides = (("baseline", "batch 128", BLUE), ("large", "batch 4096", GREEN))
    for place, (side, _, colour) in enumerate(sides):
        points = record.result["points"][side]
        left.plot(points, place + np.linspace(-0.12, 0.12, len(points)), "o", color=colour, alpha=0.75)
        left.plot([statistics.mean(points)], [place], "|", color=INK, markersize=34, markeredgewidth=2.5)
    left.set_yticks(range(2), [label for _, label, _ in sides], fontsize=15)
    left.set(ylim=(-0.6, 1.6), xlabel="test accuracy, %; each dot a seed")
    found, margin = record.result["difference"], record.result["margin_points"]
    reach = [[found["points"] - found["low"]], [found["high"] - found["points"]]]
    right.errorbar([found["points"]], [0], xerr=reach, fmt="o", color=GREEN, capsize=8, markersize=10)
    right.axvline(0, color=GREY, linewidth=1.2)
    right.axvline(margin, color=RED, linestyle="--")
    right.text(margin + 0.03, 0.62, "margin", ha="left", fontsize=13)
    right.set_yticks([])
    right.set(ylim=(-0.8, 0.8), xlim=(-0.5, 1.2), xlabel="4096 less 128, points; 95 %")
    return (
        "Ten seeds a side: nearly all of batch 4096 lie above those of 128; the interval of the difference is above 0"
    )


@value("ladder.difference", "ladder_confirm")
def ladder_difference(record: Record) -> str:
    """Large less small, with its interval."""
    found = record.result["difference"]
    return f"{found['points']:+.2f} points [{found['low']:+.2f}, {found['high']:+.2f}]"


@value("ladder.large", "ladder_confirm")
def ladder_large(record: Record) -> str:
    """Mean test accuracy."""
    return f"{statistics.mean(record.result['points']['large']):.2f} %"


@value("ladder.baseline", "ladder_confirm")
def ladder_baseline(record: Record) -> str:
    """Likewise."""
    return f"{statistics.mean(record.result['points']['baseline']):.2f} %"


@value("ladder.seeds", "ladder_confirm")
def ladder_seeds(record: Record) -> str:
    """Of each side."""
    return str(len(record.result["points"]["large"]))


@value("ladder.margin", "ladder_confirm")
def ladder_margin(record: Record) -> str:
    """What was allowed to be lost."""
    return f"{record.result['margin_points']:+.1f} points".replace("-", "−")


@value("ladder.batch.large", "ladder_confirm")
def ladder_batch_large(record: Record) -> str:
    """The batch that was to keep the accuracy."""
    return record.result["large"]["flags"]["--global-batch"]


@value("ladder.batch.small", "ladder_confirm")
def ladder_batch_small(record: Record) -> str:
    """The batch whose accuracy was to be kept."""
    return record.result["baseline"]["flags"]["--global-batch"]


@value("ladder.epochs", "ladder_confirm")
def ladder_epochs(record: Record) -> str:
    """How many times the baseline's."""
    epochs = [int(record.result[side]["flags"]["--epochs"]) for side in ("large", "baseline")]
    return f"{epochs[0] / epochs[1]:g} times"


@value("ladder.steps", "ladder_confirm")
def ladder_steps(record: Record) -> str:
    """Of either side."""
    steps = {cell["setting"]: cell["training"]["steps"] for cell in record.cells}
    return f"{steps['large']:,} steps against {steps['baseline']:,}"


@value("ladder.cells", "ladder_search")
def ladder_cells(record: Record) -> str:
    """Trainings of either side."""
    return str(record.result["large"]["cells"])


@value("ladder.updates", "ladder_search")
def ladder_updates(record: Record) -> str:
    """Of a full run of the large batch on the first rungs."""
    return str(next(c for c in record.cells if c["setting"] == "large-r1-rule-linear")["training"]["steps"])


@figure("interval-by-seeds", "ladder_confirm")
def interval_by_seeds(canvas: Canvas, record: Record) -> str:
    """What the first two, three, ... seeds of either side would have said."""
    large, base = (record.result["points"][side] for side in ("large", "baseline"))
    counts = range(2, len(large) + 1)
    axes = canvas.axes()
    for n in counts:
        found = stats.ttest_ind(large[:n], base[:n], equal_var=False)
        low, high = found.confidence_interval(0.95)
        middle = statistics.mean(large[:n]) - statistics.mean(base[:n])
        axes.errorbar([n], [middle], yerr=[[middle - low], [high - middle]], fmt="o", color=BLUE, capsize=5)
    axes.axhline(0, color=GREY, linewidth=1.2)
    axes.set_xticks(list(counts))
    axes.set(xlabel="seeds a side", ylabel="difference, points; 95 %")
    return "The interval of the difference is several points wide from two seeds and shrinks to a third of one from ten"


# Minima


def sharpness(record: Record, way: str) -> list[tuple[float, float, float]]:
    """Largest eigenvalue, plain and weighted, and test accuracy, seed by seed."""
    accuracy = {cell["seed"]: 100 * accuracies(cell)[-1] for cell in record.cells if cell["setting"] == way}
    found = []
    for cell in record.cells:
        if cell["setting"] == f"{way}-sharpness" and cell["seed"] in accuracy:
            values = cell["result"]["eigenvalues"]
            found.append((max(values["values"]), max(values["weighted_values"]), accuracy[cell["seed"]]))
    return found


@figure("minima-measured", "minima")
def minima_measured(canvas: Canvas, record: Record) -> str:
    """Sharpness and accuracy, every run a dot."""
    left, right = canvas.axes(1, 2, sharey=True)
    for way, label, colour in WAYS:
        for plain, weighted, accuracy in sharpness(record, way):
            left.plot(plain, accuracy, "o", color=colour, markersize=11)
            right.plot(weighted, accuracy, "o", color=colour, markersize=11)
        left.plot([], [], "o", color=colour, markersize=11, label=label)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.margins(0.15)
    left.set_xticks([5, 10, 20, 50, 100], ["5", "10", "20", "50", "100"])
    right.set_xticks([0.5, 1, 2], ["0.5", "1", "2"])
    for axes in (left, right):
        axes.minorticks_off()
    left.set(xlabel="largest eigenvalue, plain", ylabel="test accuracy, %")
    right.set_xlabel("largest eigenvalue, weights' sizes taken out")
    left.legend(fontsize=13)
    return (
        "Batch 4096 with the rate of 128 ends sharper and less accurate than batch 128; with Muon it ends no sharper, "
        "and is less accurate as well"
    )


@value("minima.seeds", "minima")
def minima_seeds(record: Record) -> str:
    """Runs of each way, the least and the most."""
    return _range(len(sharpness(record, way)) for way, _, _ in WAYS)


@value("minima.ratio", "minima")
def minima_ratio(record: Record) -> str:
    """Largest eigenvalue of batch 4096 at the same rate over that of 128, seed by seed."""
    pairs = zip(sharpness(record, "large"), sharpness(record, "small"), strict=False)
    ratios = [large[0] / small[0] for large, small in pairs]
    low, high = min(ratios), max(ratios)
    return f"{low:.1f}" if low == high else f"{low:.1f} to {high:.1f}"


@figure("minima-slices", "minima")
def minima_slices(canvas: Canvas, record: Record) -> str:
    """Training loss along a random direction that was scaled filter by filter."""
    axes = canvas.axes()
    for way, label, colour in WAYS:
        cells = [cell for cell in record.cells if cell["setting"] == f"{way}-sharpness"]
        for place, cell in enumerate(cells):
            line = cell["result"]["line"]
            axes.plot(line["points"], line["loss"], color=colour, label=label if place == 0 else None)
    axes.set(xlabel="distance along the direction", ylabel="training loss")
    axes.legend(fontsize=13, loc="upper center")
    return "Loss along a filter-normalised direction around the three minima"
