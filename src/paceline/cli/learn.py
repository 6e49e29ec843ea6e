"""`paceline learn`: the course. The work is done in `paceline.learn`."""

from __future__ import annotations

import typer

from paceline.cli import (
    learn_answer,
    learn_assess,
    learn_certificate,
    learn_folder,
    learn_hand_in,
    learn_instructor,
    learn_slides,
)
from paceline.records.errors import Exit

learn_app = typer.Typer(
    name="learn",
    help="The course: labs that run anywhere, exercises that are checked by running them.",
    epilog="Example: paceline learn start L1",
    no_args_is_help=True,
    rich_markup_mode=None,
)
learn_folder.add(learn_app)
learn_answer.add(learn_app)
learn_app.add_typer(learn_slides.slides_app)
learn_app.add_typer(learn_assess.assess_app)
learn_app.add_typer(learn_certificate.certificate_app)
learn_app.add_typer(learn_instructor.instructor_app)
learn_app.command("hand-in", epilog="Example: paceline learn hand-in --name p07")(learn_hand_in.hand_in)


@learn_app.command(epilog="Example: paceline learn doctor")
def doctor() -> None:
    """Try everything that the course needs on this machine. Exit code 1 when something is missing."""
    from paceline.learn.doctor import examine

    failed = False
    for part in examine():
        print(f"  {part.state:<5} {part.name:<13} {part.said}", flush=True)
        failed = failed or part.state == "no"
    if failed:
        raise typer.Exit(int(Exit.FAILED))
    print("\neverything that the course needs is there")
