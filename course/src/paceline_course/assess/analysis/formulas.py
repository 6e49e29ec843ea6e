"""D.rates and D.bytes: what follows from sizes alone."""

from __future__ import annotations

import math

from paceline_course.assess.analysis.context import Facts
from paceline_course.assess.analysis.judged import Part, first_match, line_of, near, number_of
from paceline_course.assess.answers import Answers
from paceline_course.assess.grade import Line

RING = 8
"""Processes in the question on the ring."""


def judge_rates(answers: Answers, facts: Facts) -> Line:
    """Steps an epoch and two rates, a third of the points each."""
    run, task = facts.run(facts.chosen), facts.rubric.task
    assert run is not None
    batch, workers, epochs = int(run["batch"]), int(run["workers"]), int(run["epochs"])
    steps, k = math.ceil(task.samples / batch), batch / task.base_batch
    right = {"linear": task.base_rate * k, "sqrt": task.base_rate * math.sqrt(k)}
    parts = [_steps(answers, facts, steps, batch, workers, epochs)]
    for rule, other in (("linear", "sqrt"), ("sqrt", "linear")):
        share = k / workers
        wrongs = [
            ("rates-swapped", right[other]),
            ("rates-per-process", task.base_rate * (share if rule == "linear" else math.sqrt(share))),
            ("rates-workers", task.base_rate * (workers if rule == "linear" else math.sqrt(workers))),
            ("rates-unscaled", task.base_rate),
            ("rates-factor", k if rule == "linear" else math.sqrt(k)),
            ("rates-inverse", task.base_rate / (k if rule == "linear" else math.sqrt(k))),
        ]
        parts.append(_part(answers, facts, ("rates", rule), right[rule], wrongs, "rates-rule"))
    return line_of(
        facts,
        "D.rates",
        parts,
        ran=f"{facts.chosen}: batch {batch}, {workers} processes, {task.samples:,} samples; "
        f"base {task.base_rate:g} at batch {task.base_batch}",
        evidence={"steps_an_epoch": steps, "k": k, **right},
    )


def _steps(answers: Answers, facts: Facts, steps: int, batch: int, workers: int, epochs: int) -> Part:
    samples = facts.rubric.task.samples
    number, problem = number_of(answers, "rates", "steps_an_epoch")
    if number is not None and number != steps:
        wrongs = [
            ("rates-floor", samples // batch),
            ("rates-per-process", math.ceil(samples * workers / batch)),
            ("rates-per-process", samples * workers // batch),
            ("rates-training", steps * epochs),
            ("rates-fraction", samples / batch),
            ("rates-base", math.ceil(samples / facts.rubric.task.base_batch)),
        ]
        problem = first_match(number, wrongs, 1e-3, "rates-steps")
    shown = f"{steps:,}, {samples:,} / {batch} with the last, smaller batch counted"
    return Part("steps an epoch", problem, shown, answers.shown("rates", "steps_an_epoch"))


def judge_bytes(answers: Answers, facts: Facts) -> Line:
    """What is handed over and what a ring sends, half of the points each; the ring follows from the own number too."""
    right = facts.gradient_bytes
    count = right / 4
    wrongs = [
        ("bytes-numbers", count),
        ("bytes-float64", 2.0 * right),
        ("bytes-bits", 8.0 * right),
        ("bytes-unit", right / 1e3),
        ("bytes-unit", right / 2**10),
        ("bytes-unit", right / 1e6),
        ("bytes-unit", right / 2**20),
        *[("bytes-all-processes", float(right * workers)) for workers in (2, 3, 4, RING)],
        *[("bytes-shared", right / workers) for workers in (2, 3, RING)],
    ]
    parts = [_part(answers, facts, ("bytes", "gradient"), right, wrongs, "bytes-gradient")]
    own, _ = number_of(answers, "bytes", "gradient")
    number, _ = number_of(answers, "bytes", "ring")
    ring = _ring(float(right))
    if number is not None and own is not None and own > 0 and near(number, _ring(own), facts.rubric.analysis.exact):
        parts.append(Part("ring"))
    else:
        parts.append(_part(answers, facts, ("bytes", "ring"), ring, _ring_wrongs(facts, right, own), "bytes-ring"))
    return line_of(
        facts,
        "D.bytes",
        parts,
        ran=f"{count:,.0f} numbers in the gradient of the variant plain, and a ring of {RING} processes",
        evidence={"gradient": right, "ring": ring},
    )


def _ring(size: float) -> float:
    return 2 * (RING - 1) / RING * size


def _ring_wrongs(facts: Facts, right: int, own: float | None) -> list[tuple[str, float]]:
    run = facts.run(facts.chosen)
    assert run is not None
    wrongs: list[tuple[str, float]] = []
    for size in [float(right)] + ([own] if own is not None and own > 0 else []):
        wrongs += [
            ("ring-one-phase", (RING - 1) / RING * size),
            ("ring-all-processes", 2 * (RING - 1) * size),
            ("ring-whole-tensor", (RING - 1) * size),
            ("ring-gradient", size),
            ("ring-limit", 2 * size),
            ("ring-one-message", size / RING),
        ]
        workers = int(run["workers"])
        wrongs += [("ring-other-number", 2 * (workers - 1) / workers * size)] if workers != RING else []
    return wrongs


def _part(
    answers: Answers,
    facts: Facts,
    asked: tuple[str, str],
    right: float,
    wrongs: list[tuple[str, float]],
    otherwise: str,
) -> Part:
    """A number that has to agree to the exact tolerance; else the mistake that gives it."""
    tolerance = facts.rubric.analysis.exact
    number, problem = number_of(answers, *asked)
    if number is not None and not near(number, right, tolerance):
        problem = first_match(number, wrongs, tolerance, otherwise)
    return Part(asked[1], problem, f"{right:,.6g}" if right < 1e6 else f"{right:,.0f}", answers.shown(*asked))
