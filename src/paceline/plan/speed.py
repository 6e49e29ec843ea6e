"""From timed runs and a network to what other numbers of workers would give, and back from the record to the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import msgspec
import numpy as np

from paceline.plan.collectives import Link, Network
from paceline.plan.discrepancy import Discrepancy
from paceline.plan.jitter import Jitter
from paceline.plan.network import FittedLink, network_facts, network_of
from paceline.plan.refits import Predictor, noise_of, refits
from paceline.plan.speed_caveats import notes, warnings
from paceline.plan.step_fit import fit, held_out
from paceline.plan.step_time import Coefficients, Observed, Setting, StepTime, turns_of
from paceline.records.plan_results import (
    Evidence,
    Measured,
    Mending,
    SpeedDraw,
    SpeedResult,
    SpeedRow,
    StepParts,
    finite,
)
from paceline.records.schema import RunInfo
from paceline.stats.goodput import efficiency as statistical
from paceline.stats.intervals import Interval

CONFIDENCE = 0.8
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
    observed: Sequence[Observed],
    network: Network,
    question: Question,
    tell: Callable[[int, int], None] = lambda done, total: None,
    *,
    link: FittedLink | None = None,
) -> SpeedResult:
    """Fit the runs, and answer.

    Args:
        observed: of the runs.
        network: that gradients go over.
        question: what is asked.
        tell: is called with how many refits are done, and of how many.
        link: as the probe found it; None where the network was given.

    Raises:
        PacelineError: the runs are too few, see `step_fit.fit`.
    """
    size = observed[0].size_bytes
    model = fit(observed, network, size, processors=question.processors)
    of = _predictor(model, observed, refits(model, observed, link, tell), CONFIDENCE)
    rows = _rows(of, question, question.workers)
    return SpeedResult(
        task=question.task,
        size_bytes=size,
        noise_scale=question.noise_scale,
        network=network_facts(network, link),
        coefficients=asdict(model.coefficients),
        measured=[_measured(each, model) for each in observed],
        rows=rows,
        curve=_rows(of, question, _CURVE),
        mending=_mending(of, _setting(model, question, "weak", question.at), compressed=question.compressed),
        mending_workers=question.at,
        most_workers=model.most_workers,
        warnings=list(warnings(model, rows, [each.setting for each in observed], question.workers)),
        evidence=Evidence(
            runs=[each.run for each in observed],
            held_out=held_out(observed, network, size, question.processors),
            confidence=CONFIDENCE,
            notes=list(notes(model, probed=link is not None)),
        ),
        processors=model.processors,
        jitter=model.jitter.facts,
        draws=[_draw(one) for one in of.refits],
    )


def _predictor(
    model: StepTime, observed: Sequence[Observed], drawn: Sequence[StepTime], confidence: float
) -> Predictor:
    """With the error of the formula that belongs to these runs."""
    workers = [each.setting.workers for each in observed]
    micro = [each.setting.micro for each in observed]
    discrepancy = Discrepancy(
        noise=noise_of(model, observed),
        workers=(min(workers), max(workers)),
        micro=(min(micro), max(micro)),
        turns=max(turns_of(each.setting, model.processors) for each in observed),
        processors=model.processors,
    )
    return Predictor(model, drawn, discrepancy, confidence)


# ---- the record, and what it says anew


def _measured(of: Observed, model: StepTime) -> Measured:
    return Measured(
        run=of.run,
        workers=of.setting.workers,
        micro=of.setting.micro,
        accumulation=of.setting.accumulation,
        step_s=of.step_s,
        spread=of.spread,
        fitted_s=model.step_s(of.setting),
        per_node=of.setting.per_node,
    )


def _draw(of: StepTime) -> SpeedDraw:
    link = of.network.link
    return SpeedDraw(
        coefficients=asdict(of.coefficients),
        latency_s=link.latency_s,
        bandwidth_bytes_per_s=link.bandwidth,
        shared_bytes_per_s=finite(link.shared),
        waits=of.jitter.facts.waits,
    )


def predictor_of(result: SpeedResult) -> Predictor:
    """What predicts as the result says, at any setting; intervals of a result from before refits were recorded reach
    from 0 to no end."""
    model = StepTime(
        Coefficients(**result.coefficients),
        network_of(result.network),
        float(result.size_bytes),
        Jitter(facts=result.jitter),
        result.most_workers,
        result.processors,
    )
    observed = [
        Observed(Setting(each.workers, each.micro, each.accumulation, each.per_node), each.step_s)
        for each in result.measured
    ]
    return _predictor(model, observed, [_drawn(draw, model) for draw in result.draws], result.evidence.confidence)


def _drawn(draw: SpeedDraw, model: StepTime) -> StepTime:
    shared = draw.shared_bytes_per_s or math.inf
    link = Link(draw.latency_s, draw.bandwidth_bytes_per_s, shared, model.network.link.processors)
    return replace(
        model,
        coefficients=Coefficients(**draw.coefficients),
        network=replace(model.network, link=link),
        jitter=Jitter(facts=msgspec.structs.replace(model.jitter.facts, waits=draw.waits)),
    )


# ---- rows


def _setting(model: StepTime, question: Question, scaling: str, workers: int) -> Setting:
    return model.cut(workers, question.batch if scaling == "strong" else workers * question.micro)


def _rows(of: Predictor, question: Question, workers: Sequence[int]) -> list[SpeedRow]:
    """Both scalings; a batch is not shared out among more workers than it has samples."""
    strong = [_row(of, question, "strong", count) for count in workers if count <= question.batch]
    return strong + [_row(of, question, "weak", count) for count in workers]


def _row(of: Predictor, question: Question, scaling: str, workers: int) -> SpeedRow:
    setting, alone = (_setting(of.model, question, scaling, count) for count in (workers, 1))
    parts = of.model.parts(setting)
    system, target = of.efficiency(setting, alone), None
    if question.noise_scale is not None:
        gain = statistical(question.noise_scale, alone.batch, setting.batch)
        target = system.map(lambda efficiency: efficiency * gain)
    return SpeedRow(
        scaling=scaling,
        workers=workers,
        batch=setting.batch,
        step_s=of.step(setting).estimate,
        samples_per_s=setting.batch / parts.total_s,
        efficiency=system.value,
        target_efficiency=target.value if target else None,
        parts=parts,
        bottleneck=_bottleneck(parts),
        beyond=workers / of.model.most_workers,
        efficiency_interval=system.estimate,
        target_efficiency_interval=target.estimate if target else None,
    )


def _bottleneck(parts: StepParts) -> str:
    """The largest part besides work, if it is worth naming."""
    seconds = msgspec.structs.asdict(parts)
    del seconds["work_s"]
    largest = max(seconds, key=seconds.__getitem__)
    return largest.removesuffix("_s") if seconds[largest] > _MINOR * parts.total_s else "work"


# ---- single changes


def _mending(of: Predictor, setting: Setting, *, compressed: bool) -> list[Mending]:
    """What each change would give at `setting`, the most first.

    Args:
        of: the step.
        setting: at which it is looked at.
        compressed: gradients travel in 16 bits already, which cannot be done again.
    """
    tails = (1 - of.confidence) / 2, (1 + of.confidence) / 2
    models, found = (of.model, *of.refits), []
    before = [model.step_s(setting) for model in models]
    for what, change in _CHANGES.items():
        if compressed and what == _SIXTEEN_BITS:
            continue
        after = [change(model).step_s(setting) for model in models]
        gain, *gains = (np.divide(before, after) - 1).tolist()
        interval = Interval.around(gain, *np.quantile(gains, tails).tolist())
        found.append(Mending(what=what, step_s=after[0], gain=gain, gain_interval=interval.estimate))
    return sorted(found, key=lambda one: -one.gain)


def _alone(model: StepTime) -> StepTime:
    network = replace(model.network, link=replace(model.network.link, processors=math.inf))
    coefficients = replace(model.coefficients, crowding=0.0)
    return replace(model, network=network, coefficients=coefficients, processors=None)


def _with(**changes: float) -> Callable[[StepTime], StepTime]:
    return lambda model: replace(model, coefficients=replace(model.coefficients, **changes))


def _faster(times: float) -> Callable[[StepTime], StepTime]:
    return lambda model: replace(model, network=model.network.faster(times))


_SIXTEEN_BITS = "gradients in 16 bits (--compress bf16)"
_CHANGES: dict[str, Callable[[StepTime], StepTime]] = {
    "a network twice as fast": _faster(2.0),
    _SIXTEEN_BITS: lambda model: replace(model, size_bytes=model.size_bytes / 2),
    "a sum that hides behind the backward pass altogether": _with(late=0.0),
    "no network at all": _faster(math.inf),
    "no overhead of launching": _with(floor=0.0),
    "cores and memory of its own for each worker": _alone,
    "no jitter between workers": lambda model: replace(model, jitter=Jitter()),
    "nothing besides work and network": _with(rest=0.0),
}
