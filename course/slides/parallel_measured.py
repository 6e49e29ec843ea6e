"""Deck D3: what exchanging costs, measured."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from paceline_course.checking import load_module
from paceline_course.slides.pictures import BLUE, GREEN, GREY, INK, ORANGE, RED, VIOLET, Canvas
from paceline_course.slides.registry import Record, figure, value

_base = load_module(Path(__file__).with_name("parallel.py"), "paceline_course_slides_parallel")
THROUGHPUT = _base.THROUGHPUT
SPEED = _base.SPEED
TO_ACCURACY = _base.TO_ACCURACY
LIGHT = _base.LIGHT
HEAVY = _base.HEAVY
BATCHES = _base.BATCHES


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
