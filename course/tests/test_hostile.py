"""Whatever an answer does, its check ends in time with a message, and the next one is as if nothing had been."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from paceline_course.content import Course
from paceline_course.runner import check
from paceline_course.sandbox.limits import free_user

pytestmark = pytest.mark.serial
RIGHT = "def twice(x):\n    return 2 * x\n"
BODY = {
    "an infinite loop": ("while True: pass", {"hang"}),
    "a loop that cannot be interrupted": (
        "import signal\n    for s in range(1, 32):\n        try: signal.signal(s, signal.SIG_IGN)\n"
        "        except (OSError, ValueError): pass\n    while True: pass",
        {"hang"},
    ),
    "a long sleep": ("import time; time.sleep(1000)", {"hang"}),
    "a fork bomb": (
        "import os, time\n    while True:\n        try: os.fork()\n        except OSError: time.sleep(0.01)",
        {"hang", "died", "raised"},
    ),
    "threads without end": (
        "import threading, time\n    while True: threading.Thread(target=time.sleep, args=(99,)).start()",
        {"raised", "hang", "died", "memory"},
    ),
    "os._exit(0)": ("import os; os._exit(0)", {"died"}),
    "sys.exit": ("import sys; sys.exit(0)", {"exit"}),
    "kill -9 of itself": ("import os; os.kill(os.getpid(), 9)", {"died"}),
    "kill of its group": ("import os, signal; os.killpg(0, signal.SIGTERM)", {"died"}),
    "kill of everything": ("import os; os.kill(-1, 9)", {"died", "raised", "other"}),
    "a crash in C": ("import ctypes; ctypes.string_at(0)", {"died"}),
    "recursion without end": ("return twice(x)", {"raised"}),
    "a gigabyte printed": ("print('x' * (1 << 30))", {"printed", "memory", "raised"}),
    "a gigabyte written": ("open('big', 'wb').write(b'x' * (1 << 30))", {"printed", "memory"}),
    "64 GB of memory": ("import torch; return torch.ones(16_000_000_000)", {"memory"}),
    "a list that grows": ("a = []\n    while True: a.append(bytearray(1 << 26))", {"memory"}),
    "deleted files": ("import os\n    for name in os.listdir('.'): os.remove(name)", {"other", "raised", "unusable"}),
    "a changed folder": ("import os; os.chdir('/'); return 0", {"other"}),
    "a wrong type": ("return 'two'", {"other"}),
    "nothing": ("pass", {"other"}),
    "a wrong shape": ("import torch; return torch.ones(3, 4, 5)", {"other", "unusable"}),
    "what cannot be pickled": ("return lambda: x", {"unusable", "raised"}),
    "an object that is equal to everything": (
        "class E:\n        def __eq__(self, o): return True\n        def __ne__(self, o): return False\n    return E()",
        {"unusable", "raised", "other"},
    ),
    "an exception of its own": ("class Mine(Exception): pass\n    raise Mine(x)", {"raised"}),
    "an exception without words": ("raise BaseException", {"raised"}),
    "a torch that says yes": (
        "import torch, numpy\n    torch.equal = torch.allclose = numpy.allclose = lambda *a, **k: True\n    return 0",
        {"other"},
    ),
    "a daemon": (
        "import os, time\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(1000)\n    return 0",
        {"other"},
    ),
    "closed descriptors": (
        "import os; os.closerange(0, 256); return 0",
        {"died", "other", "raised", "unusable", "hang"},
    ),
}
WHOLE = {
    "no Python": ("this is no Python", {"syntax"}),
    "bytes that are no text": ("\udcff\udcfe", {"syntax", "raised", "unusable"}),
    "an import that does not exist": ("import not_there\n", {"raised"}),
    "nothing at all": ("", {"missing-name"}),
    "an exit while it is loaded": ("raise SystemExit(3)\n", {"exit"}),
    "a loop while it is loaded": ("while True: pass\n", {"hang"}),
    "a name that is no function": ("twice = 2\n", {"unusable", "raised"}),
}
ANSWERS = {name: (f"def twice(x):\n    {body}\n", ids) for name, (body, ids) in BODY.items()} | WHOLE


def users_of_processes() -> set[int]:
    """Of all that are not just waiting to be forgotten."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            status = (entry / "status").read_text() if entry.name.isdigit() else "\nState:\tZ"
            if "\nState:\tZ" not in status:
                found.add(entry.stat().st_uid)
    return found


@pytest.mark.parametrize("name", ANSWERS)
def test_a_hostile_answer_ends_with_a_message_and_leaves_nothing(name: str, course: Course, tmp_path: Path) -> None:
    """Within the time limit and a little; the folder of the learner is as it was, and so is the pool of ranks."""
    if free_user() is None and name in {"a fork bomb", "threads without end", "kill of everything"}:
        pytest.skip("limits on processes and signals bind another user; that takes root")
    code, messages = ANSWERS[name]
    exercise = course.exercise("L1.1")
    path = tmp_path / "L1_1.py"
    path.write_bytes(code.encode("utf-8", "surrogateescape"))
    before = sorted(tmp_path.iterdir())

    # To fill the memory that an answer may have takes nearly three seconds here.
    outcome = check(course, exercise, path, patience=1.5 if "memory" in messages else 0.6)

    assert not outcome.passed
    assert outcome.failed.message in messages, (outcome.failed.message, outcome.failed.got)
    assert outcome.failed.likely
    assert outcome.seconds < 12
    assert sorted(tmp_path.iterdir()) == before
    assert not {user for user in users_of_processes() if 61_200 <= user < 65_200}
    path.write_text(RIGHT)
    assert check(course, exercise, path).passed
