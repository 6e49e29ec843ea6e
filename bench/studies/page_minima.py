"""docs/studies/minima.md: sharpness by plain and by reparametrisation-aware measures, beside accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.studies.cell import final
from bench.studies.minima import CURVATURE_SAMPLES, NAME, PAIRS, TITLES, TRAINED
from bench.studies.pages import COLOURS, GENERATED, Page, as_svg, figure, hardware, mean_text, median_text, table
from bench.studies.readings import AWARE, GRADIENT, LOSS, PLAIN, Reading, barrier, curve, density, not_converged

Records = Sequence[Mapping[str, Any]]
SETTING_COLOURS = dict(zip(TRAINED, (COLOURS["first"], COLOURS["second"], COLOURS["third"]), strict=True))


def of_setting(records: Records, setting: str) -> Records:
    """Records of one setting, by seed."""
    return sorted((r for r in records if r["setting"] == setting), key=lambda r: r["seed"])


def render(records: Records) -> Page:
    """The page of what was measured."""
    figures = {"minima-sharpness.svg": sharpness_figure(records)}
    lines = [GENERATED, "", "# How sharp are the minima of small and large batches?", "", *_what(records)]
    lines += ["## What the runs reached", "", *_reached_table(records), ""]
    lines += ["## Sharpness", "", *_sharpness_tables(records)]
    lines += ["![Largest eigenvalue beside test accuracy, plain and weighted](minima-sharpness.svg)", ""]
    for name, made, title in (
        ("minima-density.svg", density_figure(records), "Density of eigenvalues"),
        ("minima-slices.svg", slices_figure(records), "Slices"),
        ("minima-interpolation.svg", interpolation_figure(records), "From a small-batch to a large-batch minimum"),
    ):
        if made is not None:
            figures[name] = made
            lines += [f"## {title}", "", f"![{title}]({name})", ""]
    lines += [*_barrier_table(records), *_dispute(), *_limits()]
    return Page(NAME, "\n".join(lines), figures)


def _what(records: Records) -> list[str]:
    return [
        "Fashion-MNIST, the CNN of 0.4 M parameters. Batch 128 was trained for 10 epochs, batch 4096 for 25, with the "
        "rate of 128 (no rule) and with 32 times that (linear rule), both after a warm-up of 2 epochs. All "
        f"measures are of the training loss on the same {CURVATURE_SAMPLES:,} training images, by `paceline "
        "landscape`.",
        "",
        *hardware(records),
        "",
    ]


def _reached_table(records: Records) -> list[str]:
    body = []
    for setting, title in TITLES.items():
        runs = of_setting(records, setting)
        if not runs:
            continue
        accuracy = [100 * value for run in runs if (value := final(run)) is not None]
        measured = of_setting(records, f"{setting}-sharpness")
        there = [
            median_text(values) if (values := each.values(measured)) else "not measured" for each in (LOSS, GRADIENT)
        ]
        body.append([title, f"{runs[0]['training']['steps'] or 0:,}", mean_text(accuracy), *there])
    images = f"training loss on the {CURVATURE_SAMPLES:,} images"
    note = "Sharpness describes a minimum only where the gradient is small; read the tables below with this one."
    return [*table(["batch", "steps", "test accuracy, %", images, GRADIENT.title], body), "", note]


def _sharpness_tables(records: Records) -> list[str]:
    lines: list[str] = []
    for title, readings in (
        ("Plain: changes when weights are rescaled, though the function does not", PLAIN),
        ("Reparametrisation-aware: weighs each direction with the size of its weights", AWARE),
    ):
        body = [_reading_row(records, reading) for reading in readings]
        head = [title, *(f"batch {TITLES[setting]}" for setting in TRAINED)]
        lines += [*table(head, body), ""]
    lines += [
        "Medians over seeds with the range. A measure that the landscape did not give stands as *not measured*.",
        "",
    ]
    doubtful = sum(not_converged(record) for record in records if record["kind"] == "sharpness")
    if doubtful:
        lines += [f"In {doubtful} measurement(s) the eigenvalues had not converged; they are lower bounds.", ""]
    return lines


def _reading_row(records: Records, reading: Reading) -> list[str]:
    row = [reading.title]
    for setting in TRAINED:
        values = reading.values(of_setting(records, f"{setting}-sharpness"))
        row.append(median_text(values) if values else "not measured")
    return row


def _barrier_table(records: Records) -> list[str]:
    body = []
    for first, second in PAIRS:
        runs = of_setting(records, f"{first}-to-{second}")
        values = [value for run in runs if (value := barrier(run)) is not None]
        if values:
            body.append([f"{TITLES[first]} to {TITLES[second]}", median_text(values)])
    if not body:
        return []
    note = (
        "The barrier is the most by which the loss on the straight line lies above the straight line between the "
        "losses of its ends. A barrier says that this line leaves the valley, not that there is no other way round."
    )
    return [*table(["between batch", "barrier in loss"], body), "", note, ""]


def _dispute() -> list[str]:
    return [
        "## What the dispute says",
        "",
        "- *Keskar et al. (2017, arXiv 1609.04836)* reported that large batches end in sharper minima, by the largest "
        "loss in a small box around the weights, and that these generalise worse. They compared networks trained to a "
        "low training loss; where runs here differ in training loss (table above), sharpness compares unlike points.",
        "- *Dinh et al. (2017, arXiv 1703.04933)* showed that networks with rectifiers can be rescaled, layer against "
        "layer, to be as sharp as one likes while computing the same function. So a plain measure alone can say "
        "nothing about generalisation, and batch norm makes the scale of weights arbitrary as well. That is why "
        "every plain measure here stands beside one that such a rescaling leaves alone; where the two disagree, "
        "the plain one is about the size of the weights.",
        "- *Hoffer et al. (2017, arXiv 1705.08741)* put much of the gap down to too few updates: with more of them, a "
        "rate raised by the square root and ghost batch norm, large batches caught up.",
        "- *Goyal et al. (2017, arXiv 1706.02677)* trained ImageNet at batch 8192 to the accuracy of 256 with "
        "the linear rule and a gradual warm-up: trouble in optimisation early on, not generalisation.",
        "- *Shallue et al. (2019, JMLR 20:112)* found, over 35 workloads tuned for each batch, no evidence that larger "
        "batches are worse on unseen data.",
        "",
        "So a difference in sharpness here does not explain a difference in accuracy. The page shows whether the "
        "two go together for this network, by both kinds of measure.",
        "",
    ]


def _limits() -> list[str]:
    return [
        "## What this does not show",
        "",
        "- Cause: sharpness, number of updates and training loss differ together between these settings.",
        "- Anything on other networks or data, and, with 2 or 3 seeds a setting, small differences on these.",
        f"- Curvature of the whole training loss: {CURVATURE_SAMPLES:,} of 60,000 images stand for it.",
        "- Keskar's and SAM's sharpness are maxima that were searched for: what is found is a lower bound.",
        "",
    ]


def sharpness_figure(records: Records) -> bytes:
    """A dot a run: the largest eigenvalue, plain and weighted, against test accuracy."""
    made, axes = figure(width=9.6, columns=2)
    for one, reading in zip(axes, (PLAIN[0], AWARE[0]), strict=True):
        for setting, title in TITLES.items():
            accuracy = {run["seed"]: final(run) for run in of_setting(records, setting)}
            pairs = [
                (reading.value(run), accuracy.get(run["seed"])) for run in of_setting(records, f"{setting}-sharpness")
            ]
            known = [(x, 100 * y) for x, y in pairs if x is not None and y is not None and x > 0]
            label = f"{title} (n = {len(known)})"
            one.plot([x for x, _ in known], [y for _, y in known], "o", color=SETTING_COLOURS[setting], label=label)
        one.set_xscale("log")
        one.set_xlabel(reading.title)
        one.legend()
    axes[0].set_ylabel("test accuracy, %")
    axes[0].set_title("Plain")
    axes[1].set_title("Reparametrisation-aware")
    return as_svg(made)


def density_figure(records: Records) -> bytes | None:
    """One curve a run, None where no density was measured."""
    return _curves(records, density, "eigenvalue", "density", log=True)


def slices_figure(records: Records) -> bytes | None:
    """Loss along a filter-normalised direction; None where no line was measured."""
    return _curves(records, curve, "distance along a filter-normalised direction", "training loss", log=False)


def _curves(records: Records, read: Any, across: str, up: str, *, log: bool) -> bytes | None:
    made, (axes,) = figure()
    drawn = False
    for setting, title in TITLES.items():
        runs = of_setting(records, f"{setting}-sharpness")
        for run in runs:
            found = read(run)
            if found is not None:
                axes.plot(*found, color=SETTING_COLOURS[setting], alpha=0.7, linewidth=1)
                drawn = True
        axes.plot([], [], color=SETTING_COLOURS[setting], label=f"{title} (n = {len(runs)})")
    if log:
        axes.set_yscale("log")
        axes.set_ylim(bottom=1e-6)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.legend()
    return as_svg(made) if drawn else None


def interpolation_figure(records: Records) -> bytes | None:
    """Loss on the straight lines between minima, a curve a seed; None where none was measured."""
    made, (axes,) = figure()
    drawn = False
    for (first, second), colour in zip(PAIRS, (COLOURS["second"], COLOURS["third"]), strict=True):
        runs = of_setting(records, f"{first}-to-{second}")
        for run in runs:
            found = curve(run)
            if found is not None:
                axes.plot(*found, color=colour, alpha=0.7, linewidth=1)
                drawn = True
        axes.plot([], [], color=colour, label=f"{TITLES[first]} to {TITLES[second]} (n = {len(runs)})")
    axes.set_xlabel("part of the way")
    axes.set_ylabel("training loss")
    axes.legend()
    return as_svg(made) if drawn else None
