"""From what a user typed to a Task, and every way in which a user's file can be wrong."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from paceline.records.errors import PacelineError
from paceline.tasks.table import BUILT_IN, TaskOptions
from paceline.tasks.task import Task
from paceline.tasks.task_loader import load_task

GOOD = """
from torch import nn
import numpy as np
from paceline.tasks.task import Arrays, Loss, Task

def make(name="mine"):
    return Task(name, nn.Identity, lambda m, b: Loss(b.sum(), 1), Arrays(np.zeros(3)), Arrays(np.zeros(2)))
"""


@pytest.fixture(autouse=True)
def _no_traces():
    """Loading a file leaves its directory on the path and its module loaded, as it should for a run."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("paceline_user_task_"):
            del sys.modules[name]


@pytest.fixture
def written(tmp_path):
    """Writes a task file and gives its path."""

    def write(text: str, name: str = "my_task.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


def refused(path: Path, options: TaskOptions | None = None) -> PacelineError:
    """The error that loading gives."""
    with pytest.raises(PacelineError) as caught:
        load_task(str(path), options or TaskOptions())
    assert caught.value.exit_code == 2
    return caught.value


def test_a_users_file_gives_its_task(written) -> None:
    """One function, no base class."""
    path = written(GOOD + "\ndef task():\n    return make()\n")

    task = load_task(str(path), TaskOptions())

    assert isinstance(task, Task)
    assert (task.name, len(task.train_data), len(task.eval_data)) == ("mine", 3, 2)


def test_a_users_file_may_import_its_neighbours_and_hold_dataclasses(written) -> None:
    """As when it is run by python itself; classes find their module again (DataLoader workers pickle them)."""
    written("NAME = 'from next door'", "neighbour_of_task.py")
    path = written(
        GOOD
        + """
import pickle
from dataclasses import dataclass
from neighbour_of_task import NAME

@dataclass
class Point:
    x: int

def task():
    assert pickle.loads(pickle.dumps(Point(3))) == Point(3)
    return make(NAME)
"""
    )

    assert load_task(str(path), TaskOptions()).name == "from next door"
    sys.modules.pop("neighbour_of_task")


def test_options_reach_a_task_by_the_names_of_its_parameters(written) -> None:
    """Those it takes, given or default; no others."""
    path = written(
        GOOD + "\ndef task(augment, label_smoothing=9.0):\n    return make(f'{augment} {label_smoothing}')\n"
    )

    plain = load_task(str(path), TaskOptions())
    given = load_task(str(path), TaskOptions(augment=("flip",), label_smoothing=0.1))

    assert plain.name == "() 0.0"
    assert given.name == "('flip',) 0.1"


def test_an_option_that_a_task_does_not_take_is_refused(written) -> None:
    """Silence would be a wrong result; what it does take is listed."""
    path = written(GOOD + "\ndef task(label_smoothing):\n    return make()\n")

    error = refused(path, TaskOptions(width=2.0))

    assert error.what == f"the task {path} does not take --width"
    assert "--label-smoothing" in error.hint


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("digits", {"width": 2.0}),
        ("digits", {"augment": ("crop",)}),
        ("linear", {"label_smoothing": 0.1}),
        ("fashion-mnist", {"width": 1.0}),
    ],
)
def test_built_in_tasks_refuse_options_too(name: str, options: dict[str, object]) -> None:
    """Before any data are looked for."""
    with pytest.raises(PacelineError, match=f"the task {name} does not take --") as caught:
        load_task(name, TaskOptions(**options))

    assert all("--" + o.replace("_", "-") in caught.value.hint for o in BUILT_IN[name].options)


def test_where_the_data_are_is_no_option_that_has_to_be_taken() -> None:
    """--data-dir is for tasks that need data."""
    assert load_task("linear", TaskOptions(data_dir="/nowhere")).name == "linear"


def test_a_file_that_raises_is_said_with_its_line(written) -> None:
    """The line in the user's file, not in ours and not in a library."""
    path = written("import json\n\nx = json.loads('no')\n")

    error = refused(path)

    assert error.what == f"{path}, line 3: it cannot be imported"
    assert error.why.startswith("JSONDecodeError: Expecting value")
    assert error.hint.endswith(f" {path} shows it without paceline")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1 / 0\n", "ZeroDivisionError"),
        ("def task():\n    return 1 / 0\n", "ZeroDivisionError"),
        ("import next_door\ndef task(label_smoothing):\n    assert label_smoothing, 'needs some'\n", "needs some"),
    ],
)
@pytest.mark.parametrize("name", ["my_task.py", "my-task 2.py"])
def test_the_command_that_an_error_advises_shows_it(written, text: str, words: str, name: str, monkeypatch) -> None:
    """Typed as it stands, in the directory of the file and in another; with what task() was called with."""
    written("", "next_door.py")
    path = written(text, name)
    monkeypatch.chdir(path.parent)

    for spelled in (path, Path(name)):
        command = refused(spelled).hint.removesuffix(" shows it without paceline")
        shown = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)

        assert shown.returncode != 0
        assert words in shown.stderr
        assert "Traceback" in shown.stderr


def test_a_task_function_that_raises_is_said_with_its_line(written) -> None:
    """The innermost line of the user's file."""
    path = written("def helper():\n    return 1 / 0\n\ndef task():\n    return helper()\n")

    error = refused(path)

    assert error.what == f"{path}, line 2: task() failed"
    assert error.why == "ZeroDivisionError: division by zero"


def test_a_syntax_error_is_said_with_its_line(written) -> None:
    """Of the file itself."""
    path = written("x = 1\ndef task(:\n    pass\n")

    error = refused(path)

    assert error.what == f"{path}, line 2: it cannot be imported"
    assert error.why.startswith("SyntaxError")


def test_a_syntax_error_next_door_is_said_with_the_line_that_imports_it(written) -> None:
    """The number belongs to the file that is named; the reason names the other file."""
    written("\n\n\n\n\nx = = 1\n", "broken_next_door.py")
    path = written("\nimport broken_next_door\n")

    error = refused(path)

    assert error.what == f"{path}, line 2: it cannot be imported"
    assert "broken_next_door.py, line 6" in error.why


def test_a_script_that_ends_itself_is_a_failure_of_the_file(written) -> None:
    """sys.exit() at import must not end the run without a word."""
    path = written("import sys\nsys.exit('usage: me')\n")

    error = refused(path)

    assert error.what == f"{path}, line 2: it cannot be imported"
    assert error.why == "SystemExit: usage: me"


@pytest.mark.parametrize("text", ["", "task = 3\n", "def tasks():\n    pass\n"])
def test_a_file_without_task_is_told_how_to_write_it(written, text: str) -> None:
    """Missing, misspelt, or no function."""
    path = written(text)

    error = refused(path)

    assert error.what == f"{path} has no function task()"
    assert "def task() -> Task:" in error.hint


@pytest.mark.parametrize(("value", "kind"), [("None", "NoneType"), ("{'a': 1}", "dict"), ("make", "function")])
def test_a_task_function_that_returns_something_else_is_refused(written, value: str, kind: str) -> None:
    """Its type is named."""
    path = written(GOOD + f"\ndef task():\n    return {value}\n")

    assert refused(path).what == f"task() in {path} returned {kind}, not a Task"


def test_a_parameter_that_no_option_fills_is_a_failure_of_task(written) -> None:
    """Python's own words say which one."""
    path = written(GOOD + "\ndef task(colour):\n    return make()\n")

    error = refused(path)

    assert "task() failed" in error.what
    assert "colour" in error.why


def test_an_error_in_words_passes_as_it_is(written) -> None:
    """A task that raises PacelineError knows better what to say."""
    path = written(
        "from paceline.records.errors import PacelineError\ndef task():\n    raise PacelineError('buy more disks')\n"
    )

    assert refused(path).what == "buy more disks"


def test_columns_that_do_not_fit_are_said_with_the_line(written) -> None:
    """A ValueError of Arrays, raised from the user's line."""
    path = written("import numpy as np\nfrom paceline.tasks.task import Arrays\ndef task():\n"
                   "    return Arrays(np.zeros(2), np.zeros(3))\n")  # fmt: skip

    error = refused(path)

    assert error.what == f"{path}, line 4: task() failed"
    assert "different lengths: [2, 3]" in error.why


@pytest.mark.parametrize(
    ("spec", "meant"),
    [("digit", "did you mean digits?"), ("fashion-minst", "did you mean fashion-mnist?"), ("zzz", "built-in tasks: ")],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(spec: str, meant: str) -> None:
    """And with all legal ones."""
    with pytest.raises(PacelineError, match=f"unknown task {spec}") as caught:
        load_task(spec, TaskOptions())

    assert caught.value.hint.startswith(meant)
    assert all(name in caught.value.hint for name in BUILT_IN)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """A directory of that name is no file either."""
    (tmp_path / "folder.py").mkdir()

    for name in ("missing.py", "folder.py"):
        assert refused(tmp_path / name).what == f"there is no task file {tmp_path / name}"
