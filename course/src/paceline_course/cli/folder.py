"""`paceline learn` start, list, next, reset, status: the learner's folder and how far they are."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from paceline.cli.output_format import Format, OutputFormat
from paceline.records.errors import PacelineError
from paceline_course.cli.options import Dir, Name, TrackName, open_workspace


def start(
    lab: Annotated[
        str | None, typer.Argument(metavar="LAB", help="Lab id, for example L1. [default: all labs]")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Course folder. [default: ./paceline-course]")
    ] = None,
    jupyter: Annotated[bool, typer.Option("--jupyter/--no-jupyter", help="Open JupyterLab.")] = False,
) -> None:
    """Make the course folder: notebooks, and one plain file per exercise.

    Files that you have written are never overwritten.
    """
    from paceline_course.content import load_course
    from paceline_course.workspace import DEFAULT, find_workspace, start_workspace

    course = load_course()
    labs = [course.lab(lab)] if lab is not None else course.labs
    try:
        workspace = find_workspace(course, directory)
    except PacelineError:
        workspace = start_workspace(course, directory or DEFAULT)
    made = [path for each in labs for path in workspace.lay_out(each)]
    if lab is not None:
        with workspace.progress() as known:
            known.lab = labs[0].id
    print(f"{workspace.path}: {len(made)} new file{'' if len(made) == 1 else 's'}")
    first = labs[0]
    notebook = workspace.path / first.notebook_name
    if jupyter:
        _open_jupyter(workspace.path, notebook)
        return
    print(f"\n  notebook   jupyter lab {notebook}")
    if first.exercises:
        print(f"  editor     {workspace.file(first.exercises[0])}, and: paceline learn watch {first.exercises[0].id}")
    print("  terminal   paceline learn next")


def _open_jupyter(folder: Path, notebook: Path) -> None:
    if shutil.which("jupyter-lab") is None and not (Path(sys.executable).parent / "jupyter-lab").exists():
        raise PacelineError("JupyterLab is not installed", hint="pip install ./course")
    subprocess.run([sys.executable, "-m", "jupyterlab", str(notebook)], cwd=folder, check=False)


def list_labs(track: TrackName = None, directory: Dir = None) -> None:
    """List all labs and exercises, and which are solved."""
    from paceline_course.content import load_course
    from paceline_course.overview import labs_of, list_text
    from paceline_course.progress import Progress

    course = load_course()
    try:
        with open_workspace(directory).progress() as known:
            print(list_text(labs_of(course, track), known))
    except PacelineError:
        if directory is not None:
            raise
        print(list_text(labs_of(course, track), Progress()))
    if course.assessment is not None:
        print(f"\nA    The assessment  ({course.assessment.minutes} min)\n     paceline learn assess start")


def next_one(track: TrackName = None, directory: Dir = None) -> None:
    """Show the first unsolved exercise: its task and its file."""
    from paceline_course.overview import labs_of, next_exercise
    from paceline_course.plain import plain, without_title

    workspace = open_workspace(directory)
    with workspace.progress() as known:
        exercise = next_exercise(labs_of(workspace.course, track), known)
    if exercise is None:
        print("all labs are done: the last exercise of each has passed")
        return
    workspace.lay_out(workspace.course.lab_of(exercise))
    print(f"{exercise.id} · {exercise.title}  ({exercise.minutes} min)\n")
    print(plain(without_title(workspace.material(exercise).task)))
    lab = workspace.course.lab_of(exercise)
    print(f"\n  read       {workspace.path / lab.text_name}\n  write in   {workspace.file(exercise)}")
    print(f"  check it   paceline learn check {exercise.id}")


def reset(name: Name, directory: Dir = None) -> None:
    """Restore the starter of an exercise and keep a copy of yours."""
    workspace = open_workspace(directory)
    exercise = workspace.course.exercise(name)
    kept = workspace.reset(exercise)
    print(f"{workspace.file(exercise)} is the starter again" + (f"; yours is {kept.name}" if kept is not None else ""))


def status(
    track: TrackName = None,
    merge: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Add the progress of another progress.json.")
    ] = None,
    output_format: OutputFormat = Format.TEXT,
    directory: Dir = None,
) -> None:
    """Show your progress."""
    from paceline_course import progress
    from paceline_course.overview import labs_of, status_text

    workspace = open_workspace(directory)
    labs = labs_of(workspace.course, track)
    with progress.changing(workspace.progress_file, workspace.course.version) as (known, note):
        if merge is not None:
            if not merge.is_file():
                raise PacelineError(f"{merge} is no file")
            merged = progress.merge(known, progress.read(merge)[0])
            known.exercises, known.quizzes = merged.exercises, merged.quizzes
            known.predictions, known.started_at = merged.predictions, merged.started_at
        shown = json.dumps(progress.plain(known)) if output_format is Format.JSON else status_text(labs, known)
    if note:
        sys.stderr.write(f"note: {note}\n")
    print(shown)


def workshop(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="New folder, or one that this command made.")],
) -> None:
    """Lay out the original workshop's notebooks and decks under their own names."""
    from paceline_course.content import load_course
    from paceline_course.workshop import lay_out

    made = lay_out(load_course(), folder, lambda said: print(f"slides {said}", file=sys.stderr))
    print(f"{folder}: {len(made)} new file{'' if len(made) == 1 else 's'}; README.md says what is what")
