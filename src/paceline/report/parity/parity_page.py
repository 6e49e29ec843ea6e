"""A result of `paceline verify` as one HTML page that a reviewer can attach to a pull request."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paceline.records.findings import by_severity
from paceline.records.parity import Divergence, ParityResult
from paceline.records.standing import RankStanding
from paceline.report import words
from paceline.report.page.figures import Axis, Figure, Series, Table, payload, tabulate, values
from paceline.report.page.observed_section import finding_card
from paceline.report.page.shell import Parts, render, write_html
from paceline.report.parity.evaluation_text import describe

_PARTS = Parts(Path(__file__).parent, "parity.html.j2", "parity.js", "parity.css", kind="verify")
_SHOWN = 20
"""Tensors that are not folded away."""


def write_parity_page(result: ParityResult, source: Path, path: Path) -> None:
    """Write the page whole or not at all.

    Args:
        result: what was found.
        source: parity.json.
        path: of the page.

    Raises:
        PacelineError: it cannot be written; an older page of that name is untouched.
    """
    write_html(render_parity(result, source), path)


def render_parity(result: ParityResult, source: Path) -> str:
    """One self-contained page."""
    figures = [figure] if (figure := _learning_rates(result)) is not None else []
    tensors = sorted(result.tensors.items(), key=lambda item: (-item[1], item[0]))
    return render(
        _PARTS,
        f"{_subject(result.command)} on {words.plural(result.world, 'rank')} and in one process",
        {"figures": [payload(each) for each in figures]},
        verdict=result.verdict,
        reason=f"{result.reason}.",
        tiles=_tiles(result),
        first=_first(result),
        hang=_hang(result.hang),
        compared=_compared(result),
        before=_before(result),
        adjusted=result.adjusted,
        not_compared=result.not_compared or ["nothing was left out"],
        figures=figures,
        worst=_tensors("Tensors with the largest differences", tensors[:_SHOWN]),
        rest=_tensors("Further tensors", tensors[_SHOWN:]),
        audits=_audits(result),
        findings=[finding_card(each) for each in sorted(result.findings, key=by_severity)],
        command=_command(result),
        versions=list(result.versions.items()),
        run=_run(result, source),
    )


def _subject(command: Sequence[str]) -> str:
    if command[:1] == ["--task"]:
        return f"Task {Path(command[1]).name}"
    named = command[1] if command[:1] == ["-m"] else command[0] if command else "A script"
    return Path(named).name


def _command(result: ParityResult) -> str:
    return shlex.join(["paceline", "verify", "--nproc-per-node", str(result.world), *result.command])


def _relative(value: float) -> str:
    return f"{value:.1e}" if math.isfinite(value) else "not a finite number, or another shape"


def _tiles(result: ParityResult) -> list[dict[str, Any]]:
    compared = result.compared
    if compared is None:
        return []
    floor = [f"noise floor {_relative(compared.floor)}"] if compared.floor else []
    return [
        {"label": "Steps compared", "value": words.integer(compared.steps), "details": ["states after each"]},
        {"label": "Tensors", "value": words.integer(compared.tensors), "details": ["in the state after a step"]},
        {"label": "Precision", "value": compared.dtype, "details": []},
        {
            "label": "Largest relative difference",
            "value": f"{compared.worst:.1e}" if math.isfinite(compared.worst) else "not finite",
            "details": [f"tolerance {compared.tolerance:.0e}", *floor],
        },
    ]


def _first(result: ParityResult) -> list[tuple[str, str]]:
    first = result.first_divergence
    if first is None:
        return []
    rows = [
        ("tensor", first.tensor),
        ("step", str(first.step)),
        ("rank", str(first.rank)),
        ("compared with", first.against),
        ("relative difference", _relative(first.relative)),
        ("factor", _factor(first, result.world)),
        ("line of the step", words.place(first.path, first.line)),
        ("first operation", _operation(result)),
        ("fault ids", ", ".join(result.faults)),
    ]
    return [(label, text) for label, text in rows if text]


def _operation(result: ParityResult) -> str:
    operation = result.first_operation
    if operation is None:
        return ""
    where = words.place(operation.place.path, operation.place.line) if operation.place is not None else ""
    return f"{operation.name} {where}".strip()


def _before(result: ParityResult) -> dict[str, Any] | None:
    """How NEW compares with OLD."""
    before = result.before
    if before is None:
        return None
    rows = [("command", shlex.join(before.command)), ("SHA-256", before.script_sha256)]
    if (compared := before.compared) is not None:
        steps = words.plural(compared.steps, "step")
        text = (
            f"{compared.tensors} tensors after each of {steps}, largest relative difference {_relative(compared.worst)}"
        )
        rows.append(("compared", text))
    if before.evaluation is not None:
        rows.append(("evaluation", describe(before.evaluation, "OLD")))
    return {"rows": rows, "changes": [f"{each.verdict}: {each.text}" for each in before.changes]}


def _factor(first: Divergence, world: int) -> str:
    if first.factor is None:
        return ""
    known = {float(world): ", the world size", 1 / world: ", 1 / world size"}
    name = next((name for value, name in known.items() if abs(first.factor - value) < 1e-6), "")
    return f"{first.factor:.6g}{name}"


def _hang(ranks: Sequence[RankStanding]) -> Table | None:
    if not ranks:
        return None
    return tabulate(
        "Ranks",
        ranks,
        {
            "Rank": lambda each: str(each.rank),
            "State": lambda each: each.state,
            "In": lambda each: each.call,
            "Line": lambda each: words.place(each.path, each.line),
            "Function": lambda each: each.function,
        },
    )


def _compared(result: ParityResult) -> list[str]:
    compared = result.compared
    if compared is None:
        return ["no state: the runs did not come so far"]
    text = (
        f"parameters, buffers and optimizer state of each rank with those of one process, and of the ranks with each "
        f"other, after each of {words.plural(compared.steps, 'step')}"
    )
    floor = "two runs of one process that add in another order "
    evaluation = [f"evaluation: {describe(result.evaluation, 'one process')}"] if result.evaluation else []
    return [
        text,
        f"computed in {compared.dtype}; a relative difference of a tensor above {compared.tolerance:.0e} counts",
        *([f"{floor}differ by {_relative(compared.floor)}"] if compared.floor else []),
        *evaluation,
    ]


def _learning_rates(result: ParityResult) -> Figure | None:
    both = {"ranks": result.learning_rates, "one process": result.learning_rates_of_one}
    if not all(both.values()):
        return None
    looks = {"ranks": {"paint": "run-0", "width": 5.0}, "one process": {"paint": "run-1", "dash": "7 4"}}
    series = [
        Series(name, list(range(1, len(rates) + 1)), values(rates), **looks[name])  # type: ignore[arg-type]
        for name, rates in both.items()
    ]
    rows = [
        [str(step), f"{ranks:.6g}", f"{one:.6g}", f"{ranks / one:.6g}" if one else ""]
        for step, (ranks, one) in enumerate(zip(*both.values(), strict=False), 1)
    ]
    return Figure(
        "learning-rate",
        "Learning rate of each step",
        "First parameter group, as the script sets it on the ranks and in one process. Both runs step with the rate of "
        "the ranks.",
        Axis("optimizer step", "count"),
        Axis("", tickformat=".3~g", zero=True),
        series,
        Table("Learning rate of each step", ["Step", "Ranks", "One process", "Ratio"], rows),
    )


def _tensors(caption: str, tensors: Sequence[tuple[str, float]]) -> Table | None:
    if not tensors:
        return None
    rows = []
    for name, value in tensors:
        kind, _, rest = name.partition(":")
        rows.append([rest or name, _relative(value), kind if rest else ""])
    return Table(caption, ["Tensor", "Difference", "Kind"], rows)


def _audits(result: ParityResult) -> str:
    if counts := words.finding_counts(result.findings):
        return f"{counts}."
    return "Audits look at scripts only." if result.command[:1] == ["--task"] else "None."


def _run(result: ParityResult, source: Path) -> list[tuple[str, str]]:
    rows = [
        ("record", str(source)),
        ("SHA-256 of the script", result.script_sha256),
        ("took", words.duration(result.seconds) if result.seconds else ""),
    ]
    return [(label, text) for label, text in rows if text]
