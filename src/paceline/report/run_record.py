"""A run directory as a `Run` of numpy columns, read as a stream in bounded memory.

Of a training only rank 0's events are read: losses, samples, evaluations and checkpoints in it are those of all ranks,
phase times are rank 0's own. Of a job of `paceline run` the events of all ranks are read (`observed_ranks`). A run that
was killed at any point still loads; what is missing is empty, never invented.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from paceline.checkpoint import manifest
from paceline.records.errors import PacelineError
from paceline.records.launched import Attempt
from paceline.records.observation import ObservedRun, read_observation
from paceline.records.observed import NotObserved, StepTiming
from paceline.records.reader import EventStream
from paceline.records.rundir import RunDir, is_live, read_info
from paceline.records.schema import AnyEvent, Checkpoint, End, Evaluation, Note, RunInfo, Start, Step
from paceline.report.noise import Noise, noise_of
from paceline.report.observed_ranks import ObservedJob, observed_job
from paceline.report.thin import Sample, Steps, Thinner, Windows, number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Column = NDArray[np.float64]

WARM_UP_STEPS = 5
"""Steps at the start of each session that throughput leaves out: allocators, caches and kernels settle in them."""
_MAX_NOTES = 100
_MAX_CHECKPOINTS = 1000


@dataclass
class Totals:
    """Sums over all steps of the run, exact however long it was."""

    steps: int = 0
    """Steps whose record was read."""
    samples: int = 0
    last_step: int = 0
    data_s: float = 0.0
    forward_s: float = 0.0
    backward_s: float = 0.0
    update_s: float = 0.0
    strange_losses: int = 0
    """Steps whose loss was not a finite number."""
    last_loss: float | None = None

    def add(self, event: Step) -> None:
        """One more step."""
        self.steps += 1
        self.samples, self.last_step, self.last_loss = event.samples, event.step, number(event.loss)
        self.data_s += event.data_s
        self.forward_s += event.forward_s
        self.backward_s += event.backward_s
        self.update_s += event.update_s
        self.strange_losses += event.count != 0 and not np.isfinite(self.last_loss)  # a mean over nothing is no number


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

    def at(self, kept: list[int]) -> Evaluations:
        """Some of them, by index."""
        return Evaluations(
            step=self.step[kept],
            epoch=self.epoch[kept],
            samples=self.samples[kept],
            elapsed_s=self.elapsed_s[kept],
            duration_s=self.duration_s[kept],
            value={name: column[kept] for name, column in self.value.items()},
            count={name: column[kept] for name, column in self.count.items()},
        )


@dataclass
class ObservedSteps:
    """Steps of a script that was watched, by rank 0's observer."""

    steps: int | None = None
    """The last step's number; None where steps are not numbered."""
    samples: int | None = None
    """Used by all ranks."""
    durations: Sample = field(default_factory=Sample)
    """Seconds of single steps, warm-up left out."""
    rates: Sample = field(default_factory=Sample)
    """Samples a second of the same steps, as far as both are known."""
    sources: dict[str, None] = field(default_factory=dict)
    sampled: bool = False
    """Some durations are of a sample of the steps."""
    warm_up_left: int = WARM_UP_STEPS

    def add(self, event: StepTiming) -> None:
        """One more step."""
        before, self.steps = self.samples, event.step
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


@dataclass
class Run:
    """What a run left behind, without what a later session did again."""

    path: Path
    info: RunInfo
    steps: Steps = field(init=False)
    windows: Windows = field(init=False)
    evaluations: Evaluations = field(init=False)
    totals: Totals = field(default_factory=Totals)
    rates: Sample = field(default_factory=Sample)
    """Samples a second of single steps, warm-up left out; thinned evenly above 65,536."""
    count_rates: Sample = field(default_factory=Sample)
    """What the loss counts, such as tokens, a second, of the same single steps; empty where that is samples."""
    checkpoints: list[Checkpoint] = field(default_factory=list)
    """The newest thousand."""
    checkpoint_count: int = 0
    checkpoint_s: float = 0.0
    sessions: list[Start] = field(default_factory=list)
    repeated_steps: int = 0
    """Steps that an earlier session had done and a later one did again."""
    end: End | None = None
    """Of the last session; None when it was killed, or still goes on."""
    elapsed_s: float | None = None
    """Training time of all sessions together, None when nothing was timed."""
    noise: Noise | None = None
    """The gradient noise scale, where norms were recorded."""
    notes: list[Note] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    """Of a job of `paceline run`."""
    observed: ObservedSteps | None = None
    """Steps that an observer timed; None where there was none."""
    not_observed: list[NotObserved] = field(default_factory=list)
    """What probes could not see."""
    observation: ObservedRun | None = None
    """What `paceline run` or `paceline audit` found."""
    job: ObservedJob = field(default_factory=ObservedJob)
    """What the ranks of `paceline run` recorded."""
    remarks: list[str] = field(default_factory=list)
    """What reading came across: torn, damaged, or later events; damaged checkpoints."""
    on_disk: list[manifest.Standing] = field(default_factory=list)
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
    place = RunDir(path)
    run = Run(place.path, read_info(path))
    reader = _Reader(run, limit)
    events, launchers = place.events(0), launcher_files(place.path)
    if not events.exists() and not launchers:
        run.remarks.append(f"{events} is not there: the run ended before its first event, or the file was removed")
    # Launchers after the rank: how the job ended is the launcher's word.
    for file in [*([events] if events.exists() else []), *launchers]:
        stream = EventStream(file)
        for event in stream:
            reader.take(event)
        run.remarks += stream.notes
    if len(run.sessions) > 1 and events.exists():
        run.repeated_steps = _repeated_steps(EventStream(events, superseded=True))
    run.remarks += _damaged(place)
    run.end = _first_cause(place, run.end)
    reader.finish()
    run.noise = noise_of(place, run.info, run.steps)
    if run.info.verb == "run":
        run.job = observed_job(place)
        run.remarks += [each for each in run.job.remarks if each not in run.remarks]  # rank 0 was read above
        try:
            run.observation = read_observation(place)
        except PacelineError as error:
            run.remarks.append(f"{error.what}: {error.hint}")
    run.on_disk = manifest.standing(place.checkpoints)
    run.live = is_live(place)
    return run


def launcher_files(run: Path) -> list[Path]:
    """What launchers wrote, one file each."""
    return sorted(run.glob("events/launcher-*.jsonl"))


_OF_A_VICTIM = re.compile("Connection closed by peer|Connection reset by peer|Broken pipe|NCCL|ProcessGroup")


def _first_cause(run: RunDir, end: End | None) -> End | None:
    """Rank 0's end, with the words of the rank that failed by itself where rank 0 only lost its connection."""
    if end is None or end.reason != "failed" or not _OF_A_VICTIM.search(end.message):
        return end
    for rank, path in run.rank_events().items():
        last = None
        for event in EventStream(path, only=End):
            last = event if isinstance(event, End) else last
        if last is not None and last.message and not _OF_A_VICTIM.search(last.message):
            return msgspec.structs.replace(end, message=f"Rank {rank}: {last.message}")
    return end


def _damaged(run: RunDir) -> list[str]:
    """Checkpoints on disk that cannot be used."""
    found = [(path, manifest.damage(path, contents=False)) for _, path in manifest.steps_newest_first(run.checkpoints)]
    return [f"{path} cannot be used: {reason}" for path, reason in found if reason is not None]


class _Reader:
    """Takes the events of a run in order and fills in a `Run`."""

    def __init__(self, run: Run, limit: int) -> None:
        self.run = run
        self.thinner = Thinner(limit)
        self.evaluations: list[Evaluation] = []
        self.notes_left_out = 0
        self.counts_samples = self.counts_whole = True
        self.mark: float | None = None
        """Elapsed time at which the last thing that was timed ended, the start of the next step."""
        self.warm_up_left = WARM_UP_STEPS

    def take(self, event: AnyEvent) -> None:
        run = self.run
        match event:
            case Step():
                self._step(event)
            case Evaluation():
                # All are kept: best and target need them, and each took far longer than its few numbers are large.
                self.evaluations.append(event)
                self.mark = run.elapsed_s = event.elapsed_s
            case Checkpoint():
                # A run may write thousands; their number and time stay exact, the list does not grow without end.
                run.checkpoints.append(event)
                run.checkpoint_count += 1
                run.checkpoint_s += event.duration_s
                del run.checkpoints[:-_MAX_CHECKPOINTS]
                self.mark = run.elapsed_s = event.elapsed_s
            case Start():
                run.sessions.append(event)
                run.end = None
                self.mark = event.elapsed_s
                self.warm_up_left = WARM_UP_STEPS
                if run.observed is not None:
                    run.observed.warm_up_left = WARM_UP_STEPS
                # An earlier session may have run past the step that this one resumes from: its time is superseded.
                run.elapsed_s = event.elapsed_s if event.step else None
            case Note():
                if len(run.notes) < _MAX_NOTES:
                    run.notes.append(event)
                else:
                    self.notes_left_out += 1
            case Attempt():
                run.attempts.append(event)
            case StepTiming():
                run.observed = run.observed or ObservedSteps()
                run.observed.add(event)
            case NotObserved():
                if len(run.not_observed) < _MAX_NOTES and event not in run.not_observed:
                    run.not_observed.append(event)
            case End():
                run.end = event
                run.elapsed_s = event.elapsed_s

    def _step(self, event: Step) -> None:
        run = self.run
        samples = event.samples - run.totals.samples
        duration = float("nan") if self.mark is None else event.elapsed_s - self.mark
        self.thinner.add(event, samples, duration)
        if self.warm_up_left:
            self.warm_up_left -= 1
        elif duration > 0 and samples > 0:
            run.rates.add(samples / duration)
            run.count_rates.add(event.count / duration)
        self.counts_samples = self.counts_samples and event.count == samples
        self.counts_whole = self.counts_whole and float(event.count).is_integer()
        run.totals.add(event)
        self.mark = run.elapsed_s = event.elapsed_s

    def finish(self) -> None:
        """Columns of what was gathered."""
        run = self.run
        run.steps, run.windows = self.thinner.steps(), self.thinner.windows()
        run.evaluations = _evaluations(self.evaluations)
        if self.notes_left_out:
            run.remarks.append(f"{self.notes_left_out} further note(s) are not shown")
        # A speed in what the loss counts says more than samples/s, but not for sums of weights without a name.
        named = run.info.task is not None and bool(run.info.task.unit)
        if self.counts_samples or not (named or self.counts_whole):
            run.count_rates = Sample()


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
