"""docs/studies/plan.md: what `paceline plan` predicted, beside what was measured afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.speed_coverage import KINDS, Row, wilson
from bench.studies.cells import read_json
from bench.studies.pages import COLOURS, GENERATED, Page, figure

NAME = "plan"
Result = Mapping[str, Any]
TICKS_MS = (10, 20, 30, 50, 100, 200, 300, 500, 1000, 2000)


@dataclass(frozen=True)
class Part:
    """A section of the page.

    Attributes:
        record: end of its folder's name.
        title: of the section.
        text: what was done.
        caption: of its picture; empty without one.
    """

    record: str
    title: str
    text: str
    caption: str = ""

    @property
    def picture(self) -> str:
        """Name of the figure's file."""
        return f"plan-{self.record.replace('_', '-')}.svg"


PARTS = (
    Part(
        "plan_fashion",
        "Steps and seconds to a target",
        "`paceline plan batch fashion-mnist` from runs to an accuracy of 0.88, which take a minute at most; then "
        "runs at batches that no fit has seen, one of them twice the largest. Seconds come from `paceline plan speed` "
        "of runs of 60 steps at other batches.",
        "Steps to the target: predicted with its interval, and measured (every seed a dot)",
    ),
    Part(
        "learning_curves",
        "Error at four times the data",
        "`paceline plan data` from five sizes, three seeds each; then trainings on four times the largest of them. The "
        "exponents of the fitted power laws are those of this model and training only. Intervals are "
        "those made before the measurement. Since then they allow for an error of the formula beyond the largest size; "
        "from the same runs, all five now hold what was measured, the loss at 60,000 samples as 0.31 [0.20, 0.53].",
        "Error against training samples: fitted (dots, line), predicted (bar) and measured (cross)",
    ),
    Part(
        "plan_speed",
        "Time of a step",
        "`paceline plan speed` from runs with few workers and small batches, and a probe of 10 seconds; then settings "
        "that these runs do not cover: more workers, larger batches, and some in between. Scenes are drawn at random: "
        "computing a sample and a step, size of the model, batches, numbers of workers. Computing is emulated by "
        "sleeping, so that 8 ranks can be timed on 2 cores; processes, DDP, gloo and loopback are real. Perfect "
        "scaling is the step of one worker; Pollux's form (Qiao et al. 2021) is fitted to the same runs. An 80 % "
        "interval should hold 80 % of what is then measured; the error term of the intervals was made from other "
        "scenes than those of the first table (`plan/discrepancy.py`). At its first test it held 96 of 126 (76 %, 95 % "
        "interval 68 to 83 %), but only 2 of 15 where workers outnumber cores and no run had so: there the runs do not "
        "say whether computing keeps the processor busy. Intervals of such settings were then widened. The scenes of "
        "the first table were drawn and measured after that.",
        "Unseen settings: step time predicted with its interval, and measured; coverage of the intervals by kind",
    ),
    Part(
        "noise_scale",
        "Noise scale where it is known",
        "A regression whose noise scale is 21 by construction, at fixed weights, from the norms that "
        "`paceline train --noise-every 1` records.",
    ),
)  # fmt: skip


def newest(root: Path, name: str) -> Path | None:
    """The latest record of that name, by its date."""
    found = sorted(path for path in root.glob(f"*_{name}") if (path / "result.json").exists())
    return found[-1] if found else None


def render(root: Path) -> Page | None:
    """The page of those records that are there; None without any."""
    sections: list[str] = []
    figures: dict[str, Figure] = {}
    for part in PARTS:
        record = newest(root, part.record)
        if record is None:
            continue
        result = read_json(record / "result.json")
        sections += [f"## {part.title}", "", part.text, ""]
        if part.record in DRAW:
            figures[part.picture] = DRAW[part.record](result)
            sections += [f"![{part.caption}]({part.picture})", ""]
        sections += [*_body(record), "", _made_by(record, result), ""]
    if not sections:
        return None
    intro = [
        "Every table sets what was predicted beside what was then measured by runs that no fit has seen. It shows what "
        "came out, whatever it is.",
        "",
    ]
    return Page(NAME, "\n".join([GENERATED, "", "# Predicted and measured", "", *intro, *sections]), figures)


def _body(record: Path) -> list[str]:
    """The record's tables, its headings one level deeper."""
    lines = (record / "README.md").read_text(encoding="utf-8").strip().splitlines()
    return [f"#{line}" if line.startswith("##") else line for line in lines if not line.startswith("# ")]


def _made_by(record: Path, result: Result) -> str:
    facts = result["environment"]
    return f"`{' '.join(result['command'])}` on {facts['cpu']}, {facts['cores']} cores; record {record.name}."


def _steps_figure(result: Result) -> Figure:
    made, (axes,) = figure()
    for row in result["rows"]:
        axes.plot([row["batch"]] * len(row["measured"]), row["measured"], ".", color=COLOURS["second"])
    batches = [row["batch"] for row in result["rows"]]
    steps = [row["steps"] for row in result["rows"]]
    low = [row["steps"] - (row["low"] or 0) for row in result["rows"]]
    high = [(row["high"] or row["steps"]) - row["steps"] for row in result["rows"]]
    axes.errorbar([0.96 * b for b in batches], steps, yerr=[low, high], fmt="s", color=COLOURS["first"], capsize=3)
    axes.plot([], [], "s", color=COLOURS["first"], label="predicted, 90 %")
    axes.plot([], [], ".", color=COLOURS["second"], label="measured, every seed")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(batches, [f"{batch:,}" for batch in batches])
    axes.set_xlabel("batch (samples a step)")
    axes.set_ylabel("steps to the target")
    axes.legend()
    return made


def _curves_figure(result: Result) -> Figure:
    cases = result["cases"]
    made, axes = figure(width=10.0, height=6.0, columns=len(cases)) if len(cases) < 3 else _grid(len(cases))
    for place, case in zip(axes, cases, strict=False):
        _curve(place, case)
    return made


def _grid(count: int) -> tuple[Any, list[Axes]]:

    made = Figure(figsize=(10.0, 6.4), layout="constrained")
    axes = list(made.subplots(2, -(-count // 2), squeeze=False).flat)
    for spare in axes[count:]:
        spare.set_axis_off()
    return made, axes


def _curve(axes: Axes, case: Result) -> None:
    points = np.array(case["points"], dtype=np.float64)
    law, beyond = case["law"], case["beyond"]
    axes.plot(points[:, 0], points[:, 1], ".", color=COLOURS["grey"])
    sizes = np.geomspace(points[:, 0].min(), beyond, 100)
    axes.plot(sizes, law["floor"] + law["scale"] * sizes ** -law["exponent"], color=COLOURS["first"], linewidth=1)
    low, high = case["low"] or 0.0, case["high"] if case["high"] is not None else case["predicted"]
    reach = [[case["predicted"] - low], [high - case["predicted"]]]
    axes.errorbar([beyond], [case["predicted"]], yerr=reach, fmt="s", color=COLOURS["first"], capsize=3)
    axes.plot([1.06 * beyond], [case["measured"]], "x", color=COLOURS["second"], markersize=8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    title, _, _ = case["case"].rpartition(", ")
    axes.set_title(f"{title}\nexponent {law['exponent']:.2f}, floor {law['floor']:.3g}", fontsize=9)
    axes.set_xlabel("training samples")


def _times_figure(result: Result) -> Figure:
    kind = next(name for name in ("unseen", "first", "calibration") if name in result["sets"])
    rows: Sequence[Row] = result["sets"][kind]
    made, (times, coverage) = figure(width=10.0, columns=2)
    _predicted_times(times, rows)
    _coverage(coverage, rows)
    return made


def _predicted_times(axes: Axes, rows: Sequence[Row]) -> None:
    measured = [1e3 * row["measured"] for row in rows]
    for by, label, colour, marker in (
        ("perfect", "perfect scaling", COLOURS["grey"], "o"),
        ("pollux", "Pollux's form", COLOURS["third"], "^"),
    ):
        axes.plot(measured, [1e3 * row[by] for row in rows], marker, color=colour, label=label, markersize=3)
    values = [1e3 * row["predicted"] for row in rows]
    reach = [
        [1e3 * (row["predicted"] - row["low"]) for row in rows],
        [1e3 * (row["high"] - row["predicted"]) for row in rows],
    ]
    axes.errorbar(
        measured,
        values,
        yerr=reach,
        fmt="s",
        color=COLOURS["first"],
        label="plan speed, 80 %",
        markersize=3,
        linewidth=0.8,
    )
    ends = [min(measured) * 0.9, max(measured) * 1.1]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    ticks = [tick for tick in TICKS_MS if 0.4 * ends[0] <= tick <= 1.5 * ends[1]]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([tick for tick in ticks if tick >= ends[0]], minor=False)
    axes.set_yticks(ticks)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_xlabel("measured, ms")
    axes.set_ylabel("predicted, ms")
    axes.legend(fontsize=8)


def _coverage(axes: Axes, rows: Sequence[Row]) -> None:
    """A bar a kind of setting: the share inside, with its 95 % interval."""
    groups = {name: [row["inside"] for row in rows if belongs(row)] for name, belongs in KINDS.items()}
    groups = {name: own for name, own in groups.items() if own}
    for place, own in enumerate(groups.values()):
        share = sum(own) / len(own)
        low, high = wilson(sum(own), len(own))
        axes.plot([100 * low, 100 * high], [place, place], color=COLOURS["first"], linewidth=1.2)
        axes.plot(100 * share, place, "s", color=COLOURS["first"])
    axes.axvline(80, color="black", linewidth=0.8)
    axes.set_yticks(range(len(groups)), [f"{name} ({len(own)})" for name, own in groups.items()], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("in the 80 % interval, %")


DRAW = {"plan_fashion": _steps_figure, "learning_curves": _curves_figure, "plan_speed": _times_figure}
