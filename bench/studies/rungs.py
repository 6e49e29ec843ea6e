"""The rungs of the ladder: what is tried, in which order, on the side of the large batch and on that of the baseline.

A rung is a function from the best flags so far to what it tries. Both sides have the same rungs with the same number of
cells, so that neither is searched harder; only the last one differs in kind: longer training for the large batch, finer
rates for the baseline, which keeps its 10 epochs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.studies.cell import Flags

EPOCHS, SCREEN_EPOCHS, HOLDOUT = 10, 3, 5000
LARGE_BATCH, BASE_BATCH, BASE_LR = 4096, 128, 0.05
GROWTH = LARGE_BATCH / BASE_BATCH
LONGER_MUST_GAIN = 0.002
"""Held-out accuracy that twice the epochs have to add before they are taken: they cost as much again."""

Tries = dict[str, dict[str, str]]
"""Name -> flags."""


@dataclass(frozen=True)
class Rung:
    """One rung.

    Attributes:
        name: in the cells' names.
        title: for people.
        tries: from the best flags so far to what is tried.
        screen: the tries are runs of `SCREEN_EPOCHS` epochs, and only the best goes on to a full one.
        must_gain: what a try has to add to the best so far.
    """

    name: str
    title: str
    tries: Callable[[Flags], Tries]
    screen: bool = False
    must_gain: float = 0.0


SHARED = {
    "--schedule": "linear",
    "--warmup": "0",
    "--epochs": str(EPOCHS),
    "--holdout": str(HOLDOUT),
    "--checkpoint-every": "1000ep",
}
LARGE_START = {
    "--global-batch": str(LARGE_BATCH),
    "--base-batch": str(BASE_BATCH),
    "--lr": f"{BASE_LR:g}",
    "--lr-rule": "none",
    **SHARED,
}
BASELINE_START = {
    "--global-batch": str(BASE_BATCH),
    "--base-batch": str(BASE_BATCH),
    "--lr": f"{BASE_LR:g}",
    "--lr-rule": "none",
    **SHARED,
}


def changed(flags: Flags, **changes: str) -> dict[str, str]:
    """`flags` with some set anew; names as in Python, so `lr_rule` is --lr-rule."""
    return {**flags, **{"--" + name.replace("_", "-"): value for name, value in changes.items()}}


def _rules(best: Flags) -> Tries:
    return {
        "no-rule": changed(best, lr_rule="none"),
        "sqrt": changed(best, lr_rule="sqrt"),
        "linear": changed(best, lr_rule="linear"),
    }


def _rates(best: Flags) -> Tries:
    return {f"lr-{rate}": changed(best, lr=rate) for rate in ("0.025", "0.05", "0.1")}


def _warmup_large(best: Flags) -> Tries:
    # Goyal et al. warm up because the linear rule fails without: a rule that lost without warm-up gets another chance.
    return {f"{rule}-2ep": changed(best, lr_rule=rule, warmup="2ep") for rule in ("sqrt", "linear")}


def _warmup_baseline(best: Flags) -> Tries:
    return {length: changed(best, warmup=length) for length in ("0.5ep", "2ep")}


def _optimizers(rates: dict[str, tuple[str, str]]) -> Callable[[Flags], Tries]:
    def tries(best: Flags) -> Tries:
        return {
            f"{name}-{rate}": changed(best, optimizer=name, lr=rate, lr_rule="none", **WITH.get(name, {}))
            for name, pair in rates.items()
            for rate in pair
        }

    return tries


WITH = {"lars": {"trust": "0.01"}}
"""Biases and norms have no trust ratio and move at the bare rate: ten times the trust allows a tenth of that rate."""
OPTIMIZERS_LARGE = {
    "lars": ("0.5", "1.5"),
    "lamb": ("0.01", "0.03"),
    "novograd": ("0.01", "0.04"),
    "muon": ("0.005", "0.02"),
    "adamw": ("0.003", "0.01"),
}
"""Rates at the large batch itself. A step of LARS moves a layer by about rate x trust of its norm before momentum, one
of LAMB by the rate, those of AdamW and Muon (matched to it) by about the rate a number."""
OPTIMIZERS_BASELINE = {
    "lars": ("0.1", "0.4"),
    "lamb": ("0.002", "0.006"),
    "novograd": ("0.002", "0.01"),
    "muon": ("0.001", "0.004"),
    "adamw": ("0.001", "0.003"),
}


def _batch_norm_large(best: Flags) -> Tries:
    ghosts = {f"ghost-{size}": changed(best, batch_norm="ghost", ghost_size=size) for size in ("32", "64", "128")}
    return ghosts | {"sync": changed(best, batch_norm="sync")}


def _batch_norm_baseline(best: Flags) -> Tries:
    # A worker has 64 samples of a batch of 128, so ghost batches of 64 are what local statistics are already.
    ghosts = {f"ghost-{size}": changed(best, batch_norm="ghost", ghost_size=size) for size in ("16", "32")}
    return ghosts | {"sync": changed(best, batch_norm="sync"), "bn-momentum-0.05": changed(best, bn_momentum="0.05")}


def _averages(decay: float) -> Callable[[Flags], Tries]:
    def tries(best: Flags) -> Tries:
        # A rule raises the decay to the power of the batch's growth itself; without one, it is taken as it is.
        growth = int(best["--global-batch"]) / int(best["--base-batch"])
        given = decay ** (1 / growth) if best["--lr-rule"] != "none" else decay
        return {
            "ema": changed(best, average="ema", ema_decay=f"{given:.6g}"),
            "swa": changed(best, average="swa", swa_from="0.75"),
        }

    return tries


def _augment(best: Flags) -> Tries:
    return {"crop-flip": changed(best, augment="crop,flip")}


def _longer(best: Flags) -> Tries:
    return {f"{times}x": changed(best, epochs=str(times * EPOCHS)) for times in (2, 4)}


def _finer(best: Flags) -> Tries:
    rate = float(best["--lr"])
    return {f"lr-x{factor:g}": changed(best, lr=f"{factor * rate:.6g}") for factor in (0.7, 1.4)}


LARGE: tuple[Rung, ...] = (
    Rung("rule", "scaling rule for the rate, no warm-up", _rules),
    Rung("warmup", "warm-up over 2 epochs", _warmup_large),
    Rung("optimizer", "optimizer", _optimizers(OPTIMIZERS_LARGE), screen=True),
    Rung("norm", "batch norm", _batch_norm_large, screen=True),
    Rung("average", "average of the weights", _averages(0.97)),
    Rung("augment", "augmentation", _augment),
    Rung("longer", "two and four times the epochs", _longer, must_gain=LONGER_MUST_GAIN),
)
BASELINE: tuple[Rung, ...] = (
    Rung("rate", "rate, no warm-up", _rates),
    Rung("warmup", "warm-up", _warmup_baseline),
    Rung("optimizer", "optimizer", _optimizers(OPTIMIZERS_BASELINE), screen=True),
    Rung("norm", "batch norm", _batch_norm_baseline, screen=True),
    Rung("average", "average of the weights", _averages(0.999)),
    Rung("augment", "augmentation", _augment),
    Rung("finer", "finer rates", _finer),
)
SIDES: dict[str, tuple[dict[str, str], tuple[Rung, ...]]] = {
    "large": (LARGE_START, LARGE),
    "baseline": (BASELINE_START, BASELINE),
}
