"""What a launcher tells the ranks of a training. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from paceline.records.validation import Validation

HANDOVER = "PACELINE_TRAIN"
"""The variable that holds it, as JSON."""
RANK = "paceline.train.worker:main"
VALIDATION = "paceline.train.task_validation:validate_request"
RANK_MODULES = ("paceline.train.worker", "paceline.train.task_validation")
"""Modules that the fork server imports for trainings."""


@dataclass(frozen=True)
class Handover:
    """Settings, run directory and command of a training, and what its validation found."""

    config: dict[str, Any]
    run_dir: str
    command: list[str]
    validation: Validation = field(default_factory=Validation)
