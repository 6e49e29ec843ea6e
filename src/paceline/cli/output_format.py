"""`--format` and `--fail-on`, for commands that declare their options themselves."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from paceline.records.schema import Finding


class Format(enum.StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


OutputFormat = Annotated[
    Format, typer.Option("--format", metavar="NAME", help="text, or json for one JSON object at the end.")
]


class FailOn(enum.StrEnum):
    """The least severe findings that fail a command."""

    ERROR = "error"
    WARNING = "warning"

    def fails(self, findings: Iterable[Finding]) -> bool:
        """Return True if any finding is at least this severe."""
        severe = {self.value, "error"}
        return any(each.severity in severe for each in findings)


FailOnOption = Annotated[
    FailOn | None,
    typer.Option(
        "--fail-on", metavar="SEVERITY", help="Exit with code 1 if a finding is at least this severe: error or warning."
    ),
]
