"""What tests of verbs that make many trainings share: a place of their own, and a stand-in for the trainings."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.studies import trainings

STAND_IN = Path(__file__).parents[1] / "studies" / "stand_in.py"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a directory of its own, and not as a rank."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """With the stand-in instead of trainings; gives what it was called with."""
    log = tmp_path / "calls"
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    monkeypatch.setattr(trainings, "PROGRAM", (sys.executable, str(STAND_IN)))
    return lambda: log.read_text().splitlines() if log.exists() else []
