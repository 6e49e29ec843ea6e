"""course/docs/assessment-matrix.md: what the grader says of submissions that are right, and of such that are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from course.tests.proof.cell import Cell
from course.tests.proof.submissions import CHEAT, REFUSED, TRAP

_HEAD = """\
<!-- Written by `python -m course.tests.proof.matrix --report` from course/records; do not edit. -->

# Is the grader right?

Every submission here was graded as a learner's is. Right ones solve the task in ways that have little in common, and
have to pass, with sizes and seeds that are drawn anew each time. Wrong ones are a right one with one mistake, as people
make it, or one attempt to get points without the work: each has to fail at the line that it breaks, with a message that
says what is wrong. The tables show what came out, whatever it is.
"""


def render(cells: Sequence[Cell], record: str) -> str:
    """The page.

    Args:
        cells: of the matrix.
        record: name of the folder that they come from.
    """
    rights, harmless, wrong = _kinds(cells)
    parts = [_HEAD, _summary(rights, harmless, wrong)]
    if rights:
        parts.append(_rights(rights))
    faults = [cell for cell in wrong if cell.kind != CHEAT]
    cheats = [cell for cell in wrong if cell.kind == CHEAT]
    if faults:
        parts.append("## Mistakes\n\n" + _wrongs(faults))
    if cheats:
        parts.append("## Attempts to deceive, and to do harm\n\n" + _wrongs(cheats))
    if harmless:
        parts.append(_harmless(harmless))
    parts.append(_command(cells, record))
    return "\n".join(part.rstrip() + "\n" for part in parts)


def readme(cells: Sequence[Cell], record: str) -> str:
    """What lies beside the records."""
    notes = [f"- {cell.name}, seed {cell.seed}: {cell.problem}" for cell in cells if cell.problem]
    problems = "\n".join(["Not as it should be:", "", *notes]) + "\n" if notes else "All are as they should be.\n"
    parts = ["# The matrix that proves the grader\n", _summary(*_kinds(cells)), problems, _command(cells, record)]
    return "\n".join(parts)


def _kinds(cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell], list[Cell]]:
    """Right ones, those that have to pass the gate, and wrong ones."""
    rights = [cell for cell in cells if cell.wanted == "right"]
    harmless = [cell for cell in cells if not cell.wanted]
    return rights, harmless, [cell for cell in cells if cell.wanted and cell.wanted != "right"]


def _summary(rights: Sequence[Cell], harmless: Sequence[Cell], wrong: Sequence[Cell]) -> str:
    let_through = [cell for cell in wrong if cell.problem and not cell.failed]
    elsewhere = [cell for cell in wrong if cell.problem and cell.failed]
    stopped = [cell for cell in [*rights, *harmless] if cell.problem]
    rows = [
        ("right submissions, with all seeds", len(rights), sum(not cell.problem for cell in rights)),
        ("right, or without effect, though it looks wrong", len(harmless), sum(not cell.problem for cell in harmless)),
        ("wrong submissions", len(wrong), sum(not cell.problem for cell in wrong)),
    ]
    said = [
        f"{len(let_through)} wrong submissions passed the line that they break{_named(let_through)}; "
        f"{len(elsewhere)} failed at another line or with another message{_named(elsewhere)}; "
        f"{len(stopped)} right ones failed{_named(stopped)}.",
    ]
    return _table(("", "graded", "as it should be"), rows) + "\n" + "\n".join(said) + "\n"


def _named(cells: Sequence[Cell]) -> str:
    return f" ({', '.join(dict.fromkeys(cell.name for cell in cells))})" if cells else ""


def _rights(cells: Sequence[Cell]) -> str:
    rows = []
    for name in dict.fromkeys(cell.name for cell in cells):
        own = [cell for cell in cells if cell.name == name]
        points = [sum(cell.points.values()) for cell in own]
        lost = sorted({line for cell in own for line in _partly(cell)})
        rows.append(
            (
                name,
                len(own),
                ", ".join(_result(cell) for cell in own),
                f"{min(points):g} to {max(points):g}",
                ", ".join(lost) or "none",
                f"{median(cell.seconds for cell in own):.0f}",
            )
        )
    head = ("submission", "seeds", "results", "points", "lines with fewer than all points", "seconds")
    return "## Right submissions\n\n" + _table(head, rows)


def _result(cell: Cell) -> str:
    if cell.until:
        return f"**failed {cell.failed}**" if cell.problem else "the gate"
    return cell.result or "refused"


def _partly(cell: Cell) -> Iterable[str]:
    """The first line that did not give all; which others, the record of the grade says."""
    return [cell.failed] if cell.failed else []


def _wrongs(cells: Sequence[Cell]) -> str:
    order = {line: number for number, line in enumerate(dict.fromkeys(sorted(cell.wanted for cell in cells)))}
    rows = [
        (
            cell.name,
            cell.kind,
            cell.why,
            "before anything runs" if cell.wanted == REFUSED else cell.wanted,
            _came(cell),
            f"{cell.seconds:.0f}",
        )
        for cell in sorted(cells, key=lambda cell: (order[cell.wanted], cell.name))
    ]
    return _table(("submission", "fault", "what is wrong", "has to fail", "what it was told", "seconds"), rows)


def _came(cell: Cell) -> str:
    said = "refused" if cell.failed == REFUSED else f"{cell.failed} {cell.message}".strip() or "passed"
    if cell.failed == cell.wanted and cell.message:
        said = cell.message
    return f"**{said}**" if cell.problem else said


def _harmless(cells: Sequence[Cell]) -> str:
    rows = [(cell.name, _word(cell), cell.why, _came(cell)) for cell in sorted(cells, key=lambda cell: cell.name)]
    return (
        "## Right, though it looks wrong; and what has no effect\n\n"
        "They have to pass the gate, or honest people would be told to mend what is well.\n\n"
        + _table(("submission", "kind", "why it has to pass", "came out"), rows)
    )


def _word(cell: Cell) -> str:
    return {TRAP: "looks wrong", CHEAT: "attempt"}.get(cell.kind, cell.kind)


def _command(cells: Sequence[Cell], record: str) -> str:
    machine = next((cell.machine for cell in cells if cell.machine), {})
    judging = sorted({cell.judging[:12] for cell in cells})
    hours = sum(cell.seconds for cell in cells) / 3600
    also = "" if len(judging) < 2 else f", {len(judging)} states of the grader"
    return (
        f"`python -m course.tests.proof.matrix` on {machine.get('processor', 'an unknown processor')}, "
        f"{machine.get('cores', '?')} cores, torch {machine.get('torch', '?')}; {len(cells)} cells, "
        f"{hours:.1f} hours in all{also}; record {record}.\n"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(str(value).replace('|', '/') for value in row)} |" for row in rows]
    return "\n".join(lines) + "\n"
