"""The numbers of a run in words: the same for the card and for the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from paceline.records.launched import Attempt
from paceline.report import words
from paceline.report.launch_view import Launch
from paceline.report.summary import Metric, Summary, TargetResult, Throughput


@dataclass(frozen=True)
class Quantity:
    """A number with its name, as cards, tiles and tables show it.

    Attributes:
        label: its name.
        value: the number, as people read it.
        details: what belongs to it: its interval, what it was taken over, what else must be known.
        sure: False where it is beyond what was measured, has no end, or could not be had.
    """

    label: str
    value: str
    details: tuple[str, ...] = ()
    sure: bool = True

    @classmethod
    def of(cls, label: str, value: str, detail: str = "", sure: bool = True, **more: Any) -> Self:
        """With its details in one text, separated by `; `."""
        return cls(label, value, tuple(detail.split("; ")) if detail else (), sure, **more)

    @property
    def detail(self) -> str:
        """All details as one text."""
        return "; ".join(self.details)


def quantities(summary: Summary) -> list[Quantity]:
    """The numbers of a card: every metric with its count, loss, time, samples a second, time to target."""
    if summary.launch is not None:
        return _launched(summary, summary.launch)
    found = [*map(_metric, (summary.main, *summary.further)), _loss(summary), _time(summary)]
    found += [_speed(summary), _count_speed(summary)]
    if summary.target is not None:
        found.append(_target(summary.target, summary))
    return [one for one in found if one is not None]


def _launched(summary: Summary, launch: Launch) -> list[Quantity]:
    """How a script under `paceline run` ended, how long it took, and on how many ranks."""
    code = words.NOT_OBSERVED if summary.exit_code is None else str(summary.exit_code)
    outcomes = [outcome_of(each) for each in launch.attempts]
    counts = ", ".join(f"{outcomes.count(one)} {one}" for one in dict.fromkeys(outcomes))
    return [
        Quantity("exit code", code, (launch.cause.title,) if launch.cause else ()),
        Quantity("wall time", words.duration(launch.wall_s), ("start-up of the workers included",)),
        Quantity("attempts", str(len(outcomes)) if outcomes else words.NOT_OBSERVED, (counts,)),
        Quantity("ranks", words.integer(launch.world)),
        *_found(launch),
        *_steps(launch),
    ]


def _found(launch: Launch) -> list[Quantity]:
    """How many findings there are; nothing where no judgement was recorded."""
    if launch.observation is None:
        return []
    counts = words.finding_counts(launch.observation.findings) or "none in what was watched"
    ranks = launch.observation.ranks
    seen = (
        f"{len(ranks.observed)} of {words.plural(ranks.world, 'rank')} observed" if ranks.world else "no rank observed"
    )
    if not ranks.observed and not launch.observation.findings:
        return [Quantity("findings", words.NOT_OBSERVED, (seen,))]
    return [Quantity("findings", str(len(launch.observation.findings)), (counts, seen))]


def _steps(launch: Launch) -> list[Quantity]:
    """What an observer timed, with its source; nothing where there was none."""
    found = []
    if launch.steps is not None:
        found.append(Quantity("steps", words.integer(launch.steps)))
    if launch.step_s is not None:
        timed = f"median of {words.plural(launch.timed_steps, 'step')} of rank 0"
        how = (f"{timed}, sampled" if launch.sampled else timed, *(f"timed by {by}" for by in launch.timed_by))
        found.append(Quantity("step time", words.duration(launch.step_s), how))
    if launch.steps_per_s is not None:
        found.append(Quantity("steps/s", words.rate(launch.steps_per_s), ("of rank 0, pauses included",)))
    if launch.samples_per_s is not None:
        found.append(Quantity("samples/s", words.rate(launch.samples_per_s), ("median over the same steps",)))
    elif launch.samples_per_s_overall is not None:
        received = "received by the training loops of all ranks, pauses included"
        found.append(Quantity("samples/s", words.rate(launch.samples_per_s_overall), (received,)))
    if launch.samples:
        each = sorted(set(launch.samples.values()))
        shares = f"{words.integer(each[0])} a rank" if len(each) == 1 else f"{each[0]:,} to {each[-1]:,} a rank"
        found.append(
            Quantity("samples", words.integer(sum(launch.samples.values())), ("received by all ranks", shares))
        )
    return [*found, *_observed_training(launch)]


def _observed_training(launch: Launch) -> list[Quantity]:
    """Loss and learning rate, as the script used them."""
    found = []
    if launch.losses:
        first, *others = launch.losses
        how = f"as the script called backward(), rank {first.rank}, step {first.step:,}"
        values = [each.value for each in others]
        rest = f"other ranks {words.decimal(min(values))} to {words.decimal(max(values))}" if values else ""
        rest = f"rank {others[0].rank}: {words.decimal(values[0])}" if len(values) == 1 else rest
        found.append(Quantity("last loss", words.decimal(first.value), tuple(filter(None, (how, rest)))))
    if launch.lr is not None:
        found.append(
            Quantity("learning rate", f"{launch.lr:.4g}", ("of the last recorded step, first parameter group",))
        )
    return found


def outcome_of(attempt: Attempt) -> str:
    """How an attempt ended, as `failed`."""
    return "ended by a change of machines" if attempt.outcome == "membership" else attempt.outcome


def goal(target: TargetResult) -> str:
    """`accuracy ≥ 0.9`."""
    return f"{target.metric} {'≤' if target.less_is_better else '≥'} {target.value:g}"


def _metric(metric: Metric | None) -> Quantity:
    if metric is None:
        return Quantity("accuracy", words.NOT_OBSERVED, ("the run was never evaluated",))
    details = [words.counted(metric.name, metric.final.value, metric.final.count)]
    if metric.best is not None and metric.best.value != metric.final.value:
        best = metric.best
        details.append(
            f"best {words.decimal(best.value)} ({words.counted(metric.name, best.value, best.count)}) "
            f"at step {words.integer(best.step)}"
        )
    return Quantity(f"final {metric.name}", words.decimal(metric.final.value), tuple(filter(None, details)))


def _loss(summary: Summary) -> Quantity | None:
    evaluated = summary.metric("loss")
    if summary.headline == "loss":
        return None
    last = f"training, last step: {words.decimal(summary.train_loss)}"
    if evaluated is None:
        return Quantity("training loss", words.decimal(summary.train_loss), ("of the last step",))
    return Quantity(
        "final loss",
        words.decimal(evaluated.final.value),
        (words.counted("loss", evaluated.final.value, evaluated.final.count), last),
    )


def _time(summary: Summary) -> Quantity:
    amounts = [
        f"{summary.epochs:.2f} epochs" if summary.epochs is not None else "",
        words.plural(summary.steps, "step") if summary.steps else "",
        f"{words.integer(summary.samples)} samples" if summary.samples else "",
    ]
    details = [", ".join(filter(None, amounts)) or "no step was recorded"]
    if summary.sessions is not None and summary.sessions > 1:
        again = f", {words.plural(summary.repeated_steps, 'step')} done again" if summary.repeated_steps else ""
        details.append(f"{summary.sessions} sessions{again}")
    return Quantity("training time", words.duration(summary.elapsed_s), tuple(details))


def _speed(summary: Summary) -> Quantity:
    overall = f"{words.rate(summary.throughput_overall)} with everything included" if summary.throughput_overall else ""
    if summary.throughput is None:
        few = "too few steps after the first ones to take a median" if summary.steps else "no step was recorded"
        return Quantity("samples/s", words.NOT_OBSERVED, tuple(filter(None, (few, overall))))
    return _rate("samples", summary.throughput, overall)


def _count_speed(summary: Summary) -> Quantity | None:
    if summary.count_throughput is None:
        return None
    named = "" if summary.unit != "counted" else "counted by the loss; the task's unit names it"
    return _rate(summary.unit, summary.count_throughput, named)


def _rate(unit: str, speed: Throughput, more: str) -> Quantity:
    interval = f"95 % interval {words.rate(speed.low)} to {words.rate(speed.high)}"
    return Quantity(f"{unit}/s", words.rate(speed.median), (interval, more))


def _target(target: TargetResult, summary: Summary) -> Quantity:
    label = f"time to {goal(target)}"
    if target.reached is None:
        return Quantity(label, words.NOT_OBSERVED, (f"{target.metric} was never evaluated",))
    if target.first is None:
        metric = summary.metric(target.metric)
        best = f"best {words.decimal(metric.best.value)}" if metric and metric.best else "no finite value"
        return Quantity(label, "not reached", (best,))
    first = target.first
    details = [
        f"{words.integer(first.samples)} samples, {words.plural(first.step, 'step')}, {first.epoch:.2f} epochs",
        "first evaluation that met it"
        + (f", step {target.evaluated_before_step:,} had not" if target.evaluated_before_step else ""),
    ]
    if target.patience > 1:
        held = f"held {target.patience} times in a row at step {target.held.step:,}" if target.held else ""
        details.append(held or f"not yet held {target.patience} times in a row")
    return Quantity(label, words.duration(first.elapsed_s), tuple(details))
