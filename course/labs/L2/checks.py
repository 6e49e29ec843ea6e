"""Checks of lab 2: a meter, a rule, a sweep that survives being stopped, and what its rows say."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paceline_course.checking import Answer, Message, MissingName, Wrong, learners, proves

MESSAGES = {
    "warm-up-counts": Message("the first steps are in the rate", "which steps count, and when the clock starts"),
    "mean-of-rates": Message("it is a mean of the steps' rates", "all samples over all seconds"),
    "one-step-too-many": Message(
        "samples of a step count whose time does not", "the last step that is skipped only starts the clock"
    ),
    "no-none": Message("there is a rate before any step counts", "the return value without a step that counts"),
    "rate": Message(
        "the rate is another one", "samples of the steps that count, over the time from the first to the last"
    ),
    "clock": Message("the clock is looked at too often", "once in each call of step, and nowhere else"),
    "not-in-a-row": Message("epochs that met it need not follow each other", "the count goes back to 0"),
    "first-time": Message("the first time was enough", "the parameter times"),
    "epoch-number": Message("the number is one too small", "epochs count from 1"),
    "at-least": Message("an accuracy equal to the target does not count", ">= and >"),
    "reached": Message("the epoch is another one", "how many in a row, and what ends a row"),
    "done-again": Message("a pair that was done is trained again", "read the file before training"),
    "lost": Message("results were lost when the sweep was stopped", "write each result as soon as it is there"),
    "torn": Message("a torn last line ended the sweep", "a line that is no JSON is passed over"),
    "glued": Message("a new line was written behind a torn one", "the file ends with a whole line before you append"),
    "order": Message("all seeds of a batch come before the next batch", "the outer loop"),
    "rows": Message("the rows are not what train returned, with batch and seed", "what is written"),
    "missing-pairs": Message("some pairs were never trained", "both loops, and what counts as done"),
    "censored-left-out": Message("runs that did not get there are left out", "None is longer than all others"),
    "order-of-batches": Message("batches are compared in the order of the rows", "sort them as numbers"),
    "per-step-of-batch": Message(
        "the exponent supposes that each batch is twice the one before", "log(b2 / b1) in the denominator"
    ),
    "one-seed": Message("only one seed of each batch counts", "the median over seeds"),
    "regimes": Message("a word is another one", "the exponent and its limits"),
}


# --- L2.1 ---------------------------------------------------------------------------------------------------------


def metered(skip: int, steps: Sequence[tuple[float, int]]) -> tuple[list[Any], int]:
    """Over there: the rate before the first step and after each, on a clock that we turn; how often it was read."""
    now, reads = [100.0], [0]

    def clock() -> float:
        reads[0] += 1
        return now[0]

    meter = learners("Meter")(clock, skip=skip)
    rates = [meter.rate()]
    for seconds, samples in steps:
        now[0] += seconds
        meter.step(samples)
        rates.append(meter.rate())
    return rates, reads[0]


@proves("L2.1", "the rate is that of the steps that count, whatever their length and size")
def meter(answer: Answer) -> None:
    """A clock that is turned by hand."""
    draw = answer.draw
    for skip in (3, 1, 0, int(draw.integers(2, 7))):
        steps = [(float(draw.uniform(0.01, 2)), int(draw.integers(1, 200))) for _ in range(12)]
        rates, reads = answer.call(metered, skip, steps)
        first = max(skip, 1)
        ran = f"12 steps of different length, skip = {skip}"
        for done, rate in enumerate(rates):
            should = _rate(steps, first, done)
            if should is None:
                if rate is not None:
                    early = _rate(steps, 1, done)
                    message = "warm-up-counts" if early and math.isclose(rate, early) else "no-none"
                    raise Wrong(message, ran=f"{ran}, after {done}", expected=None, got=rate)
            elif rate is None or not math.isclose(rate, should, rel_tol=1e-9):
                raise Wrong(_rate_message(steps, first, done, rate), ran=ran, expected=f"{should:.2f}", got=rate)
        if reads > len(steps):
            raise Wrong("clock", ran=ran, expected=f"{len(steps)} looks", got=reads)


def _rate(steps: Sequence[tuple[float, int]], first: int, done: int) -> float | None:
    counted = steps[first:done]
    return sum(samples for _, samples in counted) / sum(seconds for seconds, _ in counted) if counted else None


def _rate_message(steps: Sequence[tuple[float, int]], first: int, done: int, rate: float | None) -> str:
    if rate is None:
        return "rate"
    counted = steps[first:done]
    seconds = sum(each for each, _ in counted)
    candidates = {
        "mean-of-rates": statistics.fmean(samples / each for each, samples in counted),
        "one-step-too-many": sum(samples for _, samples in steps[first - 1 : done]) / seconds,
        "warm-up-counts": _rate(steps, 1, done),
    }
    return next((name for name, value in candidates.items() if value and math.isclose(rate, value)), "rate")


# --- L2.2 ---------------------------------------------------------------------------------------------------------


def all_reached(cases: Sequence[tuple[list[float], float, int]]) -> list[Any]:
    """Over there."""
    return [learners("reached")(*case) for case in cases]


@proves("L2.2", "it names the epoch at which the target was met for the last time that it takes")
def target(answer: Answer) -> None:
    """Random sequences about the target, with some that never get there, ties and nan."""
    draw = answer.draw
    cases: list[tuple[list[float], float, int]] = [
        ([0.7, 0.8, 0.7, 0.8, 0.8], 0.8, 2),
        ([0.9, 0.1, 0.9], 0.8, 2),
        ([0.9, math.nan, 0.9, 0.9], 0.8, 2),
        ([], 0.5, 1),
        ([0.5], 0.5, 1),
    ]
    for _ in range(40):
        accuracies = [round(float(value), 2) for value in draw.uniform(0.6, 1.0, int(draw.integers(1, 15)))]
        cases.append((accuracies, 0.75, int(draw.integers(1, 4))))
    found = answer.call(all_reached, cases)
    for case, got in zip(cases, found, strict=True):
        expected = _reached(*case)
        if got != expected:
            mistakes = {"not-in-a-row": _anywhere, "first-time": _first, "epoch-number": _from_0, "at-least": _above}
            # A mistake that explains every answer, not only this one.
            explained = [name for name, mistake in mistakes.items() if found == [mistake(*each) for each in cases]]
            ran = f"accuracies {case[0]}, target {case[1]}, {case[2]} times"
            raise Wrong(explained[0] if explained else "reached", ran=ran, expected=expected, got=got)


def _reached(accuracies: Sequence[float], goal: float, times: int) -> int | None:
    for end in range(times, len(accuracies) + 1):
        if all(each >= goal for each in accuracies[end - times : end]):
            return end
    return None


def _anywhere(accuracies: Sequence[float], goal: float, times: int) -> int | None:
    met = [epoch for epoch, each in enumerate(accuracies, start=1) if each >= goal]
    return met[times - 1] if len(met) >= times else None


def _first(accuracies: Sequence[float], goal: float, times: int) -> int | None:
    del times
    return _anywhere(accuracies, goal, 1)


def _from_0(accuracies: Sequence[float], goal: float, times: int) -> int | None:
    right = _reached(accuracies, goal, times)
    return None if right is None else right - 1


def _above(accuracies: Sequence[float], goal: float, times: int) -> int | None:
    return _reached([-1.0 if each == goal else each for each in accuracies], goal, times)


# --- L2.3 ---------------------------------------------------------------------------------------------------------


class Stopped(Exception):  # noqa: N818
    """The program was stopped here."""


def swept(batches: list[int], seeds: list[int], stops: list[int], tear: int) -> dict[str, Any]:
    """Over there: the sweep again and again, stopped after so many trainings each time; what was done, and the file."""
    path = Path("sweep.jsonl")
    trained: list[list[tuple[int, int]]] = []
    error = ""
    for turn, stop in enumerate([*stops, 10_000]):
        calls: list[tuple[int, int]] = []

        def train(batch: int, seed: int, calls: list[tuple[int, int]] = calls, stop: int = stop) -> dict[str, float]:
            if len(calls) == stop:
                raise Stopped
            calls.append((batch, seed))
            return {"steps": 1000.0 / batch + seed, "accuracy": 0.5}

        try:
            learners("sweep")(train, batches, seeds, str(path))
        except Stopped:
            pass
        except (NotImplementedError, MissingName):
            raise
        except Exception as problem:  # noqa: BLE001  judged by the check
            error = f"{type(problem).__name__}: {problem}"
        trained.append(calls)
        if error:
            break
        if turn == tear and path.exists() and path.read_text():
            content = path.read_text()
            path.write_text(content[: -max(4, len(content.splitlines()[-1]) // 2)])
    return {"trained": trained, "error": error, "file": path.read_text() if path.exists() else ""}


@proves("L2.3", "stopped at any point it loses nothing, and does no pair twice")
def sweep(answer: Answer) -> None:
    """Stopped twice; no line torn yet."""
    draw = answer.draw
    batches, seeds = [int(value) for value in draw.choice([8, 16, 32, 64, 128], 3, replace=False)], [0, 1, 2]
    stops = [int(draw.integers(2, 4)), int(draw.integers(1, 4))]
    _judge_sweep(answer.call(swept, batches, seeds, stops, -1), batches, seeds, stops)


@proves("L2.3", "a torn last line is done again, and nothing is glued to it")
def torn(answer: Answer) -> None:
    """Killed while writing."""
    batches, seeds, stops = [16, 64], [0, 1, 2], [int(answer.draw.integers(2, 5))]
    found = answer.call(swept, batches, seeds, stops, 0)
    ran = "a file whose last line is torn"
    if found["error"]:
        raise Wrong("torn", ran=ran, expected="the sweep goes on", got=found["error"])
    pairs = _pairs(found["file"])
    if pairs is None:
        raise Wrong("glued", ran=ran, expected="whole lines of JSON", got=found["file"][:300])
    if sorted(pairs) != sorted((batch, seed) for batch in batches for seed in seeds):
        raise Wrong("missing-pairs", ran=ran, expected=f"{len(batches) * len(seeds)} pairs", got=f"{sorted(pairs)}")


def _pairs(text: str) -> list[tuple[int, int]] | None:
    try:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        return [(row["batch"], row["seed"]) for row in rows]
    except (ValueError, KeyError, TypeError):
        return None


def _judge_sweep(found: dict[str, Any], batches: list[int], seeds: list[int], stops: list[int]) -> None:
    ran = f"batches {batches}, seeds {seeds}, stopped after {' and '.join(str(stop) for stop in stops)} trainings"
    if found["error"]:
        raise Wrong("torn", ran=ran, expected="no error", got=found["error"])
    every = [(batch, seed) for seed in seeds for batch in batches]
    trained = [pair for calls in found["trained"] for pair in calls]
    pairs = _pairs(found["file"])
    twice = sorted({pair for pair in trained if trained.count(pair) > 1})
    if twice:
        # Lost results are trained again as well: the file of a stopped sweep tells the two apart.
        before = sum(stops)
        kept = len(found["trained"][-1]) < len(every) or len(trained) == before + len(every)
        first_again = found["trained"][1][:1] == every[:1] and found["trained"][-1][:1] == every[:1]
        message = "lost" if first_again and len(pairs or []) == len(every) and kept else "done-again"
        raise Wrong(message, ran=ran, expected="each pair once", got=f"more than once: {twice[:4]}")
    if pairs is None:
        raise Wrong("rows", ran=ran, expected="a line of JSON each", got=found["file"][:200])
    if sorted(pairs) != sorted(every):
        raise Wrong("missing-pairs", ran=ran, expected=f"{len(every)} pairs", got=f"{len(pairs)}")
    if trained != every:
        raise Wrong("order", ran=ran, expected=f"{every[:4]} ...", got=f"{trained[:4]} ...")
    for line in found["file"].splitlines():
        row = json.loads(line)
        if row.get("steps") != 1000.0 / row["batch"] + row["seed"]:
            raise Wrong("rows", ran=ran, expected="what train returned", got=line)


# --- L2.4 ---------------------------------------------------------------------------------------------------------


def worded(tables: Sequence[list[dict[str, Any]]]) -> list[Any]:
    """Over there."""
    return [learners("regimes")(rows) for rows in tables]


@proves("L2.4", "each pair of neighbouring batches has its word, also with censored runs")
def regimes(answer: Answer) -> None:
    """Tables from a known curve, in any order, with batches that do not just double."""
    draw = answer.draw
    tables = _telling_tables(draw)
    found = [list(words) for words in answer.call(worded, tables)]
    for rows, got in zip(tables, found, strict=True):
        expected = _words(rows, _median)
        if got != expected:
            # A mistake that explains every answer, not only this one.
            message = next((name for name, words in _mistaken(tables).items() if words == found), "regimes")
            table = {batch: [row["steps"] for row in rows if row["batch"] == batch] for batch in _batches(rows)}
            raise Wrong(message, ran=f"steps by batch: {table}", expected=expected, got=got)


def _telling_tables(draw: np.random.Generator) -> list[list[dict[str, Any]]]:
    """Tables for which every mistake gives other words than the right rule and than every other mistake."""
    while True:
        tables = [*(_table(draw) for _ in range(12)), _beside_the_limits()]
        words = [[_words(each, _median) for each in tables], *_mistaken(tables).values()]
        if all(one != other for one, other in itertools.combinations(words, 2)):
            return tables


def _beside_the_limits() -> list[dict[str, Any]]:
    """A table whose exponents lie on both sides of the limits, for whoever has others."""
    steps, rows = 100_000.0, []
    for power, exponent in enumerate((0.0, 0.83, 0.77, 0.23, 0.17)):
        steps /= 2**exponent
        rows += [{"batch": 8 * 2**power, "seed": seed, "steps": round(steps)} for seed in range(3)]
    return rows


def _mistaken(tables: Sequence[list[dict[str, Any]]]) -> dict[str, list[list[str]]]:
    """The words by the message of the mistake that leads to them."""
    return {
        "censored-left-out": [_words(each, _median_of_known) for each in tables],
        "one-seed": [_words(each, lambda values: values[0]) for each in tables],
        "per-step-of-batch": [_words(each, _median, doubling=True) for each in tables],
        "order-of-batches": [_words(each, _median, sort=False) for each in tables],
    }


def _table(draw: np.random.Generator) -> list[dict[str, Any]]:
    """Rows of steps = least + most / batch, far from the limits between words, some of them censored."""
    factor = int(draw.choice([2, 4]))
    batches = [8 * factor**power for power in range(6)]
    bend = float(draw.uniform(30, 3000))
    rows = []
    for batch in batches:
        steps = 200 * (1 + bend / batch)
        censored = int(draw.choice([0, 0, 0, 1, 2]))
        for seed in range(3):
            value = None if seed < censored else round(steps * float(draw.uniform(0.999, 1.001)))
            rows.append({"batch": batch, "seed": seed, "steps": value})
    if any(abs(_exponent(rows, pair) - limit) < 0.03 for pair in range(5) for limit in (0.2, 0.8)):
        return _table(draw)
    order = draw.permutation(len(rows))
    return [rows[index] for index in order]


def _batches(rows: Sequence[dict[str, Any]]) -> list[int]:
    return sorted({int(row["batch"]) for row in rows})


def _values(rows: Sequence[dict[str, Any]], batch: int) -> list[float]:
    return [math.inf if row["steps"] is None else float(row["steps"]) for row in rows if row["batch"] == batch]


def _exponent(rows: Sequence[dict[str, Any]], pair: int) -> float:
    """Of the uncensored curve; 1 where it is not known."""
    small, large = _batches(rows)[pair : pair + 2]
    first, second = (min(_values(rows, batch)) for batch in (small, large))
    if math.isinf(first) or math.isinf(second):
        return 1.0
    return math.log(first / second) / math.log(large / small)


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _median_of_known(values: list[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return statistics.median(known) if known else math.inf


def _words(rows: Sequence[dict[str, Any]], of: Any, *, doubling: bool = False, sort: bool = True) -> list[str]:
    batches = _batches(rows) if sort else list(dict.fromkeys(row["batch"] for row in rows))
    words = []
    for small, large in itertools.pairwise(batches):
        first, second = of(_values(rows, small)), of(_values(rows, large))
        if math.isinf(first) or math.isinf(second):
            words.append("not reached")
            continue
        exponent = math.log(first / second) / math.log(2 if doubling else large / small)
        words.append("perfect" if exponent >= 0.8 else "diminishing" if exponent >= 0.2 else "maximal")
    return words
