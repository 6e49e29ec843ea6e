"""Tests of the pairs: files and edits fit, and the score counts what it says."""

import ast
import re

import pytest

from tests.zoo.pairs.catalog import PAIRS, PAIRS_OF_SCRIPTS
from tests.zoo.pairs_run import score

EACH = pytest.mark.parametrize("pair", PAIRS_OF_SCRIPTS, ids=lambda pair: pair.slug)


def test_every_folder_is_in_the_catalog():
    """Ten pairs, each with a fault of its own."""
    assert {each.name for each in PAIRS.iterdir() if (each / "new.py").exists()} == {p.slug for p in PAIRS_OF_SCRIPTS}
    assert len(PAIRS_OF_SCRIPTS) == len({pair.faults[0] for pair in PAIRS_OF_SCRIPTS}) == 10


@EACH
def test_old_knows_nothing_of_ranks(pair):
    """It runs on one device, as it was before."""
    assert not re.search(r"torch\.distributed|WORLD_SIZE|DistributedSampler", (pair.folder / "old.py").read_text())


@EACH
def test_new_is_distributed_and_its_wrong_form_differs(pair):
    """The edits are found, and what they give is a script."""
    right = (pair.folder / "new.py").read_text()

    assert "init_process_group" in right
    assert len(right.splitlines()) <= 130
    assert ast.dump(ast.parse(pair.wrong())) != ast.dump(ast.parse(right))
    assert all(re.fullmatch(r"F\d{2,3}", fault) for fault in pair.faults)


def test_the_score_counts_what_was_told():
    """A right pair by a pass, a wrong one by a fail."""
    rows = [
        {"right": True, "told": True, "verdict": "pass", "rightly_named": False, "seconds": 3.0},
        {"right": True, "told": False, "verdict": "fail", "rightly_named": False, "seconds": 1.0},
        {"right": False, "told": True, "verdict": "fail", "rightly_named": True, "seconds": 2.0},
    ]

    assert score(rows) == {
        "right": 2,
        "passed": 1,
        "false_alarms": 1,
        "wrong": 1,
        "told": 1,
        "rightly_named": 1,
        "slowest_s": 3.0,
    }
