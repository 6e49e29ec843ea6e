"""Study 1: what a batch of 32 to 8192 does to steps, samples, seconds and accuracy, without and with the linear rule.

    python -m bench.studies.regimes --dry-run     # the cells and what they cost
    python -m bench.studies.regimes               # at most 60 minutes on 2 cores; leave the machine alone meanwhile

Two kinds of cell, since a schedule that ends depends on the length of the run, and the time to a target must not:

- *target*: constant rate after the warm-up, evaluated every half epoch, stopped at the first evaluation with 0.90 and
  cut off after 60 epochs. How long it was allowed to run changes nothing in how it ran.
- *10ep*: exactly 10 epochs, the rate lowered linearly to 0: the accuracy that a fixed number of samples buys.

Both rules are taken from the task's own batch of 128 and rate of 0.05; nothing else is tuned for any batch. The warm-up
is half an epoch for all, so it is the same number of samples. At batch 128 both rules are one setting. Settings take
turns over seeds until the budget is used, so later seeds may be missing for some; a target that one seed has missed is
not tried again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.studies.cell import Cell, interleaved
from bench.studies.cells import Records, carry_out
from bench.studies.command import finish, parser_for, state, study_from, table

NAME = "regimes"
BATCHES = (32, 128, 512, 2048, 8192)
RULES = ("none", "linear")
BASE_BATCH, BASE_LR = 128, "0.05"
TARGET = 0.90
CUT_OFF, LENGTH = 60, 10
SEEDS = 3
"""Planned for every setting."""

USUAL_EPOCHS = {
    ("none", 32): 6, ("linear", 32): 4, ("none", 128): 4, ("none", 512): 9, ("linear", 512): 5,
    ("none", 2048): 32, ("linear", 2048): 10, ("none", 8192): 60, ("linear", 8192): 40,
}  # fmt: skip
"""A guess before anything is measured, used only to state the cost."""


def settings() -> list[Cell]:
    """One cell a setting, with seed 0."""
    found = []
    for batch in BATCHES:
        for rule in RULES if batch != BASE_BATCH else RULES[:1]:
            slowness = 2.0 if batch < BASE_BATCH else 1.0
            usual = USUAL_EPOCHS[rule, batch]
            name = f"b{batch:04d}-{rule}"
            found += [
                Cell(f"{name}-10ep", 0, _flags(batch, rule, target=False), LENGTH, LENGTH, slowness),
                Cell(f"{name}-target", 0, _flags(batch, rule, target=True), CUT_OFF, usual, slowness),
            ]
    return found


def _flags(batch: int, rule: str, *, target: bool) -> dict[str, str]:
    shared = {
        "--global-batch": str(batch),
        "--base-batch": str(BASE_BATCH),
        "--lr": BASE_LR,
        "--lr-rule": rule,
        "--warmup": "0.5ep",
        "--checkpoint-every": "1000ep",
    }
    if target:
        stop = {"--target": f"accuracy={TARGET:.2f}", "--eval-every": "0.5ep"}
        return shared | {"--schedule": "constant", "--epochs": str(CUT_OFF)} | stop
    return shared | {"--schedule": "linear", "--epochs": str(LENGTH)}


def hopeless(cell: Cell, done: Records) -> str | None:
    """Why a target cell is not tried with another seed: one that took all 60 epochs for nothing says enough."""
    if not cell.setting.endswith("-target"):
        return None
    missed = [r["seed"] for r in done.values() if r["setting"] == cell.setting and reached(r) is None]
    return f"the target was not reached with seed {missed[0]}" if missed else None


def reached(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """The first evaluation at or above the target; None: censored, or diverged."""
    for evaluation in record["training"]["evaluations"]:
        accuracy = evaluation["metrics"].get("accuracy")
        if accuracy is not None and accuracy >= TARGET:
            return dict(evaluation)
    return None


def cells(seeds: Sequence[int]) -> list[Cell]:
    """The whole table, seed by seed, targets first: what is left of the budget is then for the others."""
    return sorted(interleaved(settings(), seeds), key=lambda cell: (cell.seed, cell.setting.endswith("-10ep")))


def main(argv: list[str] | None = None) -> None:
    """State the cost, run what is missing."""
    parser = parser_for(__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    arguments = parser.parse_args(argv)

    def work() -> None:
        study = study_from(arguments, NAME)
        wanted = cells(range(arguments.seeds))
        cost = state(study, wanted)
        if arguments.dry_run:
            print("\n".join(table(study, wanted)))
        print("\n".join(cost), flush=True)
        if not arguments.dry_run:
            carry_out(study, wanted, hopeless, fit=True)

    finish(work)


if __name__ == "__main__":
    main()
