"""`paceline learn instructor survey`: a form, and what its answers say. Done in `paceline.learn.instructor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

survey_app = typer.Typer(
    name="survey",
    help="What the class thinks: a form that saves a file, and a summary of such files. No server, no names.",
    epilog="Example: paceline learn instructor survey form --out survey",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@survey_app.command(epilog="Example: paceline learn instructor survey form --out survey --class ./class")
def form(
    out: Annotated[Path, typer.Option(help="The folder to write into.")] = Path("survey"),
    folder: Annotated[
        Path | None, typer.Option("--class", help="A class's folder: a text file for each id of its roster.")
    ] = None,
) -> None:
    """Write the form: a page that saves an answer file, and the same as a text file to be filled in."""
    from paceline.learn.instructor.classroom import open_class
    from paceline.learn.instructor.roster import read_roster
    from paceline.learn.instructor.survey import write_form

    learners = [person.id for person in read_roster(open_class(folder))] if folder is not None else []
    made = write_form(out, learners)
    print(f"{out}: survey.html and {len(made) - 1} text file{'' if len(made) == 2 else 's'}")


@survey_app.command(epilog="Example: paceline learn instructor survey summary survey/")
def summary(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Holds the answer files.")],
    out: Annotated[Path | None, typer.Option(help="The page. [default: survey-summary.html in the folder]")] = None,
) -> None:
    """What the answers say: counts, medians, the change from before to after, texts without names."""
    from paceline.learn.instructor.survey import read_answers
    from paceline.learn.instructor.survey_summary import as_page, as_text, summarise
    from paceline.records.rundir import write_atomic

    found = summarise(read_answers(folder))
    page = out or folder / "survey-summary.html"
    write_atomic(page, as_page(found).encode(errors="replace"))
    print(as_text(found))
    print(f"\nwritten: {page}")
