"""The line of the user's code that led to a call."""

from __future__ import annotations

import os
import sys
from types import FrameType

from paceline.records.place import Place, is_library

_START = os.getcwd()  # noqa: PTH109
"""Paths of frames may be relative to the directory in which the process started; scripts may change it."""
_BACKWARD = ("torch/autograd/graph.py", "_engine_run_backward")
"""Where Python hands over to the autograd engine; hooks that DDP runs are called from below it."""


def user_place() -> Place | None:
    """The innermost line on the stack that is the user's own; None where there is none, as in threads of libraries."""
    at: FrameType | None = sys._getframe(1)
    while at is not None:
        if not is_library(at.f_code.co_filename):
            return _place(at)
        at = at.f_back
    return None


def place_around(kind: type) -> Place | None:
    """The innermost line of the user's own that is in no method of a `kind`, as the line that calls a model."""
    at: FrameType | None = sys._getframe(1)
    while at is not None:
        if not is_library(at.f_code.co_filename) and not isinstance(at.f_locals.get("self"), kind):
            return _place(at)
        at = at.f_back
    return user_place()


def place_of_io() -> tuple[Place | None, bool]:
    """The same for files, and whether an import reads them."""
    at: FrameType | None = sys._getframe(1)
    while at is not None:
        name = at.f_code.co_filename
        if name.startswith(("<frozen importlib", "<frozen zipimport")):  # `os` is frozen as well, and makes directories
            return None, True
        if not is_library(name):
            return _place(at), False
        at = at.f_back
    return None, False


def user_place_and_backward() -> tuple[Place | None, bool]:
    """The same, and whether all this happens within a backward pass."""
    at: FrameType | None = sys._getframe(1)
    place: Place | None = None
    in_backward = False
    while at is not None and not (place and in_backward):
        code = at.f_code
        if place is None and not is_library(code.co_filename):
            place = _place(at)
        in_backward |= code.co_name == _BACKWARD[1] and code.co_filename.endswith(_BACKWARD[0])
        at = at.f_back
    return place, in_backward


def _place(frame: FrameType) -> Place:
    code = frame.f_code
    return Place(path=os.path.join(_START, code.co_filename), line=frame.f_lineno, function=code.co_name)  # noqa: PTH118
