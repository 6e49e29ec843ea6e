"""What a run directory holds, as types (schema 1; changes only ever add).

Units live in names: `_s` seconds, `_bytes` bytes. A field that was not observed is None, never a guess.
JSON has no NaN: a loss or a measure that is no finite number stands there as null, and is NaN again when it is read.
Readers of this schema skip event types and fields that a later minor version added, and take words of its vocabularies
(see `event`); a run whose `schema` is greater than `SCHEMA` is refused, because then the meaning of what is known
may have changed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from paceline.records.event import CheckpointReason, Device, EndReason, Event, Level, Severity, Verb
from paceline.records.launched import Attempt, HangOver, HangSeen
from paceline.records.observed import (
    Collective,
    CollectiveDone,
    CollectivesCounted,
    Fingerprint,
    NotObserved,
    StepTiming,
)
from paceline.records.observed_rank import RankEvent

SCHEMA = 1

if TYPE_CHECKING:
    Number = float
else:
    Number = float | None  # null in the file; `__post_init__` turns it back into NaN


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """How a global batch is made: per_rank * accumulation * world = global_batch where it divides evenly."""

    per_rank: int
    """Samples that a rank holds at once: the largest micro-batch."""
    accumulation: int
    world: int
    global_batch: int


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """On what the run ran."""

    world: int
    nodes: int
    backend: str
    device: Device
    device_name: str
    threads_per_rank: int | None
    hostname: str
    cores: int | None = None


class Git(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the code that ran, where it stands in a git work tree."""

    commit: str
    dirty: bool


class TaskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of the trained model and its data."""

    name: str
    parameters: int
    train_samples: int
    eval_samples: int
    steps_per_epoch: int
    total_steps: int
    data_source: str = ""
    unit: str = ""
    """What the loss counts where that is not samples: `tokens`; empty when the task does not say."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """run.json: everything about a run that is known when it starts. `config` is the verb's own settings."""

    schema: int
    verb: Verb
    name: str
    command: list[str]
    started_at: str
    """UTC, ISO 8601."""
    versions: dict[str, str]
    config: dict[str, Any]
    topology: Topology | None = None
    batch: Batch | None = None
    task: TaskFacts | None = None
    precision: str | None = None
    git: Git | None = None
    facts: dict[str, Any] = {}
    """What the verb found out and another reader may want: allocator, buckets, data source, notes."""


def _null_is_nan(record: msgspec.Struct, name: str) -> None:
    if getattr(record, name) is None:
        msgspec.structs.force_setattr(record, name, math.nan)


class Start(Event, frozen=True, kw_only=True, tag="start"):
    """A session (first start or resume) begins."""

    session: int
    time_unix_s: float
    world: int
    step: int
    """Steps already done: 0, or the step of the checkpoint that was loaded."""
    resumed_from: int | None = None
    """The step from which an earlier session is gone on from: what that did after it is superseded. None for a session
    that begins anew beside earlier ones, as an elastic restart of a script that resumes nothing does."""
    elapsed_s: float = 0.0
    """Training time that earlier sessions spent up to `step`."""
    pid: int = 0

    @property
    def goes_back_to(self) -> int | None:
        """The step after which earlier sessions are superseded; older files have it in `step` alone."""
        if self.resumed_from is not None:
            return self.resumed_from
        return self.step if self.session > 1 else None


class Step(Event, frozen=True, kw_only=True, tag="step"):
    """One optimizer step, as this rank saw it. Phase times are this rank's; loss and count are of all ranks."""

    step: int
    """1 for the first."""
    epoch: int
    """0 for the first."""
    samples: int
    """Samples used by all ranks up to and with this step."""
    count: float
    """What the loss was divided by: samples, or tokens."""
    loss: Number
    lr: float
    elapsed_s: float
    """Since the run's first step began, sessions added up, evaluation and checkpoints included."""
    data_s: float
    forward_s: float
    backward_s: float
    """Gradient synchronisation that was not hidden is in here."""
    update_s: float
    grad_norm: float | None = None

    def __post_init__(self) -> None:
        _null_is_nan(self, "loss")


class GradientNorms(Event, frozen=True, kw_only=True, tag="gradients"):
    """How long this rank's gradients were in a step before the sum over ranks, and how long the mean over the batch is.

    A norm that was no finite number is null.
    """

    step: int
    batch: int
    """Samples over all ranks."""
    samples: list[int]
    """In each of this rank's micro-batches that had any."""
    squares: list[float | None]
    """Squared norm of the mean gradient over each."""
    counts: list[float] = []  # noqa: RUF012  # msgspec makes a new one for each
    """What the loss counted in each (tokens, weights), over which these means are; empty where it counts samples."""
    reduced: float | None
    """Squared norm of the mean gradient over the batch, before clipping; the same on all ranks."""


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A measured mean and what it was taken over."""

    value: Number
    count: float

    def __post_init__(self) -> None:
        _null_is_nan(self, "value")


class Evaluation(Event, frozen=True, kw_only=True, tag="evaluation"):
    """One pass over the evaluation set by all ranks together, each sample once."""

    step: int
    epoch: float
    """Epochs done, a fraction within one."""
    samples: int
    elapsed_s: float
    """At its end."""
    duration_s: float
    metrics: dict[str, Measure]
    """`loss` and the task's own."""


class Checkpoint(Event, frozen=True, kw_only=True, tag="checkpoint"):
    """A complete checkpoint was written."""

    step: int
    path: str
    """Relative to the run directory."""
    duration_s: float
    size_bytes: int
    elapsed_s: float
    reason: CheckpointReason = "periodic"


class Note(Event, frozen=True, kw_only=True, tag="note"):
    """Something a person should know."""

    message: str
    level: Level = "info"


class End(Event, frozen=True, kw_only=True, tag="end"):
    """The session ended in a way that it could still say."""

    step: int
    reason: EndReason
    exit_code: int
    elapsed_s: float
    target_step: int | None = None
    """The step at which a target was met for the number of evaluations asked for."""
    message: str = ""


class Measuring(Event, frozen=True, kw_only=True, tag="measuring"):
    """How far one measure of `paceline landscape` has come."""

    measure: str
    """A name that --measure takes."""
    done: int
    """About, over all ranks, of what `unit` names."""
    total: int
    """At most; fewer are needed where a search converges earlier."""
    unit: str
    elapsed_s: float
    """Since the session began."""
    shown: str = ""
    """What is known so far, in a few words."""


class Measured(Event, frozen=True, kw_only=True, tag="measured"):
    """One measure has ended."""

    measure: str
    elapsed_s: float
    duration_s: float
    summary: str
    """Its main numbers, in a line."""
    level: Level = "info"
    """A warning where it did not converge."""


AnyEvent = (
    Start
    | Step
    | GradientNorms
    | Evaluation
    | Checkpoint
    | Note
    | End
    | Measuring
    | Measured
    | Collective
    | CollectiveDone
    | CollectivesCounted
    | Fingerprint
    | NotObserved
    | StepTiming
    | Attempt
    | HangSeen
    | HangOver
    | RankEvent
)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A judgement of records or code. Codes are permanent: DP0xx static, DP1xx run time."""

    code: str
    name: str
    severity: Severity
    message: str
    advice: str
    faults: list[str] = []
    path: str | None = None
    line: int | None = None
    column: int | None = None
    """In characters, the first is 1."""
    rank: int | None = None
    step: int | None = None
    evidence: dict[str, Any] = {}
