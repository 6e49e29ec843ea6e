"""The protocol for confining ranks of the pool. The course implements it for untrusted answers."""

from __future__ import annotations

from typing import Protocol

MARK = "PACELINE_CONFINED"
"""The variable by which processes of a call are found that have left their group."""


class Confinement(Protocol):
    """Around one call of `run_ranks`; travels to the ranks pickled."""

    def prepare(self) -> None:
        """Before ranks start, in the caller."""
        ...

    def confine(self, rank: int) -> None:
        """Put this process, a rank, under limits for good.

        Raises:
            OSError: the system refuses; nobody's code may run then.
        """
        ...

    def sweep(self, mark: str) -> bool:
        """After all ranks have ended, in the caller: end what carries the mark, and clear up.

        Returns:
            Whether what was left is within bounds.
        """
        ...
