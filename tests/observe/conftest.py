"""What tests of probes share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.observe.watched import Watched, group_of_one, watching


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A gloo group with this process alone."""
    with group_of_one(tmp_path):
        yield


@pytest.fixture
def watched() -> Iterator[Watched]:
    """All probes watch the test; none may fail."""
    with watching() as found:
        yield found
