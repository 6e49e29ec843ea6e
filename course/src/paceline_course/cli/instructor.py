"""`paceline learn instructor`: what whoever teaches the course needs; done in `paceline_course.instructor`."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.output_format import Format, OutputFormat
from paceline.records.errors import PacelineError
from paceline_course.cli.options import TrackName

if TYPE_CHECKING:
    from paceline_course.checking import Message
    from paceline_course.content import Exercise

Class = Annotated[Path, typer.Argument(metavar="FOLDER", help="Class folder.")]


def roster(
    folder: Class,
    action: Annotated[
        str | None, typer.Argument(metavar="[import]", help="The word import, to add people from a file.")
    ] = None,
    source: Annotated[Path | None, typer.Argument(metavar="[FILE.csv]", help="CSV file to import.")] = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Show who is in the class, or import people from a CSV file.

    The first import makes the class folder. Columns: name, and optionally id and email.
    """
    from paceline_course.instructor.classroom import PRIVATE, Classroom, open_class
    from paceline_course.instructor.roster import import_people, read_roster

    if action not in (None, "import") or (action is None) != (source is None):
        raise PacelineError("roster takes a folder, or a folder, the word import, and a file",
                            hint="paceline learn instructor roster ./class import people.csv")  # fmt: skip
    if source is not None:
        done = import_people(Classroom(folder), source)
        people = done.people
        said = [f"{len(done.new)} new, {len(people)} in the class"]
        said += [f"{len(done.made)} ids were made, {done.made[0]} to {done.made[-1]}"] if done.made else []
        said += [f"not read: the columns {', '.join(done.ignored)}"] if done.ignored else []
        sys.stderr.write("\n".join([*said, PRIVATE]) + "\n")
    else:
        people = read_roster(open_class(folder))
    if output_format is Format.JSON:
        import msgspec

        print(json.dumps([msgspec.to_builtins(person) for person in people]))
        return
    width = max((len(person.id) for person in people), default=0)
    for person in people:
        print(f"{person.id:<{width}}  {person.name}" + (f"  {person.email}" if person.email else ""))
    if not people:
        print("nobody yet")


def handout(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Zip file to write.")] = Path("course.zip"),
    track: TrackName = None,
) -> None:
    """Make a zip for learners with notebooks, texts and starters, without solutions.

    The same course always gives the same bytes.
    """
    from paceline_course.content import load_course
    from paceline_course.instructor.handout import make_handout
    from paceline_course.overview import labs_of

    course = load_course()
    made = make_handout(course, labs_of(course, track), out, track)
    print(f"{made.path}: {made.files} files, sha256 {made.digest[:16]}")


def collect(
    folder: Class,
    sources: Annotated[
        list[Path], typer.Argument(metavar="SOURCE...", help="Zip files, progress.json files, or folders of them.")
    ],
    learner: Annotated[
        str | None, typer.Option("--as", metavar="ID", help="Id of the learner, if the file does not name it.")
    ] = None,
) -> None:
    """Add what learners handed in to the class folder.

    Exit code 1 when something was refused.
    """
    from paceline.records.errors import Exit
    from paceline_course.assess.text import visible
    from paceline_course.instructor.classroom import Classroom
    from paceline_course.instructor.collect import collect as take

    counts: dict[str, int] = {}
    for result in take(Classroom(folder), sources, learner):
        counts[result.state] = counts.get(result.state, 0) + 1
        whose = f" {result.learner}" if result.learner else ""
        name = visible(result.source.name, single=True)
        print(f"  {result.state:<8}{whose:<6} {name}: {result.said}", flush=True)
    print(", ".join(f"{count} {state}" for state, count in counts.items()) or "nothing was found to take")
    if counts.get("refused"):
        raise typer.Exit(int(Exit.FAILED))


def overview(
    folder: Class,
    track: TrackName = None,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Show ids instead of names.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Page to write. [default: overview.html in the folder]")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Write the page only.")] = False,
) -> None:
    """Show the class: progress, who is stuck and why, predictions, assessments.

    Printed as text and written as one page.
    """
    from paceline.records.rundir import write_atomic
    from paceline_course.content import load_course
    from paceline_course.instructor import overview
    from paceline_course.instructor.classroom import open_class
    from paceline_course.instructor.meaning import meaning
    from paceline_course.instructor.standing import look
    from paceline_course.overview import labs_of

    course, room = load_course(), open_class(folder)
    standing = look(room, course, labs_of(course, track))

    @functools.cache
    def means(exercise: str, message: str) -> Message | None:
        return meaning(course, course.exercise(exercise), message)

    def said(exercise: Exercise, message: str) -> Message | None:
        return means(exercise.id, message)

    page = out or folder / "overview.html"
    title = "The class" if anonymous else folder.resolve().name
    write_atomic(page, overview.as_page(standing, said, title, anonymous=anonymous).encode(errors="replace"))
    if not quiet:
        print(overview.as_text(standing, said, anonymous=anonymous))
    sys.stderr.write(f"written: {page}" + ("" if anonymous else ", with names") + "\n")
    if open_page:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def grade(
    folder: Class,
    only: Annotated[str | None, typer.Option(metavar="ID", help="Grade only this learner.")] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Grade again what was graded already; the older grade is kept.")
    ] = False,
    attest: Annotated[bool, typer.Option("--attest", help="Sign a certificate for each learner who passed.")] = False,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Your private key, for --attest.")] = None,
    issuer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Issuer's name on the certificates. [default: the key's]")
    ] = None,
) -> None:
    """Grade every collected assessment, one after the other.

    Each takes minutes. The command can be stopped and called again.
    """
    from paceline.records.errors import Exit
    from paceline_course.instructor import grading
    from paceline_course.instructor.classroom import open_class

    if attest != (key is not None):
        raise PacelineError(
            "--attest and --key go together", hint="paceline learn certificate key 'Your institute' makes a key"
        )
    sign = grading.attesting(key, issuer) if key is not None else None
    results = []
    room = open_class(folder)
    for done in grading.grade_class(room, grading.in_quarantine, only=only, again=again, attest=sign):
        results.append(done)
        said = f"{done.grade.result}, {done.grade.points:g} points" if done.grade is not None else done.said
        kept = " (graded before)" if done.state == "kept" else ""
        signed = f", certificate: {done.certificate}" if done.certificate is not None else ""
        print(f"  {done.person.id:<6} {done.person.name}: {said}{kept}{signed}", flush=True)
    print(f"\n{grading.summary(results)}")
    if any(done.state == "failed" for done in results):
        raise typer.Exit(int(Exit.FAILED))


def similarity(
    folder: Class,
    threshold: Annotated[
        float, typer.Option(metavar="X", help="List pairs of at least this similarity.", min=0.0, max=1.0)
    ] = 0.6,
    given: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Program that all learners started from. [default: the course's]"),
    ] = None,
) -> None:
    """List similar assessments and identical logs, as a hint where to look.

    Advisory only.
    """
    from paceline_course.content import course_folder
    from paceline_course.instructor.classroom import open_class
    from paceline_course.instructor.similarity import as_text, compare

    ours = course_folder() / "assessment" / "kit" / "train.py"
    if given is not None and not given.is_file():
        raise PacelineError(f"{given} is no file")
    print(as_text(compare(open_class(folder), given or (ours if ours.is_file() else None), threshold)))


def room(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[FOLDER]", help="Folder with the output of paceline learn doctor from each machine."),
    ] = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Check that every machine of the class is ready.

    Without a folder, prints the commands to run on each machine; with one, shows their results. Exit code 1 if a
    machine is not ready.
    """
    from paceline.records.errors import Exit
    from paceline_course.instructor.room import SCRIPT, as_text, read_room

    if folder is None:
        print(SCRIPT)
        return
    machines = read_room(folder)
    print(
        json.dumps({each.name: each.parts for each in machines}) if output_format is Format.JSON else as_text(machines)
    )
    if not all(machine.ready for machine in machines):
        raise typer.Exit(int(Exit.FAILED))
