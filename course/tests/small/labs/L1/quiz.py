"""The quiz of a small lab."""

from __future__ import annotations

import numpy as np

from paceline_course.quiz import Choice, Number, Question, asks


@asks
def add(draw: np.random.Generator) -> Question:
    """A sum."""
    first, second = (int(value) for value in draw.integers(1, 100, 2))
    return Number(f"{first} + {second}", first + second, "count on your fingers", tolerance=0.0)


@asks
def colour(draw: np.random.Generator) -> Question:
    """A choice."""
    del draw
    return Choice("The sky is", "blue", "Look up.", {"green": "That is grass.", "red": "At sunset."})
