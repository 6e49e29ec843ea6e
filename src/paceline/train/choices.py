"""Names and lists that flags of `paceline train` accept. Never imports torch."""

from __future__ import annotations

import signal

from paceline.records.errors import PacelineError
from paceline.settings.legal import one_of
from paceline.tasks.table import AUGMENTATIONS

PRECISIONS = ("auto", "fp32", "bf16", "fp64")
SAVE_SIGNALS: dict[str, signal.Signals | None] = {"USR1": signal.SIGUSR1, "USR2": signal.SIGUSR2, "none": None}
"""What --save-signal takes; with `none`, SIGUSR1 does nothing."""
MONITORS = {
    "none": "nothing beside the metrics",
    "sharpness": "the largest eigenvalue of the Hessian (Cohen et al. 2021, arXiv 2103.00065)",
}
BATCH_NORMS = {
    "local": "each worker's own samples, as torch has it",
    "sync": "the samples of all workers: the statistics of one process",
    "ghost": "groups of --ghost-size samples, whatever the batch and the workers (Hoffer et al. 2017)",
}
"""What batch norm takes its statistics over."""
COMPRESSIONS = {
    "none": "the parameters' own, nothing is lost",
    "bf16": "bfloat16: half the bytes of float32 and its range, 8 bits of precision",
    "fp16": "float16: half the bytes, 11 bits of precision; a gradient above 65,504 ends the run",
}
"""In which numbers gradients travel between workers."""
AVERAGES = {
    "none": "the weights as they are",
    "ema": "an exponential moving average over steps (Polyak and Juditsky 1992)",
    "swa": "the mean of the weights at the ends of epochs (Izmailov et al. 2018, arXiv 1803.05407)",
}


def parse_augment(text: str, flag: str = "--augment") -> tuple[str, ...]:
    """`crop,flip` as names."""
    names = tuple(name.strip() for name in text.split(",") if name.strip() and name.strip() != "none")
    for name in names:
        one_of(flag, name, AUGMENTATIONS)
    return names


def parse_fractions(text: str, flag: str) -> tuple[float, ...]:
    """`0.5,0.75` as ascending numbers above 0 and below 1."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    ascending = all(a < b for a, b in zip((0.0, *found), (*found, 1.0), strict=True))
    if not found or not ascending:
        raise PacelineError(
            f"{flag} {text} is no list of points of a run", hint=f"ascending fractions between 0 and 1: {flag} 0.5,0.75"
        )
    return found
