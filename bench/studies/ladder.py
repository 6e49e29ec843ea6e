"""Study 2: can a batch of 4096 keep the accuracy of 128? A ladder of remedies, and then the one test that counts.

    python -m bench.studies.ladder search --dry-run
    python -m bench.studies.ladder search         # about 60 minutes on 2 quiet cores; took 90 beside other work
    python -m bench.studies.ladder confirm        # 10 seeds a side: 35 minutes, 80 where the large batch trains 4 times
                                                  # as long; took 97 beside other work

*search* trains on 55,000 images and chooses on the 5,000 that `--holdout 5000` keeps back; the test set is not looked
at. Each rung (rungs.py) tries some changes of the best so far and keeps the best try if it is better. The baseline at
batch 128 climbs as many rungs with as many cells. One seed a cell: the search may pick what was lucky, which is why it
proves nothing.

*confirm* trains the chosen combination and the best baseline on all 60,000 images with 10 seeds that the search has not
seen, in turn, and evaluates on the test set. The difference has a 95 % interval by Welch's t; the accuracy is called
kept only if all of it lies above -0.3 points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench.harness import command_line, environment, write_record
from bench.studies.cell import Cell, Flags, final, interleaved
from bench.studies.cells import Records, Study, carry_out, read_all, read_json, spent_s
from bench.studies.command import finish, parser_for, state, study_from, table
from bench.studies.compare import KEPT_ABOVE, difference_of_means, verdict
from bench.studies.pace import cost_lines
from bench.studies.rungs import SIDES
from bench.studies.search import Side, as_result, climb, planned
from paceline.records.errors import PacelineError

SEARCH, CONFIRM = "ladder_search", "ladder_confirm"
FRESH_SEEDS = range(100, 110)
MODULE = "bench.studies.ladder"


def search(study: Study) -> dict[str, Any]:
    """Climb both ladders, a rung of each in turn; what is already measured is read."""
    facts = environment()  # before anything runs: the load is then that of others
    sides = {name: Side(name, dict(start)) for name, (start, _) in SIDES.items()}
    heights = [len(rungs) for _, rungs in SIDES.values()]
    for number in range(1, max(heights) + 1):
        for name, (_, rungs) in SIDES.items():
            side, rung = sides[name], rungs[number - 1]
            study.tell(f"{name}, rung {number}: {rung.title}")
            climb(side, number, rung, lambda cells: carry_out(study, cells))
            kept = side.rungs[-1]["kept"]
            study.tell(
                f"{name}, rung {number}: {kept or 'nothing'} kept, best held-out accuracy {_show(side.accuracy)}"
            )
    return {
        "study": SEARCH,
        "command": command_line(MODULE),
        "complete": True,
        "spent_s": spent_s(study),
        "environment": facts,
        **{name: as_result(side) for name, side in sides.items()},
    }


def _show(accuracy: float | None) -> str:
    return "none" if accuracy is None else f"{accuracy:.4f}"


def planned_search() -> list[Cell]:
    """The cells of a search in which nothing is kept."""
    return [cell for name, (start, rungs) in SIDES.items() for cell in planned(name, start, rungs)]


def for_test(flags: Flags) -> dict[str, str]:
    """The flags of the confirmation: all training images, and the test set, which is looked at once, at the end."""
    kept = {name: value for name, value in flags.items() if name != "--holdout"}
    return kept | {"--eval-every": f"{flags['--epochs']}ep"}


def confirm_cells(found: Mapping[str, Any], seeds: Sequence[int] = FRESH_SEEDS) -> list[Cell]:
    """Both sides with each seed, in turn.

    Raises:
        PacelineError: the search has chosen nothing.
    """
    settings = []
    for name in SIDES:
        side = found[name]
        if side["chosen_cell"] is None:
            raise PacelineError(f"the search chose nothing for the {name} side", hint="look at its cells")
        flags = for_test(side["chosen"])
        epochs = float(flags["--epochs"])
        settings.append(Cell(name, 0, flags, most_epochs=epochs, usual_epochs=epochs))
    return interleaved(settings, seeds)


def judge(cells: Sequence[Cell], records: Records) -> dict[str, Any]:
    """What the confirmation says. Values are in points of accuracy (0 to 100).

    A run that diverged has no accuracy to average: then there is no interval, and nothing was kept.
    """
    values: dict[str, list[float]] = {name: [] for name in SIDES}
    diverged = dict.fromkeys(SIDES, 0)
    for cell in cells:
        accuracy = final(records[cell.name])
        if accuracy is None or not math.isfinite(accuracy):
            diverged[cell.setting] += 1
        else:
            values[cell.setting].append(100 * accuracy)
    found: dict[str, Any] = {"points": values, "diverged": diverged, "margin_points": KEPT_ABOVE}
    if any(diverged.values()):
        return found | {"difference": None, "verdict": "not shown"}
    result = difference_of_means(values["large"], values["baseline"])
    return found | {
        "difference": {
            "points": result.interval.value,
            "low": result.interval.low,
            "high": result.interval.high,
            "degrees": result.degrees,
            "method": "Welch's t, 95 %",
        },
        "bootstrap": {"low": result.bootstrap.low, "high": result.bootstrap.high},
        "shapiro_p": {"large": result.normality[0], "baseline": result.normality[1]},
        "verdict": verdict(result.interval),
    }


def sentence(found: Mapping[str, Any]) -> str:
    """The result in one sentence, whichever way it falls."""
    runs = {name: len(values) for name, values in found["points"].items()}
    if found["difference"] is None:
        lost = ", ".join(
            f"{count} of {count + runs[name]} {name}" for name, count in found["diverged"].items() if count
        )
        return f"Not shown to be kept: {lost} run(s) diverged, so there is no interval."
    part = found["difference"]
    numbers = (
        f"{part['points']:+.2f} points [{part['low']:+.2f}, {part['high']:+.2f}] (95 %, Welch's t, "
        f"n = {runs['large']} and {runs['baseline']})"
    )
    margin = f"{found['margin_points']:g} points"
    return {
        "kept": f"Accuracy kept: {numbers}; the whole interval lies above {margin}.",
        "lost": f"Accuracy lost: {numbers}; the whole interval lies below {margin}.",
        "not shown": f"Not shown to be kept: {numbers}; the interval reaches to or below {margin}.",
    }[found["verdict"]]


def confirm(study: Study, found: Mapping[str, Any]) -> dict[str, Any]:
    """Train both sides with fresh seeds and judge."""
    facts = environment()
    cells = confirm_cells(found)
    records = carry_out(study, cells)
    return {
        "study": CONFIRM,
        "command": command_line(MODULE),
        "seeds": list(FRESH_SEEDS),
        "spent_s": spent_s(study),
        "environment": facts,
        "large": {"flags": for_test(found["large"]["chosen"])},
        "baseline": {"flags": for_test(found["baseline"]["chosen"])},
        "searched_cells": {name: found[name]["cells"] for name in SIDES},
        **judge(cells, records),
    }


def found_by_search(study: Study) -> dict[str, Any]:
    """The result of the search that stands beside this study.

    Raises:
        PacelineError: there is none yet.
    """
    path = study.root / SEARCH / "result.json"
    if not path.exists():
        raise PacelineError("there is no finished search to confirm", hint=f"python -m {MODULE} search")
    return read_json(path)


def main(argv: list[str] | None = None) -> None:
    """One phase."""
    parser = parser_for(__doc__, budget_minutes=120.0)  # a large batch that trains longer takes more than an hour
    parser.add_argument("phase", choices=("search", "confirm"))
    arguments = parser.parse_args(argv)

    def work() -> None:
        searching = arguments.phase == "search"
        study = study_from(arguments, SEARCH if searching else CONFIRM)
        if arguments.dry_run and not searching and not (study.root / SEARCH / "result.json").exists():
            print(f"confirm: 2 sides x {len(FRESH_SEEDS)} seeds; their commands and cost are known after the search")
            return
        found = {} if searching else found_by_search(study)
        cells = planned_search() if searching else confirm_cells(found)
        cost = planned_cost(study, cells) if searching else state(study, cells)
        if arguments.dry_run:
            print("\n".join(table(study, cells, known=not searching)))
        print("\n".join(cost), flush=True)
        if arguments.dry_run:
            return
        _run(study, found)

    finish(work)


def planned_cost(study: Study, cells: Sequence[Cell]) -> list[str]:
    """The cost of a search: as many cells as are not done yet, whatever the rungs will choose."""
    records = read_all(study.folder)
    left = [cell for cell in cells if not any(_same_place(cell, name) for name in records)]
    return cost_lines(cells, left, records.values(), study.budget_s)


def _same_place(cell: Cell, name: str) -> bool:
    """Whether a record fills the place of a planned cell; the finalist of a screen is known only afterwards."""
    if "best-of-screen" in cell.name:
        return name.startswith(cell.name.split("best-of-screen")[0]) and "-screen_" not in name
    return cell.name == name


def _run(study: Study, found: Mapping[str, Any]) -> None:
    if study.name == SEARCH:
        result = search(study)
        lines = [f"{name}: {' '.join(Cell(name, 0, result[name]['chosen']).command)}" for name in SIDES]
    else:
        result = confirm(study, found)
        lines = [sentence(result)]
    write_record(study.folder, result, "\n".join([f"# {study.name}", "", *lines, ""]))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
