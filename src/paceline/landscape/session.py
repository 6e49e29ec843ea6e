"""A measurement on one rank: its settings, its subject, the loss on its samples; and the outcome of a measure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from paceline.curvature.fixed_loss import FixedLoss, Value
from paceline.curvature.operator import Operator, Space, weighted
from paceline.landscape.choices import MEASURES
from paceline.landscape.config import LandscapeConfig
from paceline.landscape.ranks import Ranks
from paceline.landscape.subject import Subject
from paceline.records.errors import PacelineError

DEFAULT_SAMPLES = 10_000


@dataclass
class Outcome:
    """What one measure found.

    Attributes:
        result: a struct of `records.landscape`, for the field of the measure's name.
        arrays: for landscape.npz.
        summary: its main numbers in a line.
        warnings: for people.
    """

    result: Any
    arrays: dict[str, NDArray[Any]]
    summary: str
    warnings: list[str] = field(default_factory=list)


@dataclass
class Session:
    """What measures are made from.

    Attributes:
        config: with `samples`, `checkpoint` and the like filled in.
        subject: what is looked at.
        ranks: this rank among the others.
        checkpoints: of the run's path, as `preflight` counts them; 0 where no path was asked for.
        other_weights: the digest of the other run's weights; None where there is none.
    """

    config: LandscapeConfig
    subject: Subject
    ranks: Ranks
    checkpoints: int = 0
    other_weights: str | None = None

    @cached_property
    def samples(self) -> int:
        """`--samples`, or its default."""
        total = len(self.subject.data)
        if self.config.samples is None:
            return min(DEFAULT_SAMPLES, total)
        return _within("--samples", self.config.samples, total)

    @cached_property
    def curvature_samples(self) -> int:
        """`--curvature-samples`; its default is cut to what there is."""
        total = len(self.subject.data)
        if self.config.curvature_samples == LandscapeConfig.curvature_samples:
            return min(self.config.curvature_samples, total)
        return _within("--curvature-samples", self.config.curvature_samples, total)

    def samples_of(self, measure: str) -> int:
        """How many a measure looks at."""
        return self.curvature_samples if MEASURES[measure].curvature else self.samples

    def fixed_loss(self, samples: int) -> FixedLoss:
        """L on the first samples of `--on`."""
        subject = self.subject
        return FixedLoss(
            subject.task,
            subject.model,
            subject.data,
            subject.like,
            samples=samples,
            chunk=self.config.chunk,
            batch_norm=self.config.batch_norm,
        )

    @cached_property
    def slices(self) -> FixedLoss:
        """L on `--samples`."""
        return self.fixed_loss(self.samples)

    @cached_property
    def curvature(self) -> FixedLoss:
        """L on `--curvature-samples`."""
        return self.fixed_loss(self.curvature_samples)

    @cached_property
    def weights(self) -> Tensor:
        """(P,) a copy of the weights that curvature is taken at."""
        return self.curvature.point()

    @cached_property
    def centre(self) -> Value:
        """L and metrics at the weights, on `--samples`; all ranks together."""
        self.ranks.pause()
        return self.slices.value(self.slices.point())

    @cached_property
    def centre_gradient(self) -> tuple[float, float]:
        """L and the norm of its gradient at the weights, on `--curvature-samples`; all ranks together."""
        loss, gradient = self.gradient(self.weights)
        return loss, float(gradient.double().norm())

    @property
    def curved(self) -> bool:
        """Whether anything is measured on `--curvature-samples`."""
        return any(MEASURES[name].curvature for name in self.config.measures)

    @property
    def space(self) -> Space:
        """Of vectors that the Hessian takes."""
        return Space.of(self.weights)

    def gradient(self, point: Tensor) -> tuple[float, Tensor]:
        """L and its gradient, unless all stop here."""
        self.ranks.pause()
        return self.curvature.gradient(point)

    def operator(self, *, aware: bool) -> Operator:
        """H at the weights, or D H D with D = diag(|weights|); stops where all stop."""

        def apply(vector: Tensor) -> Tensor:
            self.ranks.pause()
            return self.curvature.hvp(self.weights, vector)

        return weighted(apply, self.weights) if aware else apply


def _within(flag: str, value: int, total: int) -> int:
    if value > total:
        raise PacelineError(f"{flag} {value:,} is more than there are", hint=f"legal: 1 <= value <= {total:,}")
    return value


def shown(value: float | None) -> str:
    """In a summary: four digits."""
    return "not finite" if value is None else f"{value:.4g}"


def as_array(values: Any) -> NDArray[np.float64]:
    """float64."""
    return np.asarray(values, dtype=np.float64)
