"""D.target, D.cheapest and D.change: what the learner's runs say, held against the grader's runs of the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline_course.assess.analysis.context import Facts
from paceline_course.assess.analysis.judged import Part, line_of, number_of, run_of, untested, word_of
from paceline_course.assess.answers import Answers
from paceline_course.assess.grade import Curve, Line
from paceline_course.assess.held import held, reached

NEVER, NONE = -1, "none"
_MISSING = object()
_CLOSED = 0.5
"""Of the gap, at least."""


def judge_target(answers: Answers, facts: Facts) -> Line:
    """One epoch more or less is right: other machines sum in another order."""
    curve = facts.curve(facts.chosen)
    if curve is None or not curve.accuracy:
        return untested(facts, "D.target", f"{facts.chosen} was not trained again")
    found = reached(curve.accuracy, facts.target)
    number, problem = number_of(answers, "target", "epoch")
    if number is not None and not _right_epoch(number, found, curve, facts.target):
        problem = _wrong_epoch(number, found, curve, facts.target)
    expected = f"{NEVER}: it never was" if found is None else f"{found}, or one epoch beside it"
    return line_of(
        facts,
        "D.target",
        [Part("epoch", problem, expected, answers.shown("target", "epoch"))],
        ran=f"{facts.chosen}: accuracy of at least {facts.target:.3f} at the end of two epochs running",
        evidence={"epoch": NEVER if found is None else found, "accuracy": [round(each, 4) for each in curve.accuracy]},
    )


def _right_epoch(number: float, found: int | None, curve: Curve, target: float) -> bool:
    last = len(curve.accuracy) - 1
    if found is None:
        # With the last epoch alone it was on its way: one epoch more, and it had been there.
        return number == NEVER or (number == last and curve.accuracy[last] >= target)
    if number == NEVER:
        return found == last
    return number == int(number) and number >= 0 and abs(number - found) <= 1


def _wrong_epoch(number: float, found: int | None, curve: Curve, target: float) -> str:
    if number == NEVER:
        return "target-was-reached"
    if found is None:
        return "target-never"
    if number > len(curve.accuracy) and number in [*curve.samples, *_steps(curve)]:
        return "target-other-unit"
    once = next((epoch for epoch, value in enumerate(curve.accuracy) if value >= target), None)
    if number in (once, None if once is None else once + 1):
        return "target-once"
    best = max(range(len(curve.accuracy)), key=curve.accuracy.__getitem__)
    if number in (best, len(curve.accuracy) - 1):
        return "target-best"
    return "target-epoch"


def _steps(curve: Curve) -> list[int]:
    """Done at the end of each epoch; all have as many samples."""
    epoch = -(-curve.samples[0] // curve.batch) if curve.samples else 0
    return [number * epoch for number in range(1, len(curve.samples) + 1)]


def judge_cheapest(answers: Answers, facts: Facts) -> Line:
    """Whoever needs no more than one epoch beyond the fewest is right as well; of too few nothing can be chosen."""
    curves = {name: curve for name in facts.names if (curve := facts.curve(name)) is not None and curve.accuracy}
    if not curves:
        return untested(facts, "D.cheapest", "no configuration was trained again")
    needed = {name: _needed(curve, facts.target) for name, curve in curves.items()}
    there = {name: samples for name, samples in needed.items() if samples is not None}
    least = min(there.values(), default=None)
    good = [
        name for name, samples in there.items() if least is not None and samples <= least + facts.rubric.task.samples
    ]
    word, problem = word_of(answers, "cheapest", "run")
    if word is not None and word not in good and not (word == NONE and not there):
        problem = _wrong_run(word, facts, curves, there)
    part = Part("run", problem, " or ".join(good) or f'"{NONE}"', answers.shown("cheapest", "run"))
    if not problem and len(facts.names) < (least := facts.rubric.task.least_runs):
        part = Part("", "cheapest-few", f"{least} configurations or more", f"{len(facts.names)} in config.toml")
    return line_of(
        facts,
        "D.cheapest",
        [part],
        ran=f"samples until {facts.target:.3f} was held: "
        + ", ".join(f"{name} {'never' if samples is None else f'{samples:,}'}" for name, samples in needed.items()),
        evidence={"samples": needed, "right": good},
    )


def _needed(curve: Curve, target: float) -> int | None:
    epoch = reached(curve.accuracy, target)
    return curve.samples[epoch] if epoch is not None and epoch < len(curve.samples) else None


def _wrong_run(word: str, facts: Facts, curves: Mapping[str, Curve], there: Mapping[str, int]) -> str:
    if word == NONE:
        return "cheapest-somebody"
    if facts.run(word) is None:
        return "unknown-run"
    if word not in curves:
        return "cheapest-failed"
    if word not in there:
        return "cheapest-never"
    if word == min(there, key=lambda name: curves[name].seconds):
        return "cheapest-seconds"
    if word == max(curves, key=lambda name: held(curves[name].accuracy)):
        return "cheapest-best"
    if word == min(there, key=lambda name: _steps(curves[name])[curves[name].samples.index(there[name])]):
        return "cheapest-steps"
    return "cheapest-run"


def judge_change(answers: Answers, facts: Facts) -> Line:
    """Two large-batch runs, one key between them, and half of the gap."""
    before, problem_before = run_of(answers, facts, "change", "before")
    after, problem_after = run_of(answers, facts, "change", "after")
    key, problem_key = word_of(answers, "change", "key")
    gap, evidence = _gap(facts)
    problem = problem_before or problem_after or problem_key
    expected = "two of your configurations, and the one key in which they differ"
    got = ", ".join(f"{name} {answers.shown('change', name)}" for name in ("before", "after", "key"))
    if not problem:
        problem, expected, said = _wrong_pair(facts, before, after, str(key))
        got = said or got
    if not problem:
        was, now = facts.level(before), facts.level(after)
        if gap is None or was is None or now is None:
            return untested(facts, "D.change", _not_trained(facts, before, after))
        evidence |= {"before": round(was, 4), "after": round(now, 4)}
        problem, expected = _wrong_gain(gap, now - was)
        got = f"from {before} to {after}: {100 * (now - was):+.1f} points"
    return line_of(
        facts,
        "D.change",
        [Part("", problem, expected, got)],
        ran="" if gap is None else f"the gap between one device and the worst large batch: {100 * gap:.1f} points",
        evidence=evidence,
    )


def _wrong_pair(facts: Facts, before: str, after: str, key: str) -> tuple[str, str, str]:
    """Id of the mistake, what was expected and what is there; the first is empty where the two can be compared."""
    first, second = facts.run(before), facts.run(after)
    assert first is not None
    assert second is not None
    if before == after:
        return "change-same-run", "two different configurations", ""
    keys = differing(first, second)
    if key not in keys:
        return "change-other-key", _keys(keys), f"key {key[:60]}"
    if len(keys) > 1:
        return "change-several-keys", "two configurations that differ in one key", _keys(keys)
    least = facts.rubric.task.least_batch
    if min(int(first["batch"]), int(second["batch"])) < least:
        return "change-small-batch", f"a batch of {least} or more in both", f"{first['batch']} and {second['batch']}"
    return "", "", ""


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """The keys in which two configurations differ, but for the name; one that is missing differs from any value."""
    keys = dict.fromkeys([*first, *second])
    return [key for key in keys if key != "name" and first.get(key, _MISSING) != second.get(key, _MISSING)]


def _keys(keys: list[str]) -> str:
    return (
        f"they differ in {', '.join(key[:60] for key in keys[:8])}" if keys else "they differ in nothing but the name"
    )


def _gap(facts: Facts) -> tuple[float | None, dict[str, Any]]:
    """How far the worst large-batch run is below one device, and the numbers behind it."""
    task = facts.rubric.task
    levels = {name: facts.level(name) for name in facts.names}
    one, large = [], []
    for run in facts.runs:
        level = levels[str(run["name"])]
        if level is not None and int(run["workers"]) == 1 and int(run["batch"]) == task.base_batch:
            one.append(level)
        elif level is not None and int(run["batch"]) >= task.least_batch:
            large.append(level)
    top = max(one) if one else facts.one_device
    shown = {name: round(level, 4) for name, level in levels.items() if level is not None}
    evidence = {"levels": shown, "one_device": top, "worst": min(large, default=None)}
    return (top - min(large) if top is not None and large else None), evidence


def _not_trained(facts: Facts, before: str, after: str) -> str:
    missing = [name for name in (before, after) if facts.level(name) is None]
    if missing:
        return f"{' and '.join(missing)} could not be trained again"
    return f"no configuration has one process and a batch of {facts.rubric.task.base_batch}"


def _wrong_gain(gap: float, gain: float) -> tuple[str, str]:
    if gap <= 0:
        return "change-no-gap", "a configuration with a large batch that is worse than one device"
    expected = f"{100 * _CLOSED * gap:.1f} points or more, half of the gap"
    if gain >= _CLOSED * gap:
        return "", expected
    return ("change-reversed" if -gain >= _CLOSED * gap else "change-too-small"), expected
