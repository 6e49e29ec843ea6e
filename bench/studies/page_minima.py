"""docs/studies/minima.md: sharpness by plain and by reparametrisation-aware measures, beside accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.studies.contrasts import Records, left_out, minima_of, of_setting
from bench.studies.dispute import dispute_lines, left_out_lines
from bench.studies.figures_minima import density_figure, interpolation_figure, sharpness_figure, slices_figure
from bench.studies.minima import CURVATURE_SAMPLES, NAME, PAIRS, SEEDS, TITLES, TRAINED, cells, trained
from bench.studies.pages import GENERATED, Page, accuracy_text, diverged, hardware, median_text, steps_text, table
from bench.studies.readings import AWARE, GRADIENT, LOSS, PLAIN, WITH_ERROR, Reading, barrier, said


def render(records: Records) -> Page:
    """The page of what was measured; everything after the first table is about runs that ended in a minimum."""
    minima = minima_of(records)
    figures = {"minima-sharpness.svg": sharpness_figure(minima)}
    lines = [GENERATED, "", "# How sharp are the minima of small and large batches?", "", *_what(records)]
    lines += ["## What the runs reached", "", *_reached_table(records), "", *left_out_lines(records)]
    lines += ["## Sharpness", "", *_sharpness_tables(minima), *_error_table(minima)]
    lines += ["![Largest eigenvalue beside test accuracy, plain and weighted](minima-sharpness.svg)", ""]
    for name, made, title in (
        ("minima-density.svg", density_figure(minima), "Density of eigenvalues"),
        ("minima-slices.svg", slices_figure(minima), "Slices"),
        ("minima-interpolation.svg", interpolation_figure(minima), "From a small-batch to a large-batch minimum"),
    ):
        if made is not None:
            figures[name] = made
            lines += [f"## {title}", "", f"![{title}]({name})", ""]
    lines += [*_barrier_table(minima), *dispute_lines(minima), *_limits(records)]
    return Page(NAME, "\n".join(lines), figures)


def _what(records: Records) -> list[str]:
    planned = {cell.name for cell in cells(range(SEEDS))}
    done = planned & {f"{record['setting']}_seed{record['seed']}" for record in records}
    taken = [record for record in records if record["kind"] != "train"]
    sharp = [record for record in records if record["kind"] == "sharpness"]
    return [
        "Fashion-MNIST, the CNN of 0.4 M parameters, trained in these ways:",
        "",
        *(_setting_line(records, setting) for setting in TRAINED),
        "",
        f"All measures are of the loss on the same {CURVATURE_SAMPLES:,} training images, by `paceline landscape`, in "
        f"chunks of {said(taken, ('chunk',))}, {said(taken, ('precision',))}; batch norm: "
        f"{said(taken, ('batch_norm',))}. Keskar's sharpness is 100 (max f - f) / (1 + f), in percent, in a box of "
        f"{said(sharp, ('keskar', 'epsilon'))}; SAM's are rises of the loss, at a radius of "
        f"{said(sharp, ('sam', 'rho'))}. The trace is from {said(sharp, ('trace', 'probes'))} random vectors, its "
        f"weighted form from {said(sharp, ('trace', 'weighted_probes'))}, the density from "
        f"{said(sharp, ('density', 'probes'))}.",
        "",
        f"{len(done)} of {len(planned)} planned cells are measured ({SEEDS} seeds a setting). No cell is begun that "
        "would take the study past its budget of time, and nothing is measured at a run that diverged; what is "
        "missing stands as *not run* or *not measured*.",
        "",
        *hardware(records),
        "",
    ]


def _setting_line(records: Records, setting: str) -> str:
    """How a setting was trained, from its records; from the study's table where there is none yet."""
    runs = of_setting(records, setting)
    commands = [run["command"] for run in runs if run["command"]] or [trained(setting, 0).command]
    texts = sorted({" ".join(command[: command.index("--seed")]) for command in commands})
    used = [run["training"].get("used", {}) for run in runs]
    rates = sorted({f"{facts['lr']:g}" for facts in used if "lr" in facts})
    warm = sorted({facts["warmup_steps"] for facts in used if "warmup_steps" in facts})
    facts = [f"rate {' or '.join(rates)}"] if rates else []
    facts += [f"warm-up of {' or '.join(f'{steps:,}' for steps in warm)} steps"] if warm else []
    facts.append(f"seeds {', '.join(str(run['seed']) for run in runs)}" if runs else "not run")
    return f"- batch {TITLES[setting]}: {'; '.join(facts)}: {' and '.join(f'`{text}`' for text in texts)}"


def _reached_table(records: Records) -> list[str]:
    out = left_out(records)
    body = []
    for setting, title in TITLES.items():
        runs = of_setting(records, setting)
        if not runs:
            body.append([title, *["not run"] * 5])
            continue
        ended = {run["seed"] for run in runs if not diverged(run)}
        measured = [record for record in of_setting(records, f"{setting}-sharpness") if record["seed"] in ended]
        there = [_median(reading, measured) for reading in (LOSS, GRADIENT)]
        lost = sum((setting, run["seed"]) in out for run in runs)
        counted = f"{len(runs) - lost} of {len(runs)}"
        body.append([title, steps_text(runs), accuracy_text(runs), *there, counted])
    images = f"training loss on the {CURVATURE_SAMPLES:,} images"
    note = (
        "Steps, loss and gradient are of runs that did not diverge. Sharpness describes a minimum only where the "
        "gradient is small; read the tables below with this one."
    )
    return [*table(["batch", "steps", "test accuracy, %", images, GRADIENT.title, "minima"], body), "", note]


def _median(reading: Reading, measured: Records) -> str:
    values = reading.values(measured)
    return median_text(values) if values else "not measured"


def _sharpness_tables(minima: Records) -> list[str]:
    lines: list[str] = []
    for title, readings in (
        ("Plain: changes when weights are rescaled, though the function does not", PLAIN),
        ("Reparametrisation-aware: weighs each direction with the size of its weights", AWARE),
    ):
        body = [
            [reading.title, *(_median(reading, of_setting(minima, f"{setting}-sharpness")) for setting in TRAINED)]
            for reading in readings
        ]
        head = [title, *(f"batch {TITLES[setting]}" for setting in TRAINED)]
        lines += [*table(head, body), ""]
    return [*lines, "Medians over seeds with the range. What the landscape did not give stands as *not measured*.", ""]


def _error_table(minima: Records) -> list[str]:
    """What every measurement states of its own error, and what it says has not converged."""
    body = [
        [f"{title}, seed {record['seed']}", *(_with_error(reading, record) for reading in WITH_ERROR)]
        for setting, title in TITLES.items()
        for record in of_setting(minima, f"{setting}-sharpness")
    ]
    if not body:
        return []
    sharp = [record for record in minima if record["kind"] == "sharpness"]
    doubtful = [(reading.title, sum(reading.unconverged(record) for record in sharp)) for reading in WITH_ERROR]
    named = [f"{title} in {count} of {len(sharp)}" for title, count in doubtful if count]
    notes = [
        "An eigenvalue lies within the residual of each value. *Not converged* is said of eigenvalues where one of "
        "those asked for has a residual larger than allowed: the largest is then a lower bound. It is said of a trace "
        "whose standard error stayed larger than was asked for.",
        f"Not converged: {'; '.join(named)}." if named else "None of them is said not to have converged.",
    ]
    return [*table(["batch", *(f"{r.title} ± {r.kind}" for r in WITH_ERROR)], body), "", " ".join(notes), ""]


def _with_error(reading: Reading, record: Mapping[str, Any]) -> str:
    value, error = reading.value(record), reading.error_of(record)
    if value is None:
        return "not measured"
    found = f"{value:.4g} ± {error:.2g}" if error is not None else f"{value:.4g}, error not stated"
    return f"{found}, not converged" if reading.unconverged(record) else found


def _barrier_table(minima: Records) -> list[str]:
    body = []
    for first, second in PAIRS:
        runs = of_setting(minima, f"{first}-to-{second}")
        values = [value for run in runs if (value := barrier(run)) is not None]
        body += [[f"{TITLES[first]} to {TITLES[second]}", median_text(values)]] if values else []
    if not body:
        return []
    note = (
        "The barrier is the most by which the loss on the straight line lies above the straight line between the "
        "losses of its ends. A barrier says that this line leaves the valley, not that there is no other way round."
    )
    return [*table(["between batch", "barrier in loss"], body), "", note, ""]


def _limits(records: Records) -> list[str]:
    counts = sorted({len(of_setting(records, setting)) for setting in TRAINED})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return [
        "## What this does not show",
        "",
        "- Cause: sharpness, number of updates and training loss differ together between these settings, so two that "
        "go together need not be cause and effect.",
        f"- Anything on other networks or data, and, with {seeds} seed(s) a setting, small differences on these.",
        f"- Curvature of the whole training loss: {CURVATURE_SAMPLES:,} of 60,000 images stand for it.",
        "- Keskar's and SAM's sharpness are maxima that were searched for: what is found is a lower bound.",
        "",
    ]
