"""Which line of the user's code are we in?"""

from __future__ import annotations

import sys
from types import FrameType

from paceline.records.places import Place, is_foreign

_BACKWARD = ("torch/autograd/graph.py", "_engine_run_backward")
"""Where Python hands over to the autograd engine; hooks that DDP runs are called from below it."""


def user_place(frame: FrameType | None = None) -> tuple[Place | None, bool]:
    """The innermost line on the stack that is the user's own, and whether a backward pass runs on top of it.

    Args:
        frame: where to start; the caller's by default.
    """
    current = frame if frame is not None else sys._getframe(1)
    in_backward = False
    at: FrameType | None = current
    while at is not None:
        code = at.f_code
        if not is_foreign(code.co_filename):
            return Place(path=code.co_filename, line=at.f_lineno, function=code.co_name), in_backward
        if code.co_name == _BACKWARD[1] and code.co_filename.endswith(_BACKWARD[0]):
            in_backward = True
        at = at.f_back
    return None, in_backward
