"""The environment of the launching process, changed for a while: ranks inherit it, and torch reads settings from it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def with_variables(added: Mapping[str, str]) -> Iterator[None]:
    """Add variables within the block; afterwards the environment is as before, whatever was set meanwhile."""
    before = dict(os.environ)
    os.environ.update(added)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
