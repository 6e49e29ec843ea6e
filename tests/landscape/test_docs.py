"""docs/reference/landscape.md says everything that can be typed and everything that is written."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from paceline.landscape.choices import MEASURES
from paceline.landscape.config import LandscapeConfig

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "landscape.md").read_text()


def test_every_flag_stands_in_the_page_with_its_default() -> None:
    """A row for each, and the default that the settings have, where they have one."""
    rows = dict(re.findall(r"^\| `(--[a-z-]+|TARGET)[^|]*\|([^|]*)\|", PAGE, flags=re.MULTILINE))

    for field in dataclasses.fields(LandscapeConfig):
        shown = rows[LandscapeConfig.flag(field.name)].strip(" `").replace(",", "")
        if isinstance(field.default, int | float):
            assert float(shown.split()[0]) == field.default, field.name
        elif isinstance(field.default, str):
            assert shown == field.default, field.name


def test_every_measure_stands_in_the_page() -> None:
    """By name."""
    assert [name for name in MEASURES if f"| `{name}` |" not in PAGE] == []
