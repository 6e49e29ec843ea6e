"""`paceline learn instructor survey`: a form, and what its answers say. Done in `paceline_course.instructor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def form(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write into.")] = Path("survey"),
    folder: Annotated[
        Path | None,
        typer.Option("--class", metavar="DIR", help="Class folder, to write one text file for each id of its roster."),
    ] = None,
) -> None:
    """Write the form as a page that saves an answer file, and as a text file."""
    from paceline_course.instructor.classroom import open_class
    from paceline_course.instructor.roster import read_roster
    from paceline_course.instructor.survey import write_form

    learners = [person.id for person in read_roster(open_class(folder))] if folder is not None else []
    made = write_form(out, learners)
    print(f"{out}: survey.html and {len(made) - 1} text file{'' if len(made) == 2 else 's'}")


def summary(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the answer files.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Page to write. [default: survey-summary.html in the folder]")
    ] = None,
) -> None:
    """Summarize the answers: counts, medians, changes from before to after, and texts without names."""
    from paceline.records.rundir import write_atomic
    from paceline_course.instructor.survey import read_answers
    from paceline_course.instructor.survey_summary import as_page, as_text, summarise

    found = summarise(read_answers(folder))
    page = out or folder / "survey-summary.html"
    write_atomic(page, as_page(found).encode(errors="replace"))
    print(as_text(found))
    print(f"\nwritten: {page}")
