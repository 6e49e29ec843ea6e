"""What is noted inside of a submission's process, and what is done to it there: right programs do not suffer by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from course.tests.assess.test_submission import handed_in

from paceline_course.assess.box import Box, Ran
from paceline_course.assess.correctness.runs import ended
from paceline_course.assess.rubric import load_rubric
from paceline_course.assess.submission import freeze
from paceline_course.assess.submission_process import Start
from paceline_course.checking import Wrong

pytestmark = pytest.mark.serial


def boxed(program: str, tmp_path: Path, **files: str) -> Box:
    """A program of a few lines in the box."""
    source = handed_in(tmp_path / "in")
    (source / "train.py").write_text("import pathlib, sys\nout = pathlib.Path('out')\nout.mkdir()\n" + program)
    for name, text in files.items():
        (source / f"{name}.py").write_text(text)
    return Box(freeze(source, tmp_path / "frozen"), tmp_path / "runs", load_rubric().limits)


def ran(program: str, tmp_path: Path, start: Start | None = None, **files: str) -> Ran:
    """It is run once, and came to its end."""
    box = boxed(program, tmp_path, **files)
    found = box.run(1, start or Start(()))
    assert found.ended, found.failure or found.late
    return found


ENDING = """
import atexit, threading, time
def late():
    time.sleep(0.5)
    (out / "thread").write_text("")
threading.Thread(target=late).start()
atexit.register(lambda: (out / "exit").write_text(str((out / "thread").exists())))
"""


@pytest.mark.parametrize("end", ["", "sys.exit()\n", "sys.exit(0)\n"])
def test_threads_are_waited_for_and_exit_functions_are_called(end: str, tmp_path: Path) -> None:
    """As Python does it at the end of a program: an honest one may save in a thread and destroy its group at exit."""
    found = ran(ENDING + end, tmp_path)
    assert (found.folder / "out" / "exit").read_text() == "True"


def test_exit_functions_are_not_called_where_a_program_leaves_at_once(tmp_path: Path) -> None:
    """os._exit passes them over."""
    found = ran("import atexit, os\natexit.register((out / 'exit').touch)\nos._exit(0)\n", tmp_path)
    assert not (found.folder / "out" / "exit").exists()


def test_a_crash_in_compiled_code_names_the_line(tmp_path: Path) -> None:
    """A signal leaves no traceback."""
    box = boxed("def main():\n    ctypes.string_at(0)\n\nimport ctypes\nmain()\n", tmp_path)
    with pytest.raises(Wrong) as wrong:
        ended(box.run(1, Start(())))
    assert (wrong.value.message, wrong.value.where) == ("died", "train.py:5, in main")


CLOCKS = """
import datetime, time
from timeit import default_timer
from signals import Signals
clocks = [time.time, time.monotonic, time.perf_counter, default_timer, lambda: time.time_ns() / 1e9,
          lambda: datetime.datetime.now().timestamp(), lambda: datetime.datetime.utcnow().timestamp(),
          lambda: datetime.datetime.now(datetime.timezone.utc).timestamp()]
data = Signals(10, seed=1)
before = [clock() for clock in clocks]
data.batch(range(10))
(out / "ahead").write_text(" ".join(str(clock() - was > 900) for clock, was in zip(clocks, before)))
"""


def test_every_clock_that_a_program_may_ask_jumps(tmp_path: Path) -> None:
    """Also those that were taken from the module of time before the program began."""
    found = ran(CLOCKS, tmp_path, Start((), jump=(0, 10, 1000.0)))
    assert (found.folder / "out" / "ahead").read_text().split() == ["True"] * 8


STEPS = """
import torch
weight = torch.nn.Parameter(torch.ones(3))
weight.grad = torch.ones(3)
class Outer(torch.optim.Optimizer):
    def __init__(self, weights):
        super().__init__(weights, {})
        self.inner = torch.optim.SGD([weight], lr=1.0)
    def step(self):
        self.inner.step()
        with torch.no_grad():
            weight.zero_()
class Derived(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        if fails:
            raise ValueError
        with torch.no_grad():
            weight.zero_()
fails = False
for optimizer in (Outer([weight]), Derived([weight], lr=1.0)):
    optimizer.step()
    optimizer.step()
fails = True
try:
    optimizer.step()
except ValueError:
    pass
fails = False
optimizer.step()
"""


def test_what_the_outermost_step_leaves_is_noted(tmp_path: Path) -> None:
    """An optimizer may make its step by another one's, or by that of the class above it; a step may raise."""
    found = ran(STEPS, tmp_path)
    assert found.ends is not None
    assert len(found.ranks[0].steps) == 5
    assert len(set(found.ranks[0].steps)) == 1
    assert found.ends[0]["steps"] == 3
    assert found.ends[0]["trouble"] == ""


def test_weights_that_cannot_be_noted_do_not_disturb_a_program(tmp_path: Path) -> None:
    """Tensors without memory, or spread over processes."""
    program = "import torch\ntorch.optim.SGD([torch.nn.Parameter(torch.ones(2, device='meta'))], lr=1.0).step()\n"
    found = ran(program, tmp_path)
    assert found.ends is not None
    assert found.ends[0]["trouble"]
    assert found.ranks[0].steps == []


def test_a_rank_writes_no_bytecode(tmp_path: Path) -> None:
    """Else all of them would write the file of one module, and a file has one writer."""
    found = ran("import helper\n(out / 'said').write_text(str(sys.dont_write_bytecode))\n", tmp_path, helper="X = 1\n")
    assert (found.folder / "out" / "said").read_text() == "True"
    assert found.ranks[0].writes == ["out/said"]


def test_a_program_that_hangs_again_and_again_is_not_run_for_ever(tmp_path: Path) -> None:
    """A grading of all lines would wait for each of some thirty runs; two tell what there is to tell."""
    box = boxed("import time\nwhile '--well' not in sys.argv:\n    time.sleep(0.1)\n", tmp_path)
    assert box.run(1, Start(()), timeout_s=2.0).late is not None
    assert box.run(1, Start(("--well",)), timeout_s=30.0).ended
    assert box.run(1, Start(()), timeout_s=2.0).late is not None
    with pytest.raises(Wrong) as wrong:
        box.run(1, Start(("--well",)))
    assert (wrong.value.message, wrong.value.got) == ("hung-before", "2 runs before this one hung")
