"""Is a room of machines ready? What `paceline learn doctor` said on each, in one table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from paceline.records.errors import PacelineError
from paceline_course.assess.text import visible
from paceline_course.instructor.archive import read_plain

_LINE = re.compile(r"\s*(ok|note|no)\s+(\S+)\s+(.*)")
_SIGNS = {"ok": "ok", "note": "note", "no": "NO"}
_MOST_BYTES, _LONGEST = 1 << 20, 120
SCRIPT = """\
# On each machine, with FOLDER a place that all of them can write to:
paceline learn doctor > FOLDER/$(hostname).txt 2>&1
# Then, anywhere:
paceline learn instructor room FOLDER"""


@dataclass(frozen=True)
class Machine:
    """One machine.

    Attributes:
        name: of its file.
        parts: what doctor said, by part: state and words.
    """

    name: str
    parts: dict[str, tuple[str, str]]

    @property
    def ready(self) -> bool:
        """Every part was tried, and none is missing."""
        return bool(self.parts) and all(state != "no" for state, _ in self.parts.values())


def read_room(folder: Path) -> list[Machine]:
    """What the files in a folder say.

    Raises:
        PacelineError: there are none.
    """
    paths = sorted(path for path in folder.glob("*.txt") if path.is_file()) if folder.is_dir() else []
    if not paths:
        raise PacelineError(f"there is no *.txt in {folder}", hint="paceline learn instructor room says what to run")
    return [Machine(visible(path.stem, _LONGEST, single=True), _parts(path)) for path in paths]


def _parts(path: Path) -> dict[str, tuple[str, str]]:
    try:
        held = read_plain(path, _MOST_BYTES)
    except OSError:
        held = None
    lines = held[0].decode(errors="replace").splitlines() if held is not None else []
    found = [_LINE.fullmatch(line) for line in lines]
    return {each[2]: (each[1], each[3]) for each in found if each is not None and each[2].isprintable()}


def as_text(machines: list[Machine]) -> str:
    """A line a machine, then what is wrong; no newline at the end."""
    names = list(dict.fromkeys(name for machine in machines for name in machine.parts))
    width = max(len(machine.name) for machine in machines)
    lines = [f"{'':<{width}}  " + "  ".join(names)]
    for machine in machines:
        cells = [_SIGNS.get(machine.parts.get(name, ("", ""))[0], "-").ljust(len(name)) for name in names]
        lines.append((f"{machine.name:<{width}}  " + "  ".join(cells)).rstrip())
    lines.append("")
    for machine in machines:
        if not machine.parts:
            lines.append(f"{machine.name}: no line of doctor is in its file")
        for name, (state, said) in machine.parts.items():
            if state == "no":
                lines.append(f"{machine.name}: {name}: {visible(said, _LONGEST, single=True)}")
    ready = sum(machine.ready for machine in machines)
    return "\n".join([*lines, f"{ready} of {len(machines)} machines are ready"])
