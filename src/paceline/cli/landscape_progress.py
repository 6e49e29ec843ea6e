"""How far a measurement is: on a terminal a bar for the present measure, and everywhere a line when one has ended."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console

from paceline.cli.follow import print_line
from paceline.cli.live import CountLine, LiveProgress
from paceline.records.schema import AnyEvent, Measured, Measuring
from paceline.report.words import duration


class MeasureProgress:
    """Draws events of a measurement; what the Follower calls with each event. Use as a context.

    Args:
        console: where to draw.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: LiveProgress | None = None
        self._lines: dict[str, CountLine] = {}

    def __enter__(self) -> MeasureProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, event: AnyEvent) -> None:
        """One event of rank 0."""
        if isinstance(event, Measuring):
            self._move(event)
        elif isinstance(event, Measured):
            self._finish(event)

    def _move(self, event: Measuring) -> None:
        if not self._console.is_terminal:
            return
        if self._progress is None:
            self._progress = LiveProgress(self._console)
            self._progress.start()
        if event.measure not in self._lines:
            self._lines[event.measure] = CountLine(self._progress, event.measure)
        draw = self._lines[event.measure]
        draw(event.done, event.total, event.shown, unit=event.unit, at_s=event.elapsed_s)

    def _finish(self, event: Measured) -> None:
        if event.measure in self._lines:
            self._lines.pop(event.measure).remove()
        line = f"{event.measure}: {event.summary} ({duration(event.duration_s)})"
        style = "yellow" if event.level == "warning" else None
        print_line(self._console, line, style)
