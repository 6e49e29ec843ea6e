"""A check says what was run, expected, got and where, and survives every answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from course.tests.proof.exercises import complete, prove

from paceline_course.content import Course
from paceline_course.outcome import Outcome, as_text
from paceline_course.runner import check

HELPER = """import torch

def twice(x):
    return helper(x)

def helper(x):
    return torch.zeros(2) @ torch.zeros(3)
"""
ONE_STAYS_AWAY = """import time
import torch
import torch.distributed as dist

def total(value):
    tensor = torch.tensor([value])
    if dist.get_rank() == 0:
        dist.all_reduce(tensor)
    if dist.get_rank() == 1:
        time.sleep(600)
    return tensor.item()
"""
IMPORTS_ANOTHER = """import torch
import torch.distributed as dist
from L1_1 import twice

def total(value):
    tensor = torch.tensor([twice(value)])
    dist.all_reduce(tensor)
    return tensor.item() / 2
"""

TO_NOBODY = """import torch
import torch.distributed as dist

def total(value):
    tensor = torch.tensor([value])
    if dist.get_rank() == 0:
        dist.OP(tensor, PEER)
    dist.all_reduce(tensor)
    return tensor.item()
"""


@pytest.fixture
def checked(course: Course, tmp_path: Path) -> Callable[..., Outcome]:
    """Check some code as an answer."""
    tmp_path.chmod(0o755)

    def run(code: str, name: str = "L1.1", **options: object) -> Outcome:
        exercise = course.exercise(name)
        path = tmp_path / exercise.file_name
        path.write_text(code)
        return check(course, exercise, path, **options)

    return run


def test_the_master_of_the_small_course_is_proved(course: Course) -> None:
    """Starter, solution and wrong answers, each with the message it should get; also of two ranks."""
    lab = course.lab("L1")
    proofs = [proof for each in lab.exercises for proof in prove(course, each, repeats=1, quick=False)]

    assert [proof for proof in proofs if proof.problem] == []
    assert len(proofs) == 10
    assert [proof.problem for proof in complete(course, lab) if proof.problem] == ["2 questions"]


def test_the_same_seed_gives_the_same_numbers_and_another_one_others(checked: Callable[..., Outcome]) -> None:
    """So that a failure can be repeated."""
    thrice = "def twice(x):\n    return 3 * x\n"
    first, again, other = (checked(thrice, seed=seed).failed.ran for seed in (5, 5, 6))

    assert first == again
    assert first != other


def test_what_is_said_names_the_line_of_the_learner(checked: Callable[..., Outcome]) -> None:
    """The innermost of their own lines, not of a library."""
    outcome = checked(HELPER)

    assert outcome.failed.message == "raised"
    assert outcome.failed.where == "L1_1.py:7, in helper"
    assert "RuntimeError" in outcome.failed.got
    text = as_text(outcome)
    assert all(word in text for word in ("NO  it is twice x", "where", "L1_1.py:7", "likely", "--seed"))


def test_a_hang_names_the_rank_and_the_line(checked: Callable[..., Outcome]) -> None:
    """One rank waits for ever in a collective that the other never calls."""
    outcome = checked(ONE_STAYS_AWAY, "L1.2", patience=0.5)

    assert outcome.failed.message == "hang"
    assert "rank 1 did not come to a collective" in outcome.failed.card
    assert "rank 0   waits in all_reduce of 4 bytes, its 1st collective, at L1_2.py:8, in total" in outcome.failed.card
    assert "rank 1   has called 0 collectives, at L1_2.py:10, in total" in outcome.failed.card
    assert outcome.untested == ["and so do three"]


@pytest.mark.parametrize(("op", "peer"), [("send", 2), ("send", 5), ("send", -1), ("recv", 2), ("recv", 5)])
def test_a_send_to_a_rank_that_does_not_exist_is_said(checked: Callable[..., Outcome], op: str, peer: int) -> None:
    """gloo does not say so: the process dies, or it waits for ever, by chance."""
    failed = checked(TO_NOBODY.replace("OP", op).replace("PEER", str(peer)), "L1.2", patience=0.3).failed

    assert failed.message == "no-such-rank"
    did = "sends to" if op == "send" else "receives from"
    assert failed.got == f"rank 0 {did} {'a rank below 0' if peer < 0 else f'rank {peer}'}"
    assert failed.expected == "rank 0 to 1"
    assert failed.where == "L1_2.py:7"


def test_a_receive_from_any_rank_is_none_from_a_rank_that_does_not_exist(checked: Callable[..., Outcome]) -> None:
    """It names no rank either; nobody sends, so it hangs."""
    failed = checked(TO_NOBODY.replace("OP", "recv").replace(", PEER", ""), "L1.2", patience=0.3).failed

    assert failed.message == "hang"


def test_a_crash_in_compiled_code_names_the_line(checked: Callable[..., Outcome]) -> None:
    """There is no traceback; on several ranks the one that crashed is the one that is told of."""
    crash = """import ctypes
import os

def total(value):
    if os.environ["RANK"] == "1":
        ctypes.string_at(0)
    return value
"""
    failed = checked(crash, "L1.2").failed

    assert (failed.message, failed.where) == ("died", "L1_2.py:6, in total")
    assert failed.got == "it was killed by SIGSEGV before it answered"


def test_a_process_that_spoils_its_trace_and_dies_has_died(checked: Callable[..., Outcome]) -> None:
    """What an answer may write is read with care."""
    spoils = """import os

def total(value):
    open(f"trace-{os.environ['RANK']}.jsonl", "w").write('{"type": "collective", "seq": "x"}\\n\\x00 {nothing\\n')
    os._exit(3)
"""
    assert checked(spoils, "L1.2").failed.message == "died"


def test_an_answer_may_import_another_exercise(checked: Callable[..., Outcome]) -> None:
    """What was built in one lab can be used in the next."""
    checked("def twice(x):\n    return 2 * x\n")
    assert checked(IMPORTS_ANOTHER, "L1.2").passed


def test_a_missing_file_is_said(course: Course, tmp_path: Path) -> None:
    """Deleted while it was worked on."""
    outcome = check(course, course.exercise("L1.1"), tmp_path / "L1_1.py")

    assert outcome.failed.message == "deleted"
