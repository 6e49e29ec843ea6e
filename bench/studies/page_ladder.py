"""docs/studies/ladder.md: every cell that was tried, and the one comparison that was made with fresh seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.studies.ladder import sentence
from bench.studies.pages import (
    COLOURS,
    GENERATED,
    Page,
    as_cell_command,
    figure,
    hardware,
    mean_text,
    table,
)
from bench.studies.rungs import EPOCHS, HOLDOUT, LARGE_BATCH, LONGER_MUST_GAIN, SCREEN_EPOCHS

Result = Mapping[str, Any]
SIDE_LABELS = {"large": f"batch {LARGE_BATCH}", "baseline": "batch 128 (baseline)"}
SIDE_COLOURS = {"large": COLOURS["second"], "baseline": COLOURS["first"]}


def render(
    search: Result,
    search_cells: Sequence[Mapping[str, Any]],
    confirm: Result | None,
    confirm_cells: Sequence[Mapping[str, Any]],
) -> Page:
    """The page of a finished search, with the confirmation if there is one."""
    figures = {"ladder-search.svg": search_figure(search)}
    lines = [GENERATED, "", f"# Can a batch of {LARGE_BATCH} keep the accuracy of 128?", ""]
    if confirm is None:
        lines += ["**Not confirmed yet.** What follows is the search alone, and a search proves nothing.", ""]
    else:
        figures["ladder-confirm.svg"] = confirm_figure(confirm)
        lines += [f"**{sentence(confirm)}**", "", *_confirm_lines(confirm, confirm_cells)]
    lines += [*_search_lines(search, search_cells), *_limits(search)]
    return Page("ladder", "\n".join(lines), figures)


def _confirm_lines(confirm: Result, cells: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = []
    for name, label in SIDE_LABELS.items():
        epochs = confirm[name]["flags"]["--epochs"]
        lost = confirm["diverged"][name]
        text = mean_text(confirm["points"][name]) + (f"; {lost} diverged" if lost else "")
        rows.append([label, epochs, text])
    lines = [
        "## Confirmation",
        "",
        f"Both sides with seeds {confirm['seeds'][0]} to {confirm['seeds'][-1]}, which the search has not seen, "
        "in turn; all 60,000 training images; accuracy of the weights at the end on the 10,000 test images, "
        "which the search did not look at.",
        "",
        *table(["side", "epochs", "test accuracy, %"], rows),
        "",
        "![Test accuracy of every run, and the difference](ladder-confirm.svg)",
        "",
        *_checks(confirm),
        *hardware(cells),
        "",
        "The two commands (each with `--seed` and `--workers 2`):",
        "",
        "```",
        *(as_cell_command(confirm[name]["flags"]) for name in SIDE_LABELS),
        "```",
        "",
    ]
    large, baseline = (float(confirm[name]["flags"]["--epochs"]) for name in SIDE_LABELS)
    if large > baseline:
        lines += [
            f"The large batch was given {large / baseline:g} times the epochs of the baseline. That is one of the "
            "remedies, and it costs as many times the computation: kept accuracy is then not kept cost.",
            "",
        ]
    return lines


def _checks(confirm: Result) -> list[str]:
    if confirm["difference"] is None:
        return []
    boot, p = confirm["bootstrap"], confirm["shapiro_p"]
    words = ", ".join(
        f"{SIDE_LABELS[name]} {'not computable' if v is None else f'p = {v:.2f}'}" for name, v in p.items()
    )
    return [
        f"Is Welch's t in order here? Shapiro and Wilk's test of normality: {words} (with so few runs it finds "
        f"only gross departures). A bootstrap that assumes no normal distribution gives [{boot['low']:+.2f}, "
        f"{boot['high']:+.2f}].",
        "",
    ]


def _search_lines(search: Result, cells: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "## The way there",
        "",
        f"Trained on 55,000 images, chosen by the accuracy on {HOLDOUT:,} held-out training images, seed 0, {EPOCHS} "
        "epochs, a rate lowered linearly to 0. Each rung tries some changes of the best so far and keeps the "
        f"best try if it is better. Rungs with many tries screen them with {SCREEN_EPOCHS} epochs and give only "
        f"the best a full run. Longer training has to add {100 * LONGER_MUST_GAIN:g} points to be taken. The "
        "baseline climbed as many rungs with as many cells; where the large batch trains longer, it tries finer rates.",
        "",
        *hardware(cells),
        "",
        "![Held-out accuracy of every cell, rung by rung](ladder-search.svg)",
        "",
    ]
    for name, label in SIDE_LABELS.items():
        side = search[name]
        lines += [
            f"### {label[0].upper()}{label[1:]}: {side['cells']} cells, {side['epochs']:g} epochs in all",
            "",
            *table(["rung", "tried (held-out accuracy, %)", "kept", "best so far, %"], map(_rung_row, side["rungs"])),
            "",
            f"Chosen: `{as_cell_command(side['chosen'])}`",
            "",
        ]
    return lines


def _rung_row(rung: Mapping[str, Any]) -> list[str]:
    parts = []
    if rung["screened"]:
        parts.append("screen: " + ", ".join(map(_tried, rung["screened"])))
    if rung["tried"]:
        parts.append(("full: " if rung["screened"] else "") + ", ".join(map(_tried, rung["tried"])))
    return [rung["title"], "; ".join(parts), rung["kept"] or "nothing", _percent(rung["after"])]


def _tried(line: Mapping[str, Any]) -> str:
    return f"{line['name']} {_percent(line['accuracy'])}"


def _percent(value: float | None) -> str:
    return "diverged" if value is None else f"{100 * value:.2f}"


def _limits(search: Result) -> list[str]:
    tried = search["large"]["cells"] + search["baseline"]["cells"]
    return [
        "## What this does not show",
        "",
        f"- The search has one seed a cell (n = 1, no interval), and {HOLDOUT:,} images alone leave a standard "
        f"error of about 0.35 points. With {tried} cells the best one is partly luck; that is why both choices "
        "were trained anew.",
        "- A greedy ladder does not go back: something that failed early is not tried again with what was kept later.",
        f"- Screening with {SCREEN_EPOCHS} epochs favours what starts fast.",
        "- The baseline keeps its 10 epochs. Given more, it may gain as well; the question here is whether the "
        "accuracy of *that* training can be kept.",
        "- Another network, data set or batch may need other remedies.",
        "",
    ]


def search_figure(search: Result) -> Figure:
    """Every full cell as a dot, screens as small crosses, and the best so far as a line."""
    made, axes = figure(width=9.6, columns=2)
    for one, (name, label) in zip(axes, SIDE_LABELS.items(), strict=True):
        _climb_of(one, search[name], SIDE_COLOURS[name])
        one.set_title(f"{label}: held-out accuracy, n = 1 a cell")
    axes[0].set_ylabel("held-out accuracy, %")
    return made


def _climb_of(axes: Axes, side: Mapping[str, Any], colour: str) -> None:
    best: list[tuple[int, float]] = []
    values: list[float] = []
    for number, rung in enumerate(side["rungs"]):
        for lines, marker in ((rung["screened"], "x"), (rung["tried"], "o")):
            known = [100 * line["accuracy"] for line in lines if line["accuracy"] is not None]
            axes.plot([number] * len(known), known, marker, color=colour, alpha=0.6, markersize=5)
            values += known if marker == "o" else []
        if rung["after"] is not None:
            best.append((number, 100 * rung["after"]))
    axes.step([x for x, _ in best], [y for _, y in best], where="post", color=colour, label="best so far")
    axes.plot([], [], "o", color=colour, alpha=0.6, label="full run")
    axes.plot([], [], "x", color=colour, alpha=0.6, label=f"screen of {SCREEN_EPOCHS} epochs")
    if values:  # a screen or a failed rule far below would press the rest together
        top = max(values)
        axes.set_ylim(top - 12, top + 1)
    axes.set_xticks(range(len(side["rungs"])), [rung["rung"] for rung in side["rungs"]], rotation=30, ha="right")
    axes.legend(loc="lower right")


def confirm_figure(confirm: Result) -> Figure:
    """Every run as a dot, and the difference with its interval beside the margin."""
    made, (runs, difference) = figure(width=9.6, height=3.6, columns=2)
    for number, name in enumerate(SIDE_LABELS):
        values = confirm["points"][name]
        offsets = [number + 0.02 * (index - len(values) / 2) for index in range(len(values))]
        runs.plot(offsets, values, "o", color=SIDE_COLOURS[name], alpha=0.7)
        if values:
            runs.hlines(sum(values) / len(values), number - 0.25, number + 0.25, color=SIDE_COLOURS[name])
    labels = [f"{label}\nn = {len(confirm['points'][name])}" for name, label in SIDE_LABELS.items()]
    runs.set_xticks(range(len(SIDE_LABELS)), labels)
    runs.set_xlim(-0.6, len(SIDE_LABELS) - 0.4)
    runs.set_ylabel("test accuracy, %")
    runs.set_title("Every run, and the mean")
    found = confirm["difference"]
    if found is not None:
        reach = [[found["points"] - found["low"]], [found["high"] - found["points"]]]
        difference.errorbar([found["points"]], [0], xerr=reach, fmt="o", color=COLOURS["grey"], capsize=4)
    difference.axvline(confirm["margin_points"], color=COLOURS["second"], linestyle="--", label="margin")
    difference.axvline(0, color=COLOURS["grey"], linewidth=1)
    difference.set_yticks([])
    difference.set_xlabel("points of accuracy, large less baseline")
    difference.set_title("Difference with its 95 % interval")
    difference.legend(loc="upper right")
    return made
