"""Text of lab 6."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__)


def program() -> str:
    """The program without a fault."""
    return _HERE.with_name("zoo.py").read_text(encoding="utf-8")


def causes() -> None:
    """The names of what can be wrong."""
    from paceline_course.checking import load_module

    checks = load_module(_HERE.with_name("checks.py"), "paceline_course_L6_checks")
    for name, what in checks.CAUSES.items():
        print(f"{name:<18} {what}")
