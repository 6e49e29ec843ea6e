"""One grading, as a program of its own: `python -P -m paceline_course.instructor.grade_one FOLDER OUT`.

It runs inside a quarantine, so what a learner handed in can neither reach the network, nor read the folders that the
quarantine hides, nor write anywhere but into OUT. There `grade.json` and `report.html` are written, or `failed.txt`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from paceline.records.errors import PacelineError
from paceline_course.assess.grade import Line
from paceline_course.assess.grader import Wish, grade_submission
from paceline_course.assess.page.render import write_page

REPORT, FAILED = "report.html", "failed.txt"


def main(folder: Path, out: Path) -> int:
    """Grade the submission in a folder; the exit code."""
    live = sys.stderr.isatty()

    def begun(name: str) -> None:
        if live:
            sys.stderr.write(f"\r\033[K{out.name}: judging {name} ...")
            sys.stderr.flush()

    def told(_: Line) -> None:
        if live:
            sys.stderr.write("\r\033[K")

    try:
        found = grade_submission(folder, out, Wish(kind="final", all_lines=True, begun=begun, told=told))
        write_page(found, out / REPORT)
    except PacelineError as error:
        (out / FAILED).write_text(error.what + (f" ({error.why})" if error.why else ""), encoding="utf-8")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
