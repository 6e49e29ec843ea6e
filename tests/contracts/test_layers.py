"""Layers: arrows point down only, help is quick and needs no torch, packages import nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "paceline"
LIGHT = {"__future__", "typing", "collections", "dataclasses", "enum", "importlib"}

HELP = """
import sys
from paceline.cli.main import call
code = call(sys.argv[1:])
sys.stdout.flush()
heavy = sorted({"torch", "torchvision", "numpy", "sklearn", "plotly", "safetensors"} & set(sys.modules))
sys.exit(code or ("loaded: " + ", ".join(heavy) if heavy else 0))
"""


def verbs() -> list[list[str]]:
    """Every command of the command line, by the words that call it."""
    import typer.main

    from paceline.cli.main import build_app

    def below(command: object, words: list[str]) -> list[list[str]]:
        found = [words]
        for name, inner in getattr(command, "commands", {}).items():
            found += below(inner, [*words, name])
        return found

    return below(typer.main.get_command(build_app()), [])


@pytest.mark.parametrize("words", verbs(), ids=lambda words: " ".join(["paceline", *words]))
def test_help_of_every_verb_works_without_torch(words: list[str]) -> None:
    """Nor any other heavy module; it says how it is used."""
    done = subprocess.run(
        [sys.executable, "-c", HELP, *words, "--help"], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout.lower()
    assert done.stderr == ""


def test_all_verbs_were_found() -> None:
    """The list above is not empty by accident."""
    assert {words[0] for words in verbs() if words} >= {"train", "run", "report", "data"}


@pytest.mark.serial
@pytest.mark.parametrize(
    "words", [[], ["train"], ["run"], ["plan", "speed"], ["report"]], ids=lambda words: " ".join(["paceline", *words])
)
def test_help_is_quick(words: list[str]) -> None:
    """The best of five in well under a second; the promise is 0.3 s, on a machine with nothing else to do."""
    spent = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "paceline", *words, "--help"], capture_output=True, check=True)
        spent.append(time.perf_counter() - began)

    assert min(spent) < 1.0


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
