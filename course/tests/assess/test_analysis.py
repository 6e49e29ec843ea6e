"""Part D: right answers get their points, and each wrong one is told which mistake it is."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from paceline_course.assess.analysis.context import Facts, own_seed, reruns
from paceline_course.assess.analysis.evidence import compare
from paceline_course.assess.analysis.forecast import message_fits, points_of, predicted
from paceline_course.assess.analysis.judge import judge
from paceline_course.assess.analysis.messages import MESSAGES
from paceline_course.assess.analysis.runs import differing
from paceline_course.assess.answers import QUESTIONS, Answers, read_answers
from paceline_course.assess.grade import Curve, Line
from paceline_course.assess.planted import CAUSES, Planted, planted
from paceline_course.assess.rubric import content_folder, load_rubric

Change = Callable[[Facts], Facts]
SAMPLES, GRADIENT = 8192, 97_184
ALPHA, BETA = 5e-5, 1e9
SIZES, BATCHES = [4**power for power in range(5, 12)], [8, 16, 32, 64, 128, 256, 512]
COMM = [{"collective": "all_reduce", "bytes": str(n), "seconds": str(2 * ALPHA + n / BETA)} for n in SIZES]
COMPUTE = [{"batch": str(b), "seconds": str(2e-3 + 1e-4 * b)} for b in BATCHES]
LARGE = {"workers": 2, "batch": 600, "epochs": 12}
RUNS: list[dict[str, Any]] = [
    {"name": "one", "workers": 1, "batch": 64, "lr": 0.05, "epochs": 6},
    {"name": "plain", **LARGE, "lr": 0.05},
    {"name": "fast", **LARGE, "lr": 0.3},
    {"name": "warm", **LARGE, "lr": 0.3, "warmup": 0.1},
    {"name": "wide", **LARGE, "batch": 2048, "workers": 4, "lr": 0.6},
    {"name": "late", **LARGE, "lr": 0.2, "momentum": 0.8},
    {"name": "small", **LARGE, "batch": 64, "lr": 0.05},
    {"name": "broken", **LARGE, "lr": 9.0},
]
OWN = {
    "one": [0.60, 0.74, 0.79, 0.83, 0.84, 0.83],
    "plain": [0.40, 0.50, 0.58, 0.62, 0.65, 0.68, 0.70, 0.71, 0.72, 0.72, 0.73, 0.73],
    "fast": [0.45, 0.60, 0.70, 0.76, 0.785, 0.77, 0.77, 0.80, 0.81, 0.81, 0.82, 0.82],
    "warm": [0.50, 0.66, 0.77, 0.79, 0.77, 0.77, 0.80, 0.82, 0.83, 0.845, 0.89, 0.845],
    "wide": [0.30, 0.40, 0.50, 0.60, 0.65, 0.70, 0.74, 0.76, 0.785, 0.79, 0.80, 0.81],
    "late": [0.40, 0.50, 0.60, 0.65, 0.70, 0.72, 0.74, 0.75, 0.76, 0.77, 0.785, 0.785],
    "small": [0.50, 0.60, 0.70, 0.75, 0.76, 0.77, 0.77, 0.77, 0.77, 0.77, 0.77, 0.77],
}
"""The grader's runs with the runs' own seed, 0."""
OTHERS = {
    ("one", 1): [0.7, 0.828, 0.828, 0.86, 0.70],
    ("one", 2): [0.7, 0.826, 0.826, 0.87, 0.70],
    ("warm", 1): [0.7, 0.842, 0.842, 0.95, 0.60],
    ("warm", 2): [0.7, 0.848, 0.848, 0.95, 0.60],
    ("fast", 1): [0.7, 0.86, 0.86],
    ("fast", 2): [0.7, 0.80, 0.80],
}
SECONDS = {"fast": 5.0, "one": 30.0}
RIGHT: dict[str, dict[str, Any]] = {
    "rates": {"steps_an_epoch": 14, "linear": 0.46875, "sqrt": 0.1531},
    "target": {"epoch": 7},
    "cheapest": {"run": "one"},
    "bytes": {"gradient": 97184, "ring": 170072},
    "forecast": {"alpha_s": 5e-5, "beta_bytes_per_s": 1e9, "compute_s": 0.0052, "samples_per_s": 74_390.0},
    "evidence": {"first": "warm", "second": "one", "more_than_spread": "yes", "points": 1.7},
    "change": {"before": "plain", "after": "fast", "key": "lr"},
}


def instance(cause: str) -> Planted:
    """A planted job of that cause."""
    return next(found for seed in range(500) if (found := planted(seed)).cause == cause)


def curve(name: str, seed: int, accuracy: list[float]) -> Curve:
    """As the grader would have run it."""
    run = next(run for run in RUNS if run["name"] == name)
    return Curve(
        name=name,
        seed=seed,
        workers=run["workers"],
        batch=run["batch"],
        samples=[SAMPLES * (epoch + 1) for epoch in range(len(accuracy))],
        accuracy=accuracy,
        seconds=SECONDS.get(name, 20.0),
    )


FACTS = Facts(
    runs=RUNS,
    chosen="warm",
    target=0.78,
    curves=[curve(name, 0, values) for name, values in OWN.items()]
    + [curve(name, seed, values) for (name, seed), values in OTHERS.items()],
    gradient_bytes=GRADIENT,
    rubric=load_rubric(),
    planted=instance("own-stop"),
    comm=COMM,
    compute=COMPUTE,
)
ALL_RIGHT = {**RIGHT, "hang": {"rank": FACTS.planted.culprit, "cause": "own-stop"}}


def facts_with(**changes: Any) -> Change:
    """Other facts, but for these."""
    return lambda facts: dataclasses.replace(facts, **changes)


def with_curve(name: str, accuracy: list[float]) -> Change:
    """Another training of a configuration with its own seed."""
    rest = [each for each in FACTS.curves if (each.name, each.seed) != (name, 0)]
    return facts_with(curves=[*rest, *([curve(name, 0, accuracy)] if accuracy else [])])


def answered(question: str, values: Mapping[str, Any]) -> Answers:
    """All right, but for some keys of one question."""
    return Answers({**ALL_RIGHT, question: {**ALL_RIGHT[question], **values}})


def line(question: str, values: Mapping[str, Any], change: Change = lambda facts: facts) -> Line:
    """The line of one question."""
    lines = judge(answered(question, values), change(FACTS))
    return next(each for each in lines if each.id == f"D.{question}")


def noisy() -> list[dict[str, str]]:
    """Large messages took longer than a line says."""
    return [*COMM[:-1], {**COMM[-1], "seconds": "0.0065"}]


def level_of_plain_fit() -> float:
    """Of a line by absolute errors, as lab 7 warns of; it is below zero."""
    rows = noisy()
    return float(np.polyfit([float(row["bytes"]) for row in rows], [float(row["seconds"]) for row in rows], 1)[1])


def rest_of_a_ring(size: float, alpha: float = 5e-4, beta: float = 1e7) -> float:
    """Seconds of the all-reduce of 16 processes."""
    return 30 * (alpha + size / (16 * beta))


SLOW = {"alpha_s": 5e-4, "beta_bytes_per_s": 1e7, "compute_s": 0.0052}
"""Own numbers, wrong ones, under which formulas that are nearly right differ."""
RING = rest_of_a_ring(GRADIENT)


def speed(value: float) -> dict[str, float]:
    """A prediction from SLOW."""
    return {**SLOW, "samples_per_s": value}


WRONG: list[tuple[str, str, dict[str, Any], Change | None]] = [
    ("not-answered", "rates", {"linear": ""}, None),
    ("no-number", "rates", {"linear": "quick"}, None),
    ("no-number", "rates", {"linear": math.inf}, None),
    ("no-number", "rates", {"linear": True}, None),
    ("no-number", "rates", {"linear": 10**400}, None),
    ("no-number", "rates", {"linear": [0.3]}, None),
    ("no-name", "cheapest", {"run": 3}, None),
    ("unknown-run", "cheapest", {"run": "One"}, None),
    ("unknown-run", "change", {"before": "nobody"}, None),
    ("rates-floor", "rates", {"steps_an_epoch": 13}, None),
    ("rates-per-process", "rates", {"steps_an_epoch": 28}, None),
    ("rates-per-process", "rates", {"linear": 0.234375}, None),
    ("rates-per-process", "rates", {"sqrt": 0.10825}, None),
    ("rates-training", "rates", {"steps_an_epoch": 168}, None),
    ("rates-fraction", "rates", {"steps_an_epoch": 13.65}, None),
    ("rates-base", "rates", {"steps_an_epoch": 128}, None),
    ("rates-steps", "rates", {"steps_an_epoch": 15}, None),
    ("rates-swapped", "rates", {"linear": 0.1531, "sqrt": 0.46875}, None),
    ("rates-workers", "rates", {"linear": 0.1}, None),
    ("rates-unscaled", "rates", {"sqrt": 0.05}, None),
    ("rates-factor", "rates", {"linear": 9.375}, None),
    ("rates-inverse", "rates", {"linear": 0.05 / 9.375}, None),
    ("rates-rule", "rates", {"linear": 0.3}, None),
    ("target-was-reached", "target", {"epoch": -1}, None),
    ("target-never", "target", {"epoch": 9}, with_curve("warm", [0.5, 0.79, 0.7, 0.79, 0.7])),
    ("target-other-unit", "target", {"epoch": 8 * SAMPLES}, None),
    ("target-other-unit", "target", {"epoch": 8 * 14}, None),
    ("target-once", "target", {"epoch": 3}, None),
    ("target-best", "target", {"epoch": 10}, None),
    ("target-epoch", "target", {"epoch": 5}, None),
    ("cheapest-few", "cheapest", {}, facts_with(runs=[run for run in RUNS if run["name"] in ("one", "plain", "warm")])),
    ("cheapest-somebody", "cheapest", {"run": "none"}, None),
    ("cheapest-failed", "cheapest", {"run": "broken"}, None),
    ("cheapest-never", "cheapest", {"run": "plain"}, None),
    ("cheapest-seconds", "cheapest", {"run": "fast"}, None),
    ("cheapest-best", "cheapest", {"run": "warm"}, None),
    ("cheapest-steps", "cheapest", {"run": "wide"}, None),
    ("cheapest-run", "cheapest", {"run": "late"}, None),
    ("bytes-numbers", "bytes", {"gradient": 24296}, None),
    ("bytes-float64", "bytes", {"gradient": 194368, "ring": 0}, None),
    ("bytes-bits", "bytes", {"gradient": 777472}, None),
    ("bytes-unit", "bytes", {"gradient": 97.184}, None),
    ("bytes-all-processes", "bytes", {"gradient": 4 * GRADIENT}, None),
    ("bytes-shared", "bytes", {"gradient": GRADIENT / 8}, None),
    ("bytes-gradient", "bytes", {"gradient": 123456}, None),
    ("ring-one-phase", "bytes", {"ring": 85036}, None),
    ("ring-all-processes", "bytes", {"ring": 1360576}, None),
    ("ring-whole-tensor", "bytes", {"ring": 680288}, None),
    ("ring-gradient", "bytes", {"ring": 97184}, facts_with(chosen="wide")),
    ("ring-limit", "bytes", {"ring": 194368}, None),
    ("ring-one-message", "bytes", {"ring": 12148}, None),
    ("ring-other-number", "bytes", {"ring": 145776}, facts_with(chosen="wide")),
    ("bytes-ring", "bytes", {"ring": 5}, None),
    ("forecast-few-sizes", "forecast", {}, facts_with(comm=COMM[:2])),
    ("forecast-few-sizes", "forecast", {}, facts_with(comm=[{"bytes": "x"}, {"seconds": "nan"}])),
    ("forecast-no-steps", "forecast", {}, facts_with(compute=COMPUTE[3:])),
    ("forecast-intercept", "forecast", {"alpha_s": 1e-4}, None),
    ("forecast-alpha-unit", "forecast", {"alpha_s": 0.05}, None),
    ("forecast-unweighted", "forecast", {"alpha_s": level_of_plain_fit() / 2}, facts_with(comm=noisy())),
    ("forecast-alpha", "forecast", {"alpha_s": 1e-3}, None),
    ("forecast-beta-inverse", "forecast", {"beta_bytes_per_s": 1e-9}, None),
    ("forecast-beta-unit", "forecast", {"beta_bytes_per_s": 1000.0}, None),
    ("forecast-beta-bits", "forecast", {"beta_bytes_per_s": 8e9}, None),
    ("forecast-beta", "forecast", {"beta_bytes_per_s": 3e9}, None),
    ("forecast-compute-whole", "forecast", {"compute_s": 0.0532}, None),
    ("forecast-compute-divided", "forecast", {"compute_s": 0.003325}, None),
    ("forecast-compute-unit", "forecast", {"compute_s": 5.2}, None),
    ("forecast-compute", "forecast", {"compute_s": 0.02}, None),
    ("forecast-needs-numbers", "forecast", {"compute_s": 0}, None),
    ("forecast-steps", "forecast", speed(1 / (0.0052 + RING)), None),
    ("forecast-one-process", "forecast", speed(32 / (0.0052 + RING)), None),
    ("forecast-no-messages", "forecast", speed(512 / 0.0052), None),
    ("forecast-not-divided", "forecast", speed(512 / (0.0052 + 30 * (5e-4 + GRADIENT / 1e7))), None),
    ("forecast-one-latency", "forecast", speed(512 / (0.0052 + 5e-4 + GRADIENT / 1e7)), None),
    ("forecast-one-phase", "forecast", speed(512 / (0.0052 + RING / 2)), None),
    ("forecast-numbers", "forecast", speed(512 / (0.0052 + rest_of_a_ring(GRADIENT / 4))), None),
    ("forecast-two-processes", "forecast", speed(512 / (0.0052 + 2 * (5e-4 + GRADIENT / 2e7))), None),
    ("forecast-shared-again", "forecast", speed(512 / (0.0052 / 16 + RING)), None),
    ("forecast-all-busy", "forecast", speed(512 * 16 / (0.0052 + RING)), None),
    ("forecast-whole-batch", "forecast", speed(512 / (0.0532 + RING)), None),
    ("forecast-speed", "forecast", speed(3.0), None),
    ("forecast-speed", "forecast", speed(-3.0), None),
    ("evidence-same-run", "evidence", {"second": "warm"}, None),
    ("evidence-not-chosen", "evidence", {"first": "plain"}, None),
    ("evidence-yes-or-no", "evidence", {"more_than_spread": "perhaps"}, None),
    ("evidence-within-spread", "evidence", {"second": "fast", "points": 1.8}, None),
    ("evidence-beyond-spread", "evidence", {"more_than_spread": "no"}, None),
    ("evidence-sign", "evidence", {"points": -1.7}, None),
    ("evidence-fraction", "evidence", {"points": 0.017}, None),
    ("evidence-last-epoch", "evidence", {"points": 100 * (0.845 - 0.83 + 2 * (0.60 - 0.70)) / 3}, None),
    ("evidence-best-epoch", "evidence", {"points": 100 * (0.89 - 0.84 + 0.95 - 0.86 + 0.95 - 0.87) / 3}, None),
    ("evidence-one-seed", "evidence", {"second": "fast", "points": 4.8, "more_than_spread": "no"}, None),
    ("evidence-points", "evidence", {"points": 9}, None),
    ("hang-no-rank", "hang", {"rank": 4}, None),
    ("hang-no-rank", "hang", {"rank": 1.5}, None),
    ("hang-rank", "hang", {"rank": (FACTS.planted.culprit + 1) % 4}, None),
    ("hang-no-cause", "hang", {"cause": "a hang"}, None),
    ("hang-slow", "hang", {"cause": "order"}, facts_with(planted=instance("slow-reading"))),
    ("hang-cause", "hang", {"cause": "order"}, facts_with(final=True)),
    ("hang-not-slow", "hang", {"cause": "slow-reading"}, None),
    ("hang-not-network", "hang", {"cause": "network"}, None),
    ("hang-not-memory", "hang", {"cause": "memory"}, None),
    ("hang-not-exception", "hang", {"cause": "exception"}, None),
    ("hang-not-order", "hang", {"cause": "order"}, None),
    ("hang-not-fewer", "hang", {"cause": "fewer-batches"}, None),
    ("hang-not-own-stop", "hang", {"cause": "own-stop"}, facts_with(planted=instance("order"))),
    ("hang-not-judges", "hang", {"cause": "only-one-judges"}, None),
    ("hang-not-saves", "hang", {"cause": "only-one-saves"}, None),
    ("change-same-run", "change", {"after": "plain"}, None),
    ("change-other-key", "change", {"key": "warmup"}, None),
    ("change-several-keys", "change", {"after": "warm"}, None),
    ("change-small-batch", "change", {"after": "small", "key": "batch"}, None),
    ("change-no-gap", "change", {}, with_curve("one", [0.5, 0.6, 0.6])),
    ("change-too-small", "change", {"before": "fast", "after": "warm", "key": "warmup"}, None),
    ("change-reversed", "change", {"before": "fast", "after": "plain"}, None),
]


def test_right_answers_get_all_points() -> None:
    """Twenty, and nothing is said."""
    lines = judge(Answers(ALL_RIGHT), FACTS)

    assert [each.id for each in lines] == [each.id for each in FACTS.rubric.lines if each.id.startswith("D.")]
    assert {each.id: each.got for each in lines if each.state != "passed"} == {}
    assert sum(each.points for each in lines) == 20
    assert all(not each.message and each.most == 2.5 for each in lines)


@pytest.mark.parametrize(("message", "question", "values", "change"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_answer_is_told_which_mistake_it_is(
    message: str, question: str, values: dict[str, Any], change: Change | None
) -> None:
    """With less than all points, what was expected, what was given, and where to look."""
    found = line(question, values, change or (lambda facts: facts))

    assert message in found.evidence["messages"]
    assert found.state in ("partly", "failed")
    assert found.points < found.most
    assert found.expected
    assert found.got
    assert found.likely == MESSAGES[found.message].likely


def test_every_message_has_a_wrong_answer_that_gets_it() -> None:
    """Two come where there is nothing to judge: they have tests of their own."""
    assert set(MESSAGES) - {message for message, *_ in WRONG} == {"unreadable", "not-run"}


def test_a_wrong_answer_costs_nothing_elsewhere() -> None:
    """Each question stands by itself."""
    for _, question, values, _ in WRONG:
        lines = judge(answered(question, values), FACTS)

        assert all(each.state == "passed" for each in lines if each.id != f"D.{question}")


def test_half_an_answer_gets_half_of_the_points() -> None:
    """Parts are judged one by one, and the first that is wrong is explained."""
    found = line("rates", {"linear": 0.1531, "sqrt": ""})

    assert (found.state, found.points, found.message) == ("partly", 0.83, "rates-swapped")
    assert found.evidence["messages"] == ["rates-swapped", "not-answered"]
    assert "linear: 0.1531" in found.got
    assert "sqrt: nothing" in found.got


def test_the_template_is_answered_nowhere_and_has_every_key() -> None:
    """What learners get is what is read."""
    content = (content_folder() / "kit" / "answers.toml").read_bytes()
    tables = tomllib.loads(content.decode())

    assert {question: tuple(keys) for question, keys in tables.items()} == dict(QUESTIONS)
    assert all(value in ("", 0) for keys in tables.values() for value in keys.values())
    assert [each.message for each in judge(read_answers(content), FACTS)] == ["not-answered"] * 8


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "no answers.toml"),
        (b"[rates\nlinear = 1", "is no TOML"),
        (b"\xff\xfe", "UTF-8"),
        (b"a = " + b"[" * 5000, "answers.toml"),
        (b"a = 1" + b"0" * 5000, "is no TOML"),
        (b"#" * 70_000, "larger"),
    ],
    ids=["missing", "no toml", "no text", "nested", "huge", "long"],
)
def test_a_file_that_cannot_be_read_says_so_on_every_line(content: bytes | None, problem: str) -> None:
    """And nothing falls over."""
    lines = judge(read_answers(content), FACTS)

    assert {each.message for each in lines} == {"unreadable"}
    assert all(problem in each.got and each.points == 0 for each in lines)


def test_tables_of_another_kind_are_no_answers() -> None:
    """A list where a table belongs."""
    lines = judge(read_answers(b"rates = [1, 2]\ntarget = 7\n[hang]\nrank = []\ncause = {a = 1}"), FACTS)

    assert lines[0].message == "not-answered"
    assert lines[1].message == "not-answered"
    assert lines[6].evidence["messages"] == ["no-number", "no-name"]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=80)
    | st.sampled_from([*OWN, *CAUSES, "yes", "lr", "none", 10**400, -(10**400), "1e999", "\x1b[2J"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)
TABLES = st.fixed_dictionaries(
    {name: st.fixed_dictionaries(dict.fromkeys(keys, VALUES)) for name, keys in QUESTIONS.items()}
)


@settings(max_examples=80)
@given(TABLES, st.sampled_from([FACTS, dataclasses.replace(FACTS, curves=[], comm=(), compute=(), planted=None)]))
def test_nothing_that_can_stand_in_the_file_breaks_the_judging(tables: dict[str, Any], facts: Facts) -> None:
    """Points stay in range, lines can be written, and nothing reaches a terminal that it would obey."""
    lines = judge(Answers(tables), facts)

    assert len(lines) == 8
    for each in lines:
        assert 0 <= each.points <= each.most
        assert (each.points == each.most) == (each.state == "passed")
        assert msgspec.json.decode(msgspec.json.encode(each), type=Line) == each
        assert "\x1b" not in each.got
        assert len(each.got) < 2000


def test_numbers_in_quotes_and_whole_numbers_as_fractions_count() -> None:
    """The template has quotes, and not everybody takes them away."""
    assert line("rates", {"steps_an_epoch": "14", "linear": " 0.46875 "}).state == "passed"
    assert line("rates", {"steps_an_epoch": 14.0}).state == "passed"
    assert line("evidence", {"more_than_spread": True}).state == "passed"


@pytest.mark.parametrize("value", [1e-320, -1e-300, 5e-324, "1e-200"])
def test_what_is_all_but_nothing_is_0_and_breaks_no_arithmetic(value: float | str) -> None:
    """A quotient of such numbers would run over, and a logarithm have nothing to take."""
    assert Answers({"rates": {"linear": value}}).number("rates", "linear") == 0.0
    for key in QUESTIONS["forecast"]:
        assert 0 < line("forecast", {key: value}).points < 2.5


@pytest.mark.parametrize(("seed", "used"), [(3, 3), (-3, -3), ("1", 0), (True, 0), (1.5, 0), (None, 0)])
def test_a_seed_that_is_no_whole_number_is_none(seed: Any, used: int) -> None:
    """A grading must not end with the error that torch would raise."""
    assert own_seed({"name": "a", "seed": seed}) == used
    torch.Generator().manual_seed(own_seed({"name": "a", "seed": seed}))


@pytest.mark.parametrize("value", [math.nan, -math.inf, 1e31, -(10**40), "1e999", "nan", None, {}, "5 s"])
def test_what_no_answer_can_be_is_no_number(value: Any) -> None:
    """Nor does it get as far as arithmetic."""
    assert Answers({"rates": {"linear": value}}).number("rates", "linear") is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("\x1b[2Jlarge\n", "?[2Jlarge"),
        ("a\u202eb", "a?b"),
        ("x" * 100, "x" * 60 + " ..."),
        pytest.param(10**5000, "a huge number", id="huge"),
        ([[]], "a list"),
        ({"a": 1}, "a table"),
        (True, "true"),
        ("  ", "nothing"),
        (0, "0"),
    ],
)
def test_what_was_given_is_shown_short_and_harmless(value: Any, shown: str) -> None:
    """It stands in a report, on a page and on a terminal."""
    assert Answers({"hang": {"cause": value}}).shown("hang", "cause") == shown


def test_without_a_training_to_hold_it_against_a_line_is_untested() -> None:
    """It has no points, and says why."""
    found = {each.id: each for each in judge(Answers(ALL_RIGHT), dataclasses.replace(FACTS, curves=[], planted=None))}

    for name in ("D.target", "D.cheapest", "D.evidence", "D.change", "D.hang"):
        assert (found[name].state, found[name].points, found[name].message) == ("untested", 0, "not-run")
        assert found[name].got
    assert found["D.rates"].state == "passed"


# --- targets and cheapest runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accuracy", "right", "wrong"),
    [
        ([0.5, 0.79, 0.8, 0.8, 0.8, 0.8], {1, 2, 3}, {-1, 0, 4, 5}),
        ([0.5, 0.6, 0.7, 0.7, 0.79, 0.8], {4, 5, 6, -1}, {3, 7}),
        ([0.5, 0.6, 0.7, 0.7, 0.7, 0.79], {-1, 5}, {0, 4, 6}),
        ([0.5, 0.6, 0.7, 0.7, 0.7, 0.7], {-1}, {0, 5, 6, -2}),
        ([0.8, 0.8, 0.7], {0, 1, 2}, {-1, 3}),
    ],
)
def test_one_epoch_beside_the_grader_s_is_right(accuracy: list[float], right: set[int], wrong: set[int]) -> None:
    """Also where one epoch more or less makes it never."""
    change = with_curve("warm", accuracy)

    assert {epoch for epoch in right | wrong if line("target", {"epoch": epoch}, change).state == "passed"} == right


def test_the_target_is_that_of_the_run_s_own_seed() -> None:
    """Which the configuration may name."""
    runs = [{**run, "seed": 4} if run["name"] == "warm" else run for run in RUNS]
    curves = [*FACTS.curves, curve("warm", 4, [0.1, 0.2, 0.3, 0.8, 0.8])]
    found = line("target", {"epoch": 4}, facts_with(runs=runs, curves=curves))

    assert (found.state, found.evidence["epoch"]) == ("passed", 4)


def test_a_run_one_epoch_behind_the_cheapest_is_right_too() -> None:
    """A difference that another machine may turn round."""
    for epochs, state in ((3, "passed"), (4, "failed")):
        change = with_curve("wide", [0.5] * epochs + [0.8, 0.8])

        assert line("cheapest", {"run": "wide"}, change).state == state
        assert line("cheapest", {"run": "one"}, change).state == "passed"


def test_none_is_right_where_nobody_got_there() -> None:
    """And no name is."""
    assert line("cheapest", {"run": "none"}, facts_with(target=0.99)).state == "passed"
    assert line("cheapest", {"run": "one"}, facts_with(target=0.99)).message == "cheapest-never"


# --- forecast -----------------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.floats(1e-6, 1e-3), st.floats(1e7, 1e11))
def test_a_latency_and_a_bandwidth_that_were_planted_are_right(alpha: float, beta: float) -> None:
    """From exact times, whatever they are; twice of either is wrong."""
    rows = [{"bytes": str(n), "seconds": repr(2 * alpha + n / beta)} for n in SIZES]
    (low, high), (slow, quick) = message_fits(points_of(rows, "bytes"))

    assert low <= alpha * (1 + 1e-6)
    assert alpha <= high * (1 + 1e-6)
    assert slow <= beta * (1 + 1e-6)
    assert beta <= quick * (1 + 1e-6)


def test_the_prediction_is_that_of_the_formula() -> None:
    """By hand: 0.0052 + 30 (0.00005 + 97184 / 16e9) seconds for 512 samples."""
    assert predicted(5e-5, 1e9, 0.0052, 97184) == pytest.approx(512 / 0.00688222, rel=1e-6)


def test_a_prediction_has_to_follow_from_the_own_numbers_right_or_wrong() -> None:
    """A quarter of the points, although latency and bandwidth are wrong."""
    found = line("forecast", speed(512 / (0.0052 + RING)))

    assert found.evidence["messages"] == ["forecast-alpha", "forecast-beta"]
    assert found.points == pytest.approx(1.25)


def test_a_prediction_may_use_the_own_wrong_gradient() -> None:
    """A mistake is paid for once."""
    answers = {**ALL_RIGHT, "bytes": {"gradient": 9_718_400, "ring": 0}}
    answers["forecast"] = {**RIGHT["forecast"], "samples_per_s": predicted(5e-5, 1e9, 0.0052, 9_718_400)}

    assert judge(Answers(answers), FACTS)[4].state == "passed"


def test_other_collectives_and_damaged_lines_are_left_out() -> None:
    """Only what can be read counts."""
    extra = [
        {"collective": "broadcast", "bytes": "1024", "seconds": "9"},
        {"collective": "all_reduce", "bytes": "-5", "seconds": "1"},
        {"collective": "all_reduce", "bytes": "1024", "seconds": "inf"},
        {"collective": "all_reduce"},
    ]

    assert line("forecast", {}, facts_with(comm=[*COMM, *extra])).state == "passed"


# --- evidence -----------------------------------------------------------------------------------------------------

LEVELS = st.lists(st.integers(600, 900).map(lambda each: each / 1000), min_size=3, max_size=3)


@pytest.mark.filterwarnings("ignore:Precision loss")
@given(LEVELS, LEVELS)
def test_two_means_are_compared_as_scipy_does(first: list[float], second: list[float]) -> None:
    """Welch's t, and whether its 95 % interval contains 0; where nothing spreads, any difference counts."""
    found = compare(first, second)

    if len(set(first)) == len(set(second)) == 1:
        assert found.zero_inside == (first == second)
        assert abs(found.t) == (0 if first == second else math.inf)
    else:
        theirs = stats.ttest_ind(first, second, equal_var=False)
        low, high = theirs.confidence_interval(0.95)
        assert found.t == pytest.approx(theirs.statistic, abs=1e-6)
        assert found.zero_inside == (low <= 0 <= high) or min(abs(low), abs(high)) < 1e-9


def evidence_with(levels: list[float]) -> Change:
    """The chosen run over three seeds, against one device with 80, 81 and 82 %."""
    curves = [curve("one", seed, [0.80 + seed / 100] * 2) for seed in range(3)]
    return facts_with(curves=[*curves, *(curve("warm", seed, [level] * 2) for seed, level in enumerate(levels))])


@pytest.mark.parametrize(
    ("gap", "yes", "no"), [(0.010, False, True), (0.015, True, True), (0.022, True, True), (0.040, True, False)]
)
def test_in_between_both_answers_are_right(gap: float, yes: bool, no: bool) -> None:
    """Standard error 0.0082, so t is 1.2, 1.8, 2.7 and 4.9; lab 8's interval contains 0 up to 2.8."""
    change = evidence_with([0.80 + gap, 0.81 + gap, 0.82 + gap])

    for said, right in (("yes", yes), ("no", no)):
        values = {"more_than_spread": said, "points": 100 * gap}
        assert (line("evidence", values, change).state == "passed") == right


@pytest.mark.parametrize(("points", "state"), [(2.6, "passed"), (0.8, "passed"), (2.8, "partly"), (0.6, "partly")])
def test_a_mean_may_be_a_percentage_point_off(points: float, state: str) -> None:
    """1.7 here; another machine sums in another order, and each of the six trainings ends elsewhere."""
    assert line("evidence", {"points": points}).state == state


def test_a_difference_without_any_spread_is_evidence() -> None:
    """The same level with each seed."""
    curves = [curve(name, seed, [level] * 2) for name, level in (("one", 0.8), ("warm", 0.82)) for seed in range(3)]
    found = line("evidence", {"points": 2.0}, facts_with(curves=curves))

    assert (found.state, found.evidence["t"]) == ("passed", "infinite")


def test_the_trainings_that_are_needed_are_named_once_each() -> None:
    """All configurations with their own seed, and the pair with three."""
    wanted = reruns(Answers(ALL_RIGHT), RUNS, "warm")

    assert len(set(wanted)) == len(wanted)
    assert set(wanted) == {(name, 0) for name in FACTS.names} | {(n, s) for n in ("warm", "one") for s in (1, 2)}


@pytest.mark.parametrize("pair", [("warm", "warm"), ("plain", "fast"), ("warm", "nobody"), ("", "warm")])
def test_a_pair_that_is_none_asks_for_no_more_trainings_than_it_has_to(pair: tuple[str, str]) -> None:
    """The grader's time is not the learner's to spend."""
    wanted = reruns(answered("evidence", {"first": pair[0], "second": pair[1]}), RUNS, "warm")

    assert set(wanted) >= {(name, 0) for name in FACTS.names}
    assert len(wanted) <= len(RUNS) + 2
    assert all(name in FACTS.names for name, _ in wanted)


# --- the change ---------------------------------------------------------------------------------------------------


def test_a_key_that_only_one_configuration_has_is_a_difference() -> None:
    """Names are none, and equal numbers of another type are not."""
    first = {"name": "a", "lr": 1, "batch": 512}

    assert differing(first, {"name": "b", "lr": 1.0, "batch": 512, "warmup": 0}) == ["warmup"]
    assert differing(first, {"name": "b", "lr": 2, "batch": 512}) == ["lr"]
    assert differing(first, {**first, "name": "b"}) == []


@pytest.mark.parametrize(("level", "state"), [(0.781, "passed"), (0.779, "failed")])
def test_half_of_the_gap_is_the_mark(level: float, state: str) -> None:
    """One device holds 83 %, the worst large batch 73 %."""
    assert line("change", {}, with_curve("fast", [0.5, level, level])).state == state


def test_without_a_configuration_of_one_device_the_level_of_the_grader_s_counts() -> None:
    """The gap needs both ends."""
    runs = [run for run in RUNS if run["name"] != "one"]

    assert line("change", {}, facts_with(runs=runs)).state == "untested"
    assert line("change", {}, facts_with(runs=runs, one_device=0.83)).state == "passed"


# --- hang.txt -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", sorted(set(CAUSES) - {"network", "memory"}))
def test_a_final_does_not_tell_the_solution(cause: str) -> None:
    """A practice does, with how the text says so."""
    planted_job = instance(cause)
    for other in (set(CAUSES) - {cause}, {"nonsense"}):
        for word in other:
            values = {"rank": (planted_job.culprit + 1) % 4, "cause": word}
            told = line("hang", values, facts_with(planted=planted_job))
            kept = line("hang", values, facts_with(planted=planted_job, final=True))

            assert planted_job.why in told.expected
            assert f"rank {planted_job.culprit}" in told.expected
            said = msgspec.json.encode(msgspec.structs.replace(kept, got="")).decode()
            assert cause not in said
            assert planted_job.why not in said
            assert str(planted_job.culprit) not in kept.expected
            assert kept.message in ("hang-rank", "hang-cause")


def test_the_rank_and_the_cause_are_half_of_the_points_each() -> None:
    """Also in a final."""
    for final in (False, True):
        assert line("hang", {"cause": "network"}, facts_with(final=final)).points == 1.25
        assert line("hang", {}, facts_with(final=final)).points == 2.5
