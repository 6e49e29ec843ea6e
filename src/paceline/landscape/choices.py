"""Names that the flags of `paceline landscape` accept. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """One thing to measure.

    Attributes:
        title: for people.
        curvature: it looks at `--curvature-samples`, not at `--samples`.
    """

    title: str
    curvature: bool


MEASURES: dict[str, Measure] = {
    "trajectory": Measure("the run's path in its two main directions", curvature=False),
    "surface": Measure("loss over a plane through the weights", curvature=False),
    "line": Measure("loss along one direction", curvature=False),
    "interpolation": Measure("loss on the way to another run", curvature=False),
    "eigenvalues": Measure("largest eigenvalues of the Hessian", curvature=True),
    "trace": Measure("trace of the Hessian", curvature=True),
    "density": Measure("density of the Hessian's eigenvalues", curvature=True),
    "keskar": Measure("Keskar's sharpness", curvature=True),
    "sam": Measure("SAM sharpness", curvature=True),
}
"""In the order in which they are taken: quick pictures first."""

HANDOVER = "PACELINE_LANDSCAPE"
"""The variable in which the launcher tells its ranks what to do."""
RANK_MODULES = ("paceline.landscape.worker", "paceline.train.task_validation")
"""Modules that the fork server imports for measurements."""
DATA = ("train", "eval")
DIRECTIONS = ("filter", "raw")
PLANES = ("random", "pca")
BATCH_NORMS = ("batch", "saved")
PRECISIONS = ("fp32", "fp64")

NOT_INVARIANT = (
    "Plain sharpness (eigenvalues, trace, density, Keskar, SAM) is not a property of what a network computes: multiply "
    "one layer by 10 and divide the next by 10, and the outputs stay while plain sharpness changes a hundredfold (Dinh "
    "et al. 2017). Compare plain numbers only between networks of one kind, and read the weighted forms beside them."
)
STALE = (
    "Saved batch-norm statistics belong to the weights that they were saved with. Away from them, on a slice or along "
    "a path, they are stale and the loss is that of no network anybody would use; --batch-norm batch takes fresh ones."
)
BATCH_NORM_WORDS = {
    "batch": "each chunk of up to {chunk} samples is normalised by its own statistics",
    "saved": "layers use the running statistics that were saved with the weights",
    "none": "the model has no batch norm",
}
