"""What can be found out about a certificate: one state, what it means, and the exit code that stands for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paceline_course.assess.text import visible

State = Literal[
    "valid",
    "self-checked",
    "unreadable",
    "foreign",
    "unknown-version",
    "damaged",
    "tampered",
    "wrong-key",
    "revoked",
    "not-yet-valid",
    "list-unreadable",
    "list-foreign",
    "list-unknown-version",
    "list-damaged",
    "list-tampered",
    "list-wrong-key",
    "list-other-issuer",
]
Level = Literal["self-checked", "attested"]

EXIT_CODES: dict[State, int] = {
    "valid": 0,
    "self-checked": 10,
    "unreadable": 11,
    "foreign": 12,
    "unknown-version": 13,
    "damaged": 14,
    "tampered": 15,
    "wrong-key": 16,
    "revoked": 17,
    "not-yet-valid": 18,
    "list-unreadable": 21,
    "list-foreign": 22,
    "list-unknown-version": 23,
    "list-damaged": 24,
    "list-tampered": 25,
    "list-wrong-key": 26,
    "list-other-issuer": 27,
}
"""Of `paceline learn certificate verify`; course/docs/certificate.md lists them in users' words."""


@dataclass(frozen=True)
class Verdict:
    """What a check found."""

    state: State
    said: str
    """In a sentence or two."""
    proved: tuple[str, ...] = ()
    """What may be relied on; empty unless the signature is right."""
    open: tuple[str, ...] = ()
    """What is not proved, though one might think so."""
    level: Level | None = None
    """As the certificate says; only where the signature is right."""
    id: str = ""
    name: str = ""
    result: str = ""
    """In words: 87.5 of 100, merit."""
    fingerprint: str = ""
    """Of the key that signed."""

    @property
    def exit_code(self) -> int:
        """That the command ends with."""
        return EXIT_CODES[self.state]


class RefusedError(Exception):
    """Found on the way: the check ends here, with this state. What it says may quote a hostile file."""

    def __init__(self, state: State, said: str) -> None:
        said = visible(said, single=True)
        super().__init__(said)
        self.state: State = state
        self.said = said
