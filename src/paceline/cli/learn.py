"""`paceline learn`: the course. Everything that a learner types; the work is done in `paceline.learn`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.records.errors import Exit, PacelineError

if TYPE_CHECKING:
    from paceline.learn.content import Exercise
    from paceline.learn.outcome import Outcome
    from paceline.learn.workspace import Workspace

learn_app = typer.Typer(
    name="learn",
    help="The course: labs that run anywhere, exercises that are checked by running them.",
    epilog="Example: paceline learn start L1",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Dir = Annotated[Path | None, typer.Option("--dir", help="The course folder. [default: this one, or ./paceline-course]")]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON object instead.")]
TrackName = Annotated[str | None, typer.Option("--track", help="Only the labs of this track.")]
Name = Annotated[str, typer.Argument(metavar="EXERCISE", help="Its id, as L4.2.")]


def _workspace(folder: Path | None) -> Workspace:
    from paceline.learn.content import load_course
    from paceline.learn.workspace import find_workspace

    return find_workspace(load_course(), folder)


@learn_app.command(epilog="Example: paceline learn start L1 --jupyter")
def start(
    lab: Annotated[str | None, typer.Argument(metavar="LAB", help="As L1; all labs when it is left out.")] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="The course folder. [default: ./paceline-course]")
    ] = None,
    jupyter: Annotated[bool, typer.Option("--jupyter/--no-jupyter", help="Open JupyterLab.")] = False,
) -> None:
    """Make the course folder: notebooks, and one plain file an exercise. What you wrote is never overwritten."""
    from paceline.learn.content import load_course
    from paceline.learn.workspace import DEFAULT, find_workspace, start_workspace

    course = load_course()
    labs = [course.lab(lab)] if lab is not None else course.labs
    try:
        workspace = find_workspace(course, directory)
    except PacelineError:
        workspace = start_workspace(course, directory or DEFAULT)
    made = [path for each in labs for path in workspace.lay_out(each)]
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
        raise PacelineError("JupyterLab is not installed", hint="pip install 'paceline[learn]'")
    subprocess.run([sys.executable, "-m", "jupyterlab", str(notebook)], cwd=folder, check=False)


@learn_app.command("list", epilog="Example: paceline learn list --track one-day")
def list_labs(track: TrackName = None, directory: Dir = None) -> None:
    """All labs and exercises, and which are solved."""
    from paceline.learn.content import load_course
    from paceline.learn.overview import labs_of, list_text
    from paceline.learn.progress import Progress

    course = load_course()
    try:
        with _workspace(directory).progress() as known:
            print(list_text(labs_of(course, track), known))
    except PacelineError:
        if directory is not None:
            raise
        print(list_text(labs_of(course, track), Progress()))


@learn_app.command("next", epilog="Example: paceline learn next")
def next_one(track: TrackName = None, directory: Dir = None) -> None:
    """The first exercise that is not solved: its task and its file."""
    from paceline.learn.overview import labs_of, next_exercise

    workspace = _workspace(directory)
    with workspace.progress() as known:
        exercise = next_exercise(labs_of(workspace.course, track), known)
    if exercise is None:
        print("all exercises are solved")
        return
    workspace.lay_out(workspace.course.lab_of(exercise))
    print(f"{exercise.id} · {exercise.title}  ({exercise.minutes} min)\n")
    print(workspace.material(exercise).task)
    print(f"\n  write in   {workspace.file(exercise)}\n  check it   paceline learn check {exercise.id}")


@learn_app.command(epilog="Example: paceline learn check L4.2")
def check(
    name: Annotated[
        str | None, typer.Argument(metavar="EXERCISE", help="Its id, as L4.2; the next one by default.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The same random numbers as before.")] = None,
    patience: Annotated[float, typer.Option(help="Factor on all time limits, for slow machines.", min=0.1)] = 1.0,
    as_json: Json = False,
    directory: Dir = None,
) -> None:
    """Run your answer on fresh random numbers and say what is right and wrong. Exit code 1 when it is not right."""
    workspace = _workspace(directory)
    exercise = _named(workspace, name)
    outcome = _check(workspace, exercise, seed, patience, quiet=as_json)
    if as_json:
        import msgspec

        print(json.dumps(msgspec.to_builtins(outcome)))
    if not outcome.passed:
        raise typer.Exit(int(Exit.FAILED))


def _named(workspace: Workspace, name: str | None) -> Exercise:
    from paceline.learn.overview import next_exercise

    if name is not None:
        return workspace.course.exercise(name)
    with workspace.progress() as known:
        found = next_exercise(workspace.course.labs, known)
    if found is None:
        raise PacelineError("all exercises are solved", hint="name one to check it again: paceline learn check L1.1")
    return found


def _check(workspace: Workspace, exercise: Exercise, seed: int | None, patience: float, *, quiet: bool) -> Outcome:
    from paceline.learn.outcome import as_text
    from paceline.learn.runner import check as run_check
    from paceline.learn.runner import make_ready

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
    return outcome


@learn_app.command(epilog="Example: paceline learn watch L4.2")
def watch(
    name: Annotated[str | None, typer.Argument(metavar="EXERCISE", help="Only this one; all by default.")] = None,
    patience: Annotated[float, typer.Option(help="Factor on all time limits, for slow machines.", min=0.1)] = 1.0,
    directory: Dir = None,
) -> None:
    """Check an exercise whenever its file is saved; Ctrl-C ends it."""
    from paceline.learn.runner import make_ready
    from paceline.learn.watch import changes

    workspace = _workspace(directory)
    only = workspace.course.exercise(name) if name is not None else None
    make_ready()
    print(f"watching {workspace.file(only) if only else workspace.work}; save to check, Ctrl-C to end", flush=True)
    for exercise in changes(workspace, only):
        print()
        _check(workspace, exercise, None, patience, quiet=False)
        sys.stdout.flush()


@learn_app.command("run", epilog="Example: paceline learn run L5.3 --workers 2 -- --epochs 1")
def run_file(
    name: Name,
    arguments: Annotated[list[str] | None, typer.Argument(help="For the file, behind --.")] = None,
    workers: Annotated[int, typer.Option(help="Processes, as torchrun starts them.", min=1)] = 1,
    directory: Dir = None,
) -> None:
    """Run your file as a program, without checking it."""
    workspace = _workspace(directory)
    exercise = workspace.course.exercise(name)
    code = _launch(workspace.file(exercise), workers, arguments or [])
    if code:
        raise typer.Exit(code)


def _launch(path: Path, workers: int, arguments: Sequence[str]) -> int:
    words = [sys.executable, str(path), *arguments]
    if workers > 1:
        words = [sys.executable, "-m", "paceline", "run", "--standalone", f"--nproc-per-node={workers}"]
        words += [str(path), *arguments]
    return subprocess.run(words, check=False, cwd=path.parent).returncode


@learn_app.command(epilog="Example: paceline learn hint L4.2")
def hint(name: Name, directory: Dir = None) -> None:
    """The next of three hints: a question, the idea, nearly the line."""
    workspace = _workspace(directory)
    number, text = workspace.next_hint(workspace.course.exercise(name))
    print(f"hint {number} of 3\n\n{text}")


@learn_app.command(epilog="Example: paceline learn solution L4.2")
def solution(name: Name, directory: Dir = None) -> None:
    """Our answer with its explanation, once yours has passed or all hints were taken."""
    workspace = _workspace(directory)
    exercise = workspace.course.exercise(name)
    found = workspace.solution(exercise)
    if found is None:
        raise PacelineError(
            f"{exercise.id} is not solved yet", hint=f"paceline learn hint {exercise.id}: after three hints this opens"
        )
    print(f"{found[0]}\n\n{found[1]}")


@learn_app.command(epilog="Example: paceline learn reset L4.2")
def reset(name: Name, directory: Dir = None) -> None:
    """Bring the starter back; what you wrote is kept beside it."""
    workspace = _workspace(directory)
    exercise = workspace.course.exercise(name)
    kept = workspace.reset(exercise)
    print(f"{workspace.file(exercise)} is the starter again" + (f"; yours is {kept.name}" if kept is not None else ""))


@learn_app.command(epilog="Example: paceline learn status --track one-day")
def status(
    track: TrackName = None,
    merge: Annotated[Path | None, typer.Option(help="Take over what another progress.json holds.")] = None,
    as_json: Json = False,
    directory: Dir = None,
) -> None:
    """How far you are."""
    from paceline.learn import progress
    from paceline.learn.overview import labs_of, status_text

    workspace = _workspace(directory)
    labs = labs_of(workspace.course, track)
    with progress.changing(workspace.progress_file, workspace.course.version) as (known, note):
        if merge is not None:
            if not merge.is_file():
                raise PacelineError(f"{merge} is no file")
            merged = progress.merge(known, progress.read(merge)[0])
            known.exercises, known.quizzes = merged.exercises, merged.quizzes
            known.predictions, known.started_at = merged.predictions, merged.started_at
        shown = json.dumps(progress.plain(known)) if as_json else status_text(labs, known)
    if note:
        sys.stderr.write(f"note: {note}\n")
    print(shown)


@learn_app.command(epilog="Example: paceline learn quiz L4")
def quiz(
    lab: Annotated[str, typer.Argument(metavar="LAB", help="As L4.")],
    seed: Annotated[int | None, typer.Option(help="The same numbers as before.")] = None,
    answers: Annotated[
        str | None, typer.Option(help="All at once, separated by commas, for the numbers of --seed.")
    ] = None,
    directory: Dir = None,
) -> None:
    """Five questions with computed answers; another try has other numbers."""
    from paceline.learn.quiz import Number, draw_quiz

    workspace = _workspace(directory)
    found = workspace.course.lab(lab)
    seed, questions = draw_quiz(workspace.course, found, seed)
    given = [word.strip() for word in answers.split(",")] if answers is not None else None
    right = 0
    for number, question in enumerate(questions):
        print(f"\n{number + 1}. {question.text}")
        if not isinstance(question, Number):
            for index, text in enumerate(question.shown):
                print(f"   {chr(ord('a') + index)}) {text}")
        answer = _answer(given, number)
        verdict = question.right(answer)
        right += bool(verdict)
        said = "right." if verdict else "that is no answer." if verdict is None else "no."
        print(f"   {said} {question.explain(answer) if verdict is not None else ''}".rstrip())
    workspace.record_quiz(found, right, len(questions))
    print(f"\n{right} of {len(questions)} right · the same numbers again: --seed {seed}")


def _answer(given: list[str] | None, number: int) -> str:
    if given is not None:
        return given[number] if number < len(given) else ""
    try:
        return input("   your answer: ")
    except EOFError:
        return ""


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
