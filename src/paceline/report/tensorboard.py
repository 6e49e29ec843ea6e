"""Events of a run as TensorBoard's, for those who look there. Needs the extra `tensorboard`; not torch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from paceline.records.errors import PacelineError
from paceline.records.schema import AnyEvent, Evaluation, Step


class TensorBoardExport:
    """Called with each event; writes scalars by step.

    Args:
        directory: where the event file goes.

    Raises:
        PacelineError: the package tensorboard is not installed.
    """

    def __init__(self, directory: Path) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise PacelineError(
                "--tensorboard needs the package tensorboard", hint="pip install 'paceline[tensorboard]'"
            ) from error
        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        self._directory = directory
        self._open = EventFileWriter
        self._writer: Any = None

    def __call__(self, event: AnyEvent) -> None:
        """Write what of the event is a number over steps."""
        if isinstance(event, Step):
            self._scalars(event.step, {"train/loss": event.loss, "train/lr": event.lr})
        elif isinstance(event, Evaluation):
            self._scalars(event.step, {f"eval/{name}": one.value for name, one in event.metrics.items()})
            self._writer.flush()

    def close(self) -> None:
        """Flush and close."""
        if self._writer is not None:
            self._writer.close()

    def _scalars(self, step: int, values: dict[str, float]) -> None:
        if self._writer is None:
            self._writer = self._open(str(self._directory))
        rows = [self._summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=rows)))
