"""Names that flags accept, and how a name that is not among them is refused. Never imports torch."""

from __future__ import annotations

import difflib
import signal
from collections.abc import Collection

from paceline.records.errors import PacelineError, choices
from paceline.tasks.table import AUGMENTATIONS

PRECISIONS = ("auto", "fp32", "bf16", "fp64")
FORMATS = ("text", "json")
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


def flag_of(name: str) -> str:
    """`--global-batch` of `global_batch`."""
    return "--" + name.replace("_", "-")


def one_of(flag: str, value: str, legal: Collection[str]) -> None:
    """Refuse a name that is not among the legal ones, with the nearest that is."""
    if value not in legal:
        close = difflib.get_close_matches(value, list(legal), n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise PacelineError(f"{flag} {value} is unknown", hint=f"{meant}legal values: {choices(legal)}")


def save_signal(name: str) -> signal.Signals | None:
    """The signal that `--save-signal` names."""
    one_of("--save-signal", name, SAVE_SIGNALS)
    return SAVE_SIGNALS[name]


def parse_augment(text: str) -> tuple[str, ...]:
    """`crop,flip` as names."""
    names = tuple(name.strip() for name in text.split(",") if name.strip() and name.strip() != "none")
    for name in names:
        one_of("--augment", name, AUGMENTATIONS)
    return names
