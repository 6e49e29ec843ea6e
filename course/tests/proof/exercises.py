"""`make course`: is the course what it promises? Each exercise is proved with the answers that its master holds.

    python -m course.tests.proof.exercises [L1 L4.2 ...] [--quick] [--notebooks] [--repeats N] [--seed N]
        [--soak SECONDS] [--jobs N]

- the starter fails, with the message that it should fail with
- the solution passes, on fresh random numbers each time
- every wrong answer is rejected, with its own message
- nothing is missing: task, three hints, explanation, three wrong answers, a quiz, titles, ids, what the text refers to
- with `--notebooks`, every notebook with the solutions in it is executed from top to bottom, without network

A learner's check draws fresh random numbers, so a verdict must not depend on them. `--soak` tries every answer of an
exercise again and again, for so many seconds, and says how many of how many times it was not as it should be: that is
where rare wrong verdicts are found. `--quick` has the same random numbers each time, so that whoever runs it to see
whether a change broke something isn't told by chance.

Exercises are proved side by side in `--jobs` processes; checks that measure time need a process alone.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from course.tests.proof.references import dangling

from paceline.parallel.placement import usable_cores
from paceline.records.errors import PacelineError
from paceline_course.checking import load_checks
from paceline_course.content import Course, Exercise, Lab, load_course
from paceline_course.files import compose
from paceline_course.masters import Material, lacking, material, read_master
from paceline_course.messages import GENERAL
from paceline_course.notebooks import build
from paceline_course.quiz import draw_quiz
from paceline_course.runner import check, make_ready

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


@dataclass(frozen=True)
class Attempt:
    """An answer out of the master, and what is to be said of it.

    Attributes:
        name: which one.
        code: its text; none where there can be no verdict, since the message does not exist.
        expects: the message; empty where it is to pass.
    """

    name: str
    code: str | None
    expects: str


def attempts(course: Course, exercise: Exercise) -> list[Attempt]:
    """Starter, solution and wrong answers of one exercise."""
    lab = course.lab_of(exercise)
    parts = material(read_master(course.lab_folder(lab) / "lab.py"))[exercise.id]
    known = {**GENERAL, **load_checks(course, exercise).messages}
    starter = Attempt("starter", compose(exercise, parts.task, parts.starter), parts.starter_expects)
    solution = Attempt("solution", compose(exercise, parts.task, parts.solution), "")
    wrong = [
        Attempt(
            f"wrong answer {each.expects}",
            compose(exercise, parts.task, each.source) if each.expects in known else None,
            each.expects,
        )
        for each in parts.wrong
    ]
    return [starter, solution, *wrong]


def prove(course: Course, exercise: Exercise, *, repeats: int, quick: bool, seed: int | None = None) -> Iterator[Proof]:
    """Each attempt once, but the solution `repeats` times; with random numbers from `seed`, or fresh ones."""
    for each in attempts(course, exercise):
        times = repeats if each.name == "solution" else 1
        for number in range(times):
            name = f"{each.name}, time {number + 1}" if each.name == "solution" else each.name
            own = None if seed is None else _own_seed(seed, exercise, name)
            yield _tried(course, exercise, replace(each, name=name), quick=quick, seed=own)


def soak(course: Course, exercise: Exercise, *, seconds: float, quick: bool) -> Iterator[Proof]:
    """Every attempt in turn with fresh random numbers, until the time is up and each was made once.

    Yields one proof for each attempt: how often it was made, how often it was not as it should be, and the first time.
    """
    began, rounds = time.monotonic(), list[list[Proof]]()
    wanted = attempts(course, exercise)
    while not rounds or time.monotonic() - began < seconds:
        rounds.append([_tried(course, exercise, each, quick=quick, seed=None) for each in wanted])
    for made in zip(*rounds, strict=True):
        bad = [each.problem for each in made if each.problem]
        told = f"{len(bad)} of {len(made)} times, first: {bad[0]}" if bad else ""
        yield Proof(f"{made[0].name}, {len(made)} times", told, sum(each.seconds for each in made))


_WAITS, _IMPATIENT = {"hang", "no-such-rank"}, 0.3
"""Wrong answers whose ranks wait for ever, and how much of the time limit is enough to see that: they are ready within
a tenth of a second."""


def _tried(course: Course, exercise: Exercise, attempt: Attempt, *, quick: bool, seed: int | None) -> Proof:
    name = f"{exercise.id} {attempt.name}"
    if attempt.code is None:
        return Proof(name, "there is no such message")
    with tempfile.TemporaryDirectory(prefix="paceline-prove-") as folder:
        # Confined ranks, which read it, are another user where this process is root.
        Path(folder).chmod(0o755)
        path = Path(folder) / exercise.file_name
        path.write_text(attempt.code, encoding="utf-8")
        began = time.monotonic()
        patience = _IMPATIENT if quick and attempt.expects in _WAITS else 1.0
        outcome = check(course, exercise, path, quick=quick, seed=seed, patience=patience)
    failed = outcome.failed
    said = "" if failed is None else failed.message
    problem = ""
    if said != attempt.expects:
        about = "" if failed is None else f" (got {failed.got}; where {failed.where}; {failed.printed[-300:]})"
        problem = f"said {said or 'passed'}, not {attempt.expects or 'passed'}; seed {outcome.seed}{about}"
    return Proof(name, problem, time.monotonic() - began)


def _own_seed(seed: int, exercise: Exercise, name: str) -> int:
    """Other random numbers for each attempt: with the same ones, all would stand and fall together."""
    return zlib.crc32(f"{seed} {exercise.id} {name}".encode()) % 2**31


def execute(course: Course, lab: Lab) -> Proof:
    """Run the notebook with the solutions in it."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    from paceline_course.workspace import start_workspace

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
    began, problems = time.monotonic(), list[str]()
    for proof in _in_turn([part for lab in wanted for part in _parts(lab, named, options)], options):
        line = f"{'NO ' if proof.problem else 'ok '} {proof.name}  {proof.seconds:.1f} s  {proof.problem}".rstrip()
        _say(line)
        if proof.problem:
            problems.append(line)
    count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
    _say("\n".join([f"{count} in {time.monotonic() - began:.0f} s", *problems]))
    return min(len(problems), 1)


def _parts(lab: Lab, named: Sequence[str], options: argparse.Namespace) -> Iterator[str]:
    """Names of the proofs of a lab: its contents, each exercise, and its notebook."""
    yield lab.id
    yield from (each.id for each in lab.exercises if not named or lab.id in named or each.id in named)
    if options.notebooks:
        yield f"{lab.id} notebook"


def _in_turn(parts: Sequence[str], options: argparse.Namespace) -> Iterator[Proof]:
    """The proofs of all parts, in their order."""
    if options.jobs == 1:
        for part in parts:
            yield from _proofs(part, options)
        return
    # Each process has a fork server of its own, and confines answers to a user of its own.
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as processes:
        for found in processes.map(_listed, parts, itertools.repeat(options)):
            yield from found


def _listed(part: str, options: argparse.Namespace) -> list[Proof]:
    return list(_proofs(part, options))


def _proofs(part: str, options: argparse.Namespace) -> Iterator[Proof]:
    make_ready()
    course = load_course()
    name, _, what = part.partition(" ")
    lab = next(lab for lab in course.labs if lab.id == name.partition(".")[0])
    if what == "notebook":
        yield execute(course, lab)
    elif name == lab.id:
        yield from complete(course, lab)
    elif options.soak:
        yield from soak(course, course.exercise(name), seconds=options.soak, quick=options.quick)
    else:
        exercise = course.exercise(name)
        yield from prove(course, exercise, repeats=options.repeats, quick=options.quick, seed=options.seed)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="labs or exercises; all by default")
    parser.add_argument("--quick", action="store_true", help="leave out sweeps; each solution once")
    parser.add_argument("--notebooks", action="store_true", help="execute the notebooks, too")
    parser.add_argument("--repeats", type=int, help=f"of each solution [default: {REPEATS}, with --quick 1]")
    parser.add_argument("--seed", type=int, help="of all random numbers [default: fresh ones, with --quick 0]")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="try each exercise for so long")
    parser.add_argument("--jobs", type=int, help="side by side [default: 1, with --quick one more than cores]")
    options = parser.parse_args(arguments)
    # One more than there are cores: ranks wait for each other a good part of their time.
    options.jobs = options.jobs or (usable_cores() + 1 if options.quick else 1)
    if options.seed is None and options.quick:
        options.seed = 0
    options.repeats = options.repeats or (1 if options.quick else REPEATS)
    return options


def _say(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
