"""How evaluations of two trainings compare, in words; for cards and pages."""

from __future__ import annotations

from paceline.records.parity import Evaluation


def describe(evaluation: Evaluation, against: str) -> str:
    """In one sentence, for a card."""
    counts = evaluation.samples_of_ranks
    text = (
        f"{sum(counts)} samples on {len(counts)} ranks ({', '.join(map(str, counts))}), {evaluation.samples_of_one} in "
        f"{against}, in the last of {evaluation.count}"
    )
    if evaluation.equal_numbers or evaluation.differing:
        text += f"; of the printed results {evaluation.equal_numbers} agree, {len(evaluation.differing)} differ"
    return text
