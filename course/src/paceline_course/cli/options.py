"""What the commands of `paceline learn` have in common: their options, and the learner's folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from paceline_course.workspace import Workspace

Dir = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="Course folder. [default: this one, or ./paceline-course]")
]
TrackName = Annotated[
    str | None,
    typer.Option("--track", metavar="NAME", help="Only the labs of this track: half-day, one-day or two-days."),
]
Name = Annotated[str, typer.Argument(metavar="EXERCISE", help="Exercise id, for example L4.2.")]
Patience = Annotated[
    float, typer.Option(metavar="X", help="Multiply all time limits by this, for slow machines.", min=0.1, max=100)
]


def open_workspace(folder: Path | None) -> Workspace:
    """The learner's folder.

    Raises:
        PacelineError: there is none.
    """
    from paceline_course.content import load_course
    from paceline_course.workspace import find_workspace

    return find_workspace(load_course(), folder)
