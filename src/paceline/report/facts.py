"""What a result card says, in words: the same tiles for the terminal and for the page."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.records.launched import Attempt
from paceline.report import words
from paceline.report.launch_view import Launch
from paceline.report.summary import Metric, Summary, TargetResult


@dataclass(frozen=True)
class Tile:
    """One number with its name and what belongs to it."""

    label: str
    value: str
    details: tuple[str, ...] = ()


def tiles(summary: Summary) -> list[Tile]:
    """The numbers of a card: every metric with its count, loss, time, samples a second, time to target."""
    if summary.launch is not None:
        return _launched(summary, summary.launch)
    found = [_main(summary), *map(_metric, summary.further), _loss(summary), _time(summary)]
    found += [_speed(summary), _count_speed(summary)]
    if summary.target is not None:
        found.append(_target(summary.target, summary))
    return [tile for tile in found if tile is not None]


def _launched(summary: Summary, launch: Launch) -> list[Tile]:
    """How a script under `paceline run` ended, how long it took, and on how many ranks."""
    code = words.NOT_OBSERVED if summary.exit_code is None else str(summary.exit_code)
    outcomes = [outcome_of(each) for each in launch.attempts]
    counts = ", ".join(f"{outcomes.count(one)} {one}" for one in dict.fromkeys(outcomes))
    return [
        Tile("exit code", code, (launch.cause.title,) if launch.cause else ()),
        Tile("wall time", words.duration(launch.wall_s), ("start-up of the workers included",)),
        Tile("attempts", str(len(outcomes)) if outcomes else words.NOT_OBSERVED, (counts,)),
        Tile("ranks", words.integer(launch.world)),
        *_steps(launch),
    ]


def _steps(launch: Launch) -> list[Tile]:
    """What an observer timed, with its source; nothing where there was none."""
    found = []
    if launch.steps is not None:
        found.append(Tile("steps", words.integer(launch.steps)))
    if launch.step_s is not None:
        timed = f"median of {words.plural(launch.timed_steps, 'step')} of rank 0"
        how = (f"{timed}, a sample of all" if launch.sampled else timed, *(f"timed by {by}" for by in launch.timed_by))
        found.append(Tile("step time", words.duration(launch.step_s), how))
    if launch.samples_per_s is not None:
        found.append(Tile("samples/s", words.rate(launch.samples_per_s), ("median over the same steps",)))
    return found


def outcome_of(attempt: Attempt) -> str:
    """How an attempt ended, as `failed`."""
    return "ended by a change of machines" if attempt.outcome == "membership" else attempt.outcome


def goal(target: TargetResult) -> str:
    """`accuracy ≥ 0.9`."""
    return f"{target.metric} {'≤' if target.less_is_better else '≥'} {target.value:g}"


def _main(summary: Summary) -> Tile:
    metric = summary.main
    if metric is None:
        return Tile("accuracy", words.NOT_OBSERVED, ("the run was never evaluated",))
    return _metric(metric)


def _metric(metric: Metric) -> Tile:
    details = [words.counted(metric.name, metric.final.value, metric.final.count)]
    if metric.best is not None and metric.best.value != metric.final.value:
        best = metric.best
        details.append(
            f"best {words.decimal(best.value)} ({words.counted(metric.name, best.value, best.count)}) "
            f"at step {words.integer(best.step)}"
        )
    return Tile(f"final {metric.name}", words.decimal(metric.final.value), tuple(filter(None, details)))


def _loss(summary: Summary) -> Tile | None:
    evaluated = summary.metric("loss")
    if summary.headline == "loss":
        return None
    last = f"training, last step: {words.decimal(summary.train_loss)}"
    if evaluated is None:
        return Tile("training loss", words.decimal(summary.train_loss), ("of the last step",))
    return Tile(
        "final loss",
        words.decimal(evaluated.final.value),
        (words.counted("loss", evaluated.final.value, evaluated.final.count), last),
    )


def _time(summary: Summary) -> Tile:
    amounts = [
        f"{summary.epochs:.2f} epochs" if summary.epochs is not None else "",
        words.plural(summary.steps, "step") if summary.steps else "",
        f"{words.integer(summary.samples)} samples" if summary.samples else "",
    ]
    details = [", ".join(filter(None, amounts)) or "no step was recorded"]
    if summary.sessions is not None and summary.sessions > 1:
        again = f", {words.plural(summary.repeated_steps, 'step')} done again" if summary.repeated_steps else ""
        details.append(f"{summary.sessions} sessions{again}")
    return Tile("training time", words.duration(summary.elapsed_s), tuple(details))


def _count_speed(summary: Summary) -> Tile | None:
    speed = summary.count_throughput
    if speed is None:
        return None
    interval = f"95 % interval {words.rate(speed.low)} to {words.rate(speed.high)}"
    named = "" if summary.unit != "counted" else "counted by the loss; the task's unit names it"
    return Tile(f"{summary.unit}/s", words.rate(speed.median), (interval, named))


def _speed(summary: Summary) -> Tile:
    speed = summary.throughput
    overall = f"{words.rate(summary.throughput_overall)} with everything included" if summary.throughput_overall else ""
    if speed is None:
        few = "too few steps after the first ones to take a median" if summary.steps else "no step was recorded"
        return Tile("samples/s", words.NOT_OBSERVED, tuple(filter(None, (few, overall))))
    interval = f"95 % interval {words.rate(speed.low)} to {words.rate(speed.high)}"
    return Tile("samples/s", words.rate(speed.median), (interval, overall))


def _target(target: TargetResult, summary: Summary) -> Tile:
    label = f"time to {goal(target)}"
    if target.reached is None:
        return Tile(label, words.NOT_OBSERVED, (f"{target.metric} was never evaluated",))
    if target.first is None:
        metric = summary.metric(target.metric)
        best = f"best {words.decimal(metric.best.value)}" if metric and metric.best else "no finite value"
        return Tile(label, "not reached", (best,))
    first = target.first
    details = [
        f"{words.integer(first.samples)} samples, {words.plural(first.step, 'step')}, {first.epoch:.2f} epochs",
        "first evaluation that met it"
        + (f", step {target.evaluated_before_step:,} had not" if target.evaluated_before_step else ""),
    ]
    if target.patience > 1:
        held = f"held {target.patience} times in a row at step {target.held.step:,}" if target.held else ""
        details.append(held or f"not yet held {target.patience} times in a row")
    return Tile(label, words.duration(first.elapsed_s), tuple(details))
