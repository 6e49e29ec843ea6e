from __future__ import annotations

import pytest

from paceline.check.analyses.rank_tests import Ranks, RankTests
from tests.check.rule_cases import script_of
from tests.syntax.programs import call_at

HELPERS = """
def is_main_process():
    return not dist.is_initialized() or dist.get_rank() == 0

class Context:
    def __init__(self):
        self.rank = dist.get_rank()
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.first = self.rank == 0

    @property
    def is_first(self):
        return self.rank == 0

def only_first(function):
    def wrapper(*args):
        if dist.get_rank() == 0:
            return function(*args)
    return wrapper

context = Context()
rank = dist.get_rank()
"""
CASES = {
    "rank == 0": ("if rank == 0:\n    here()", Ranks.ZERO),
    "0 == rank": ("if 0 == rank:\n    here()", Ranks.ZERO),
    "not rank": ("if not rank:\n    here()", Ranks.ZERO),
    "not dist.get_rank()": ("if not dist.get_rank():\n    here()", Ranks.ZERO),
    "rank < 1": ("if rank < 1:\n    here()", Ranks.ZERO),
    "rank in (0, -1)": ("if rank in (-1, 0):\n    here()", Ranks.ZERO),
    "rank": ("if rank:\n    here()", Ranks.OTHERS),
    "rank != 0": ("if rank != 0:\n    here()", Ranks.OTHERS),
    "rank > 0": ("if rank > 0:\n    here()", Ranks.OTHERS),
    "else": ("if rank > 0:\n    pass\nelse:\n    here()", Ranks.ZERO),
    "rank == 1": ("if rank == 1:\n    here()", Ranks.SOME),
    "rank >= 0": ("if rank >= 0:\n    here()", Ranks.ALL),
    "early return": ("def f():\n    if rank != 0:\n        return\n    here()\nf()", Ranks.ZERO),
    "a caller": ("def f():\n    here()\nif rank == 0:\n    f()", Ranks.ZERO),
    "two callers": ("def f():\n    here()\nif rank == 0:\n    f()\nf()", Ranks.ALL),
    "a function": ("if is_main_process():\n    here()", Ranks.ZERO),
    "a property": ("if context.is_first:\n    here()", Ranks.ZERO),
    "an attribute": ("if context.first:\n    here()", Ranks.ZERO),
    "the rank of an attribute": ("if context.rank == 0:\n    here()", Ranks.ZERO),
    "the local rank": ("if context.local_rank == 0:\n    here()", Ranks.LOCAL_ZERO),
    "an environment variable": ("if int(os.environ['RANK']) == 0:\n    here()", Ranks.ZERO),
    "os.environ.get": ("if int(os.environ.get('LOCAL_RANK', 0)) == 0:\n    here()", Ranks.LOCAL_ZERO),
    "and": ("if save and rank == 0:\n    here()", Ranks.ZERO),
    "the opposite of and": ("if save and rank == 0:\n    pass\nelse:\n    here()", Ranks.ALL),
    "or not distributed": ("if not args.distributed or rank == 0:\n    here()", Ranks.ZERO),
    "a flag": ("master = rank == 0\nif master:\n    here()", Ranks.ZERO),
    "a flag by its name": ("def f(args):\n    if args.is_main_process:\n        here()", Ranks.ZERO),
    "the rank by its name": ("def f(args):\n    if args.rank == 0:\n        here()", Ranks.ZERO),
    "an operand": ("rank == 0 and here()", Ranks.ZERO),
    "a decorator of the script": ("@only_first\ndef f():\n    here()\nf()", Ranks.ZERO),
    "a decorator by its name": ("@rank_zero_only\ndef f():\n    here()\nf()", Ranks.ZERO),
    "another number": ("if len(os.environ) == 0:\n    here()", Ranks.ALL),
    "a parameter that is the test": ("def f(master):\n    if master:\n        here()\nf(rank == 0)", Ranks.ZERO),
    "imagenet": ("if not args.m or (args.m and args.rank % args.gpus == 0):\n    here()", Ranks.LOCAL_ZERO),
    "a spawned function": (
        "def work(index):\n    if index == 0:\n        here()\nmp.spawn(work, nprocs=2)",
        Ranks.LOCAL_ZERO,
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_ranks_that_run_a_call(text: str, expected: Ranks):
    """A call is attributed to the ranks that the tests on the way to it let through."""
    script = script_of(f"{HELPERS}\n{text}\n")

    assert RankTests(script.program).where(call_at(script.program, "here")) is expected
