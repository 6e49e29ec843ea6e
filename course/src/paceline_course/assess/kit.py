"""What is given to learners, and the grader's own copies of it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import torch

from paceline_course.answer_process import load_file
from paceline_course.assess.rubric import content_folder

GIVEN = ("signals.py", "sync_norm.py")
"""Files beside a submission's own; the grader's copies take the place of whatever is handed in."""
EVAL_SEED, JUDGED_SEED = 1_000_000, 2_000_000
"""Added to the seed of the training data: what the program evaluates on, and what it is judged on where nobody could
prepare for it anyway; a grading draws a multiple of its own instead of the second."""


def kit_folder() -> Path:
    """Where the given files stand."""
    return content_folder() / "kit"


@cache
def signals() -> ModuleType:
    """The grader's own copy of signals.py, as a module."""
    return load_file(kit_folder() / "signals.py", "paceline_assessment_signals")


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """Let torch's default floating-point type be float64 meanwhile, as --float64 does."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@cache
def grader_digest() -> str:
    """sha256 of the code that grades and of the content that it grades by, in the order of their names."""
    digest = hashlib.sha256()
    here, content = Path(__file__).parent, content_folder()
    solution = content / "solution"  # C.speed holds a submission against it
    for root, pattern in ((here, "**/*.py"), (content, "*.toml"), (content / "kit", "*.py"), (solution, "*.py")):
        for path in sorted(root.glob(pattern)):
            digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
