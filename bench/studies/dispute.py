"""What the records of the minima study say of the dispute about sharp minima: every sentence follows from them."""

from __future__ import annotations

import math

from bench.studies.contrasts import (
    HIGHER,
    LOWER,
    NO_MINIMUM_ABOVE,
    OPEN,
    Contrast,
    Records,
    left_out,
    of_accuracy,
    of_reading,
    same_way,
)
from bench.studies.minima import CURVATURE_SAMPLES, PAIRS, TITLES
from bench.studies.pages import table
from bench.studies.readings import FORMS, LOSS, Reading

WORDS = {HIGHER: "higher for every seed", LOWER: "lower for every seed", OPEN: "open"}
Measured = list[tuple[Reading, Contrast, Reading | None, Contrast | None]]
"""A row of `FORMS` with what was found of both forms."""


def dispute_lines(minima: Records) -> list[str]:
    """The section: one comparison a pair of settings, and what others found.

    Args:
        minima: records without those of runs that are no minimum.
    """
    lines = ["## Sharpness, accuracy and training loss, side by side", ""]
    lines += [
        "Ratios are large over small batch, seed against the same seed: the median, and the range over seeds. A "
        "direction is given where all seeds fall on one side by more than the two numbers' stated errors (residual, "
        "twice the standard error); else, and where a number is missing, it is open. SAM's and Keskar's numbers state "
        "no error: both are lower bounds, found by a search.",
        "",
    ]
    for pair in PAIRS:
        lines += _of_pair(minima, pair)
    return [*lines, *_literature()]


def left_out_lines(records: Records) -> list[str]:
    """Which runs are no minimum, and that they are in no number after the first table; nothing where all are."""
    found = left_out(records)
    if not found:
        return []
    named = "; ".join(f"{TITLES[setting]}, seed {seed}: {reason}" for (setting, seed), reason in found.items())
    return [
        f"No minimum, and so left out of everything below: {named}. A run that diverged is none, nor is one whose "
        f"training loss is above {NO_MINIMUM_ABOVE:.2f} (half that of guessing among ten classes, ln 10 / 2).",
        "",
    ]


def _of_pair(minima: Records, pair: tuple[str, str]) -> list[str]:
    small, large = (TITLES[setting] for setting in pair)
    accuracy, loss = of_accuracy(minima, pair), of_reading(minima, pair, LOSS)
    found: Measured = [
        (plain, of_reading(minima, pair, plain), aware, of_reading(minima, pair, aware) if aware else None)
        for plain, aware in FORMS
    ]
    lines = [f"### Batch {large}, against batch {small}", ""]
    if not any(contrast.pairs for _, contrast, _, _ in found):
        return [*lines, "Nothing to compare: no seed has a measured minimum of both.", ""]
    head = [
        "measure", "large / small", "direction", "its other form", "the sharper one is less accurate",
        "the sharper one has the higher training loss",
    ]  # fmt: skip
    return [
        *lines,
        f"- Test accuracy: {WORDS[accuracy.direction]}, {accuracy.difference_text('points')}.",
        f"- Training loss on the {CURVATURE_SAMPLES:,} images: {WORDS[loss.direction]}, ratio {loss.ratio_text}.",
        "",
        *table(head, _rows(found, accuracy.direction, loss.direction)),
        "",
        _forms_sentence(found),
        _together_sentence("less accurate", "more accurate", _known(found), _opposite(accuracy.direction)),
        _together_sentence("of higher training loss", "of lower training loss", _known(found), loss.direction),
        _chance_sentence(max(len(contrast.pairs) for contrast in _known(found))),
        "",
    ]


def _rows(found: Measured, accuracy: str, loss: str) -> list[list[str]]:
    rows = []
    for plain, of_plain, aware, of_aware in found:
        agree = "has none" if of_aware is None else _agreement(of_plain, of_aware)
        for reading, contrast in ((plain, of_plain), (aware, of_aware)):
            if reading is not None and contrast is not None:
                way = contrast.direction
                less_accurate = same_way(way, _opposite(accuracy))
                row = [reading.title, contrast.ratio_text, WORDS[way] if contrast.pairs else "", agree]
                rows.append([*row, _yes_or_no(less_accurate), _yes_or_no(same_way(way, loss))])
    return rows


def _opposite(direction: str) -> str:
    return {HIGHER: LOWER, LOWER: HIGHER, OPEN: OPEN}[direction]


def _agreement(plain: Contrast, aware: Contrast) -> str:
    return {True: "agrees", False: "disagrees", None: "open"}[same_way(plain.direction, aware.direction)]


def _yes_or_no(answer: bool | None) -> str:
    return {True: "yes", False: "no", None: "open"}[answer]


def _known(found: Measured) -> list[Contrast]:
    """Of all measures and forms that some seed has at both settings."""
    each = [contrast for _, plain, _, aware in found for contrast in (plain, aware)]
    return [contrast for contrast in each if contrast is not None and contrast.pairs]


def _forms_sentence(found: Measured) -> str:
    named: dict[str, list[str]] = {"agrees": [], "disagrees": [], "open": []}
    for plain, of_plain, _, of_aware in found:
        if of_aware is not None:
            named[_agreement(of_plain, of_aware)].append(plain.title)
    parts = [f"agree in direction for {', '.join(named['agrees'])}"] if named["agrees"] else []
    if named["disagrees"]:
        what = ", ".join(named["disagrees"])
        parts.append(f"disagree for {what}, and there the plain one may be about the size of the weights")
    parts += [f"leave it open for {', '.join(named['open'])}"] if named["open"] else []
    return f"The plain and the reparametrisation-aware form {'; '.join(parts)}."


def _together_sentence(with_it: str, against: str, contrasts: list[Contrast], same_as: str) -> str:
    """By how many measures the sharper minimum is the one that a direction says."""
    answers = [same_way(contrast.direction, same_as) for contrast in contrasts]
    yes, no, unknown = (answers.count(answer) for answer in (True, False, None))
    return (
        f"Of {len(answers)} measures, both forms counted, {yes} say that the sharper minimum is the one {with_it}, "
        f"{no} that it is the one {against}, and {unknown} leave it open."
    )


def _chance_sentence(seeds: int) -> str:
    if seeds == 1:
        return "With one seed every difference has a direction: it shows nothing of other seeds."
    share = math.pow(2, 1 - seeds)
    return (
        f"If a measure did not differ at all between the two, its {seeds} seeds would still fall on one side with a "
        f"chance of up to {share:.2g}."
    )


def _literature() -> list[str]:
    return [
        "### What others found",
        "",
        "- *Keskar et al. (2017, arXiv 1609.04836)* reported that large batches end in sharper minima, by the largest "
        "loss in a small box around the weights, and that these generalise worse. They compared networks trained to a "
        "low training loss; where runs here differ in training loss, sharpness compares unlike points.",
        "- *Dinh et al. (2017, arXiv 1703.04933)* showed that networks with rectifiers can be rescaled, layer against "
        "layer, to be as sharp as one likes while computing the same function. So a plain measure alone can say "
        "nothing about generalisation, and batch norm makes the scale of weights arbitrary as well. That is why the "
        "largest eigenvalue, the trace and SAM's sharpness stand here beside a form that such a rescaling leaves "
        "alone. Keskar's number and the density of eigenvalues have none. Where two forms disagree, the plain one may "
        "be about the size of the weights.",
        "- *Hoffer et al. (2017, arXiv 1705.08741)* put much of the gap down to too few updates: with more of them, a "
        "rate raised by the square root and ghost batch norm, large batches caught up.",
        "- *Goyal et al. (2017, arXiv 1706.02677)* trained ImageNet at batch 8192 to the accuracy of 256 with "
        "the linear rule and a gradual warm-up: trouble in optimisation early on, not generalisation.",
        "- *Shallue et al. (2019, JMLR 20:112)* found, over 35 workloads tuned for each batch, no evidence that larger "
        "batches are worse on unseen data.",
        "",
    ]
