"""Layers: arrows point down only, help is quick and needs no torch, packages import nothing heavy."""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import rank_server

from paceline.cli.verbs import Group, every, find
from tests.contracts.verbs import HEAVY, NOT_FOR_HELP, modules_of_help, target_modules

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "paceline"
LIGHT = {"__future__", "typing", "collections", "dataclasses", "enum", "importlib"}

NOT_FOR_LISTS = NOT_FOR_HELP | {"typer", "msgspec", "dataclasses", "inspect", "re", "importlib.metadata"}
"""Help of the program and its groups comes from a static table."""


def verbs() -> list[list[str]]:
    """Every command of the command line, by the words that call it."""
    return [list(path) for path, _ in every()]


@pytest.mark.parametrize("words", verbs(), ids=lambda words: " ".join(["paceline", *words]))
def test_help_imports_little_and_only_the_verb_that_was_asked_for(words: list[str]) -> None:
    """No heavy module, nothing for pydantic, no other verb: what start-up costs, without a clock."""
    found = find(words)[1]

    loaded = modules_of_help(*words)

    listed = isinstance(found, Group) and found.itself is None
    assert loaded & (NOT_FOR_LISTS if listed else NOT_FOR_HELP) == set()
    assert len(loaded) <= (30 if listed else 250)
    if listed:
        return
    command = found.itself if isinstance(found, Group) else found
    own = {command.target.partition(":")[0]}
    shared = {"paceline.cli.data"} - own if words != ["data"] else set()
    assert loaded & target_modules() - shared == own - shared


def test_all_verbs_were_found() -> None:
    """The list above is not empty by accident."""
    assert {words[0] for words in verbs() if words} >= {"train", "run", "report", "data"}


@pytest.mark.serial
@pytest.mark.parametrize(
    ("words", "most_s"), [([], 0.2), (["train"], 0.35), (["run"], 0.35), (["plan", "speed"], 0.35), (["report"], 0.35)]
)
def test_help_takes_little_processor_time(words: list[str], most_s: float) -> None:
    """The least of five; the modules counted above are what it is made of."""
    spent = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "paceline", *words, "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    assert min(spent) <= most_s


def test_the_layers_hold() -> None:
    """Every contract of pyproject.toml, by import-linter, on the sources as they stand."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout
    for contract in contracts:
        name = " ".join(contract["name"].split())
        assert f"{name} KEPT" in " ".join(done.stdout.split())


def imported(path: Path) -> set[str]:
    """Top-level names of all modules that a file imports, at any depth of its code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


PACKAGES = sorted(SOURCE.rglob("__init__.py"))


@pytest.mark.parametrize("path", PACKAGES, ids=lambda path: str(path.relative_to(SOURCE.parent).parent))
def test_a_package_imports_nothing_heavy(path: Path) -> None:
    """import-linter counts lazy imports, too, so there is none of those either."""
    heavy = {name for name in imported(path) if name.split(".")[0] not in LIGHT}

    assert heavy == set()
    assert len(PACKAGES) > 8


def test_relative_imports_are_not_used() -> None:
    """One spelling for each module, so that layers can be read from the imports."""
    relative = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
    ]

    assert relative == []


def test_no_module_imports_at_a_lower_layer_what_only_the_command_line_may() -> None:
    """typer and rich, read from the text: an independent look at import-linter's own contract."""
    drawing = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if {name.split(".")[0] for name in imported(path)} & {"typer", "rich", "click"}
        and path.relative_to(SOURCE).parts[0] != "cli"
    ]

    assert drawing == []


COMMAND = """
import sys
from paceline.cli.main import call
sys.argv[0] = "paceline"
code = call(sys.argv[1:])
print(code, "torch" in sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        "train digits --epochs 1 --workers 2",
        "landscape digits --measure eigenvalues --curvature-samples 50 --workers 1",
        "plan batch digits --target accuracy=0.3 --seeds 1 --train-workers 1",
        "plan data digits --fractions 1/8,1/4,1/2,1 --epochs 1 --seeds 1 --workers 1",
    ],
)
def test_a_command_that_starts_ranks_never_imports_torch(arguments: str, tmp_path: Path) -> None:
    """It parses, checks and draws while the fork server loads torch; tasks are loaded in other processes."""
    command = [sys.executable, "-c", COMMAND, *arguments.split(), "--run-dir", "r", "--format", "json"]
    with rank_server().lent() as (lent, numbers):
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | lent,
            pass_fds=numbers,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    assert done.stderr.splitlines()[-1] == "0 False", done.stderr


def test_a_training_rank_loads_no_library_that_only_some_trainings_need() -> None:
    """scipy alone takes 0.2 s, on every rank, and a monitor of sharpness is rare."""
    script = "import sys, paceline.train.worker; print(*sorted({name.split('.')[0] for name in sys.modules}))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert set(done.stdout.split()) & (HEAVY - {"torch", "numpy", "safetensors"}) == set()
