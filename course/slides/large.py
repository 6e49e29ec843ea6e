"""Values and figures of the decks on large batches and of the review: all of them from records."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from paceline_course.slides.pictures import BLUE, GREEN, GREY, INK, ORANGE, VIOLET, Canvas
from paceline_course.slides.registry import Record, figure, value

BATCHES = (32, 128, 512, 2048, 8192)
RULES = (("none", "rate of batch 128", BLUE, "o"), ("linear", "linear rule", ORANGE, "s"))


# Regimes


def accuracies(cell: Mapping[str, Any]) -> list[float]:
    """Of a run, evaluation by evaluation."""
    return [entry["metrics"]["accuracy"] for entry in cell["training"]["evaluations"]]


def of_regime(record: Record, batch: int, rule: str, kind: str) -> list[Mapping[str, Any]]:
    """Cells of one setting, seed by seed; at batch 128 both rules are the same."""
    name = f"b{batch:04}-{'none' if batch == 128 else rule}-{kind}"
    return [cell for cell in record.cells if cell["setting"] == name]


def arrived(record: Record, batch: int, rule: str, what: str) -> list[float]:
    """Steps or elapsed_s of the runs that reached the target."""
    cells = of_regime(record, batch, rule, "target")
    return [float(cell["training"][what]) for cell in cells if cell["training"]["end"] == "target"]


def _range(numbers: Iterable[float]) -> str:
    found = [round(number) for number in numbers]
    low, high = min(found), max(found)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _arrivals(batch: int, what: str) -> Callable[[Record], str]:
    """The function that makes the value's text: least and most over seeds."""

    def made(record: Record) -> str:
        return _range(arrived(record, batch, "none", what))

    return made


steps_32 = value("regimes.steps.32", "regimes")(_arrivals(32, "steps"))
steps_128 = value("regimes.steps.128", "regimes")(_arrivals(128, "steps"))
steps_8192 = value("regimes.steps.8192", "regimes")(_arrivals(8192, "steps"))
seconds_32 = value("regimes.seconds.32", "regimes")(_arrivals(32, "elapsed_s"))
seconds_128 = value("regimes.seconds.128", "regimes")(_arrivals(128, "elapsed_s"))
seconds_8192 = value("regimes.seconds.8192", "regimes")(_arrivals(8192, "elapsed_s"))


@value("regimes.batches", "regimes")
def regimes_batches(record: Record) -> str:
    """The least and the largest that were run."""
    found = sorted({cell["training"]["global_batch"] for cell in record.cells})
    return f"{found[0]} to {found[-1]}"


@value("regimes.seeds", "regimes")
def regimes_seeds(record: Record) -> str:
    """Runs to the target of one setting."""
    return str(len(of_regime(record, 128, "none", "target")))


def _batch_axis(axes: Any, batches: Iterable[int] = BATCHES) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(batches), [f"{batch}" for batch in batches])
    axes.set_xlabel("global batch")


def _to_target(axes: Any, record: Record, what: str) -> None:
    for rule, label, colour, marker in RULES:
        runs = [(batch, arrived(record, batch, rule, what)) for batch in BATCHES]
        known = [(batch, found) for batch, found in runs if found]
        for batch, found in known:
            axes.plot([batch] * len(found), found, ".", color=colour, alpha=0.6, markersize=9)
        axes.plot([b for b, _ in known], [max(f) for _, f in known], color=colour, marker=marker, label=label)
    _batch_axis(axes)
    axes.set_yscale("log")


@figure("regime-steps", "regimes")
def regime_steps(canvas: Canvas, record: Record) -> str:
    """Steps to the target against the batch; of two runs the later makes the line, as in the study."""
    axes = canvas.axes()
    _to_target(axes, record, "steps")
    base = max(arrived(record, 128, "none", "steps"))
    axes.plot(BATCHES, [base * 128 / batch for batch in BATCHES], "--", color=GREY, label="perfect: twice, half")
    axes.set_ylabel("steps to 0.90 test accuracy")
    axes.legend(fontsize=13)
    return (
        "Steps to 0.90 fall as the batch grows, near the line of perfect scaling up to 128, ever less above it; with "
        "the linear rule the largest two batches never arrive"
    )


@figure("regime-seconds", "regimes")
def regime_seconds(canvas: Canvas, record: Record) -> str:
    """The same in seconds."""
    axes = canvas.axes()
    _to_target(axes, record, "elapsed_s")
    axes.set_yticks([30, 50, 100, 200], ["30", "50", "100", "200"])
    axes.minorticks_off()
    axes.set_ylabel("seconds to 0.90")
    axes.legend(fontsize=13)
    return "Seconds to 0.90 against the batch: least at 128, more at 32 for slow steps, most at 8192 for many samples"


@figure("regime-accuracy", "regimes")
def regime_accuracy(canvas: Canvas, record: Record) -> str:
    """Test error after ten epochs, seed by seed, so that 7 and 90 can both be read."""
    axes = canvas.axes()
    for rule, label, colour, marker in RULES:
        runs = [(b, [100 - 100 * accuracies(c)[-1] for c in of_regime(record, b, rule, "10ep")]) for b in BATCHES]
        known = [(batch, found) for batch, found in runs if found]
        axes.plot(
            [b for b, _ in known], [statistics.mean(f) for _, f in known], color=colour, marker=marker, label=label
        )
        for batch, found in known:
            axes.plot([batch] * len(found), found, ".", color=colour, alpha=0.6, markersize=9)
    _batch_axis(axes)
    axes.set_yscale("log")
    axes.set_yticks([7, 10, 20, 50, 90], ["7", "10", "20", "50", "90"])
    axes.minorticks_off()
    axes.set_ylabel("test error after 10 epochs, %")
    axes.legend(fontsize=13, loc="upper left")
    return "After ten epochs the error grows from 7 to 15 % as the batch grows to 8192; with the linear rule to chance"


@figure("patience", "regimes")
def patience(canvas: Canvas, record: Record) -> str:
    """One run's accuracy, evaluation by evaluation, around its target."""
    cell = next(c for c in of_regime(record, 2048, "none", "target") if c["seed"] == 0)
    found = [100 * number for number in accuracies(cell)]
    epochs = [entry["epoch"] for entry in cell["training"]["evaluations"]]
    axes = canvas.axes()
    axes.plot(epochs, found, "o-", color=BLUE)
    axes.axhline(90, color=GREY, linestyle="--")
    axes.text(epochs[0], 90.4, "target", color=INK, va="bottom")
    best = int(np.argmax(found[:-1]))
    axes.annotate("nearly there, and down again", (epochs[best], found[best]), (epochs[best] - 2.5, 92.6),
                  ha="center", color=INK, arrowprops={"arrowstyle": "->", "color": INK})  # fmt: skip
    axes.annotate("the first evaluation\nthat reaches it", (epochs[-1], found[-1]), (epochs[-1] - 0.4, 82),
                  ha="center", color=INK, arrowprops={"arrowstyle": "->", "color": INK})  # fmt: skip
    axes.set(xlabel="epoch", ylabel="test accuracy, %", ylim=(75, 94))
    return "Accuracy of one run rises, comes near the target, falls back several times, and then reaches it once"


@figure("read-a-log", "regimes")
def read_a_log(canvas: Canvas, record: Record) -> str:
    """Four runs of the same task, whose curves tell their story."""
    runs = (("b0128-none-target", "A", BLUE), ("b2048-none-target", "B", GREEN),
            ("b2048-linear-target", "C", ORANGE), ("b8192-none-target", "D", VIOLET))  # fmt: skip
    axes = canvas.axes()
    for setting, label, colour in runs:
        cell = next(c for c in record.cells if c["setting"] == setting and c["seed"] == 0)
        epochs = [entry["epoch"] for entry in cell["training"]["evaluations"]]
        found = [100 * number for number in accuracies(cell)]
        batch = cell["training"]["global_batch"]
        rule = "linear rule" if "linear" in setting else "rate of 128"
        axes.plot(epochs, found, color=colour, label=f"{label}: {batch}, {rule}")
        if cell["training"]["end"] == "target":
            axes.plot(epochs[-1], found[-1], "o", color=colour)
    axes.axhline(90, color=GREY, linestyle="--", linewidth=1.2)
    axes.set(xlabel="epoch", ylabel="test accuracy, %", xlim=(0, 60))
    axes.legend(fontsize=13, loc="center right")
    return (
        "Four runs: two reach 0.90 early, D after 25 epochs; C climbs to 85 %, falls to 10 % at epoch 17, comes half "
        "way back, and stays at 10 % to the end"
    )


# Throughput, noise, plans


def throughput(record: Record, workers: int, samples: int) -> list[float]:
    """Images a second of `paceline train`, block by block."""
    cell = next(c for c in record.result["cells"] if (c["world"], c["batch"]) == (workers, samples))
    return cell["contestants"]["paceline"]["images_per_s"]


@figure("samples-a-second", "2026-11-28_throughput")
def samples_a_second(canvas: Canvas, record: Record) -> str:
    """Medians with quartiles."""
    axes = canvas.axes()
    sizes = (64, 128, 512)
    for workers, colour, marker in ((1, BLUE, "o"), (2, ORANGE, "s")):
        low, middle, high = np.array([np.percentile(throughput(record, workers, n), (25, 50, 75)) for n in sizes]).T
        axes.errorbar(sizes, middle, yerr=[middle - low, high - middle], color=colour, marker=marker, capsize=4,
                      label=f"{workers} worker{'s' if workers > 1 else ''}")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size}" for size in sizes])
    axes.set(xlabel="samples a worker", ylabel="images a second", ylim=(0, None))
    axes.legend(fontsize=13, loc="lower right")
    return "Images a second rise with the samples a worker, by ever less; two workers make nearly twice as many"


def _speed_up(samples: int) -> Callable[[Record], str]:
    def made(record: Record) -> str:
        one, two = (statistics.median(throughput(record, workers, samples)) for workers in (1, 2))
        return f"{two / one:.2f}"

    return made


speed_up_64 = value("throughput.speed-up.64", "2026-11-28_throughput")(_speed_up(64))
speed_up_512 = value("throughput.speed-up.512", "2026-11-28_throughput")(_speed_up(512))


@figure("noise-scale-measured", "2026-11-28_noise_scale")
def noise_scale_measured(canvas: Canvas, record: Record) -> str:
    """Two estimates with their intervals, and the truth."""
    axes = canvas.axes()
    for place, found in enumerate(record.result["found"].values()):
        whole = found["whole"]
        reach = [[whole["value"] - whole["low"]], [whole["high"] - whole["value"]]]
        axes.errorbar([whole["value"]], [place], xerr=reach, fmt="o", color=BLUE, capsize=6, markersize=9)
        axes.text(whole["high"] + 0.1, place, f"{whole['value']:.2f}", va="center", fontsize=15)
    axes.axvline(21, color=ORANGE, linestyle="--", label="truth, by formula")
    axes.set_yticks(range(len(record.result["found"])), [f"{n} workers" for n in record.result["found"]])
    axes.set(xlabel="noise scale, 90 % interval", ylim=(-0.7, 1.9), xlim=(20, 22.6))
    axes.legend(loc="lower right", fontsize=13)
    return "Estimates of the noise scale from two and from four workers; both intervals hold the true value 21"


@value("noise.two", "2026-11-28_noise_scale")
def noise_two(record: Record) -> str:
    """From two workers."""
    whole = record.result["found"]["2"]["whole"]
    return f"{whole['value']:.1f} [{whole['low']:.1f}, {whole['high']:.1f}]"


@figure("plan-measured", "2026-11-28_plan_fashion")
def plan_measured(canvas: Canvas, record: Record) -> str:
    """Steps that a fit predicts, and those of runs that it has not seen."""
    axes = canvas.axes()
    rows = record.result["rows"]
    batches = [row["batch"] for row in rows]
    middle = np.array([row["steps"] for row in rows])
    reach = [middle - [row["low"] for row in rows], [row["high"] for row in rows] - middle]
    axes.errorbar(batches, middle, yerr=reach, fmt="s", color=BLUE, capsize=7, markersize=9, label="predicted, 90 %")
    for row in rows:
        measured = row["measured"]
        axes.plot([1.12 * row["batch"]] * len(measured), measured, "o", color=ORANGE, alpha=0.7,
                  label="measured, each seed" if row is rows[0] else None)  # fmt: skip
    _batch_axis(axes, batches)
    axes.set_yscale("log")
    axes.set_yticks([100, 200, 500, 1000], ["100", "200", "500", "1000"])
    axes.minorticks_off()
    axes.set_ylabel("steps to 0.88")
    axes.legend(fontsize=13)
    return (
        "Predicted and measured steps agree at batches 64 and 256; at 2048, beyond the fit, twice as many were needed"
    )


# What the tool does, for the review


@value("interruptions.identical", "2026-11-28_interruptions")
def interruptions_identical(record: Record) -> str:
    """Resumed runs that ended with the same bits, of all."""
    return f"{record.result['identical']} of {len(record.result['cases'])}"


@value("accuracy.ours", "2026-11-28_time_to_accuracy")
def accuracy_ours(record: Record) -> str:
    """Seconds to 0.90, median and range over seeds."""
    return _seconds(record, "paceline")


@value("accuracy.tutorial", "2026-11-28_time_to_accuracy")
def accuracy_tutorial(record: Record) -> str:
    """Likewise, of the tutorial's loop."""
    return _seconds(record, "tutorial")


def _seconds(record: Record, contestant: str) -> str:
    row = next(r for r in record.result["summary"] if (r["target"], r["contestant"]) == (0.9, contestant))
    found = row["train_s"]
    return f"{found['median']:.0f} s ({min(found['values']):.0f} to {max(found['values']):.0f})"


@figure("compare-runs", "2026-11-28_time_to_accuracy")
def compare_runs(canvas: Canvas, record: Record) -> str:
    """Seconds of training to 0.90, every seed a dot."""
    axes = canvas.axes()
    sides = (("tutorial", "a tutorial's\nloop", ORANGE), ("paceline", "paceline\ntrain", BLUE))
    for place, (side, _, colour) in enumerate(sides):
        row = next(r for r in record.result["summary"] if (r["target"], r["contestant"]) == (0.9, side))
        values = row["train_s"]["values"]
        axes.plot(values, place + np.linspace(-0.12, 0.12, len(values)), "o", color=colour, markersize=9)
        axes.plot([row["train_s"]["median"]], [place], "|", color=INK, markersize=40, markeredgewidth=2.5)
    axes.set_yticks(range(2), [label for _, label, _ in sides])
    axes.set(xlabel="seconds of training to 0.90", ylim=(-0.6, 1.6), xlim=(0, None))
    return "Five seeds a side: all runs of paceline train reach 0.90 before the fastest run of the tutorial's loop"


@value("accuracy.seeds", "2026-11-28_time_to_accuracy")
def accuracy_seeds(record: Record) -> str:
    """Of each side."""
    return str(record.result["summary"][0]["seeds"])
