"""Gradings that look real: one with merit, one that failed at the gate, one that stopped there, and a hostile one."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from paceline_course.assess.grade import Curve, Grade, Line

RUBRIC = Path(__file__).parents[2] / "assessment" / "rubric.toml"
EVIL = '</script><script>alert(1)</script>"><img src=x onerror=alert(2)>{{ 7*7 }}<!-- %{y} <b>bold</b>'
CARD = "\n".join(
    [
        "-- the job hangs: rank 2 never came to all_reduce number 41 after 20 s ".ljust(80, "-"),
        "  rank 0   waits in all_reduce (4 bytes, float32), train.py line 118, in evaluate",
        "  rank 1   waits in all_reduce (4 bytes, float32), train.py line 118, in evaluate",
        "  rank 2   has ended",
        "  why      rank 2 has no samples to evaluate and leaves before the collective that the others wait in",
        "  next     let every rank take part in the sum, with zeros where it has nothing",
        "-" * 80,
    ]
)
EVIDENCE: dict[str, dict[str, Any]] = {
    "A.oracle": {
        "variants": ["plain", "norm", "drop"],
        "largest_difference": 3.1e-13,
        "runs": [
            {"variant": "plain", "workers": 3, "batch": 96, "samples": 1003, "difference": 2.2e-16},
            {"variant": "norm", "workers": 4, "batch": 70, "samples": 611, "difference": 3.1e-13, "uneven": True},
        ],
    },
    "C.traffic": {"collectives_a_step": 3, "bytes_a_step": 1_234_567, "per_op": {"all_reduce": 2, "broadcast": 1}},
    "C.speed": {"ratios": [0.91, 0.93, 0.88, 0.92, 0.9], "median": 0.91},
}


def line(entry: dict[str, Any], **changes: Any) -> Line:
    """A line of the rubric, passed with all points unless told otherwise."""
    made = Line(
        id=entry["id"],
        title=entry["title"],
        most=entry["points"],
        points=entry["points"],
        gate=entry.get("gate", False),
        state="passed",
        evidence=EVIDENCE.get(entry["id"], {}),
        seconds=7.25,
    )
    return msgspec.structs.replace(made, **changes)


def lines(changes: dict[str, dict[str, Any]]) -> list[Line]:
    """All lines of the rubric, with changes by id."""
    return [line(entry, **changes.get(entry["id"], {})) for entry in tomllib.loads(RUBRIC.read_text())["lines"]]


def curve(name: str, seed: int, level: float, speed: float, **changes: Any) -> Curve:
    """Sixteen epochs of 8192 samples that come to a level, some noise by the seed."""
    accuracy = [
        round(level - (level - 0.2) * math.exp(-speed * epoch) + 0.012 * math.sin(7.1 * epoch * seed + seed), 4)
        for epoch in range(1, 17)
    ]
    samples = [8192 * epoch for epoch in range(1, 17)]
    given = {"workers": 2, "batch": 512, "samples": samples, "accuracy": accuracy, "seconds": 21.4} | changes
    return Curve(name=name, seed=seed, **given)


def curves() -> list[Curve]:
    """Three configurations, the chosen one last, with three seeds."""
    return [
        curve("one-device", 11, 0.85, 0.6, workers=1, batch=64),
        curve("large", 11, 0.71, 0.16),
        curve("large", 12, 0.72, 0.15),
        *(curve("large-warm", seed, 0.88, 0.33, chosen=True) for seed in (11, 12, 13)),
    ]


def grade(**changes: Any) -> Grade:
    """A final grading with all points, but for changes."""
    given: dict[str, Any] = {
        "kind": "final",
        "learner": "Ada Lovelace",
        "submission": "5d41402abc4b2a76b9719d911017c592" * 2,
        "grader": "7d793037a0760186574b0282f2f435e7" * 2,
        "course": "0.1.0",
        "nonce": "9e107d9d372bb6826bd81d3542a419d6",
        "seeds": {"order": 182_345, "data": 99_812, "kill": 71},
        "started_at": "2026-05-01T10:22:03.120+00:00",
        "seconds": 754.2,
        "machine": {"processor": "AMD EPYC 7B13", "cores": "2", "torch": "2.14.0", "python": "3.11.9", "device": "cpu"},
        "lines": lines({}),
        "curves": curves(),
        "target": 0.78,
        "gaps": ["the network could not be closed: this machine has no namespaces for users"],
    }
    return Grade(**(given | changes))


def merit() -> Grade:
    """Passed with merit, a few points lacking."""
    return grade(
        lines=lines(
            {
                "B.accuracy": {
                    "points": 10.67,
                    "state": "partly",
                    "message": "below-target",
                    "ran": "torchrun --standalone --nproc-per-node 2 train.py --config config.toml --name large-warm",
                    "expected": "an accuracy of 78.0 % for two epochs running, with each of three seeds",
                    "got": "seed 11: 86.1 %, seed 12: 84.9 %, seed 13: 77.2 %",
                    "likely": "the rate is at the edge: one seed in three does not settle",
                    "look": "lab 4, warm-up",
                },
                "D.forecast": {
                    "points": 0.0,
                    "state": "failed",
                    "message": "far-off",
                    "expected": "6.1",
                    "got": "15.2",
                },
            }
        )
    )


def failed() -> Grade:
    """A final grading that failed one line of the gate, by a hang; all lines judged."""
    return grade(
        learner="",
        lines=lines(
            {
                "C.speed": {"points": 3.4, "state": "partly", "got": "0.61 of the reference's speed"},
                "A.oracle": {
                    "points": 0.0,
                    "state": "failed",
                    "message": "hang",
                    "ran": "torchrun --standalone --nproc-per-node 3 train.py --variant norm --samples 611 --batch 70",
                    "expected": "the program ends within 60 s with the weights of one process",
                    "got": "it did not come to an end in 60 s",
                    "likely": "a process whose share of the last batch is empty skips a collective",
                    "look": "the card below; lab 2, exercise 3",
                    "card": CARD,
                    "printed": "epoch 0: loss 1.2031\nepoch 1: loss 0.9127\n" * 8,
                },
                "C.samples": {"points": 0.0, "state": "failed", "got": "the target was not reached"},
            }
        ),
    )


def stopped() -> Grade:
    """A practice grading that stopped at the first gate line that failed."""
    untested = {"points": 0.0, "state": "untested", "seconds": 0.0, "evidence": {}}
    reached = ("A.runs", "A.coverage")
    changes = {one.id: untested for one in lines({}) if one.id not in reached}
    changes["A.coverage"] = {
        "points": 0.0,
        "state": "failed",
        "message": "sample-twice",
        "ran": "torchrun --standalone --nproc-per-node 3 train.py --samples 1000 --epochs 2",
        "expected": "every sample once an epoch",
        "got": "sample 0 twice, sample 333 never",
        "likely": "the sampler fills up the last batch",
        "look": "lab 1, exercise 4",
        "evidence": {"twice": [0, 1], "never": list(range(333, 433))},
    }
    return grade(
        kind="practice",
        nonce="practice-7",
        seeds={},
        curves=[],
        target=0.0,
        gaps=[],
        complete=False,
        lines=lines(changes),
    )


def hostile() -> Grade:
    """Text that wants to be markup, to steer a terminal, and never to end; in every field that takes text."""
    control = "\x1b[31mred\x1b[0m \x1b]0;title\x07bell\x07 back\x08 nul\x00 \u202eturned\u202c \ud800 \x9b5m"
    long = "x" * 10_000
    words = "wort 漢字かな 👩‍🚀 é עברית"
    bad = {
        "points": 0.0,
        "state": "failed",
        "message": EVIL,
        "ran": EVIL,
        "expected": long,
        "got": control,
        "likely": words,
        "look": f"{EVIL} {control}",
        "card": f"{EVIL}\n{control}\n{long}",
        "printed": f"{long}\n{control}\n{EVIL} the last line",
        "evidence": {
            EVIL: EVIL,
            "long": long,
            "none": None,
            "yes": True,
            "huge": 10**400,
            "not_a_number": math.nan,
            "endless": math.inf,
            "list": list(range(5000)),
            "deep": {"a": {"b": {"c": [1, {"d": EVIL}]}}},
            "ragged": [{"a": 1}, {EVIL: EVIL, "b": control}],
            "wide": [{f"c{at}": at for at in range(100)}],
            "tall": [{"row": at} for at in range(1000)],
            "empty": [],
            "mixed": [1, {"a": 2}],
        },
    }
    odd = [
        curve(EVIL, 1, 0.8, 0.3, chosen=True),
        curve(long, 2, 0.8, 0.3, accuracy=[math.nan] * 16),
        curve("", 3, 0.8, 0.3, samples=[], accuracy=[]),
        curve("short", 4, 0.8, 0.3, samples=[8192, 16384, 24576], accuracy=[0.5]),
        curve("much", 5, 0.8, 0.3, samples=list(range(1, 9001)), accuracy=[0.5] * 9000),
    ]
    return grade(
        learner=f"{EVIL}{control}{words}",
        course=EVIL,
        nonce=EVIL,
        submission=EVIL,
        started_at=EVIL,
        seeds={EVIL: 1},
        machine={EVIL: control, "long": long},
        gaps=[EVIL, long, control],
        lines=lines({"A.runs": bad, "B.again": bad | {"state": "partly", "points": 1.5}}),
        curves=odd,
    )


ALL = {"merit": merit, "failed": failed, "stopped": stopped, "hostile": hostile, "full": grade}
