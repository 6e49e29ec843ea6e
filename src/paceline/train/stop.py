"""SIGTERM and Ctrl-C: noted when they come, acted on at a step on which all ranks agree (see `objective`)."""

from __future__ import annotations

import signal
from types import FrameType


class StopRequest:
    """What this rank was asked to do. Handlers only set a flag, so they are safe at any moment."""

    def __init__(self) -> None:
        self.terminate = False
        self.interrupt = False

    def install(self) -> None:
        """Take over SIGTERM and SIGINT of this process."""
        signal.signal(signal.SIGTERM, self._note)
        signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGTERM:
            self.terminate = True
        else:
            self.interrupt = True

    def wishes(self) -> tuple[float, float]:
        """Terminate, interrupt; 1 for yes: what `Objective` takes."""
        return float(self.terminate), float(self.interrupt)
