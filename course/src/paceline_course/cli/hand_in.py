"""`paceline learn hand-in`: what a learner sends to whoever teaches."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline_course.cli.options import Dir, open_workspace

_SHOWN = 10


def hand_in(
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Zip file to write. [default: hand-in.zip, with the name]")
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Your id in the class, or your name, which is written into the zip.")
    ] = "",
    directory: Dir = None,
) -> None:
    """Pack progress, answers and the assessment into one zip for your teacher.

    Nothing is sent.
    """
    from paceline.records.rundir import slug
    from paceline_course.instructor.hand_in import make_hand_in

    workspace = open_workspace(directory)
    made = make_hand_in(workspace, out or Path(f"hand-in-{slug(name)}.zip" if name else "hand-in.zip"), name)
    kind = "with the assessment" if made.assessment else "no assessment in it"
    print(f"{made.path}: {made.files} files, {made.size / 1024:.0f} KiB, {kind}")
    for each in made.left[:_SHOWN]:
        print(f"  left out: {each} (a link, too large, an odd name, or neither code nor text)")
    if len(made.left) > _SHOWN:
        print(f"  left out: {len(made.left) - _SHOWN} more")
    print("nothing was sent: give this file to your teacher")
