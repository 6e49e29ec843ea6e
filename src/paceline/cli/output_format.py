"""`--format text|json`, for commands that declare their options themselves."""

from __future__ import annotations

import enum
from typing import Annotated

import typer


class Format(enum.StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


OutputFormat = Annotated[
    Format, typer.Option("--format", metavar="NAME", help="text, or json for one JSON object at the end.")
]
