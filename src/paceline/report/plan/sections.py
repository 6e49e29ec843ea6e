"""A plan in words: the same numbers and the same table for the card, the page and whoever reads them from Python."""

from __future__ import annotations

from paceline.records.plan_results import AnyPlan, BatchResult, DataResult, SpeedResult, TrendsResult
from paceline.report.plan import (
    batch_figures,
    batch_section,
    data_figures,
    data_section,
    speed_figures,
    speed_section,
    trends_section,
)
from paceline.report.plan.content import Content


def warnings(result: AnyPlan) -> list[str]:
    """What must be known before any number is believed."""
    return [] if isinstance(result, TrendsResult) else list(result.warnings)


def content(result: AnyPlan) -> Content:
    """All that a card and a page show of a result besides what every plan has."""
    match result:
        case SpeedResult():
            return _speed(result)
        case BatchResult():
            return _batch(result)
        case DataResult():
            return _data(result)
        case TrendsResult():
            return _trends(result)


def _speed(result: SpeedResult) -> Content:
    answer = speed_section.table(result)
    return Content(
        title=f"{result.task}: plan of speed",
        headline=speed_section.headline(result),
        quantities=speed_section.quantities(result),
        answer=answer,
        heading="Predicted settings",
        lead="Strong scaling: the global batch stays. Weak scaling: the batch a worker stays. Neither says how many "
        "steps a target takes.",
        answers=[answer],
        figures=speed_figures.figures(result),
        bars=speed_section.mending_bars(result),
        bars_heading="What mending would give",
        bars_lead=f"Predicted, each change alone, at {speed_section.mended_at(result)}.",
    )


def _batch(result: BatchResult) -> Content:
    heat = batch_section.heat_table(result)
    answers = [batch_section.full_table(result)] if heat is not None else [batch_section.steps_table(result)]
    return Content(
        title=f"{result.task}: plan of the batch",
        headline=batch_section.headline(result),
        quantities=batch_section.quantities(result),
        answer=batch_section.table(result),
        heading="Batch and workers",
        lead=_batch_lead(result),
        answers=answers if result.table else [],
        figures=batch_figures.figures(result),
        heat=heat,
    )


def _batch_lead(result: BatchResult) -> str:
    if not result.table:
        return "No table: there was too little to predict from."
    if batch_section.timed(result):
        return "Predicted for every batch with every number of workers."
    return "Predicted for every batch. Times are not known, so numbers of workers make no difference here."


def _data(result: DataResult) -> Content:
    answer, needed = data_section.table(result), data_section.needed_table(result)
    return Content(
        title=f"{result.task}: plan of data",
        headline=data_section.headline(result),
        quantities=data_section.quantities(result),
        answer=answer,
        heading="Samples, error and cost",
        lead=f"Error is {data_section.name_of(result)}. " + "Measured where runs are, predicted everywhere.",
        answers=[*([needed] if needed is not None else []), answer],
        figures=data_figures.figures(result),
    )


def _trends(result: TrendsResult) -> Content:
    answer = trends_section.table(result.records)
    return Content(
        title="Training times over the years",
        headline=trends_section.headline(result),
        quantities=trends_section.quantities(result),
        answer=answer,
        heading="Published records",
        lead="Times and accuracies as published, efficiency and time of a step computed from them; nothing here was "
        "measured or predicted by paceline.",
        answers=[answer],
        figures=trends_section.figures(result),
    )
