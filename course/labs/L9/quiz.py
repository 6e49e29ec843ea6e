"""The quiz of lab 9."""

from __future__ import annotations

import numpy as np

from paceline_course.quiz import Choice, Number, Question, asks


@asks
def keskar(draw: np.random.Generator) -> Question:
    """The formula."""
    loss, highest = round(float(draw.uniform(0.05, 0.4)), 2), round(float(draw.uniform(0.8, 2.0)), 2)
    return Number(
        f"The loss is {loss} at the weights and at most {highest} in the box. What is Keskar's sharpness, in percent?",
        100 * (highest - loss) / (1 + loss),
        f"100 x ({highest} - {loss}) / (1 + {loss}).",
        unit="%",
    )


@asks
def noise_scale(draw: np.random.Generator) -> Question:
    """Two equations."""
    square, trace = int(draw.integers(1, 5)), int(draw.integers(100, 900))
    small, large = 10, 100
    return Number(
        f"Gradients at batch {small} have the mean squared length {square + trace / small:g}, at batch {large} "
        f"{square + trace / large:g}. What is the noise scale, in samples?",
        trace / square,
        f"|G|² = {square} and trace = {trace}.",
    )


@asks
def rescaled(draw: np.random.Generator) -> Question:
    """Batch norm hides the scale of weights."""
    factor = int(draw.integers(2, 9))
    return Number(
        f"A convolution before a batch norm has all its weights multiplied by {factor}. "
        "By what factor does the curvature along its weights change?",
        1 / factor**2,
        f"the function stays; a step of the same size is {factor} times smaller against the weights, "
        "and curvature goes with the square of that.",
    )


@asks
def lower_bound(draw: np.random.Generator) -> Question:
    """What a search gives."""
    del draw
    return Choice(
        "A search for the highest loss in a box ends at 0.8. What do you know of the maximum?",
        "it is at least 0.8",
        "A search shows a point; it cannot show that there is no higher one.",
        {
            "it is 0.8": "Only if the loss has a form that lets one know, as a quadratic has.",
            "it is at most 0.8": "A point with 0.8 was found, so it is not lower.",
            "nothing": "A point inside the box has that loss.",
        },
    )


@asks
def above_scale(draw: np.random.Generator) -> Question:
    """Far above the noise scale."""
    scale = int(draw.choice([200, 400, 800]))
    return Choice(
        f"The noise scale is {scale}. You go from batch {scale * 16} to {scale * 32}. "
        "What happens to the steps to a target?",
        "hardly anything",
        "Far above the noise scale the gradient is nearly exact already.",
        {
            "they halve": "That is so far below the noise scale.",
            "they double": "Each step is a little better, not worse.",
            "they fall by the square root of two": "Noise falls by that; at this batch it hardly matters.",
        },
    )
