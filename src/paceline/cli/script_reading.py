"""Reads the script of `paceline run` while it starts."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.records.errors import PacelineError
from paceline.records.observation import Unseen

if TYPE_CHECKING:
    from paceline.launch.plan import LaunchPlan
    from paceline.records.schema import Finding


class ScriptReading:
    """Findings of `paceline check` in the script of a job, read in a thread as the job starts.

    Args:
        plan: of the job.
    """

    def __init__(self, plan: LaunchPlan) -> None:
        self._why_not = "--no-check" if plan.flags["no_check"] else ""
        self._read: Future[tuple[list[Finding], str]] | None = None
        script = _file_of(str(plan.flags["training_script"]), module=bool(plan.flags["module"]))
        if script is None:
            self._why_not = self._why_not or "the script is no Python file in the working directory"
        elif not self._why_not:
            pool = ThreadPoolExecutor(1, "paceline-check")
            self._read = pool.submit(_read, script)
            pool.shutdown(wait=False)

    def findings(self) -> list[Finding]:
        """What was found. Waits for the thread; a failure never reaches the job."""
        if self._read is None:
            return []
        try:
            findings, self._why_not = self._read.result()
        except PacelineError as error:
            findings, self._why_not = [], error.what
        except Exception as error:  # noqa: BLE001  # the job comes first
            findings, self._why_not = [], f"paceline check failed with {type(error).__name__}: {error}"
        return findings

    def missing(self) -> list[Unseen]:
        """The reading that did not take place, with the reason."""
        return [Unseen(what="the source of the script", why=self._why_not, by_launcher=True)] if self._why_not else []


def _file_of(script: str, *, module: bool) -> Path | None:
    """The file that is started; None if it is no Python file."""
    path = Path(*script.split(".")).with_suffix(".py") if module else Path(script)
    if module and not path.is_file():
        path = path.with_suffix("") / "__main__.py"
    return path if path.suffix == ".py" and path.is_file() else None


def _read(script: Path) -> tuple[list[Finding], str]:
    from paceline.check.script_findings import script_findings

    return script_findings(script)
