"""Follow a run's events while it goes on and draw them: on a terminal a bar, elsewhere a line an evaluation.

The ranks never draw. This reads what rank 0 has written, in a thread of the process that started the job.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import TaskID

from paceline.cli.live import NO_RATE, LiveProgress, RecentRate, clock
from paceline.records.errors import PacelineError
from paceline.records.lines import JsonLines
from paceline.records.rundir import RunDir, read_info
from paceline.records.schema import AnyEvent, Checkpoint, End, Evaluation, Note, RunInfo, Start, Step
from paceline.records.wrap import wrap
from paceline.records.writer import end_of_last_line
from paceline.report import words
from paceline.report.words import decimal, fast_line, first_line, rate

_POLL_S = 0.1


class Tail:
    """Events that are appended to a file from now on.

    Args:
        path: it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = _end_of_lines(path)
        self._rest = b""
        self._lines: JsonLines[AnyEvent] = JsonLines(path, AnyEvent)

    def read(self) -> list[AnyEvent]:
        """What came since the last call; a line that is not whole yet waits for the next."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        return [event for line in lines if (event := self._lines.decode(line)) is not None]

    @property
    def notes(self) -> list[str]:
        """One message for each kind of line that was skipped."""
        return self._lines.notes


def _end_of_lines(path: Path) -> int:
    """Where the next line will begin: a torn last one is cut off when the run goes on."""
    try:
        with path.open("rb") as file:
            return end_of_last_line(file.fileno(), path.stat().st_size)
    except FileNotFoundError:
        return 0


class Follower:
    """Draws a run in a thread; use as a context.

    Args:
        run: its directory.
        console: where to draw.
        extra: also gets each event (TensorBoard).

    Attributes:
        end: the End event, once it came.
    """

    def __init__(self, run: RunDir, console: Console, extra: Callable[[AnyEvent], None] | None = None) -> None:
        self.run = run
        self.console = console
        self.extra = extra
        self.end: End | None = None
        self.info: RunInfo | None = None
        self._tail = Tail(run.events(0))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follow", daemon=True)
        self._progress: LiveProgress | None = None
        self._bar: TaskID | None = None
        self._samples, self._steps, self._counts = RecentRate(), RecentRate(), RecentRate()
        self._counted = 0.0  # by the losses of this session's steps
        self._counts_samples = True
        self._samples_before: int | None = None

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _follow(self) -> None:
        try:
            with self.console.status("starting the workers") if self.console.is_terminal else contextlib.nullcontext():
                events: list[AnyEvent] = []
                while not events and not self._over.wait(_POLL_S):
                    events = self._tail.read()
            self._draw(events)
            while not self._over.wait(_POLL_S):
                self._draw(self._tail.read())
            self._draw(self._tail.read())
        finally:
            if self._progress is not None:
                self._progress.stop()

    def _draw(self, events: list[AnyEvent]) -> None:
        for event in events:
            if self.extra is not None:
                self.extra(event)
            match event:
                case Start():
                    self._draw_start(event)
                case Step():
                    self._count(event)
                case Evaluation():
                    self._pause(event.duration_s)
                    self._print(evaluation_line(event))
                case Checkpoint():
                    self._pause(event.duration_s)
                case Note():
                    self._print(f"note: {event.message}", style="yellow" if event.level == "warning" else "dim")
                case End():
                    self.end = event
        last = next((event for event in reversed(events) if isinstance(event, Step)), None)
        if last is not None:
            self._draw_step(last)

    def _draw_start(self, event: Start) -> None:
        try:
            self.info = read_info(self.run.path)
        except PacelineError as error:
            self._print(str(error))
            return
        self._print(first_line(self.info))
        if fast := fast_line(self.info):
            self._print(fast, style="dim")
        if self.console.is_terminal and self.info.task is not None:
            total = self.info.task.total_steps
            self._progress = LiveProgress(self.console)
            self._progress.start()
            self._bar = self._progress.add_task(f"step {event.step:,}/{total:,}", total=total, completed=event.step)

    def _count(self, event: Step) -> None:
        self._samples.add(event.elapsed_s, event.samples)
        self._steps.add(event.elapsed_s, event.step)
        self._counted += event.count
        self._counts.add(event.elapsed_s, self._counted)
        if self._samples_before is not None and event.count != event.samples - self._samples_before:
            self._counts_samples = False
        self._samples_before = event.samples

    def _pause(self, seconds: float) -> None:
        for each in (self._samples, self._steps, self._counts):
            each.pause(seconds)

    def _draw_step(self, last: Step) -> None:
        if self._progress is None or self._bar is None or self.info is None or self.info.task is None:
            return
        total = self.info.task.total_steps
        parts = [clock(self._steps.left_s(total)), f"loss {decimal(last.loss)}", f"{_shown(self._samples)} samples/s"]
        if not self._counts_samples and (self.info.task.unit or self._counted.is_integer()):
            parts.append(f"{_shown(self._counts)} {self.info.task.unit or 'counted'}/s")
        self._progress.update(self._bar, description=f"step {last.step:,}/{total:,}", completed=last.step, parts=parts)

    def _print(self, text: str, style: str | None = None) -> None:
        print_line(self.console, text, style)


def print_line(console: Console, text: str, style: str | None = None) -> None:
    """A line above what moves; one that is wider than the terminal is wrapped at spaces."""
    narrow = console.is_terminal and len(text) > console.width
    for line in wrap(text, console.width, "", "  ") if narrow else [text]:
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


def _shown(rate_: RecentRate) -> str:
    return NO_RATE if rate_.value is None else rate(rate_.value)


def evaluation_line(event: Evaluation) -> str:
    """One evaluation as a line."""
    parts = []
    for name in sorted(event.metrics, key=lambda name: name == "loss"):
        measure = event.metrics[name]
        if name.startswith("raw_") or name == "stability_limit":
            continue  # they stand behind the number that they belong to
        text = f"{name} {measure.value:.4f}" if name != "sharpness" else f"sharpness {measure.value:.4g}"
        if name not in ("loss", "sharpness"):
            text += f" of {words.count(measure.count)}"
        if (raw := event.metrics.get(f"raw_{name}")) is not None:
            text += f" (raw {raw.value:.4f})"
        if name == "sharpness" and (limit := event.metrics.get("stability_limit")) is not None:
            text += f" (limit {limit.value:.4g})"
        parts.append(text)
    epoch = f"{event.epoch:g}" if event.epoch == int(event.epoch) else f"{event.epoch:.2f}"
    return f"epoch {epoch:>4} · step {event.step:>6,} · {' · '.join(parts)} · {event.elapsed_s:.1f} s"


def console_for(format_: str) -> Console:
    """Where progress goes: stdout for people, stderr when stdout belongs to a program."""
    return Console(file=sys.stderr if format_ == "json" else None, quiet=format_ == "json")
