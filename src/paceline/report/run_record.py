"""A run directory as a frozen `Run` of numpy columns, read as a stream in bounded memory.

Only rank 0's events are read: losses, samples, evaluations and checkpoints in it are those of all ranks, phase
times are rank 0's own. A run that was killed at any point still loads; what is missing is empty, never invented.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from paceline.checkpoint import manifest
from paceline.records.launched import Attempt
from paceline.records.observed import NotObserved, StepTiming
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir, is_live, read_info
from paceline.records.schema import AnyEvent, Checkpoint, End, Evaluation, Note, RunInfo, Start, Step
from paceline.report.noise import Noise, noise_of
from paceline.report.thin import ROW, Row, Sample, Steps, Thinner, Window, number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.float64]

WARM_UP_STEPS = 5
"""Steps at the start of each session that throughput leaves out: allocators, caches and kernels settle in them."""
_MAX_NOTES = 100
_MAX_CHECKPOINTS = 1000


@dataclass(frozen=True)
class Windows:
    """Means over windows of `stride` steps, each column of shape (m,); equal to `Steps` for a short run."""

    stride: int
    step: Column
    """The window's last step; likewise samples and elapsed_s."""
    samples: Column
    elapsed_s: Column
    loss: Column
    """Sum over count; NaN where no loss in the window was finite."""
    lr: Column
    samples_per_s: Column
    """The window's samples over its steps' time, evaluation and checkpoints left out."""
    count: Column
    """What the window's loss was divided by."""
    seconds: Column
    """Time of the window's steps."""


@dataclass(frozen=True)
class Totals:
    """Sums over all steps of the run, exact however long it was."""

    steps: int
    """Steps whose record was read."""
    samples: int
    last_step: int
    last_epoch: int
    data_s: float
    forward_s: float
    backward_s: float
    update_s: float
    strange_losses: int
    """Steps whose loss was not a finite number."""
    last_loss: float | None
    last_lr: float | None


@dataclass(frozen=True)
class Evaluations:
    """Every evaluation, each column of shape (k,)."""

    step: Column
    epoch: Column
    samples: Column
    elapsed_s: Column
    duration_s: Column
    value: dict[str, Column]
    """By metric; NaN where an evaluation lacks it."""
    count: dict[str, Column]


@dataclass(frozen=True)
class ObservedSteps:
    """Steps of a script that was watched, by rank 0's observer."""

    steps: int | None
    """The last step's number; None where steps are not numbered."""
    samples: int | None
    """Used by all ranks."""
    duration_s: Column
    """Of single steps, warm-up left out; thinned evenly above 65,536."""
    rates: Column
    """Samples a second of the same steps, as far as both are known."""
    sources: tuple[str, ...]
    sampled: bool
    """Some durations are of a sample of the steps."""


@dataclass(frozen=True)
class Run:
    """What a run left behind, without what a later session did again."""

    path: Path
    info: RunInfo
    steps: Steps
    windows: Windows
    totals: Totals
    rates: Column
    """Samples a second of single steps, warm-up left out; thinned evenly above 65,536."""
    rates_seen: int
    count_rates: Column
    """What the loss counts, such as tokens, a second, of the same single steps; empty where that is samples."""
    evaluations: Evaluations
    checkpoints: tuple[Checkpoint, ...]
    """The newest thousand."""
    checkpoint_count: int
    checkpoint_s: float
    sessions: tuple[Start, ...]
    repeated_steps: int
    """Steps that an earlier session had done and a later one did again."""
    end: End | None
    """Of the last session; None when it was killed, or still goes on."""
    elapsed_s: float | None
    """Training time of all sessions together, None when nothing was timed."""
    noise: Noise | None = None
    """The gradient noise scale, where norms were recorded."""
    notes: tuple[Note, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    """Of a job of `paceline run`."""
    observed: ObservedSteps | None = None
    """Steps that an observer timed; None where there was none."""
    not_observed: tuple[NotObserved, ...] = ()
    """What probes could not see."""
    remarks: tuple[str, ...] = ()
    """What reading came across: torn, damaged, or later events; damaged checkpoints."""
    on_disk: tuple[manifest.Standing, ...] = ()
    """Checkpoints that are there now, the newest first; whatever events say."""
    live: bool | None = None
    """Whether a process holds the run's lock; None where that cannot be told."""


def load_run(path: Path | str, *, limit: int = 2000) -> Run:
    """Read a run directory.

    Args:
        path: the directory that holds run.json.
        limit: windows that the step series is thinned to; up to three steps of each window are kept.

    Raises:
        PacelineError: not a run directory, damaged, of a newer schema, or not readable.
    """
    run = RunDir(path)
    info = read_info(path)
    gathered = _Gathered(Thinner(limit))
    events = run.events(0)
    remarks: list[str] = []
    launched = sorted(run.path.glob("events/launcher-*.jsonl"))
    if events.exists():
        stream = EventStream(events)
        for event in stream:
            gathered.take(event)
        remarks += stream.notes
        if len(gathered.sessions) > 1:
            gathered.repeated = _repeated_steps(EventStream(events, superseded=True))
    elif not launched:
        remarks.append(f"{events} is not there: the run ended before its first event, or the file was removed")
    for path in launched:  # after the ranks: how the job ended is the launcher's word
        stream = EventStream(path)
        for event in stream:
            gathered.take(event)
        remarks += stream.notes
    remarks += _damaged(run)
    gathered.end = _first_cause(run, gathered.end)
    loaded = gathered.freeze(run.path, info, remarks)
    return dataclasses.replace(
        loaded,
        noise=noise_of(run, info, loaded.steps),
        on_disk=tuple(manifest.standing(run.checkpoints)),
        live=is_live(run),
    )


_OF_A_VICTIM = re.compile("Connection closed by peer|Connection reset by peer|Broken pipe|NCCL|ProcessGroup")


def _first_cause(run: RunDir, end: End | None) -> End | None:
    """Rank 0's end, with the words of the rank that failed by itself where rank 0 only lost its connection."""
    if end is None or end.reason != "failed" or not _OF_A_VICTIM.search(end.message):
        return end
    for path in sorted(run.events().parent.glob("rank-*.jsonl")):
        last = None
        for event in EventStream(path, only=End):
            last = event if isinstance(event, End) else last
        if last is not None and last.message and not _OF_A_VICTIM.search(last.message):
            rank = int(path.stem.removeprefix("rank-"))
            return msgspec.structs.replace(end, message=f"Rank {rank}: {last.message}")
    return end


def _damaged(run: RunDir) -> list[str]:
    """Checkpoints on disk that cannot be used."""
    found = [(path, manifest.damage(path, contents=False)) for _, path in manifest.steps_newest_first(run.checkpoints)]
    return [f"{path} cannot be used: {reason}" for path, reason in found if reason is not None]


@dataclass
class _Observed:
    """What StepTiming events have told so far."""

    last: StepTiming | None = None
    samples: int | None = None
    durations: Sample = field(default_factory=Sample)
    rates: Sample = field(default_factory=Sample)
    sources: dict[str, None] = field(default_factory=dict)
    sampled: bool = False
    warm_up_left: int = WARM_UP_STEPS

    def take(self, event: StepTiming) -> None:
        before, self.last = self.samples, event
        self.samples = event.samples if event.samples is not None else before
        self.sources |= {event.source: None} if event.source else {}
        self.sampled = self.sampled or event.sampled
        if self.warm_up_left:
            self.warm_up_left -= 1
        elif event.duration_s is not None and event.duration_s > 0:
            self.durations.add(event.duration_s)
            # Of steps between two samples neither the number nor the time is known.
            if event.samples is not None and before is not None and not event.sampled:
                self.rates.add((event.samples - before) / event.duration_s)

    def freeze(self) -> ObservedSteps | None:
        if self.last is None:
            return None
        return ObservedSteps(
            steps=self.last.step,
            samples=self.samples,
            duration_s=np.array(self.durations.values(), dtype=np.float64),
            rates=np.array(self.rates.values(), dtype=np.float64),
            sources=tuple(self.sources),
            sampled=self.sampled,
        )


@dataclass
class _Gathered:
    """What the stream has told so far."""

    thinner: Thinner
    rates: Sample = field(default_factory=Sample)
    count_rates: Sample = field(default_factory=Sample)
    counts_samples: bool = True
    counts_whole: bool = True
    evaluations: list[Evaluation] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    checkpoint_count: int = 0
    checkpoint_s: float = 0.0
    sessions: list[Start] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    notes_left_out: int = 0
    end: End | None = None
    attempts: list[Attempt] = field(default_factory=list)
    observed: _Observed = field(default_factory=lambda: _Observed())
    not_observed: list[NotObserved] = field(default_factory=list)
    repeated: int = 0
    steps: int = 0
    strange: int = 0
    last: Step | None = None
    mark: float | None = None
    """Elapsed time at which the last thing that was timed ended, the start of the next step."""
    samples_before: int = 0
    warm_up_left: int = WARM_UP_STEPS
    latest: float | None = None

    def take(self, event: AnyEvent) -> None:
        match event:
            case Step():
                self._step(event)
            case Evaluation():
                # All are kept: best and target need them, and each took far longer than its few numbers are large.
                self.evaluations.append(event)
                self.mark = self.latest = event.elapsed_s
            case Checkpoint():
                # A run may write thousands; their number and time stay exact, the list does not grow without end.
                self.checkpoints.append(event)
                self.checkpoint_count += 1
                self.checkpoint_s += event.duration_s
                del self.checkpoints[:-_MAX_CHECKPOINTS]
                self.mark = self.latest = event.elapsed_s
            case Start():
                self.sessions.append(event)
                self.end = None
                self.mark = event.elapsed_s
                self.warm_up_left = self.observed.warm_up_left = WARM_UP_STEPS
                # An earlier session may have run past the step that this one resumes from: its time is superseded.
                self.latest = event.elapsed_s if event.step else None
            case Note():
                if len(self.notes) < _MAX_NOTES:
                    self.notes.append(event)
                else:
                    self.notes_left_out += 1
            case Attempt():
                self.attempts.append(event)
            case StepTiming():
                self.observed.take(event)
            case NotObserved():
                if len(self.not_observed) < _MAX_NOTES and event not in self.not_observed:
                    self.not_observed.append(event)
            case End():
                self.end = event
                self.latest = event.elapsed_s

    def _step(self, event: Step) -> None:
        samples = event.samples - self.samples_before
        duration = float("nan") if self.mark is None else event.elapsed_s - self.mark
        self.thinner.add(event, samples, duration)
        if self.warm_up_left:
            self.warm_up_left -= 1
        elif duration > 0 and samples > 0:
            self.rates.add(samples / duration)
            self.count_rates.add(event.count / duration)
        self.counts_samples = self.counts_samples and event.count == samples
        self.counts_whole = self.counts_whole and float(event.count).is_integer()
        self.steps += 1
        self.strange += event.count != 0 and not np.isfinite(number(event.loss))  # a mean over nothing is no number
        self.samples_before = event.samples
        self.last = event
        self.mark = self.latest = event.elapsed_s

    def freeze(self, path: Path, info: RunInfo, remarks: list[str]) -> Run:
        windows = list(self.thinner.windows())
        if self.notes_left_out:
            remarks.append(f"{self.notes_left_out} further note(s) are not shown")
        return Run(
            path=path,
            info=info,
            steps=_steps(windows),
            windows=_windows(windows, self.thinner.stride),
            totals=self._totals(windows),
            rates=np.array(self.rates.values(), dtype=np.float64),
            rates_seen=self.rates.seen,
            count_rates=np.array(self.count_rates.values() if self._counts(info) else [], dtype=np.float64),
            evaluations=_evaluations(self.evaluations),
            checkpoints=tuple(self.checkpoints),
            checkpoint_count=self.checkpoint_count,
            checkpoint_s=self.checkpoint_s,
            sessions=tuple(self.sessions),
            repeated_steps=self.repeated,
            end=self.end,
            elapsed_s=self.latest,
            notes=tuple(self.notes),
            attempts=tuple(self.attempts),
            observed=self.observed.freeze(),
            not_observed=tuple(self.not_observed),
            remarks=tuple(remarks),
        )

    def _counts(self, info: RunInfo) -> bool:
        """Whether a speed in what the loss counts says more than samples/s: not for sums of weights without a name."""
        named = info.task is not None and bool(info.task.unit)
        return not self.counts_samples and (named or self.counts_whole)

    def _totals(self, windows: list[Window]) -> Totals:
        phases = np.sum([window.phases for window in windows], axis=0) if windows else np.zeros(4)
        last = self.last
        return Totals(
            steps=self.steps,
            samples=last.samples if last else 0,
            last_step=last.step if last else 0,
            last_epoch=last.epoch if last else 0,
            data_s=float(phases[0]),
            forward_s=float(phases[1]),
            backward_s=float(phases[2]),
            update_s=float(phases[3]),
            strange_losses=self.strange,
            last_loss=number(last.loss) if last else None,
            last_lr=last.lr if last else None,
        )


def _steps(windows: list[Window]) -> Steps:
    rows: list[Row] = [row for window in windows for row in window.rows()]
    for window in windows[:1]:  # the curve starts at the first step and ends at the last, extreme or not
        rows.insert(0, window.first)
    for window in windows[-1:]:
        rows.append(window.last)
    ordered = {row[0]: row for row in rows}
    table = np.array([ordered[step] for step in sorted(ordered)], dtype=np.float64).reshape(-1, len(ROW))
    return Steps(**dict(zip(ROW, table.T, strict=True)))


def _windows(windows: list[Window], stride: int) -> Windows:
    last = np.array([window.last for window in windows], dtype=np.float64).reshape(-1, len(ROW))
    sums = np.array([(w.loss_sum, w.count, w.samples, w.seconds) for w in windows], dtype=np.float64).reshape(-1, 4)
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.where(sums[:, 1] > 0, sums[:, 0] / sums[:, 1], np.nan)
        rate = np.where(sums[:, 3] > 0, sums[:, 2] / sums[:, 3], np.nan)
    return Windows(
        stride=stride,
        step=last[:, 0],
        samples=last[:, 1],
        elapsed_s=last[:, 2],
        loss=loss,
        lr=last[:, 4],
        samples_per_s=rate,
        count=sums[:, 1],
        seconds=sums[:, 3],
    )


def _evaluations(events: list[Evaluation]) -> Evaluations:
    def column(values: Iterable[float | None]) -> Column:
        return np.array([number(value) for value in values], dtype=np.float64)

    names = list(dict.fromkeys(name for event in events for name in event.metrics))
    return Evaluations(
        step=column(event.step for event in events),
        epoch=column(event.epoch for event in events),
        samples=column(event.samples for event in events),
        elapsed_s=column(event.elapsed_s for event in events),
        duration_s=column(event.duration_s for event in events),
        value={n: column(e.metrics[n].value if n in e.metrics else None for e in events) for n in names},
        count={n: column(e.metrics[n].count if n in e.metrics else None for e in events) for n in names},
    )


def _repeated_steps(stream: EventStream) -> int:
    repeated = highest = 0
    for event in stream:
        if isinstance(event, Step):
            highest = max(highest, event.step)
        elif isinstance(event, Start):
            repeated += max(0, highest - event.step)
            highest = event.step
    return repeated
