"""What a plan needs to know of a task, as data: it is loaded in another process. Never imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.tasks.table import Defaults

if TYPE_CHECKING:
    from paceline.tasks.task import Task


@dataclass(frozen=True)
class TaskDescription:
    """A task without its model and data.

    Attributes:
        name: as it calls itself.
        metrics: names of what it measures beside the loss.
        train_samples: of the part of the data that is trained on.
        defaults: its own.
    """

    name: str
    metrics: tuple[str, ...]
    train_samples: int
    defaults: Defaults


def describe(task: Task) -> TaskDescription:
    """What a plan needs to know of a task."""
    return TaskDescription(task.name, tuple(task.metrics), len(task.train_data), task.defaults)
