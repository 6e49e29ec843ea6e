"""Refusals and validations as data, for travelling from the process that made them to the one that started it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from paceline.records.errors import PacelineError


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A PacelineError as data."""

    what: str
    why: str = ""
    hint: str = ""
    exit_code: int = 2

    @classmethod
    def of(cls, error: PacelineError) -> Refusal:
        """The same message."""
        return cls(what=error.what, why=error.why, hint=error.hint, exit_code=error.exit_code)

    def error(self) -> PacelineError:
        """The same message."""
        return PacelineError(self.what, why=self.why, hint=self.hint, exit_code=self.exit_code)

    def write(self, path: str | Path) -> None:
        """Leave it for the process that started this one."""
        Path(path).write_bytes(msgspec.json.encode(self))

    @classmethod
    def read(cls, path: Path) -> Refusal | None:
        """Read the file of a process at `path`; None where it left nothing, or was killed while it wrote."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, msgspec.MsgspecError):
            return None


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `train.task_validation.validate`."""

    refusal: Refusal | None = None
    """Why the task cannot be trained as asked; None if it can."""
    notes: list[str] = []
    """For people, beside the run."""
    facts: dict[str, Any] = {}
    """For run.json: samples, loss, additivity, metrics, duration_s."""
    task: dict[str, Any] = {}
    """A `tasks.description.TaskDescription`; empty where the task could not be loaded."""
