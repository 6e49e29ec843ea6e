"""`paceline plan batch` in words and tables: facts, the table of batch and workers, the recommendation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from paceline.records.plan_results import BatchResult, BatchRow, Estimate, Recommendation
from paceline.report import words
from paceline.report.page.figures import Table, tabulate
from paceline.report.plan.content import Cell, Heat
from paceline.report.plan.evidence import held_out_quantity
from paceline.report.plan.numbers import (
    NO_END,
    NOT_KNOWN,
    OUT_OF_REACH,
    about,
    duration,
    interval_of,
    percent,
    value_of,
)
from paceline.report.quantities import Quantity

MISSED = ", target missed"
"""Said of a batch at which a run did not meet the target."""


def headline(result: BatchResult) -> str:
    """What it is about: one line."""
    goal = f"to {result.metric} {result.target:g}" if result.target is not None else "no target given"
    reached = sum(point.steps is not None for point in result.points)
    if result.points:
        runs = f"{reached} of {words.plural(len(result.points), 'measured run')} reached it"
        guessed = "; other batches are guessed from the noise of its gradients" if result.critical is None else ""
        return f"{goal} · {runs}{guessed}"
    return f"{goal} · from the noise of gradients alone, no run to a target"


def aim(result: BatchResult) -> str:
    """What steps and times lead to."""
    return "to the target" if result.target is not None else "for the same progress"


def ends_name(result: BatchResult) -> str:
    """What the ends of steps and times are: of an interval, or the bounds that noise alone allows."""
    if result.critical is None:
        return "bounds"
    return f"{percent(result.evidence.confidence)} interval"


def quantities(result: BatchResult) -> list[Quantity]:
    """Every number, in the order of reading."""
    found = list(_recommended(result))
    confidence = percent(result.evidence.confidence)
    if result.critical is None:
        detail = "needs runs to the target at three batch sizes or more"
        found.append(Quantity.of("critical batch", NOT_KNOWN, detail, sure=False))
    else:
        detail = (
            f"fitted; {confidence} interval {interval_of(result.critical)}; takes twice the fewest steps and samples"
        )
        sure = result.critical.value is not None and result.critical.high is not None
        found.append(Quantity.of("critical batch", value_of(result.critical), detail, sure=sure))
    found += list(_noise(result, confidence))
    found.append(held_out_quantity(result.evidence))
    for name, one in (("fewest steps", result.least_steps), ("fewest samples", result.least_samples)):
        if one is not None:
            how = "with a batch without bounds" if name == "fewest steps" else "with the smallest batches"
            detail = f"fitted; {how}; {confidence} interval {interval_of(one)}"
            found.append(Quantity.of(name, value_of(one), detail, sure=one.value is not None))
    if result.worst_error is not None:
        detail = "largest distance of the curve from the measured runs of a batch size"
        found.append(Quantity.of("error of the fit", words.share(abs(result.worst_error)), detail))
    if result.branches:
        failed = sum(branch.loss is None for branch in result.branches)
        detail = "short measured runs from one checkpoint, at several batches" + (
            f"; {failed} diverged" if failed else ""
        )
        found.append(Quantity.of("branches", words.integer(len(result.branches)), detail, sure=not failed))
    return found


def _recommended(result: BatchResult) -> Iterator[Quantity]:
    advice = result.recommendation
    if advice is None:
        yield Quantity.of("recommended batch", "none", "no setting of the table is efficient enough", sure=False)
        return
    on = f"on {words.plural(advice.workers, 'worker')}" if advice.workers is not None else "on any workers"
    yield Quantity.of("recommended batch", words.integer(advice.batch), on)
    if advice.lr is not None:
        detail = f"rule: {advice.rule}"
        if advice.lr_interval is not None:
            confidence = percent(result.evidence.confidence)
            detail = f"{confidence} interval {interval_of(advice.lr_interval)}, that of the noise scale; {detail}"
        yield Quantity.of("recommended learning rate", f"{advice.lr:.3g}", detail)
    row = chosen_row(result)
    if row is None:
        return
    if row.time_s is not None:
        ends = interval_of(row.time_s, words.duration)
        detail = f"{aim(result)}; {ends_name(result)} {ends}"
        yield Quantity.of("predicted time", value_of(row.time_s, duration), detail, sure=row.time_s.value is not None)
    yield Quantity.of(
        "predicted efficiency", words.share(row.efficiency), efficiency_in_words(row, result.evidence.confidence)
    )


def _noise(result: BatchResult, confidence: str) -> Iterator[Quantity]:
    """One noise scale for all steps that count, and why that of the last ones is another; older records have only
    stretches, of which the last is shown."""
    if not result.noise:
        return
    last, run = result.noise[-1], result.run_noise
    if run is None:
        detail = f"measured; {confidence} interval {interval_of(last.noise_scale)}"
        yield _scale(f"noise scale, steps {last.first:,} to {last.last:,}", last.noise_scale, detail)
        return
    use = "steps, efficiency and rate above and below are made from it"
    if result.branches:
        use = "the table is made from it where branches do not tell"
    elif not run.used:
        use = "a second opinion from the gradients of one run: the critical batch, from runs to the target, decides"
    detail = f"measured over steps {run.first:,} to {run.last:,}; {confidence} interval {interval_of(run.noise_scale)}"
    yield _scale("noise scale", run.noise_scale, f"{detail}; {use}")
    if run.why:
        detail = f"{confidence} interval {interval_of(last.noise_scale)}; {run.why}"
        if last.exhausts_data:
            detail = f"at least as large as the data set; {detail}"
        yield _scale(f"at the end, steps {last.first:,} to {last.last:,}", last.noise_scale, detail, last.exhausts_data)


def _scale(name: str, of: Estimate, detail: str, exhausts_data: bool = False) -> Quantity:
    return Quantity.of(
        name, NO_END if exhausts_data else value_of(of), detail, sure=of.high is not None and not exhausts_data
    )


def efficiency_in_words(row: BatchRow, confidence: float) -> str:
    """Of what it is made."""
    statistical = f"a sample brings {words.share(row.statistical)} of what it does at the base batch"
    if row.statistical_interval is not None:
        statistical += f", {percent(confidence)} interval {interval_of(row.statistical_interval, words.share)}"
    if row.system is None:
        return f"{statistical}; how fast workers compute is not known"
    return f"a worker computes at {words.share(row.system)} of the speed of one alone at the base batch; {statistical}"


def chosen_row(result: BatchResult) -> BatchRow | None:
    """The row of the recommendation."""
    advice = result.recommendation
    if advice is None:
        return None
    same = (row for row in result.table if row.batch == advice.batch and advice.workers in (None, row.workers))
    return next(same, None)


def timed(result: BatchResult) -> bool:
    """Whether times are known anywhere."""
    return any(row.time_s is not None for row in result.table)


def table(result: BatchResult) -> Table:
    """Batches down, workers across, time and efficiency in each field; without times a row a batch."""
    if not timed(result):
        return steps_table(result)
    heat = heat_table(result)
    assert heat is not None
    cells = []
    for head, row in heat.rows:
        shown = [f"{cell.main}, {cell.more.replace(' efficient', '')}" if cell.main else "" for cell in row]
        cells.append([head, *(f"{one} *" if cell.chosen else one for one, cell in zip(shown, row, strict=True))])
    star = "; * recommended" if result.recommendation is not None else ""
    columns = ["Batch", *heat.columns]
    return Table(f"Predicted time {aim(result)}, and efficiency{star}", columns, cells)


def steps_table(result: BatchResult) -> Table:
    """A row a batch: steps and samples to the target."""
    rows = {row.batch: row for row in result.table}
    progress = "Progress of a sample"
    if any(row.statistical_interval is not None for row in rows.values()):
        progress += f" [{percent(result.evidence.confidence)}]"
    columns: dict[str, Callable[[BatchRow], str]] = {
        "Batch": _batch,
        "Steps": lambda row: value_of(row.steps),
        ends_name(result).capitalize(): lambda row: interval_of(row.steps),
        "Samples": lambda row: about(row.samples),
        progress: _progress,
    }
    return tabulate(f"Predicted steps {aim(result)}", rows.values(), columns)


def _progress(row: BatchRow) -> str:
    ends = row.statistical_interval
    shown = "" if ends is None else f" [{interval_of(ends, words.share)}]"
    return words.share(row.statistical) + shown


def _batch(row: BatchRow) -> str:
    return words.integer(row.batch) + (MISSED if row.missed else "")


def full_table(result: BatchResult) -> Table:
    """Every row with everything that is known of it."""
    cells, ends = [], ends_name(result).capitalize()
    for row in result.table:
        shown = [_batch(row), words.integer(row.workers), value_of(row.steps), interval_of(row.steps)]
        shown += [about(row.samples), words.rate(row.samples_per_s) if row.samples_per_s is not None else NOT_KNOWN]
        shown += [value_of(row.time_s, duration), interval_of(row.time_s, words.duration)]
        system = NOT_KNOWN if row.system is None else words.share(row.system)
        cells.append([*shown, system, _progress(row), words.share(row.efficiency)])
    columns = ["Batch", "Workers", "Steps", ends, "Samples", "Samples/s", "Time", ends]
    columns += ["System efficiency", "Statistical efficiency", "Both"]
    return Table("Predicted, every setting", columns, cells, heads=2)


def heat_table(result: BatchResult) -> Heat | None:
    """Batches down, workers across; None without times, which all that differs along a row would be."""
    if not timed(result):
        return None
    batches = sorted({row.batch for row in result.table})
    workers = sorted({row.workers for row in result.table})
    by_setting = {(row.batch, row.workers): row for row in result.table}
    times = [time for row in result.table if (time := _time(row)) is not None]
    chosen = chosen_row(result)
    rows = [
        (
            words.integer(batch),
            [_cell(by_setting.get((batch, count)), times, chosen) for count in workers],
        )
        for batch in batches
    ]
    note = (
        "Predicted. The stronger the tint, the sooner. Efficiency: progress per worker, beside one worker alone at the "
        "base batch (how fast a worker computes, times how much a sample still brings)."
    )
    columns = [words.plural(count, "worker") for count in workers]
    return Heat(f"Predicted time {aim(result)}, and efficiency", "Batch", columns, rows, note)


def _cell(row: BatchRow | None, times: Sequence[float], chosen: BatchRow | None) -> Cell:
    if row is None:
        return Cell("")
    time = _time(row)
    more = f"{100 * row.efficiency:.0f} % efficient" + (MISSED if row.missed else "")
    if time is None:
        return Cell(OUT_OF_REACH if row.time_s is not None else NOT_KNOWN, more, None, row is chosen)
    return Cell(words.duration(time), more, _away(time, times), row is chosen)


def _away(time: float, times: Sequence[float]) -> float:
    """How far from the fastest, 0 to 1, by factors."""
    least, most = min(times), max(times)
    return math.log(time / least) / math.log(most / least) if most > least > 0 else 0.0


def _time(row: BatchRow) -> float | None:
    return None if row.time_s is None else row.time_s.value


def rows_of(advice: Recommendation) -> list[tuple[str, str]]:
    """Label and value of each part of a recommendation."""
    found = [("batch", f"{advice.batch:,} samples a step")]
    if advice.workers is not None:
        found.append(("workers", f"{advice.workers:,}"))
    if advice.lr is not None:
        found.append(("learning rate", f"{advice.lr:.4g}"))
    found += [("rule", advice.rule), ("warm-up", _warm_up(advice.warmup))]
    return found


def _warm_up(text: str) -> str:
    if text in ("", "0"):
        return "none"
    return text.removesuffix("ep") + " epochs" if text.endswith("ep") else text
