"""Write docs/studies/*.md and their figures from the committed records, and from nothing else.

python -m bench.studies.report        # seconds
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.harness import BENCH, RECORDS
from bench.studies import ladder, minima, page_ladder, page_minima, page_plan, page_regimes, regimes
from bench.studies.cells import read_all, read_json
from bench.studies.command import finish
from bench.studies.pages import Page, as_svg
from paceline.records.rundir import write_atomic

DOCS = BENCH.parent / "docs" / "studies"


def pages(root: Path = RECORDS) -> list[Page]:
    """The pages of those studies that have records."""
    found = []
    if records := list(read_all(root / regimes.NAME).values()):
        found.append(page_regimes.render(records))
    if (root / ladder.SEARCH / "result.json").exists():
        found.append(_ladder(root))
    if records := list(read_all(root / minima.NAME).values()):
        found.append(page_minima.render(records))
    if (planned := page_plan.render(root)) is not None:
        found.append(planned)
    return found


def _ladder(root: Path) -> Page:
    def result(name: str) -> dict[str, Any] | None:
        path = root / name / "result.json"
        return read_json(path) if path.exists() else None

    def cells(name: str) -> list[Mapping[str, Any]]:
        return list(read_all(root / name).values())

    search = result(ladder.SEARCH)
    assert search is not None  # the caller has looked
    return page_ladder.render(search, cells(ladder.SEARCH), result(ladder.CONFIRM), cells(ladder.CONFIRM))


def write(found: list[Page], docs: Path = DOCS) -> list[Path]:
    """Write every page with its figures; returns what was written."""
    written = []
    for page in found:
        files = {
            f"{page.name}.md": page.text.encode() + b"\n",
            **{name: as_svg(figure) for name, figure in page.figures.items()},
        }
        for name, content in files.items():
            write_atomic(docs / name, content)
            written.append(docs / name)
    return written


def main(argv: list[str] | None = None) -> None:
    """Render and say what was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    arguments = parser.parse_args(argv)

    def work() -> None:
        written = write(pages(arguments.records), arguments.docs)
        print("\n".join(path.name for path in written) or "no study has records yet: nothing written")

    finish(work)


if __name__ == "__main__":
    main()
