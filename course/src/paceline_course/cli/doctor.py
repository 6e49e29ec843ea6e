"""`paceline learn doctor`: is everything that the course needs on this machine? Done in `paceline_course.doctor`."""

from __future__ import annotations

import typer

from paceline.records.errors import Exit


def doctor() -> None:
    """Check this machine for everything that the course needs.

    Exit code 1 when something is missing.
    """
    from paceline_course.doctor import examine

    failed = False
    for part in examine():
        print(f"  {part.state:<5} {part.name:<13} {part.said}", flush=True)
        failed = failed or part.state == "no"
    if failed:
        raise typer.Exit(int(Exit.FAILED))
    print("\neverything that the course needs is there")
