"""What `paceline plan` leaves in a run directory, as types: result.json holds one of the four results.

Every prediction is an `Estimate`: a value with its interval. JSON has no infinity: an end that is null has none, and a
value that is null is beyond all bounds ("no number of samples reaches this"). What is not known is None as well; then
the field is `Estimate | None`.
"""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from paceline.records.errors import PacelineError
from paceline.records.rundir import RunDir, write_atomic

SCHEMA = 1
"""Of result.json; changes only ever add, so that readers pass over fields that a later minor version added."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A value and its interval; null means that there is no end."""

    value: float | None
    low: float | None
    high: float | None


def estimate(value: float, low: float, high: float) -> Estimate:
    """From numbers that may be infinite."""
    return Estimate(value=finite(value), low=finite(low), high=finite(high))


def finite(value: float) -> float | None:
    """A number for JSON, which has no infinity."""
    return value if math.isfinite(value) else None


class PlanResult(msgspec.Struct, frozen=True, kw_only=True, tag_field="plan"):
    """What every result begins with."""

    schema: int = SCHEMA


class HeldOut(msgspec.Struct, frozen=True, kw_only=True):
    """A measured point and what a fit that had not seen it says of it."""

    what: str
    """The point, in words: `8 workers, 64 samples each`."""
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative."""
        return self.predicted / self.measured - 1


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a prediction was made from."""

    runs: list[str]
    """Run directories, as they were given or made."""
    held_out: list[HeldOut]
    confidence: float
    """Of every interval, 0 to 1."""
    notes: list[str]
    """What limits it, for people: assumptions, what was left out, what would settle it."""


# ---- plan speed


class NetworkFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The network that sums of gradients go over."""

    source: str
    """`probe`, or `given`, or `none` for one worker."""
    latency_s: float | None
    bandwidth_bytes_per_s: float | None
    shared_bytes_per_s: float | None
    """Of one machine's workers together; null where each has a link of its own."""
    per_node: int | None
    tree: bool
    """Whether the library takes a tree where that is faster."""
    outer_latency_s: float | None
    outer_bandwidth_bytes_per_s: float | None
    worst_error: float | None
    """Of the fit at a probed size, relative."""
    probed: list[list[float]]
    """[ranks, bytes, seconds] of each probed all-reduce."""
    processors: float | None = None
    """Workers whose messages the cores of a machine serve at once; null where devices send."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A run that went into the fit."""

    run: str
    workers: int
    micro: float
    accumulation: int
    step_s: float
    spread: float
    """Half the range of the middle half of its steps, relative."""
    fitted_s: float
    per_node: int | None = None
    """Workers on one machine; null where all were on one."""


class StepParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a step consists of, in seconds; they add up to it."""

    work_s: float
    """Computing, without the floor, as one worker alone would."""
    floor_s: float
    """What launching the computation takes beyond that."""
    network_s: float
    """Of the sum over workers, what is not hidden."""
    jitter_s: float
    """Waiting for the slowest worker."""
    rest_s: float
    """Everything else."""
    sharing_s: float = 0.0
    """What work, floor and rest take longer because workers share a machine."""

    @property
    def total_s(self) -> float:
        """The step."""
        return self.work_s + self.floor_s + self.sharing_s + self.network_s + self.jitter_s + self.rest_s


class SpeedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One predicted setting."""

    scaling: str
    """`strong`: the global batch stays. `weak`: the batch a worker stays."""
    workers: int
    batch: float
    step_s: Estimate
    samples_per_s: float
    efficiency: float
    """Strong: speed-up over one worker, over workers. Weak: throughput over that of one worker, over workers."""
    target_efficiency: float | None
    """Efficiency times statistical efficiency, where a noise scale is known: speed-up to the target, over workers."""
    parts: StepParts
    bottleneck: str
    """The largest part besides work, or `work`."""
    beyond: float
    """Workers over the most that were measured."""
    efficiency_interval: Estimate | None = None
    target_efficiency_interval: Estimate | None = None


class Mending(msgspec.Struct, frozen=True, kw_only=True):
    """What one change would give at the setting that was asked about."""

    what: str
    step_s: float
    gain: float
    """Throughput, relative: 0.2 is a fifth more."""
    gain_interval: Estimate | None = None


class JitterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How much longer the slowest of several workers takes, from single steps of one worker."""

    steps: int
    """That were timed."""
    seen: int
    """Workers up to which so many steps show it."""
    tail: bool
    """Whether more workers follow a fitted tail; else they wait as long as `seen` do, at least."""
    waits: list[float]
    """With 1, 2, 4 ... 65,536 workers, in the median, as a part of computing; empty where it was not measured."""


class SpeedDraw(msgspec.Struct, frozen=True, kw_only=True):
    """What another measurement might have given; all of them together make the intervals."""

    coefficients: dict[str, float]
    latency_s: float
    bandwidth_bytes_per_s: float
    shared_bytes_per_s: float | None
    waits: list[float]


class SpeedResult(PlanResult, frozen=True, kw_only=True, tag="speed"):
    """`paceline plan speed`."""

    task: str
    size_bytes: int
    """Of the gradients that a step sums."""
    noise_scale: float | None
    network: NetworkFacts
    coefficients: dict[str, float]
    measured: list[Measured]
    rows: list[SpeedRow]
    curve: list[SpeedRow]
    """Up to thousands of workers, for the drawing."""
    mending: list[Mending]
    """With weak scaling, at `mending_workers`."""
    mending_workers: int
    most_workers: int
    """That were measured."""
    warnings: list[str]
    evidence: Evidence
    processors: float | None = None
    """Workers that the cores of a machine compute at once; None where devices compute."""
    jitter: JitterFacts | None = None
    draws: list[SpeedDraw] = []


# ---- plan batch


class BatchPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was trained to the target."""

    run: str
    batch: int
    seed: int
    steps: float | None
    """None: not reached."""
    samples: float | None


class BatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One batch size with a number of workers."""

    batch: int
    workers: int
    steps: Estimate
    samples: float
    samples_per_s: float | None
    time_s: Estimate | None
    system: float | None
    """System efficiency: throughput over workers times that of one worker at the base batch, the smallest that met the
    target, or None. Above 1 where a worker is faster with more samples at once."""
    statistical: float
    """Progress of a sample, in samples at the base batch."""
    missed: bool = False
    """Whether a run at this batch did not meet the target; what is predicted of it is then not recommended."""

    statistical_interval: Estimate | None = None
    """Of `statistical`: of the fit, or of the noise scale; null in records before it was kept."""

    @property
    def efficiency(self) -> float:
        """Progress per worker, in that of one worker at the base batch; of a sample, where times are not known."""
        return self.statistical * (self.system if self.system is not None else 1.0)


class Recommendation(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, why, and what would change it."""

    batch: int
    workers: int | None
    """None where times are not known."""
    lr: float | None
    rule: str
    warmup: str
    command: str
    because: list[str]
    unless: list[str]
    lr_interval: Estimate | None = None
    """Where the noise scale scales the rate: what its interval makes of it. Null where a rule or runs give the rate."""


class NoisePoint(msgspec.Struct, frozen=True, kw_only=True):
    """The noise scale over a stretch of the run."""

    first: int
    last: int
    noise_scale: Estimate
    exhausts_data: bool


class RunNoise(msgspec.Struct, frozen=True, kw_only=True):
    """The one noise scale that stands for all steps that count: it gives the same steps at every batch as they do."""

    first: int
    last: int
    noise_scale: Estimate
    used: bool
    """Whether steps and advice are made from it; else runs to a target tell, and it is a second opinion."""
    why: str
    """Why that of the last stretch is another, in a sentence; empty where it is not."""


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A short run from a checkpoint at another batch, beside one at the checkpoint's own."""

    run: str
    batch: int
    seed: int
    samples: int
    loss: float | None


class BatchResult(PlanResult, frozen=True, kw_only=True, tag="batch"):
    """`paceline plan batch`."""

    task: str
    metric: str
    target: float | None
    critical: Estimate | None
    """Of the hyperbola; None where there were too few runs."""
    least_steps: Estimate | None
    least_samples: Estimate | None
    worst_error: float | None
    """Of the hyperbola at a batch size."""
    points: list[BatchPoint]
    noise: list[NoisePoint]
    table: list[BatchRow]
    recommendation: Recommendation | None
    branches: list[Branch]
    warnings: list[str]
    evidence: Evidence
    run_noise: RunNoise | None = None
    """Null where no noise was recorded, and in records before it was kept."""


# ---- plan data


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One training of the learning curve."""

    run: str
    samples: int
    seed: int
    error: float | None
    """None: it diverged."""
    steps: int


class DataRow(msgspec.Struct, frozen=True, kw_only=True):
    """The error at a number of samples, and what a training on them costs."""

    samples: int
    error: Estimate
    measured: float | None
    """Mean over the runs at this size; None beyond what was measured."""
    flop: float | None
    pfs_days: float | None
    device_hours: float | None
    cost: float | None
    beyond: float
    """Samples over the most that were measured."""


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    """What a target needs."""

    error: float
    samples: Estimate
    flop: Estimate | None
    device_hours: Estimate | None
    cost: Estimate | None


class DataResult(PlanResult, frozen=True, kw_only=True, tag="data"):
    """`paceline plan data`."""

    task: str
    metric: str
    """`error` is one minus accuracy for a metric called accuracy, else the metric itself."""
    scale: float
    exponent: float
    floor: float
    noise: float
    """Relative deviation of runs from the curve."""
    points: list[CurvePoint]
    rows: list[DataRow]
    needed: list[Needed]
    forward_flop: float | None
    """Of one sample, counted."""
    device: str
    """The kind of device that hours and cost are of; empty when none was given."""
    warnings: list[str]
    evidence: Evidence
    exponent_interval: Estimate | None = None
    floor_interval: Estimate | None = None
    drift: float | None = None
    """Relative error of the formula that intervals allow for each doubling beyond the largest size."""


# ---- plan trends


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A published training time."""

    who: str
    year: int
    hardware: str
    devices: int
    minutes: float
    accuracy: str
    source: str
    efficiency: float | None
    """Strong scaling beside the record of the same series with the fewest devices."""
    iteration_ms: float | None
    """Time of one step, where batch and epochs are known."""


class TrendsResult(PlanResult, frozen=True, kw_only=True, tag="trends"):
    """`paceline plan trends`."""

    records: list[Record]
    notes: list[str]


AnyPlan = SpeedResult | BatchResult | DataResult | TrendsResult


class _Head(msgspec.Struct):
    schema: int = SCHEMA


def result_path(run: RunDir) -> Path:
    """Where the result stands."""
    return run.path / "result.json"


def write_plan(run: RunDir, result: AnyPlan) -> None:
    """Write result.json whole or not at all.

    Raises:
        PacelineError: it cannot be written.
    """
    write_atomic(result_path(run), msgspec.json.format(msgspec.json.encode(result), indent=1))


def read_plan(path: Path | str) -> AnyPlan:
    """The result in a run directory of `paceline plan`.

    Raises:
        PacelineError: there is none, it is damaged, or of a newer schema than this version knows.
    """
    file = result_path(RunDir(path))
    try:
        raw = file.read_bytes()
        schema = msgspec.json.decode(raw, type=_Head).schema
        if schema > SCHEMA:
            raise PacelineError(
                f"{file} was written by a newer Paceline",
                why=f"it has schema {schema}, and this version reads up to schema {SCHEMA}",
                hint="pip install --upgrade paceline",
            )
        found: AnyPlan = msgspec.json.decode(raw, type=AnyPlan)
        return found
    except OSError as error:
        raise PacelineError(
            f"cannot read {file}", why=error.strerror or str(error), hint="a plan that was stopped has no result yet"
        ) from error
    except msgspec.MsgspecError as error:
        raise PacelineError(f"{file} is damaged", why=str(error), hint="make the plan again") from error
