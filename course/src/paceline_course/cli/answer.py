"""`paceline learn` check, watch, run, hint, solution, quiz: what is done with an answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.output_format import Format, OutputFormat
from paceline.records.errors import Exit, PacelineError
from paceline_course.cli.options import Dir, Name, Patience, open_workspace

if TYPE_CHECKING:
    from paceline_course.content import Exercise
    from paceline_course.outcome import Outcome
    from paceline_course.workspace import Workspace


def check(
    name: Annotated[
        str | None, typer.Argument(metavar="EXERCISE", help="Exercise id, for example L4.2. [default: the next one]")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Use the random numbers of an earlier check.")] = None,
    patience: Patience = 1.0,
    output_format: OutputFormat = Format.TEXT,
    directory: Dir = None,
) -> None:
    """Run your answer on fresh random numbers and report what is right and wrong.

    Exit code 1 when it is not right.
    """
    workspace = open_workspace(directory)
    exercise = _named(workspace, name)
    outcome = _check(workspace, exercise, seed, patience, quiet=output_format is Format.JSON)
    if output_format is Format.JSON:
        import msgspec

        print(json.dumps(msgspec.to_builtins(outcome)))
    if not outcome.passed:
        raise typer.Exit(int(Exit.FAILED))


def _named(workspace: Workspace, name: str | None) -> Exercise:
    from paceline_course.overview import next_exercise

    if name is not None:
        return workspace.course.exercise(name)
    with workspace.progress() as known:
        found = next_exercise(workspace.course.labs, known)
    if found is None:
        raise PacelineError("all exercises are solved", hint="name one to check it again: paceline learn check L1.1")
    return found


def _check(workspace: Workspace, exercise: Exercise, seed: int | None, patience: float, *, quiet: bool) -> Outcome:
    from paceline_course.outcome import as_text
    from paceline_course.runner import check as run_check
    from paceline_course.runner import make_ready

    if not quiet and sys.stderr.isatty():
        sys.stderr.write("loading torch ...\r")
    make_ready()

    def told(statement: str) -> None:
        if not quiet and sys.stderr.isatty():
            sys.stderr.write(f"\r\033[Kchecking: {statement}")
            sys.stderr.flush()

    outcome = run_check(workspace.course, exercise, workspace.file(exercise), seed=seed, patience=patience, told=told)
    workspace.record(outcome)
    if not quiet:
        if sys.stderr.isatty():
            sys.stderr.write("\r\033[K")
        print(as_text(outcome))
        if outcome.passed:
            print(f"  how we did it, and why: paceline learn solution {exercise.id}")
            print(f"  next: {_following(workspace)}")
    return outcome


def _following(workspace: Workspace) -> str:
    from paceline_course.overview import next_exercise

    with workspace.progress() as known:
        found = next_exercise(workspace.course.labs, known)
    return "all labs are done" if found is None else f"{found.id} · {found.title}, paceline learn next"


def watch(
    name: Annotated[
        str | None, typer.Argument(metavar="EXERCISE", help="Exercise id. [default: all exercises]")
    ] = None,
    patience: Patience = 1.0,
    directory: Dir = None,
) -> None:
    """Check an exercise whenever its file is saved.

    Ctrl-C ends it.
    """
    from paceline_course.runner import make_ready
    from paceline_course.watch import changes

    workspace = open_workspace(directory)
    only = workspace.course.exercise(name) if name is not None else None
    make_ready()
    print(f"watching {workspace.file(only) if only else workspace.work}; save to check, Ctrl-C to end", flush=True)
    for exercise in changes(workspace, only):
        print()
        _check(workspace, exercise, None, patience, quiet=False)
        sys.stdout.flush()


def run_file(
    name: Name,
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments for your file, after --.")] = None,
    workers: Annotated[
        int, typer.Option(metavar="N", help="Number of processes, started as torchrun does.", min=1)
    ] = 1,
    directory: Dir = None,
) -> None:
    """Run your file as a program, without checking it."""
    workspace = open_workspace(directory)
    exercise = workspace.course.exercise(name)
    code = _launch(workspace.file(exercise), workspace.path, workers, arguments or [])
    if code:
        raise typer.Exit(code)


def _launch(path: Path, folder: Path, workers: int, arguments: Sequence[str]) -> int:
    words = [sys.executable, str(path), *arguments]
    if workers > 1:
        words = [sys.executable, "-m", "paceline", "run", "--standalone", f"--nproc-per-node={workers}"]
        words += [str(path), *arguments]
    return subprocess.run(words, check=False, cwd=folder).returncode


def hint(name: Name, directory: Dir = None) -> None:
    """Show the next of three hints.

    The first is a question, the second the idea, the third nearly the line.
    """
    from paceline_course.plain import plain

    workspace = open_workspace(directory)
    number, text = workspace.next_hint(workspace.course.exercise(name))
    print(f"hint {number} of 3\n\n{plain(text)}")


def solution(name: Name, directory: Dir = None) -> None:
    """Show our answer, once yours has passed or you have seen all hints."""
    from paceline_course.plain import plain

    workspace = open_workspace(directory)
    exercise = workspace.course.exercise(name)
    found = workspace.solution(exercise)
    if found is None:
        raise PacelineError(
            f"{exercise.id} is not solved yet", hint=f"paceline learn hint {exercise.id}: after three hints this opens"
        )
    print(f"{found[0]}\n\n{plain(found[1])}")


def quiz(
    lab: Annotated[str, typer.Argument(metavar="LAB", help="Lab id, for example L4.")],
    seed: Annotated[int | None, typer.Option(metavar="N", help="Use the numbers of an earlier try.")] = None,
    answers: Annotated[
        str | None,
        typer.Option(metavar="TEXT,...", help="All answers at once, separated by commas, for the numbers of --seed."),
    ] = None,
    directory: Dir = None,
) -> None:
    """Answer five questions with computed answers.

    Each try has other numbers.
    """
    from paceline_course.quiz import ask, draw_quiz

    workspace = open_workspace(directory)
    found = workspace.course.lab(lab)
    seed, questions = draw_quiz(workspace.course, found, seed)
    given = [word.strip() for word in answers.split(",")] if answers is not None else None
    try:
        right = ask(questions, lambda number: _answer(given, number), print)
    except EOFError:
        raise PacelineError(
            "the quiz was left before its end", hint="nothing is noted; try again when you like"
        ) from None
    workspace.record_quiz(found, right, len(questions))
    print(f"\n{right} of {len(questions)} right · the same numbers again: --seed {seed}")


def _answer(given: list[str] | None, number: int) -> str:
    if given is not None:
        return given[number] if number < len(given) else ""
    return input("   your answer: ")
