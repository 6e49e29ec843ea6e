"""What moves on a terminal: rates over the recent past, and lines that fit its width."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import Progress, Task
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

NO_RATE = "-"
"""Stands where a rate will be, as long as there are too few points for one."""
_SHORTEST_BAR, _LONGEST_BAR = 10, 40


class RecentRate:
    """An amount per second over the last seconds or points, whichever is longer.

    Args:
        seconds: least length of the time that is looked at, once so much has passed.
        points: least number of intervals that are looked at, once there are so many.
    """

    def __init__(self, seconds: float = 5.0, points: int = 5) -> None:
        self._seconds = seconds
        self._points = points
        self._seen: deque[tuple[float, float]] = deque()
        self._paused = 0.0

    def add(self, at_s: float, done: float) -> None:
        """`done` in all by the time `at_s`; one that goes back begins anew."""
        at = at_s - self._paused
        if self._seen and (at < self._seen[-1][0] or done < self._seen[-1][1]):
            self._seen.clear()
        self._seen.append((at, done))
        while len(self._seen) > self._points + 1 and at - self._seen[1][0] >= self._seconds:
            self._seen.popleft()

    def pause(self, seconds: float) -> None:
        """Time between two points that was spent on something else, such as an evaluation."""
        if self._seen:
            self._paused += seconds

    @property
    def value(self) -> float | None:
        """Per second; None before there are two points that are apart in time."""
        if len(self._seen) < 2:
            return None
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - began) if ended > began else None

    def left_s(self, total: float) -> float | None:
        """Seconds until `total` at this rate; None without a rate."""
        rate = self.value
        return (total - self._seen[-1][1]) / rate if rate else None


def clock(seconds: float | None) -> str:
    """`0:07 left`, `1:02:03 left`; `- left` when it is not known."""
    if seconds is None or not math.isfinite(seconds):
        return f"{NO_RATE} left"
    whole = max(0, math.ceil(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d} left" if hours else f"{minutes}:{rest:02d} left"


class LiveProgress(Progress):
    """Tasks as lines of parts; those that do not fit the width are dropped from the right.

    A task's `parts` field holds what follows its description, the most important first. A bar takes the room that is
    left.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console=console, transient=True)

    def get_renderables(self) -> Iterable[RenderableType]:
        """One line for each task."""
        for task in self.tasks:
            if task.visible:
                yield _Line(task)


class _Line:
    def __init__(self, task: Task) -> None:
        self._task = task

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        task, width = self._task, options.max_width
        text = fitting([task.description, *task.fields.get("parts", ())], width)
        room = width - len(text) - 2
        if task.total is None or room < _SHORTEST_BAR:
            yield Text(text, no_wrap=True, overflow="ignore")
            return
        row = Table.grid(padding=(0, 2, 0, 0))
        row.add_row(
            Text(text, no_wrap=True),
            ProgressBar(total=task.total, completed=task.completed, width=min(room, _LONGEST_BAR)),
        )
        yield row


def fitting(parts: Sequence[str], width: int) -> str:
    """As many parts from the left as fit, two spaces apart; of a first part that is too long, its leading words."""
    line = ""
    for word in parts[0].split():
        if line and len(line) + 1 + len(word) > width:
            return line
        line = f"{line} {word}" if line else word
    for part in filter(None, parts[1:]):
        if len(line) + 2 + len(part) > width:
            break
        line += f"  {part}"
    return line


class CountLine:
    """A line of a display: how much is done, of how much, and the time that is left at the recent rate."""

    def __init__(self, progress: LiveProgress, name: str) -> None:
        self._progress, self._rate = progress, RecentRate()
        self._task = progress.add_task(name, total=None)

    def __call__(self, done: int, total: int, shown: str = "", *, unit: str = "", at_s: float | None = None) -> None:
        """Draw it; `shown` is what goes on now, `at_s` a time of the clock that counts."""
        self._rate.add(time.monotonic() if at_s is None else at_s, done)
        parts = [f"{done:,}/{total:,} {unit}".strip(), clock(self._rate.left_s(total)), shown]
        self._progress.update(self._task, completed=done, total=total, parts=parts)

    def remove(self) -> None:
        """Take it off the display."""
        self._progress.remove_task(self._task)
