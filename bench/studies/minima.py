"""Study 3: how sharp are the minima of a small and of a large batch, by plain and by reparametrisation-aware measures?

    python -m bench.studies.minima --dry-run
    python -m bench.studies.minima                # at most 60 minutes on 2 cores

Three settings, each trained until its loss is low, since a point that is no minimum has no sharpness of one: batch 128
for 10 epochs; batch 4096 at the same rate for 30 epochs, after a warm-up of 2 (what a larger batch alone does); batch
4096 with Muon for 10 epochs (the best large-batch training that the ladder found; without its augmentation, which keeps
the training loss up). The linear rule is not among them: at 4096 it ends near chance (ladder.md). What each reached is
in the table, training loss beside test accuracy.

All curvature is that of the training loss on the same 2,000 images, by `paceline landscape`; a slice is a line in a
filter-normalised direction (Li et al. 2018); for each seed the small-batch run is joined to both large-batch runs by a
straight line. Trained runs stay below runs/studies/minima, since two are needed at once. A run that diverged is not
measured. Two seeds, since a measurement takes minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from bench.studies.cell import Cell
from bench.studies.cells import Records, carry_out
from bench.studies.command import finish, parser_for, state, study_from, table

NAME = "minima"
KEPT = "runs/studies/minima"
CURVATURE_SAMPLES = 2000
IMAGES = {"--samples": str(CURVATURE_SAMPLES), "--curvature-samples": str(CURVATURE_SAMPLES)}
MEASURES = "eigenvalues,trace,density,keskar,sam,line"

TRAINED: dict[str, dict[str, str]] = {
    "small": {"--global-batch": "128", "--lr": "0.05", "--epochs": "10", "--warmup": "200"},
    "large": {"--global-batch": "4096", "--lr": "0.05", "--epochs": "30", "--warmup": "2ep"},
    "large-muon": {
        "--global-batch": "4096", "--lr": "0.02", "--epochs": "10", "--warmup": "0", "--optimizer": "muon",
    },
}  # fmt: skip
TITLES = {"small": "128", "large": "4096, same rate", "large-muon": "4096, Muon"}
PAIRS = (("small", "large"), ("small", "large-muon"))
SEEDS = 2
PROBES = "24"
"""Of the trace; and so one of the density, which costs 60 products a probe."""
SHARPNESS_S, JOIN_S = 360.0, 40.0
"""Default costs of a measurement, until some are done: some 220 products of 1.6 s (docs/decisions/0011)."""


def run_of(setting: str, seed: int) -> str:
    """Where a trained run stays, relative to the repository."""
    return f"{KEPT}/{setting}_seed{seed}"


def trained(setting: str, seed: int) -> Cell:
    """A run that stays."""
    flags = {**TRAINED[setting], "--schedule": "linear", "--checkpoint-every": "1000ep"}
    epochs = float(flags["--epochs"])
    return Cell(setting, seed, flags, epochs, epochs, keep=run_of(setting, seed))


def sharpness(setting: str, seed: int) -> Cell:
    """What is measured at one of them."""
    run = run_of(setting, seed)
    flags = {"--measure": MEASURES, "--probes": PROBES, **IMAGES}
    return Cell(
        f"{setting}-sharpness", seed, flags, verb="landscape", target=run, needs=(run,), whole_s=SHARPNESS_S,
        kind="sharpness",
    )  # fmt: skip


def joined(pair: tuple[str, str], seed: int) -> Cell:
    """The straight line between two of them."""
    first, second = (run_of(setting, seed) for setting in pair)
    flags = {"--with": second, "--measure": "interpolation", **IMAGES}
    return Cell(
        f"{pair[0]}-to-{pair[1]}", seed, flags, verb="landscape", target=first, needs=(first, second), whole_s=JOIN_S,
        kind="interpolation",
    )  # fmt: skip


def cells(seeds: Sequence[int]) -> list[Cell]:
    """All of a seed before the next, so that a stop leaves whole rows."""
    return [
        cell
        for seed in seeds
        for cell in (
            *(trained(setting, seed) for setting in TRAINED),
            *(sharpness(setting, seed) for setting in TRAINED),
            *(joined(pair, seed) for pair in PAIRS),
        )
    ]


def unmeasurable(cell: Cell, done: Records) -> str | None:
    """Why a cell cannot be measured: a run that it needs diverged, and left no weights of its end."""
    for run in cell.needs:
        record = done.get(PurePosixPath(run).name)
        if record is not None and record["training"]["end"] == "diverged":
            return f"{PurePosixPath(run).name} diverged"
    return None


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
            carry_out(study, wanted, unmeasurable, fit=True)

    finish(work)


if __name__ == "__main__":
    main()
