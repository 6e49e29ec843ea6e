"""The two pictures of docs/studies/regimes.md."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.studies.cell import final
from bench.studies.compare import mean_interval
from bench.studies.pages import COLOURS, figure
from bench.studies.regimes import BASE_BATCH, BATCHES, CUT_OFF, LENGTH, RULES, TARGET, reached
from bench.studies.regimes_rows import LABELS, Rows, to_target

LOOK = {"none": (COLOURS["first"], "o", 0.97), "linear": (COLOURS["second"], "s", 1.03)}
"""Colour, marker, and a factor on the place, so that equal values do not hide each other."""
ERROR_TICKS = (5, 6, 7, 7.5, 8, 8.5, 9, 10, 12, 15, 20, 30, 50, 90)
COARSE_TICKS = (5, 7, 10, 15, 20, 30, 50, 90)


def steps_figure(rows: Rows) -> Figure:
    """Log-log; every run that arrived is a dot; the line of perfect scaling goes through the median of batch 128."""
    made, (axes,) = figure()
    for rule in RULES:
        _steps_of(axes, rows, rule)
    base = to_target(rows[RULES[0], BASE_BATCH], "step").median if (RULES[0], BASE_BATCH) in rows else None
    if base is not None:
        line = [base * BASE_BATCH / batch for batch in BATCHES]
        axes.plot(BATCHES, line, color=COLOURS["grey"], linestyle="--", linewidth=1, label="perfect scaling from 128")
    _batch_axis(axes)
    found = [to_target(records, "step") for records in rows.values()]
    if any(each.arrived or each.cut_off for each in found):  # an empty axis has no logarithm
        axes.set_yscale("log")
    axes.set_ylabel(f"steps to {TARGET:.2f} test accuracy")
    axes.set_title(f"Steps to {TARGET:.2f} (dots: runs; open: cut off at {CUT_OFF} epochs)")
    axes.legend()
    return made


def _steps_of(axes: Axes, rows: Rows, rule: str) -> None:
    colour, marker, aside = LOOK[rule]
    line: list[tuple[float, float]] = []
    for batch in BATCHES:
        records = rows.get((rule, batch), [])
        if not records:
            continue
        hits = [float(hit["step"]) for record in records if (hit := reached(record)) is not None]
        axes.plot([aside * batch] * len(hits), hits, ".", color=colour, alpha=0.5)
        found = to_target(records, "step")
        if found.median is not None:
            line.append((aside * batch, found.median))
        if found.beyond is not None:
            above = 8 if rule == RULES[0] else -16
            place = (aside * batch, found.beyond)
            axes.plot(*place, marker=marker, color=colour, fillstyle="none", linestyle="none")
            axes.annotate(f"> {found.beyond:,.0f}", place, xytext=(0, above), textcoords="offset points", ha="center")
    label = LABELS[rule]
    axes.plot([b for b, _ in line], [s for _, s in line], marker=marker, color=colour, label=label)


def error_figure(rows: Rows) -> Figure:
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
    low, high = min(seen, default=0) * 0.8, max(seen, default=0) * 1.2
    # Over a wide range the fine ticks would stand on each other.
    fits = ERROR_TICKS if high < 4 * low else tuple(tick for tick in ERROR_TICKS if tick in COARSE_TICKS)
    ticks = [tick for tick in fits if low <= tick <= high]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylabel("test error, %")
    axes.set_title(f"Test error after {LENGTH} epochs (every seed a dot; bars: 95 % interval of the mean)")
    axes.legend()
    return made


def _batch_axis(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(BATCHES, [str(batch) for batch in BATCHES])
    axes.set_xlabel("global batch")
