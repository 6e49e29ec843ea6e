"""Which line of the user's code are we in?"""

from __future__ import annotations

import sys
from types import FrameType

from paceline.records.place import Place, is_library

_BACKWARD = ("torch/autograd/graph.py", "_engine_run_backward")
"""Where Python hands over to the autograd engine; hooks that DDP runs are called from below it."""


def user_place(frame: FrameType | None = None) -> tuple[Place | None, bool]:
    """The innermost line on the stack that is the user's own, and whether all this happens within a backward pass.

    Args:
        frame: where to start; the caller's by default.
    """
    current = frame if frame is not None else sys._getframe(1)
    place: Place | None = None
    at: FrameType | None = current
    while at is not None:
        code = at.f_code
        if place is None and not is_library(code.co_filename):
            place = Place(path=code.co_filename, line=at.f_lineno, function=code.co_name)
        if code.co_name == _BACKWARD[1] and code.co_filename.endswith(_BACKWARD[0]):
            return place or _outer(at.f_back), True
        at = at.f_back
    return place, False


def _outer(frame: FrameType | None) -> Place | None:
    """Of a hook that is nobody's own, the line that called backward."""
    return user_place(frame)[0] if frame is not None else None
