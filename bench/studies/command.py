"""What the studies' commands share: their options, the stated cost, the dry run, and how they end."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from bench.harness import RECORDS
from bench.studies.cell import Cell
from bench.studies.cells import Study, finished, read_all
from bench.studies.pace import cost_lines, estimate_s, minutes, pace_of
from paceline.records.errors import Exit, PacelineError


def parser_for(doc: str | None, budget_minutes: float = 60.0) -> argparse.ArgumentParser:
    """A parser with the options of every study."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true", help="print the table of cells and its cost, run nothing")
    parser.add_argument("--redo", action="store_true", help="measure cells anew whose command has changed")
    parser.add_argument("--budget-minutes", type=float, default=budget_minutes, help="of all cells together")
    parser.add_argument("--data-dir", type=Path, help="root of Fashion-MNIST in torchvision's layout")
    parser.add_argument("--records", type=Path, default=RECORDS, help=argparse.SUPPRESS)
    parser.add_argument("--program", nargs="+", default=(), help=argparse.SUPPRESS)
    return parser


def study_from(arguments: argparse.Namespace, name: str) -> Study:
    """The study that the options ask for."""
    return Study(
        name=name,
        root=arguments.records,
        budget_s=60 * arguments.budget_minutes,
        redo=arguments.redo,
        program=tuple(arguments.program),
        data_dir=arguments.data_dir,
        tell=_show,
    )


def _show(line: str) -> None:
    print(line, flush=True)


def state(study: Study, cells: Sequence[Cell]) -> list[str]:
    """The lines that state the cost of what is not done."""
    done = finished(study, cells)
    pending = [cell for cell in cells if cell.name not in done]
    return cost_lines(cells, pending, read_all(study.folder).values(), study.budget_s)


def table(study: Study, cells: Sequence[Cell], *, known: bool = True) -> list[str]:
    """The cells as a dry run shows them; `known` is False where commands depend on what earlier cells will say."""
    done = finished(study, cells) if known else read_all(study.folder)
    pace = pace_of(read_all(study.folder).values())
    width = max((len(cell.name) for cell in cells), default=4)
    lines = [f"{'cell':{width}}  {'state':7}  {'usual':>8}  {'most':>8}  command"]
    for cell in cells:
        usual, most = (minutes(estimate_s(cell, pace, most=most)) for most in (False, True))
        word = "done" if cell.name in done else "to run"
        lines.append(f"{cell.name:{width}}  {word:7}  {usual:>8}  {most:>8}  {' '.join(cell.command)}")
    return lines


def finish(work: Callable[[], None]) -> None:
    """Carry out, and end as every command here ends: one message, the documented exit code, no traceback."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        work()
    except PacelineError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt as stop:
        sys.stderr.write("stopped: finished cells are written, the one that ran is not\n")
        sys.stderr.write("  next: the same command goes on\n")
        sys.exit(Exit.TERMINATED if stop.args else Exit.INTERRUPTED)


def _terminated(number: int, frame: FrameType | None) -> None:
    del frame
    raise KeyboardInterrupt(number)
