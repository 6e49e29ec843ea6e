"""docs/studies/regimes.md: steps to 0.90 against batch, and the accuracy that 10 epochs buy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from bench.studies.cell import final
from bench.studies.compare import Arrival, arrivals, mean_interval
from bench.studies.pages import (
    COLOURS,
    GENERATED,
    Page,
    arrival_text,
    as_svg,
    figure,
    hardware,
    mean_text,
    median_text,
    table,
)
from bench.studies.regimes import BASE_BATCH, BATCHES, CUT_OFF, LENGTH, NAME, RULES, TARGET, reached

Rows = dict[tuple[str, int], list[Mapping[str, Any]]]
"""(rule, batch) -> its records."""
LABELS = {"none": "no rule", "linear": "linear rule"}
LOOK = {"none": (COLOURS["first"], "o", 0.97), "linear": (COLOURS["second"], "s", 1.03)}
"""Colour, marker, and a factor on the place, so that equal values do not hide each other."""
ERROR_TICKS = (5, 6, 7, 7.5, 8, 8.5, 9, 10, 12, 15, 20, 30, 50, 90)
PERFECT, MAXIMAL = -0.8, -0.2
"""Slopes of log steps against log batch: below the first is called near perfect, above the second near maximal."""


def rows_of(records: Sequence[Mapping[str, Any]], kind: str) -> Rows:
    """Cells of a kind (`target`, `10ep`); batch 128 is both rules at once."""
    found: Rows = {}
    for record in records:
        batch, rule, of_kind = record["setting"].split("-")
        if of_kind != kind:
            continue
        number = int(batch.removeprefix("b"))
        for each in RULES if number == BASE_BATCH else (rule,):
            found.setdefault((each, number), []).append(record)
    return found


def to_target(records: Sequence[Mapping[str, Any]], field: str) -> Arrival:
    """Steps, samples or elapsed_s to the target over seeds; a diverged run never arrives, one cut off might have."""
    hits = [reached(record) for record in records]
    ends = [None if r["training"]["end"] == "diverged" else r["training"][_END[field]] for r in records]
    return arrivals([None if hit is None else float(hit[field]) for hit in hits], ends)


_END = {"step": "steps", "samples": "samples", "elapsed_s": "elapsed_s"}


def slopes(rows: Rows, rule: str) -> list[tuple[int, int, float]]:
    """(smaller batch, larger batch, slope of log steps against log batch) where both medians are known."""
    known = []
    for batch in BATCHES:
        median = to_target(rows[rule, batch], "step").median if (rule, batch) in rows else None
        if median is not None:
            known.append((batch, median))
    return [
        (low, high, math.log(after / before) / math.log(high / low))
        for (low, before), (high, after) in itertools.pairwise(known)
    ]


def regime(slope: float) -> str:
    """The name of a regime by its slope; the borders are ours."""
    if slope < PERFECT:
        return "near perfect scaling"
    return "little or no gain" if slope > MAXIMAL else "diminishing returns"


def render(records: Sequence[Mapping[str, Any]]) -> Page:
    """The page of what was measured."""
    targets, fixed = rows_of(records, "target"), rows_of(records, "10ep")
    lines = [
        GENERATED,
        "",
        "# What a larger batch does: three regimes",
        "",
        *_what(records),
        f"## Steps to {TARGET:.2f}",
        "",
        "![Steps to the target against batch size](regimes-steps.svg)",
        "",
        *_target_table(targets),
        "",
        *_slope_lines(targets),
        f"## Accuracy after {LENGTH} epochs",
        "",
        f"![Test error after {LENGTH} epochs against batch size](regimes-error.svg)",
        "",
        *_accuracy_table(fixed),
        "",
        *_limits(),
    ]
    figures = {"regimes-steps.svg": steps_figure(targets), "regimes-error.svg": error_figure(fixed)}
    return Page(NAME, "\n".join(lines), figures)


def _what(records: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        "`paceline train fashion-mnist` (Fashion-MNIST, the CNN of 0.4 M parameters; SGD with momentum 0.9, "
        "weight decay 5e-4) at batches from 32 to 8192, with nothing tuned for any of them. *No rule* keeps the "
        "rate of 0.05 that belongs to batch 128; the *linear rule* multiplies it by batch / 128. Warm-up is half "
        "an epoch for all.",
        "",
        f"Time to {TARGET:.2f} is measured in runs of their own, at a constant rate after the warm-up: a rate "
        "that falls with the length of the run would make the time depend on the time allowed. They are "
        "evaluated every half epoch, stop at the first evaluation that reaches the target, and are cut off after "
        f"{CUT_OFF} epochs. Accuracy is that of runs of exactly {LENGTH} epochs with a rate lowered linearly to 0.",
        "",
        *hardware(records),
        "",
    ]


def _target_table(rows: Rows) -> list[str]:
    head = ["batch", "rule", "reached", "steps", "samples", "seconds", "most accurate"]
    body = []
    for batch in BATCHES:
        for rule in RULES:
            records = rows.get((rule, batch))
            if not records or (batch == BASE_BATCH and rule != RULES[0]):
                continue
            found = {field: to_target(records, field) for field in ("step", "samples", "elapsed_s")}
            best = [100 * value for record in records if (value := _best(record)) is not None]
            body.append(
                [
                    f"{batch}",
                    "either" if batch == BASE_BATCH else LABELS[rule],
                    f"{found['step'].arrived} of {found['step'].runs}",
                    arrival_text(found["step"]),
                    arrival_text(found["samples"]),
                    arrival_text(found["elapsed_s"]),
                    f"{max(best):.2f} %" if best else "none",
                ]
            )
    note = (
        "Medians over seeds (of two, the later), with the least and the most in brackets. `>` marks a value that "
        "is only known to be larger: the run was cut off. Seconds are of training with its evaluations."
    )
    return [*table(head, body), "", note]


def _best(record: Mapping[str, Any]) -> float | None:
    values = [e["metrics"].get("accuracy") for e in record["training"]["evaluations"]]
    return max((value for value in values if value is not None), default=None)


def _slope_lines(rows: Rows) -> list[str]:
    lines = []
    for rule in RULES:
        found = slopes(rows, rule)
        if found:
            parts = [f"{low} to {high}: {slope:+.2f} ({regime(slope)})" for low, high, slope in found]
            last = found[-1][1]
            missing = [str(batch) for batch in BATCHES if batch > last and (rule, batch) in rows]
            parts += [f"{', '.join(missing)}: not reached by most"] if missing else []
            lines.append(f"- {LABELS[rule]}: {'; '.join(parts)}")
    if not lines:
        return []
    return [
        "How steps fall as the batch grows, as the slope between medians (-1: twice the batch, half the steps; "
        f"0: nothing gained). Below {PERFECT:g} we call near perfect, above {MAXIMAL:g} little or no gain; "
        "Shallue et al. (2019, JMLR 20:112) found these three regimes in every workload that they studied, "
        "with rates tuned for every batch.",
        "",
        *lines,
        "",
    ]


def _accuracy_table(rows: Rows) -> list[str]:
    body = []
    for batch in BATCHES:
        for rule in RULES:
            records = rows.get((rule, batch))
            if not records or (batch == BASE_BATCH and rule != RULES[0]):
                continue
            values = [100 * value for record in records if (value := final(record)) is not None]
            lost = len(records) - len(values)
            text = mean_text(values) + (f"; {lost} diverged" if lost else "")
            losses = [r["training"]["train_loss"] for r in records if r["training"]["train_loss"] is not None]
            seconds = [r["training"]["elapsed_s"] for r in records if r["training"]["elapsed_s"] is not None]
            body.append(
                [
                    f"{batch}",
                    "either" if batch == BASE_BATCH else LABELS[rule],
                    f"{records[0]['training']['steps'] or 0:,}",
                    text,
                    median_text(losses),
                    median_text(seconds, ".0f"),
                ]
            )
    head = ["batch", "rule", "steps", "test accuracy, %", "loss of the last batch", "seconds"]
    return [*table(head, body), "", "Means with 95 % t intervals from 3 seeds on, with the range below that."]


def _limits() -> list[str]:
    return [
        "## What this does not show",
        "",
        "- Not the best that a batch size can do: rate, momentum and schedule are those of batch 128, or follow "
        "from one rule. With rates tuned for each batch, larger batches do better than here; the ladder "
        "(ladder.md) tries that for one of them.",
        "- Reaching a target once is not holding it: the first evaluation at or above it counts, and accuracy at a "
        "constant rate goes up and down.",
        "- Times to the target are known to half an epoch, which for the smallest batches is a large part of the "
        "whole.",
        "- The target is on the test set, as is usual for times to accuracy; nothing was chosen by it here.",
        "- One network, one data set, one machine; seconds compare batches on these cores, not on others.",
        "",
    ]


def steps_figure(rows: Rows) -> bytes:
    """Log-log; open symbols were not reached; the line of perfect scaling goes through batch 128."""
    made, (axes,) = figure()
    for rule in RULES:
        _steps_of(axes, rows, rule)
    base = to_target(rows[RULES[0], BASE_BATCH], "step").median if (RULES[0], BASE_BATCH) in rows else None
    if base is not None:
        line = [base * BASE_BATCH / batch for batch in BATCHES]
        axes.plot(BATCHES, line, color=COLOURS["grey"], linestyle="--", linewidth=1, label="perfect scaling from 128")
    _batch_axis(axes)
    axes.set_yscale("log")
    axes.set_ylabel(f"steps to {TARGET:.2f} test accuracy")
    axes.set_title(f"Steps to {TARGET:.2f} (open: not reached, cut off at {CUT_OFF} epochs)")
    axes.legend()
    return as_svg(made)


def _steps_of(axes: Axes, rows: Rows, rule: str) -> None:
    colour, marker, aside = LOOK[rule]
    line: list[tuple[float, float]] = []
    for batch in BATCHES:
        if (rule, batch) not in rows:
            continue
        found = to_target(rows[rule, batch], "step")
        if found.median is not None and found.low is not None and found.high is not None:
            line.append((aside * batch, found.median))
            reach = [[found.median - found.low], [found.high - found.median]]
            axes.errorbar([aside * batch], [found.median], yerr=reach, color=colour, capsize=3, linewidth=1)
        if found.beyond is not None:
            above = 8 if rule == RULES[0] else -16
            place = (aside * batch, found.beyond)
            axes.plot(*place, marker=marker, color=colour, fillstyle="none", linestyle="none")
            axes.annotate(f"> {found.beyond:,.0f}", place, xytext=(0, above), textcoords="offset points", ha="center")
    label = LABELS[rule]
    axes.plot([b for b, _ in line], [s for _, s in line], marker=marker, color=colour, label=label)


def error_figure(rows: Rows) -> bytes:
    """100 % less accuracy, so that both 7 and 70 can be read; means with 95 % intervals where there are 3 seeds."""
    made, (axes,) = figure()
    seen: list[float] = []
    for rule in RULES:
        colour, marker, aside = LOOK[rule]
        line = []
        for batch in BATCHES:
            values = [100 - 100 * v for record in rows.get((rule, batch), ()) if (v := final(record)) is not None]
            if not values:
                continue
            place = aside * batch
            seen += values
            line.append((place, sum(values) / len(values)))
            axes.plot([place] * len(values), values, ".", color=colour, alpha=0.5)
            found = mean_interval(values)
            if found is not None:
                reach = [[found.value - found.low], [found.high - found.value]]
                axes.errorbar([place], [found.value], yerr=reach, color=colour, capsize=3, linewidth=1)
        axes.plot([b for b, _ in line], [a for _, a in line], marker=marker, color=colour, label=LABELS[rule])
    _batch_axis(axes)
    axes.set_yscale("log")
    ticks = [tick for tick in ERROR_TICKS if min(seen, default=0) * 0.8 <= tick <= max(seen, default=0) * 1.2]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylabel("test error, %")
    axes.set_title(f"Test error after {LENGTH} epochs (every seed a dot; bars: 95 % interval of the mean)")
    axes.legend()
    return as_svg(made)


def _batch_axis(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(BATCHES, [str(batch) for batch in BATCHES])
    axes.set_xlabel("global batch")
