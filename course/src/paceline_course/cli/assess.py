"""`paceline learn assess`: the assessment. The work is done in `paceline_course.assess`."""

from __future__ import annotations

import datetime
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.output_format import Format, OutputFormat
from paceline.records.errors import Exit, PacelineError
from paceline_course.cli.options import Patience

if TYPE_CHECKING:
    from paceline_course.assess.grade import Grade

Folder = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="Folder of the assessment. [default: this one, or ./assessment]"),
]


def grade(
    practice: Annotated[
        bool, typer.Option("--practice", help="Practice grading, as often as you like, with all feedback.")
    ] = False,
    final: Annotated[
        bool, typer.Option("--final", help="Final grading with fresh seeds, for the certificate; three a day.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Continue after a failed gate line.")] = False,
    until: Annotated[
        str, typer.Option(metavar="LINE", help="Last line to grade, for example A.oracle; with --practice.")
    ] = "",
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Use the numbers of an earlier practice.", min=0)
    ] = None,
    patience: Patience = 1.0,
    output_format: OutputFormat = Format.TEXT,
    directory: Folder = None,
) -> None:
    """Grade the submission in the folder.

    Exit code 1 when it does not pass.
    """
    if practice == final:
        raise PacelineError(
            "say which grading it is", hint="--practice, as often as you like; --final, for the certificate"
        )
    if final and (seed is not None or until):
        raise PacelineError(
            "a final grading draws its own seeds and has no last line", hint="--practice takes --seed and --until"
        )
    from paceline_course.assess.rubric import load_rubric
    from paceline_course.sandbox.quarantine import INSIDE

    folder = find_folder(directory)
    if until and until not in {line.id for line in load_rubric().lines}:
        raise PacelineError(f"there is no line {until}", hint=", ".join(line.id for line in load_rubric().lines))
    if INSIDE not in os.environ:
        if final:
            _begin_final(folder)
        raise typer.Exit(_quarantined(folder, "final" if final else "practice"))
    kind = "final" if final else "practice"
    results = Path(os.environ.get(RESULTS) or _results(folder, kind))
    found = _graded(folder, results, kind, every, until, seed, patience, quiet=output_format is Format.JSON)
    _tell(found, results, output_format)
    if not found.passed:
        raise typer.Exit(int(Exit.FAILED))


def start(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="New folder, or one that this command made.")] = Path(
        "assessment"
    ),
) -> None:
    """Make the folder of the assessment: the task, the single-device training and its results."""
    from paceline_course.assess.task_folder import DEFAULT
    from paceline_course.assess.task_folder import start as make

    made = make(folder)
    where = "" if folder == Path(DEFAULT) else f" --dir {shlex.quote(str(folder))}"
    print(f"{folder}: {len(made)} new file{'' if len(made) == 1 else 's'}\n")
    print(f"  read       {folder / 'TASK.md'}")
    print(f"  write in   {folder / 'train.py'}, {folder / 'config.toml'}, {folder / 'answers.toml'}")
    print(f"  check it   paceline learn assess --practice{where}")


def find_folder(directory: Path | None) -> Path:
    """The one named, else the one that we are in, else ./assessment.

    Raises:
        PacelineError: there is none.
    """
    from paceline_course.assess.task_folder import DEFAULT, STATE

    for folder in (directory,) if directory is not None else (Path.cwd(), Path.cwd() / DEFAULT):
        if folder is not None and (folder / STATE).is_file():
            return folder.resolve()
    raise PacelineError(
        f"{directory or Path.cwd()} is no folder of the assessment",
        hint="paceline learn assess start makes one; --dir names one",
    )


def _begin_final(folder: Path) -> None:
    """Note that a final begins; a folder that would be refused costs none of the three.

    Raises:
        PacelineError: the folder cannot be graded, or there were as many finals as a day may have.
    """
    from paceline_course.assess.rubric import load_rubric
    from paceline_course.assess.submission import freeze
    from paceline_course.assess.task_folder import begin_final

    with tempfile.TemporaryDirectory(prefix="paceline-grade-") as scratch:
        freeze(folder, Path(scratch) / "frozen")
    _no_link(folder / "graded")
    begin_final(folder, load_rubric().finals_a_day)


def _no_link(results: Path) -> None:
    """In a folder of somebody else a link could lead anywhere that whoever grades may write to."""
    if results.is_symlink():
        raise PacelineError(f"{results} is a link", hint="remove it: results are written into a folder of that name")


def _quarantined(folder: Path, kind: str) -> int:
    """This command again, in a quarantine that may write into the folder of its results only."""
    from paceline_course.sandbox.quarantine import judging_environment, run_quarantined

    results = _results(folder, kind)
    with tempfile.TemporaryDirectory(prefix="paceline-grade-") as scratch:
        words = [sys.executable, "-P", "-m", "paceline", *sys.argv[1:], "--dir", str(folder)]
        environment = {**judging_environment(), RESULTS: str(results)}
        code = run_quarantined(words, Path(scratch) / "s", env=environment, writes=[results])
    if not any(results.iterdir()):
        results.rmdir()
    if code in (Exit.INTERRUPTED, Exit.TERMINATED):
        sys.stderr.write("\nstopped; nothing was written, and no process is left\n")
    return code


RESULTS = "PACELINE_ASSESS_RESULTS"
"""Names the folder of the results to the process inside."""


def _results(folder: Path, kind: str) -> Path:
    _no_link(folder / "graded")
    now = f"{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}"
    number = 0
    while True:
        path = folder / "graded" / f"{now}_{kind}{f'-{number}' if number else ''}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise PacelineError(
                f"{path} cannot be made", why=error.strerror or str(error), exit_code=Exit.CANNOT_WRITE
            ) from error
        return path


def _graded(
    folder: Path, results: Path, kind: str, every: bool, until: str, seed: int | None, patience: float, *, quiet: bool
) -> Grade:
    if not quiet and sys.stderr.isatty():
        sys.stderr.write("loading torch ...")
        sys.stderr.flush()
    from paceline_course.assess.grader import Wish, grade_submission
    from paceline_course.assess.page.render import write_page
    from paceline_course.assess.rubric import load_rubric
    from paceline_course.assess.text import line_text

    rubric = load_rubric()
    live = not quiet and sys.stderr.isatty()

    def begun(name: str) -> None:
        if live:
            done = [line.id for line in rubric.lines].index(name)
            sys.stderr.write(f"\r\033[Kjudging {name}, line {done + 1} of {len(rubric.lines)} ...")
            sys.stderr.flush()

    def told(line: object) -> None:
        if live:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
        if not quiet:
            print(line_text(line), flush=True)  # type: ignore[arg-type]

    wish = Wish(
        kind="final" if kind == "final" else "practice",
        all_lines=every,
        until=until,
        seed=seed,
        patience=patience,
        begun=begun,
        told=told,
    )
    found = grade_submission(folder, results, wish)
    write_page(found, results / "report.html")
    return found


def _tell(found: Grade, results: Path, output_format: Format) -> None:
    from paceline_course.assess.text import as_text

    if output_format is Format.JSON:
        import msgspec

        print(msgspec.json.encode(found).decode())
        return
    print(f"\n{as_text(found, lines_too=False)}\n\n  report     {results / 'report.html'}")
    if found.kind == "final" and found.passed:
        print(f"  next       paceline learn certificate issue {results}")
    elif found.passed:
        print("  next       paceline learn assess --final")
