"""From timed runs and a network to what other numbers of workers would give."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from paceline.plan.collectives import Link, Network
from paceline.plan.network import FittedLink, Timed
from paceline.plan.rows import Timing
from paceline.plan.step_time import Coefficients, Jitter, Observed, Parts, Setting, StepTime, fit, held_out
from paceline.records.plan import (
    Evidence,
    HeldOut,
    Measured,
    Mending,
    NetworkFacts,
    SpeedResult,
    SpeedRow,
    StepParts,
    estimate,
)
from paceline.stats.goodput import efficiency as statistical

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CONFIDENCE = 0.8
FAR = 16.0
"""Workers over the most that were measured, beyond which a prediction says more of the formula than of the machine."""
FULL = 8.0
"""Samples of a worker over the most that were measured: memory may end before."""
_REFITS = 60
_LEAST_NOISE = 0.02
_CURVE = [2**power for power in range(13)]
_MINOR = 0.05
"""A part of a step that is worth naming."""


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        task: its name.
        workers: to predict.
        batch: of strong scaling, samples.
        micro: of weak scaling, samples a worker.
        at: workers at which mending is looked at.
        noise_scale: samples; None where it is not known.
    """

    task: str
    workers: Sequence[int]
    batch: float
    micro: float
    at: int
    noise_scale: float | None = None


def network_facts(
    network: Network, source: str, fitted: FittedLink | None = None, probed: Sequence[Timed] = ()
) -> NetworkFacts:
    """The record of a network."""
    outer = network.outer
    return NetworkFacts(
        source=source,
        latency_s=network.link.latency_s,
        bandwidth_bytes_per_s=network.link.bandwidth,
        shared_bytes_per_s=network.link.shared if math.isfinite(network.link.shared) else None,
        per_node=network.per_node,
        tree=network.tree,
        outer_latency_s=outer.latency_s if outer else None,
        outer_bandwidth_bytes_per_s=outer.bandwidth if outer else None,
        worst_error=fitted.worst if fitted else None,
        probed=[[float(row.ranks), float(row.size_bytes), row.seconds] for row in probed],
    )


def predict(
    timings: Sequence[Timing],
    network: Network,
    facts: NetworkFacts,
    question: Question,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> SpeedResult:
    """Fit the runs, and answer.

    Args:
        timings: of the runs.
        network: that gradients go over.
        facts: its record.
        question: what is asked.
        tell: is called with how many refits are done, and of how many.

    Raises:
        PacelineError: the runs are too few, see `step_time.fit`.
    """
    observed = [timing.observed for timing in timings]
    size = float(timings[0].size_bytes)
    model = fit(observed, network, size)
    refits = _refits(model, observed, tell)
    answer = _Answer(model, refits, question)
    rows = [answer.row(scaling, workers) for scaling in ("strong", "weak") for workers in question.workers]
    checked = held_out(observed, network, size)
    return SpeedResult(
        task=question.task,
        size_bytes=int(size),
        noise_scale=question.noise_scale,
        network=facts,
        coefficients=asdict(model.coefficients),
        measured=[_measured(timing, model) for timing in timings],
        rows=rows,
        curve=[answer.row(scaling, workers) for scaling in ("strong", "weak") for workers in _CURVE],
        mending=answer.mending(),
        mending_workers=question.at,
        most_workers=model.most_workers,
        warnings=_warnings(model, rows, timings),
        evidence=Evidence(
            runs=[str(timing.path) for timing in timings],
            held_out=[HeldOut(what=in_words(c.setting), measured=c.measured, predicted=c.predicted) for c in checked],
            confidence=CONFIDENCE,
            notes=_notes(facts, model),
        ),
    )


def model_of(result: SpeedResult) -> StepTime:
    """The model that a result holds; jitter, which is no number but a distribution, is left out."""
    facts = result.network
    link = Link(
        facts.latency_s or 0.0,
        facts.bandwidth_bytes_per_s or math.inf,
        facts.shared_bytes_per_s if facts.shared_bytes_per_s is not None else math.inf,
    )
    outer = None
    if facts.outer_latency_s is not None and facts.outer_bandwidth_bytes_per_s is not None:
        outer = Link(facts.outer_latency_s, facts.outer_bandwidth_bytes_per_s)
    return StepTime(
        Coefficients(**result.coefficients),
        Network(link, facts.per_node, outer, facts.tree),
        float(result.size_bytes),
        Jitter(np.empty(0)),
        result.most_workers,
    )


def in_words(setting: Setting) -> str:
    """A setting, for people."""
    workers = f"{setting.workers} worker{'s' if setting.workers != 1 else ''}"
    more = f" x {setting.accumulation}" if setting.accumulation != 1 else ""
    return f"{workers}, {setting.micro:g}{more} samples each"


def _refits(model: StepTime, observed: Sequence[Observed], tell: Callable[[int, int], None]) -> list[StepTime]:
    """Fits to the fitted times with noise as large as the residuals: how far the coefficients are known."""
    fitted = np.array([model.step_s(each.setting) for each in observed])
    residuals = np.log([each.step_s for each in observed]) - np.log(fitted)
    left = max(1, len(observed) - 4)
    noise = max(_LEAST_NOISE, float(np.sqrt((residuals**2).sum() / left)))
    generator = np.random.default_rng(0)
    found = []
    for number in range(_REFITS):
        tell(number, _REFITS)
        drawn = fitted * np.exp(noise * generator.standard_normal(len(fitted)))
        again = [replace(each, step_s=float(time)) for each, time in zip(observed, drawn, strict=True)]
        found.append(fit(again, model.network, model.size_bytes, model.jitter))
    tell(_REFITS, _REFITS)
    return found


@dataclass(frozen=True)
class _Answer:
    model: StepTime
    refits: Sequence[StepTime]
    question: Question

    def setting(self, scaling: str, workers: int) -> Setting:
        micro = self.question.batch / workers if scaling == "strong" else self.question.micro
        return Setting(workers, micro, 1, self.model.network.per_node)

    def row(self, scaling: str, workers: int) -> SpeedRow:
        setting, alone = self.setting(scaling, workers), self.setting(scaling, 1)
        parts = self.model.parts(setting)
        low, high = self._interval(setting)
        system = self.model.samples_per_s(setting) / (workers * self.model.samples_per_s(alone))
        target = None
        if self.question.noise_scale is not None:
            target = system * statistical(self.question.noise_scale, alone.batch, setting.batch)
        return SpeedRow(
            scaling=scaling,
            workers=workers,
            batch=setting.batch,
            step_s=estimate(parts.total, low, high),
            samples_per_s=setting.batch / parts.total,
            efficiency=system,
            target_efficiency=target,
            parts=_record(parts),
            bottleneck=bottleneck(parts),
            beyond=workers / self.model.most_workers,
        )

    def _interval(self, setting: Setting) -> tuple[float, float]:
        times = [refit.step_s(setting) for refit in self.refits]
        low, high = np.quantile(times, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        # Coefficients that are 0 can only be drawn larger, so the best fit may lie at an end of what refits say.
        best = self.model.step_s(setting)
        return min(best, float(low)), max(best, float(high))

    def mending(self) -> list[Mending]:
        """What single changes would give with weak scaling at the workers that were asked about."""
        setting = self.setting("weak", self.question.at)
        model, now = self.model, self.model.step_s(setting)
        network, coefficients = model.network, model.coefficients
        free = _faster(network, math.inf)
        changed = {
            "a network twice as fast": model.on(_faster(network, 2.0)),
            "gradients in 16 bits (--compress bf16)": replace(model, size_bytes=model.size_bytes / 2),
            "a sum that hides behind the backward pass altogether": replace(
                model, coefficients=replace(coefficients, late=0.0)
            ),
            "no network at all": model.on(free),
            "no overhead of launching": replace(model, coefficients=replace(coefficients, floor=0.0)),
            "no jitter between workers": replace(model, jitter=type(model.jitter)(np.empty(0))),
            "nothing besides work and network": replace(model, coefficients=replace(coefficients, rest=0.0)),
        }
        times = {what: other.step_s(setting) for what, other in changed.items()}
        found = [Mending(what=what, step_s=time, gain=now / time - 1) for what, time in times.items()]
        return sorted(found, key=lambda one: -one.gain)


def _faster(network: Network, times: float) -> Network:
    outer = network.outer.faster(times) if network.outer else None
    return replace(network, link=network.link.faster(times), outer=outer)


def bottleneck(parts: Parts) -> str:
    """The largest part besides work, if it is worth naming."""
    others = {"floor": parts.floor, "network": parts.network, "jitter": parts.jitter, "rest": parts.rest}
    name = max(others, key=lambda one: others[one])
    return name if others[name] > _MINOR * parts.total else "work"


def _record(parts: Parts) -> StepParts:
    return StepParts(
        work_s=parts.work, floor_s=parts.floor, network_s=parts.network, jitter_s=parts.jitter, rest_s=parts.rest
    )


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
    )


def _warnings(model: StepTime, rows: Sequence[SpeedRow], timings: Sequence[Timing]) -> list[str]:
    found = []
    far = sorted({row.workers for row in rows if row.beyond > FAR})
    if far:
        shown, most = ", ".join(str(workers) for workers in far), model.most_workers
        found.append(
            f"{shown} workers are over {FAR:g} times the {most} that were measured: take it as the formula's word"
        )
    if len({timing.observed.setting.workers for timing in timings}) == 1:
        found.append("all runs have the same number of workers: how far backward hides the sum is assumed")
    largest = max(timing.observed.setting.micro for timing in timings)
    above = sorted({row.workers for row in rows if row.batch / row.workers > FULL * largest})
    if above:
        workers = f"{above[0]} worker{'s' if above[0] != 1 else ''}"
        found.append(
            f"with {workers} each would hold over {FULL:g} times the {largest:g} samples of any run: whether they fit "
            "into memory is not known"
        )
    return found


def _notes(facts: NetworkFacts, model: StepTime) -> list[str]:
    notes = [
        "strong: the global batch stays; weak: the batch a worker stays; neither says how many steps a target takes"
    ]
    if facts.source == "probe":
        notes.append("the network is that of this machine's workers among themselves, as a probe found it")
    if facts.source == "given":
        notes.append("the network is as it was given, not measured")
    if not model.jitter.measured:
        notes.append("jitter is not in it: no run with one worker has shown how much its steps vary")
    return notes
