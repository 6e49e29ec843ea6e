"""The source of a script tells how its training loop can end."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from paceline.audits.loop_exits import LoopExits, loop_exits
from paceline.records.place import Place

WHILE_CLOCK = """
    started = time.monotonic()
    while time.monotonic() - started < 5:
        loss.backward()
"""
BREAK_BY_VARIABLE = """
    def train():
        start = time.time()
        for x in loader:
            loss.backward()
            elapsed = time.time() - start
            if elapsed > limit:
                break
"""
BREAK_BY_FUNCTION = """
    class Trainer:
        def over(self):
            return perf_counter() > self.end

        def step(self, x):
            self.loss(x).backward()

        def fit(self):
            for epoch in range(10):
                for x in self.loader:
                    self.step(x)
                if self.over():
                    return
"""
PATIENCE = """
    for epoch in range(60):
        for x in loader:
            loss.backward()
        if stopping.should_stop(value):
            break
"""
FILES = """
    for epoch in range(args.epochs):
        for start in range(0, len(data), 16):
            loss.backward()
            if step % 10 == 0:
                for each in hooks:
                    if each.done:
                        break
                print(time.time())
"""
COUNTED = """
    for step in range(100):
        loss.backward()
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (WHILE_CLOCK, LoopExits(clock=3, condition=None, data=False)),
        (BREAK_BY_VARIABLE, LoopExits(clock=7, condition=None, data=True)),
        (BREAK_BY_FUNCTION, LoopExits(clock=13, condition=None, data=True)),
        (PATIENCE, LoopExits(clock=None, condition=5, data=True)),
        (FILES, LoopExits(clock=None, condition=None, data=True)),
        (COUNTED, LoopExits(clock=None, condition=None, data=False)),
    ],
    ids=["clock", "variable", "function", "patience", "files", "counted"],
)
def test_the_ways_out_of_a_loop(tmp_path: Path, source: str, expected: LoopExits) -> None:
    """Conditions of `while`, and of `break` and `return` in loops around the line, also in callers."""
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(source))
    line = next(number for number, text in enumerate(script.read_text().splitlines(), 1) if "backward" in text)

    assert loop_exits(Place(path=str(script), line=line)) == expected


def test_a_script_that_cannot_be_read_has_no_known_way_out(tmp_path: Path) -> None:
    """Also one that is no Python, or whose line is in no loop."""
    script = tmp_path / "train.py"
    script.write_text("loss.backward()\n")
    broken = tmp_path / "broken.py"
    broken.write_text("for x in\n")

    assert loop_exits(None) is None
    assert loop_exits(Place(path=str(tmp_path / "gone.py"), line=1)) is None
    assert loop_exits(Place(path=str(broken), line=1)) is None
    assert loop_exits(Place(path=str(script), line=1)) is None
