"""Lines of somebody's code, and whose code it is."""

from __future__ import annotations

import sysconfig
from functools import cache
from pathlib import Path

import msgspec

_OURS = str(Path(__file__).resolve().parents[1])
_LIBRARIES = ("site-packages", "dist-packages")
_CELL = "<ipython-input"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A line of code."""

    path: str
    line: int
    """1 for the first."""
    function: str = ""
    """Around that line; empty at the top of a module."""

    def __str__(self) -> str:
        within = f", in {self.function}" if self.function and self.function != "<module>" else ""
        return f"{self.path}:{self.line}{within}"

    def below(self, folder: Path) -> Place:
        """The same line with its path relative to a folder; itself where the file is not in that folder."""
        path = Path(self.path)
        return (
            msgspec.structs.replace(self, path=str(path.relative_to(folder))) if path.is_relative_to(folder) else self
        )


@cache
def is_foreign(path: str) -> bool:
    """Whether a file is a library's, Python's own or Paceline's: not where a user would look first for a mistake."""
    if path.startswith("<"):
        return not path.startswith(_CELL)
    if any(part in _LIBRARIES for part in Path(path).parts):
        return True
    return path.startswith((f"{sysconfig.get_path('stdlib')}/", f"{_OURS}/"))
