"""`make course`: is the course what it promises? Each exercise is proved with the answers that its master holds.

    python -m paceline.learn.prove [L1 L4.2 ...] [--quick] [--notebooks] [--repeats N]

- the starter fails, with the message that it should fail with
- the solution passes, on fresh random numbers each time
- every wrong answer is rejected, with its own message
- nothing is missing: task, three hints, explanation, three wrong answers, a quiz, titles, ids, what the text refers to
- with `--notebooks`, every notebook with the solutions in it is executed from top to bottom, without network
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.learn.checking import load_checks
from paceline.learn.content import Course, Exercise, Lab, load_course
from paceline.learn.files import compose
from paceline.learn.masters import Material, lacking, material, read_master
from paceline.learn.messages import GENERAL
from paceline.learn.notebooks import build
from paceline.learn.quiz import draw_quiz
from paceline.learn.references import dangling
from paceline.learn.runner import check, make_ready
from paceline.records.errors import PacelineError

REPEATS = 3
QUESTIONS = 5


@dataclass(frozen=True)
class Proof:
    """One thing that was tried.

    Attributes:
        name: what.
        problem: why it is not as it should be; empty when it is.
        seconds: it took.
    """

    name: str
    problem: str
    seconds: float = 0.0


def complete(course: Course, lab: Lab) -> Iterator[Proof]:
    """What the lab lacks."""
    cells = read_master(course.lab_folder(lab) / "lab.py")
    parts = material(cells)
    lost = dangling(course, lab, cells)
    yield Proof(f"{lab.id} refers to nothing that is not there", "; ".join(lost))
    unknown = set(parts) - {each.id for each in lab.exercises}
    yield Proof(f"{lab.id} has only known exercises", f"not in course.toml: {sorted(unknown)}" if unknown else "")
    for exercise in lab.exercises:
        missing = lacking(parts.get(exercise.id, Material()))
        yield Proof(f"{exercise.id} is complete", f"it lacks {', '.join(missing)}" if missing else "")
    problem = ""
    try:
        _, questions = draw_quiz(course, lab)
        if len(questions) != QUESTIONS:
            problem = f"{len(questions)} questions"
    except PacelineError as error:
        problem = str(error)
    yield Proof(f"{lab.id} has a quiz of {QUESTIONS}", problem)


def prove(course: Course, exercise: Exercise, *, repeats: int, quick: bool) -> Iterator[Proof]:
    """Starter, solution and wrong answers of one exercise."""
    lab = course.lab_of(exercise)
    parts = material(read_master(course.lab_folder(lab) / "lab.py"))[exercise.id]
    known = {**GENERAL, **load_checks(course, exercise).messages}
    with tempfile.TemporaryDirectory(prefix="paceline-prove-") as folder:
        Path(folder).chmod(0o755)

        def tried(name: str, code: str, expects: str) -> Proof:
            path = Path(folder) / exercise.file_name
            path.write_text(compose(exercise, parts.task, code), encoding="utf-8")
            began = time.monotonic()
            outcome = check(course, exercise, path, quick=quick)
            failed = outcome.failed
            said = "" if failed is None else failed.message
            problem = ""
            if said != expects:
                about = "" if failed is None else f" (got {failed.got}; where {failed.where}; {failed.printed[-300:]})"
                problem = f"said {said or 'passed'}, not {expects or 'passed'}; seed {outcome.seed}{about}"
            return Proof(f"{exercise.id} {name}", problem, time.monotonic() - began)

        yield tried("starter", parts.starter, parts.starter_expects)
        for number in range(repeats):
            yield tried(f"solution, time {number + 1}", parts.solution, "")
        for each in parts.wrong:
            if each.expects not in known:
                yield Proof(f"{exercise.id} wrong answer {each.expects}", "there is no such message")
            else:
                yield tried(f"wrong answer {each.expects}", each.source, each.expects)


def execute(course: Course, lab: Lab) -> Proof:
    """Run the notebook with the solutions in it."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    from paceline.learn.workspace import start_workspace

    began, problem = time.monotonic(), ""
    with tempfile.TemporaryDirectory(prefix="paceline-notebook-") as folder:
        workspace = start_workspace(course, Path(folder) / "course")
        cells = read_master(course.lab_folder(lab) / "lab.py")
        notebook = nbformat.reads(build(lab, cells, solved=True), as_version=4)
        client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(workspace.path)}})
        try:
            client.execute()
        except (CellExecutionError, CellTimeoutError) as error:
            problem = str(error)[-1500:]
        printed = "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", ()))
        if not problem and "  NO " in printed:
            problem = printed[printed.index("  NO ") :][:1500]
    return Proof(f"{lab.id} notebook, which may take {lab.machine_s} s:", problem, time.monotonic() - began)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try everything that was asked for; how many problems there are.

    Problems are said where they are met and again at the end, where whoever reads the last lines of a log sees them.
    """
    options = _options(arguments)
    course = load_course()
    named = [word.upper() for word in options.names]
    wanted = [lab for lab in course.labs if not named or any(word.partition(".")[0] == lab.id for word in named)]
    make_ready()
    began, problems = time.monotonic(), list[str]()
    for proof in itertools.chain.from_iterable(_proofs(course, lab, named, options) for lab in wanted):
        line = f"{'NO ' if proof.problem else 'ok '} {proof.name}  {proof.seconds:.1f} s  {proof.problem}".rstrip()
        _say(line)
        if proof.problem:
            problems.append(line)
    count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
    _say("\n".join([f"{count} in {time.monotonic() - began:.0f} s", *problems]))
    return min(len(problems), 1)


def _proofs(course: Course, lab: Lab, named: Sequence[str], options: argparse.Namespace) -> Iterator[Proof]:
    yield from complete(course, lab)
    for exercise in lab.exercises:
        if not named or lab.id in named or exercise.id in named:
            yield from prove(course, exercise, repeats=options.repeats, quick=options.quick)
    if options.notebooks:
        yield execute(course, lab)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="labs or exercises; all by default")
    parser.add_argument("--quick", action="store_true", help="leave out sweeps; each solution once")
    parser.add_argument("--notebooks", action="store_true", help="execute the notebooks, too")
    parser.add_argument("--repeats", type=int, help=f"of each solution [default: {REPEATS}, with --quick 1]")
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (1 if options.quick else REPEATS)
    return options


def _say(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
