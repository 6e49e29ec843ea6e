"""The matrix that proves the grader: right submissions pass, wrong ones fail at their line with their message.

    python -m course.tests.proof.matrix [--only NAME ...] [--seeds 3] [--report course/docs/assessment-matrix.md]

A right submission is graded in full, with several seeds; a wrong one with one seed, up to the line that has to fail.
Each cell is written as a record when it ends, so a second call goes on where the first one stopped: a cell is done when
the submission and all that judges it are what they were. `--again` grades anew. The exit code is 1 when any cell is
not as it should be.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
from course.tests.proof import matrix_page
from course.tests.proof.cell import Cell, read_cells
from course.tests.proof.submissions import LAST_GATE, REFUSED, Wrong, build, right_names, wrongs

from paceline.records.errors import PacelineError
from paceline.records.rundir import write_atomic
from paceline_course import assess
from paceline_course.assess.grade import Grade, Line
from paceline_course.assess.kit import grader_digest
from paceline_course.assess.rubric import content_folder
from paceline_course.assess.submission import freeze

RIGHT = "right"
_NOT_JUDGING = ("page/*", "text.py")


@dataclass(frozen=True)
class Case:
    """One cell: a right submission (`wrong` is None; with `gate`, its part A only) or a wrong one, and the seed."""

    name: str
    seed: int
    wrong: Wrong | None = None
    gate: bool = False

    @property
    def until(self) -> str:
        """The last line to be judged; empty for all."""
        if self.wrong is None:
            return LAST_GATE if self.gate else ""
        return "" if self.wrong.until == REFUSED else self.wrong.until

    @property
    def expected(self) -> str:
        """Digest of what decides whether its grade is as it should be; empty for a right one, which has to pass."""
        if self.wrong is None:
            return ""
        wrong = self.wrong
        said = repr((wrong.line, wrong.messages, wrong.also, wrong.patience))
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    @property
    def file(self) -> str:
        """Of its record."""
        return f"{self.name}_seed{self.seed}.json"

    def write(self, folder: Path) -> Path:
        """The submission, in a new folder."""
        build(self.wrong or Wrong(self.name, None, (), base=self.name), folder)
        return folder


def cases(only: Sequence[str] = (), seeds: int = 3, gate: bool = False) -> Iterator[Case]:
    """Wrong ones first, since they take less time each.

    Raises:
        PacelineError: there is none of that name.
    """
    rights, by_name = right_names(), {wrong.name: wrong for wrong in wrongs()}
    known = {*rights, *by_name, RIGHT, "wrong"}
    if strangers := [name for name in only if name not in known]:
        raise PacelineError(f"there is no submission {strangers[0]}", hint=f"right, wrong, or one of {sorted(known)}")
    for name, wrong in by_name.items():
        if not only or name in only or "wrong" in only:
            yield Case(name, 1, wrong)
    for seed in range(1, seeds + 1):
        for name in rights:
            if not only or name in only or RIGHT in only:
                yield Case(name, seed, gate=gate)


@cache
def judging_digest() -> str:
    """sha256 of all that decides a verdict, as it was when this process first asked.

    That is less than the grader's own digest, which knows its pages, too.
    """
    digest = hashlib.sha256()
    here, content = Path(assess.__file__).parent, content_folder()
    paths = [path for path in here.rglob("*.py") if not any(path.relative_to(here).match(p) for p in _NOT_JUDGING)]
    for path in [*sorted(paths), content / "rubric.toml", *sorted((content / "kit").glob("*.py"))]:
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def grade_case(case: Case) -> Cell:
    """Grade it and say whether that is as it should be."""
    from paceline_course.assess.grader import Wish, grade_submission

    began = time.monotonic()
    wrong = case.wrong
    grade, said = None, ""
    with tempfile.TemporaryDirectory(prefix="paceline-matrix-") as scratch:
        folder = case.write(Path(scratch) / "submission")
        digest = _digest(folder)
        wish = Wish(
            until=case.until,
            seed=case.seed,
            patience=1.0 if wrong is None else wrong.patience,
        )
        try:
            grade = grade_submission(folder, Path(scratch) / "graded", wish)
        except PacelineError as error:
            said = f"{error.what}. {error.why or ''}"
        except Exception:  # noqa: BLE001  a grader that breaks is what is looked for
            return _cell(case, digest, None, "", "the grader broke: " + traceback.format_exc()[-1500:], began)
    problem = of_right(grade, said, gate=case.gate) if wrong is None else of_wrong(wrong, grade, said)
    return _cell(case, digest, grade, said, problem, began)


def of_right(grade: Grade | None, said: str, gate: bool = False) -> str:
    """What is not as it should be with the grade of a right submission."""
    if grade is None:
        return f"it was refused: {said}"
    lost = [
        f"{line.id} {line.message} ({line.got[:160]})" for line in grade.lines if line.state in ("failed", "partly")
    ]
    return "" if grade.gate and (gate or grade.passed) else f"{grade.points:g} points; " + "; ".join(lost)


def of_wrong(wrong: Wrong, grade: Grade | None, said: str) -> str:
    """What is not as it should be with the grade of a wrong submission."""
    if wrong.line == REFUSED or grade is None:
        fits = grade is None and wrong.line == REFUSED and any(text in said for text in wrong.messages)
        return "" if fits else f"it was {'graded' if grade is not None else 'refused: ' + said}"
    failed = first_failed(grade, wrong)
    if failed is None:
        return "" if wrong.line is None else f"it passed all up to {wrong.line}"
    if failed.id == wrong.line or failed.id in wrong.also:
        if failed.message in wrong.messages:
            return ""
        return f"{failed.id} said {failed.message}: {failed.got[:200]}"
    what = "a false fail" if wrong.line is None else f"not {wrong.line}"
    return f"{what}: {failed.id} said {failed.message}: {failed.got[:300]} {failed.printed[-300:]}"


def first_failed(grade: Grade, wrong: Wrong | None) -> Line | None:
    """The first line that did not give all of its points; of a wrong one only gate lines count, and its own."""
    own = () if wrong is None else (wrong.line, *wrong.also)
    for line in grade.lines:
        if line.state in ("failed", "partly") and (wrong is None or line.gate or line.id in own):
            return line
    return None


def _cell(case: Case, digest: str, grade: Grade | None, said: str, problem: str, began: float) -> Cell:
    wrong = case.wrong
    failed = None if grade is None else first_failed(grade, wrong)
    return Cell(
        name=case.name,
        seed=case.seed,
        kind=RIGHT if wrong is None else wrong.fault,
        base=case.name if wrong is None else wrong.base,
        why="" if wrong is None else wrong.why,
        wanted=RIGHT if wrong is None else wrong.line or "",
        failed=REFUSED if said else "" if failed is None else failed.id,
        message="" if failed is None else failed.message,
        got=said if failed is None else failed.got,
        expected=case.expected,
        problem=problem,
        points={} if grade is None else {line.id: line.points for line in grade.lines if line.state != "untested"},
        until=case.until,
        result="" if grade is None or wrong is not None or case.gate else grade.result,
        submission=digest,
        judging=judging_digest(),
        grader=grader_digest(),
        at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - began, 1),
        machine={} if grade is None else grade.machine,
    )


def _digest(folder: Path) -> str:
    """Of what is handed in; also of what cannot be."""
    try:
        with tempfile.TemporaryDirectory(prefix="paceline-matrix-") as scratch:
            return freeze(folder, Path(scratch) / "frozen").digest
    except PacelineError as error:
        return hashlib.sha256(error.what.encode()).hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Grade what is asked for; 1 when a cell is not as it should be."""
    options = _options(arguments)
    cells = options.records / "cells"
    done = {} if options.again else {cell.file: cell for cell in read_cells(cells)}
    judging, began, problems = judging_digest(), time.monotonic(), 0
    wanted = list(cases(options.only, options.seeds, options.gate))
    _must_be_safe(wanted)
    for number, case in enumerate(wanted, start=1):
        cell, fresh = done.get(case.file), ""
        if cell is None or not _is_done(cell, case, judging):
            cell, fresh = grade_case(case), " "
            write_atomic(cells / case.file, msgspec.json.format(msgspec.json.encode(cell), indent=1) + b"\n")
        problems += bool(cell.problem)
        told = f"{'NO' if cell.problem else 'ok'} {number}/{len(wanted)} {cell.name} seed {cell.seed}, "
        told += f"{cell.seconds:.0f} s{'' if fresh else ' (as before)'}  {cell.failed} {cell.message}  {cell.problem}"
        _say(told.rstrip())
    _say(f"{problems} of {len(wanted)} cells are not as they should be; {time.monotonic() - began:.0f} s")
    if options.report is not None:
        found, name = read_cells(cells), options.records.name
        write_atomic(options.report, matrix_page.render(found, name).encode())
        write_atomic(options.records / "README.md", matrix_page.readme(found, name).encode())
    return 1 if problems else 0


def _must_be_safe(wanted: Sequence[Case]) -> None:
    attacking = [case.name for case in wanted if case.wrong is not None and case.wrong.attacks_user]
    if attacking and os.geteuid() != 0:
        raise PacelineError(
            f"{attacking[0]} is graded by root only",
            why="it attacks whoever it runs as, and only root can give it a user of its own",
            hint="a container or a virtual machine, or --only others",
        )


def _is_done(cell: Cell, case: Case, judging: str) -> bool:
    """It is of this case, judged as far, by the same rules, and held against the same expectation."""
    as_far, same = cell.until in ("", case.until), cell.expected == case.expected
    return cell.judging == judging and as_far and same and cell.submission == _digest_of(case)


def _digest_of(case: Case) -> str:
    with tempfile.TemporaryDirectory(prefix="paceline-matrix-") as scratch:
        return _digest(case.write(Path(scratch) / "submission"))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME", help="some; also 'right' or 'wrong'")
    parser.add_argument("--seeds", type=int, default=3, help="of each right submission")
    parser.add_argument("--gate", action="store_true", help="right submissions up to the last line of part A only")
    parser.add_argument("--records", type=Path, default=Path("course/records") / f"{today}_assessment_matrix")
    parser.add_argument("--report", type=Path, help="write the page from the records")
    parser.add_argument("--again", action="store_true", help="also what is done")
    return parser.parse_args(arguments)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.umask(0o022)
    try:
        sys.exit(main())
    except PacelineError as error:
        _say(f"error: {error}")
        sys.exit(error.exit_code)
