"""docs/studies/regimes.md: steps to 0.90 against batch, and the accuracy that 10 epochs buy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.studies.cells import Study
from bench.studies.figures_regimes import error_figure, steps_figure
from bench.studies.pace import minutes
from bench.studies.pages import (
    BUSY_MARK,
    GENERATED,
    Page,
    accuracy_text,
    arrival_text,
    busy,
    busy_note,
    diverged,
    hardware,
    median_text,
    steps_text,
    table,
)
from bench.studies.regimes import CUT_OFF, LENGTH, NAME, RULES, SEEDS, TARGET, cells, hopeless
from bench.studies.regimes_rows import (
    LABELS,
    MAXIMAL,
    PERFECT,
    Rows,
    places,
    rows_of,
    slopes,
    to_target,
    without_median,
)

Records = Sequence[Mapping[str, Any]]


def render(records: Records) -> Page:
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


def _what(records: Records) -> list[str]:
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
        *_progress(records),
        "",
        *hardware(records),
        "",
    ]


def _progress(records: Records) -> list[str]:
    """How much of the plan is there, and the two rules by which the rest may be missing."""
    planned = cells(range(SEEDS))
    done = {f"{record['setting']}_seed{record['seed']}": dict(record) for record in records}
    missing = [cell for cell in planned if cell.name not in done]
    futile = sum(hopeless(cell, done) is not None for cell in missing)
    lines = [
        f"{len(planned) - len(missing)} of {len(planned)} planned cells are measured (a cell is a setting with a "
        f"seed; {SEEDS} seeds a setting). Two rules leave cells out: a target that one seed has missed is not tried "
        "again with other seeds, and no cell is begun that would take the study past its budget of time "
        f"({minutes(Study.budget_s)} where none else was given)."
    ]
    if missing:
        lines.append(
            f"Of the {len(missing)} missing, {futile} are left out by the first rule and {len(missing) - futile} were "
            "not run, for want of time or because the study has not gone that far."
        )
    return [" ".join(lines)]


def _target_table(rows: Rows) -> list[str]:
    head = ["batch", "rule", "reached", "steps", "samples", "seconds", "most accurate"]
    body = []
    for place, records in places(rows):
        if not records:
            body.append([*place, *["not run"] * 5])
            continue
        found = {field: to_target(records, field) for field in ("step", "samples", "elapsed_s")}
        best = [100 * value for record in records if (value := _best(record)) is not None]
        body.append(
            [
                *place,
                f"{found['step'].arrived} of {found['step'].runs}",
                arrival_text(found["step"]),
                arrival_text(found["samples"]),
                arrival_text(found["elapsed_s"]) + _mark(records),
                f"{max(best):.2f} %" if best else "none",
            ]
        )
    notes = [
        "Medians over seeds (of two, the later). In brackets: the runs that arrived, from the least to the most, and "
        "how many did not. `>` marks a value that is only known to be larger, since the run was cut off; a run that "
        "diverged never arrives, and is not drawn. Seconds are of training with its evaluations.",
        busy_note(record for _, records in places(rows) for record in records if not diverged(record)),
    ]
    return [*table(head, body), "", " ".join(filter(None, notes))]


def _mark(records: Records) -> str:
    """Behind seconds; those of diverged runs are not shown."""
    return BUSY_MARK if busy(record for record in records if not diverged(record)) else ""


def _best(record: Mapping[str, Any]) -> float | None:
    values = [e["metrics"].get("accuracy") for e in record["training"]["evaluations"]]
    return max((value for value in values if value is not None), default=None)


def _slope_lines(rows: Rows) -> list[str]:
    lines = []
    for rule in RULES:
        parts = [found.text for found in slopes(rows, rule)] or ["no slope, since fewer than two batches have a median"]
        if open_ones := without_median(rows, rule):
            parts.append(f"without a median: {', '.join(open_ones)}")
        lines.append(f"- {LABELS[rule]}: {'; '.join(parts)}")
    return [
        "How steps fall as the batch grows, as the slope between medians (-1: twice the batch, half the steps; "
        "0: nothing gained; n: runs of either batch). "
        f"Below {PERFECT:g} we call near perfect scaling, above {MAXIMAL:g} little or no gain, diminishing returns "
        "between them; Shallue et al. (2019, JMLR 20:112) found these three regimes in every workload that they "
        "studied, with rates tuned for every batch. A run reached the target somewhere between the evaluation before "
        "the first one that shows it and that one; the range is the least and the greatest slope that any two of "
        "these runs allow, and with n = 1 says nothing of other seeds. A regime is named where the whole range lies "
        "within it, else those at both ends.",
        "",
        *lines,
        "",
    ]


def _accuracy_table(rows: Rows) -> list[str]:
    body = []
    for place, records in places(rows):
        if not records:
            body.append([*place, *["not run"] * 4])
            continue
        ended = [record for record in records if not diverged(record)]
        losses = [loss for record in ended if (loss := record["training"]["train_loss"]) is not None]
        seconds = [time for record in ended if (time := record["training"]["elapsed_s"]) is not None]
        body.append(
            [
                *place,
                steps_text(records),
                accuracy_text(records),
                median_text(losses),
                median_text(seconds, ".0f") + _mark(records),
            ]
        )
    head = ["batch", "rule", "steps", "test accuracy, %", "loss of the last batch", "seconds"]
    notes = [
        "Means with 95 % t intervals from 3 seeds on, with the range below that; medians with the range. A run that "
        "diverged is counted and is in no other number.",
        busy_note(record for _, records in places(rows) for record in records if not diverged(record)),
    ]
    return [*table(head, body), "", " ".join(filter(None, notes))]


def _limits() -> list[str]:
    return [
        "## What this does not show",
        "",
        "- Not the best that a batch size can do: rate, momentum and schedule are those of batch 128, or follow "
        "from one rule. With rates tuned for each batch, larger batches do better than here; the ladder "
        "(ladder.md) tries that for one of them.",
        "- Reaching a target once is not holding it: the first evaluation at or above it counts, and accuracy at a "
        "constant rate goes up and down. It may have been there for a moment before, between two evaluations.",
        "- Times to the target are known to half an epoch, which for the smallest batches is a large part of the "
        "whole.",
        "- The target is on the test set, as is usual for times to accuracy; nothing was chosen by it here.",
        "- One network, one data set, one machine; seconds compare batches on these cores, not on others.",
        "",
    ]
