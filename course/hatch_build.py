"""Puts the content of the course into its distributions.

In a checkout the content stands beside `src`, and the records that the decks show stand in `bench/records`, outside
this folder. A wheel has both inside the package; a source distribution has the records in `bench_records/`, so that a
wheel can be built from it as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CONTENT = ("course.toml", "workshop.toml", "labs", "slides", "assessment")
PACKAGE = "paceline_course"


class ContentHook(BuildHookInterface):
    """Adds files to wheels and source distributions; an editable install reads them where they stand."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it builds."""
        if version == "editable":
            return
        root = Path(self.root)
        own = root / "bench_records"
        records = shown(root / "slides", own if own.is_dir() else root.parent / "bench" / "records")
        included = build_data["force_include"]
        if self.target_name == "wheel":
            included |= {str(root / name): f"{PACKAGE}/course/{name}" for name in CONTENT}
            included |= {str(folder): f"{PACKAGE}/records/{folder.name}" for folder in records}
        elif not own.is_dir():
            included |= {str(folder): f"{own.name}/{folder.name}" for folder in records}


def shown(slides: Path, records: Path) -> list[Path]:
    """The records that a deck names."""
    code = "".join(path.read_text(encoding="utf-8") for path in slides.glob("*.py"))
    return [folder for folder in sorted(records.iterdir()) if f'"{folder.name}"' in code]
