"""From timed runs and a network to what other numbers of workers would give, and back from the record to the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import msgspec

from paceline.plan.collectives import Link, Network
from paceline.plan.discrepancy import Discrepancy
from paceline.plan.jitter import Jitter
from paceline.plan.mending import mending
from paceline.plan.network import FittedLink, network_of
from paceline.plan.refits import around, interval, noise_of, refits
from paceline.plan.rows import Timing
from paceline.plan.speed_caveats import notes, warnings
from paceline.plan.step_fit import fit, held_out
from paceline.plan.step_time import Coefficients, Observed, Parts, Setting, StepTime, turns_of
from paceline.records.plan_results import (
    Evidence,
    HeldOut,
    Measured,
    NetworkFacts,
    SpeedDraw,
    SpeedResult,
    SpeedRow,
    StepParts,
    estimate,
)
from paceline.records.schema import RunInfo
from paceline.stats.goodput import efficiency as statistical
from paceline.stats.intervals import Interval

CONFIDENCE = 0.8
FAR = 16.0
"""Workers over the most that were measured, beyond which a prediction says more of the formula than of the machine."""
_CURVE = [2**power for power in range(13)]
_MINOR = 0.05
"""A part of a step that is worth naming."""


@dataclass(frozen=True)
class Question:
    """What is asked, and of which training.

    Attributes:
        task: its name.
        workers: to predict.
        batch: of strong scaling, samples.
        micro: of weak scaling, samples a worker.
        at: workers at which mending is looked at.
        noise_scale: samples; None where it is not known.
        processors: workers that the cores of a machine compute at once; None where devices compute.
        compressed: its gradients travel in 16 bits already.
    """

    task: str
    workers: Sequence[int]
    batch: float
    micro: float
    at: int
    noise_scale: float | None = None
    processors: float | None = None
    compressed: bool = False


def processors_of(info: RunInfo) -> float | None:
    """Workers that the cores of the machine of a run compute at once; None where devices compute, or it was not
    recorded."""
    where = info.topology
    if where is None or where.device != "cpu" or not where.cores or not where.threads_per_rank:
        return None
    return where.cores / where.threads_per_rank


def predict(
    timings: Sequence[Timing],
    network: Network,
    facts: NetworkFacts,
    question: Question,
    tell: Callable[[int, int], None] = lambda done, total: None,
    *,
    link: FittedLink | None = None,
) -> SpeedResult:
    """Fit the runs, and answer.

    Args:
        timings: of the runs.
        network: that gradients go over.
        facts: its record.
        question: what is asked.
        tell: is called with how many refits are done, and of how many.
        link: as the probe found it; None where the network was given.

    Raises:
        PacelineError: the runs are too few, see `step_fit.fit`.
    """
    observed = [timing.observed for timing in timings]
    size = float(timings[0].size_bytes)
    model = fit(observed, network, size, processors=question.processors)
    answer = _Answer(model, refits(model, observed, link, tell), question, discrepancy_of(model, observed))
    rows = answer.rows(question.workers)
    checked = held_out(observed, network, size, question.processors)
    return SpeedResult(
        task=question.task,
        size_bytes=int(size),
        noise_scale=question.noise_scale,
        network=facts,
        coefficients=asdict(model.coefficients),
        measured=[_measured(timing, model) for timing in timings],
        rows=rows,
        curve=answer.rows(_CURVE),
        mending=mending(
            model, answer.refits, answer.setting("weak", question.at), CONFIDENCE, compressed=question.compressed
        ),
        mending_workers=question.at,
        most_workers=model.most_workers,
        warnings=warnings(model, rows, [each.setting for each in observed], question.workers, FAR),
        evidence=Evidence(
            runs=[str(timing.path) for timing in timings],
            held_out=[HeldOut(what=in_words(c.setting), measured=c.measured, predicted=c.predicted) for c in checked],
            confidence=CONFIDENCE,
            notes=notes(facts, model),
        ),
        processors=model.processors,
        jitter=model.jitter.facts,
        draws=[_draw(one) for one in answer.refits],
    )


def discrepancy_of(model: StepTime, observed: Sequence[Observed]) -> Discrepancy:
    """The error of the formula, from the runs that it was fitted to."""
    workers = [each.setting.workers for each in observed]
    micro = [each.setting.micro for each in observed]
    return Discrepancy(
        noise=noise_of(model, observed),
        workers=(min(workers), max(workers)),
        micro=(min(micro), max(micro)),
        turns=max(turns_of(each.setting, model.processors) for each in observed),
        processors=model.processors,
    )


# ---- the record, and what it says anew


def _draw(of: StepTime) -> SpeedDraw:
    link = of.network.link
    return SpeedDraw(
        coefficients=asdict(of.coefficients),
        latency_s=link.latency_s,
        bandwidth_bytes_per_s=link.bandwidth,
        shared_bytes_per_s=link.shared if math.isfinite(link.shared) else None,
        waits=of.jitter.facts.waits,
    )


def model_of(result: SpeedResult) -> StepTime:
    """The model that a result holds: it predicts what the result says."""
    return StepTime(
        Coefficients(**result.coefficients),
        network_of(result.network),
        float(result.size_bytes),
        Jitter.recorded(result.jitter),
        result.most_workers,
        result.processors,
    )


def _draws_of(result: SpeedResult, model: StepTime) -> list[StepTime]:
    found = []
    for draw in result.draws:
        shared = math.inf if draw.shared_bytes_per_s is None else draw.shared_bytes_per_s
        link = Link(draw.latency_s, draw.bandwidth_bytes_per_s, shared, model.network.link.processors)
        jitter = Jitter.recorded(msgspec.structs.replace(model.jitter.facts, waits=draw.waits))
        network = replace(model.network, link=link)
        found.append(replace(model, coefficients=Coefficients(**draw.coefficients), network=network, jitter=jitter))
    return found


def step_interval(result: SpeedResult, setting: Setting) -> Interval:
    """Seconds of a step at any setting, with the interval of the result's confidence (80 %); from 0 to no end where
    the result was made before refits were recorded."""
    model = model_of(result)
    observed = [
        Observed(Setting(each.workers, each.micro, each.accumulation, each.per_node), each.step_s)
        for each in result.measured
    ]
    discrepancy = discrepancy_of(model, observed)
    return interval(model, _draws_of(result, model), setting, result.evidence.confidence, discrepancy)


def in_words(setting: Setting) -> str:
    """A setting, for people."""
    workers = f"{setting.workers} worker{'s' if setting.workers != 1 else ''}"
    more = f" x {setting.accumulation}" if setting.accumulation != 1 else ""
    micro = f"{setting.micro:,.0f}" if float(setting.micro).is_integer() else f"{setting.micro:.4g}"
    return f"{workers}, {micro}{more} samples each"


def _measured(timing: Timing, model: StepTime) -> Measured:
    setting = timing.observed.setting
    return Measured(
        run=str(timing.path),
        workers=setting.workers,
        micro=setting.micro,
        accumulation=setting.accumulation,
        step_s=timing.observed.step_s,
        spread=timing.spread,
        fitted_s=model.step_s(setting),
        per_node=setting.per_node,
    )


# ---- rows


@dataclass(frozen=True)
class _Answer:
    model: StepTime
    refits: Sequence[StepTime]
    question: Question
    discrepancy: Discrepancy

    def setting(self, scaling: str, workers: int) -> Setting:
        micro = self.question.batch / workers if scaling == "strong" else self.question.micro
        return Setting(workers, micro, 1, self.model.network.per_node)

    def rows(self, workers: Sequence[int]) -> list[SpeedRow]:
        """Both scalings; a batch is not shared out among more workers than it has samples."""
        strong = [self._row("strong", count) for count in workers if count <= self.question.batch]
        return strong + [self._row("weak", count) for count in workers]

    def _row(self, scaling: str, workers: int) -> SpeedRow:
        setting, alone = self.setting(scaling, workers), self.setting(scaling, 1)
        parts = self.model.parts(setting)
        found = interval(self.model, self.refits, setting, CONFIDENCE, self.discrepancy)
        system = self._efficiency(setting, alone)
        target = target_interval = None
        if self.question.noise_scale is not None:
            gain = statistical(self.question.noise_scale, alone.batch, setting.batch)
            target = system.value * gain
            target_interval = estimate(target, system.low * gain, system.high * gain)
        return SpeedRow(
            scaling=scaling,
            workers=workers,
            batch=setting.batch,
            step_s=estimate(found.value, found.low, found.high),
            samples_per_s=setting.batch / parts.total,
            efficiency=system.value,
            target_efficiency=target,
            parts=_record(parts),
            bottleneck=bottleneck(parts),
            beyond=workers / self.model.most_workers,
            efficiency_interval=estimate(system.value, system.low, system.high),
            target_efficiency_interval=target_interval,
        )

    def _efficiency(self, setting: Setting, alone: Setting) -> Interval:
        """Throughput over that of `alone` times the workers. Both are from the same refit; their own errors are not the
        same, but for the step of one worker itself."""

        def of(model: StepTime) -> float:
            return model.samples_per_s(setting) / (setting.workers * model.samples_per_s(alone))

        best = of(self.model)
        if setting == alone:
            return Interval(best, best, best)
        deviations = [
            math.hypot(*(self.discrepancy.deviation(each, one.parts(each)) for each in (setting, alone)))
            for one in self.refits
        ]
        return around(best, [of(one) for one in self.refits], deviations, CONFIDENCE)


def bottleneck(parts: Parts) -> str:
    """The largest part besides work, if it is worth naming."""
    others = asdict(parts)
    del others["work"]
    name = max(others, key=lambda one: float(others[one]))
    return name if others[name] > _MINOR * parts.total else "work"


def _record(parts: Parts) -> StepParts:
    return StepParts(**{f"{name}_s": seconds for name, seconds in asdict(parts).items()})
