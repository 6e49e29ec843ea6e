"""Why a job failed: from the ends and log files of its ranks to one cause.

When a rank ends, the others fail too, because their peer is gone or because the launcher stops them. So the first exit
code that is not 0 names no cause. Each rank is put into one of four classes:

- **failed** by itself: an exception of its own, an exit code, a signal that the launcher did not send;
- **consequence**: it reports a lost connection or a wait that timed out (consequences.py);
- **left**: exit code 0;
- **stopped** by the launcher.

The cause is the rank that failed by itself first: by the time of its traceback, else by the time of its end. Where
none did, it is a rank that left with code 0 before the others lost it, or one that lost the others while it handled an
exception of its own. Where there is none either, the cause is not known, and the result says so. Pure functions of
records and texts; whoever starts jobs may use them.
"""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from paceline.audits.consequences import Consequence, consequence_of, consequence_of_abort, mentioned_in
from paceline.audits.tracebacks import Raised, parse_trace, split_fatal, without_rank
from paceline.records.launched import Attempt, RankExit
from paceline.records.place import Place

_TAIL_BYTES = 256 * 1024
_TAIL_LINES = 6
_ABORT_AT_EXIT = "terminate called without an active exception"
_TIE_S = 0.05
"""Ends that are no further apart are not put in order: that is how long an interpreter may take to go down."""
_LEFT_LONG_BEFORE_S = 60.0
"""A rank that left so long before a connection was lost need not be the reason."""
_TEARDOWN_S = 30.0
"""An interpreter may take so long to go down after its connections were closed."""


@dataclass(frozen=True)
class Evidence:
    """The records that a rank left.

    Attributes:
        folder: the directory of its logs; None when there is none.
        log: the file that holds its stderr; None when there is none.
        error: error.json decoded; None when there is none.
        stderr: the end of `log`; empty when nothing was captured.
        written_unix_s: when `log` was last written; 0 when there is none.
    """

    folder: Path | None = None
    log: Path | None = None
    error: dict[str, Any] | None = None
    stderr: str = ""
    written_unix_s: float = 0.0


@dataclass(frozen=True)
class Explained:
    """One rank's end and what its logs say about it.

    Attributes:
        end: the end.
        kind: the class that this module's docstring names.
        about: for a consequence, of what.
        raised: its exception; None when none was found (sys.exit, a signal).
        ended_it: `raised` ended the process; else it is the last that stands in the log.
        aborted_after_success: it finished its work and was aborted while the interpreter went down.
        at: the user's line of `raised`, or where a signal met it; None when not known.
        last_lines: of its stderr, when there is no exception to show.
        log: the file or directory to look into; None when nothing was kept.
        failed_unix_s: when it failed, at the latest; infinite when not known.
    """

    end: RankExit
    kind: Literal["failed", "consequence", "left", "stopped"]
    about: Consequence | None = None
    raised: Raised | None = None
    ended_it: bool = False
    aborted_after_success: bool = False
    at: Place | None = None
    last_lines: tuple[str, ...] = ()
    log: Path | None = None
    failed_unix_s: float = math.inf


@dataclass(frozen=True)
class RootCause:
    """The rank that ended the job, and why.

    Attributes:
        kind: "failed": `first` failed by itself. "left": `first` left with code 0 while others waited. "unknown": the
            first cause is not known, and `first` is the first rank that reports a consequence.
        first: that rank.
        others: the other ranks that did not end well or before the end, by rank.
        sure: False where the evidence allows another cause.
        tied: ranks that failed by themselves so close to `first` that the order is not known.
        ahead_s: how long before the first consequence `first` left; None when not known, or for another kind.
    """

    kind: Literal["failed", "left", "unknown"]
    first: Explained
    others: tuple[Explained, ...] = ()
    sure: bool = True
    tied: tuple[Explained, ...] = ()
    ahead_s: float | None = None


def diagnose(attempt: Attempt, logs_dir: Path | None) -> RootCause | None:
    """Find the cause among the ends of one attempt; None when no rank of this machine failed.

    Args:
        attempt: as its launcher knows it. Ranks that were not seen to end say nothing.
        logs_dir: the directory that the launcher was given for logs, with torch elastic's layout below it, or the
            directory of one attempt; None when there are no logs.
    """
    ends = [each for each in attempt.ranks if each.exit_code is not None]
    failures = sum(each.exit_code != 0 for each in ends)
    if not failures:
        return None
    began, alone = attempt.started_unix_s, failures == 1
    found = sorted(
        (_explain(each, began, gather(logs_dir, each.local_rank), alone=alone) for each in ends),
        key=lambda each: (each.failed_unix_s, each.end.rank),
    )
    failed = [each for each in found if each.kind == "failed"]
    if failed:
        tied = [
            each
            for each in failed[1:]
            if each.failed_unix_s == failed[0].failed_unix_s or each.failed_unix_s - failed[0].failed_unix_s < _TIE_S
        ]
        return RootCause("failed", failed[0], _others(found, failed[0]), tied=tuple(tied))
    victims = [each for each in found if each.kind == "consequence"] or [
        each for each in found if each.end.exit_code != 0
    ]
    left = [each for each in found if each.kind == "left"]
    if left and victims[0].kind == "consequence":
        first = min(left, key=lambda each: (each.failed_unix_s, each.end.rank))
        gap = victims[0].failed_unix_s - first.failed_unix_s
        known = math.isfinite(gap)
        # Its connections close before its process ends, so the others may notice first.
        near = -_TEARDOWN_S < gap < _LEFT_LONG_BEFORE_S or (gap > 0 and victims[0].about == "waited")
        sure = known and near and len(ends) == attempt.world and not first.end.stopped
        return RootCause("left", first, _others(found, first), sure=sure, ahead_s=gap if known else None)
    if hidden := next((own for each in victims if (own := _behind_teardown(each)) is not None), None):
        return RootCause("failed", hidden, _others(found, hidden), sure=False)
    return RootCause("unknown", victims[0], _others(found, victims[0]), sure=False)


def gather(logs_dir: Path | None, local_rank: int) -> Evidence:
    """Read what a rank left in the newest attempt below `logs_dir`."""
    folder = _newest_attempt(logs_dir, local_rank) if logs_dir is not None else None
    if folder is None:
        return Evidence()
    log = next((path for name in ("stderr.log", "output.log") if (path := folder / name).is_file()), None)
    written = log.stat().st_mtime if log is not None else 0.0
    return Evidence(folder, log, _read_error(folder / "error.json"), _tail(log) if log else "", written)


def _others(found: Sequence[Explained], first: Explained) -> tuple[Explained, ...]:
    others = (each for each in found if each.end.rank != first.end.rank)
    return tuple(sorted(others, key=lambda each: each.end.rank))


def _behind_teardown(each: Explained) -> Explained | None:
    """The rank with its own exception, where a collective failed while that was handled, as in `finally`."""
    origin = None if each.raised is None else each.raised.origin
    if origin is None or each.kind != "consequence" or consequence_of(origin) is not None:
        return None
    return replace(each, kind="failed", about=None, raised=origin, at=origin.at)


def _explain(end: RankExit, began: float, evidence: Evidence, *, alone: bool) -> Explained:
    code = end.exit_code or 0
    log = evidence.log or evidence.folder
    stopped = _stopped(end, code, alone=alone)
    at_exit = code == -signal.SIGABRT and _ABORT_AT_EXIT in evidence.stderr
    recorded = _recorded(evidence.error)
    raised = recorded or parse_trace(evidence.stderr)
    # A traceback in the log says nothing of a kill, nor of a rank that went on after it.
    ended_it = raised is not None and (recorded is not None or code == 1 or at_exit or (stopped and raised.uncaught))
    if raised is not None and not ended_it and not (code > 1 or (code == 0 and raised.last)):
        raised = None
    said, crashed_at = split_fatal(evidence.stderr) if code < 0 else (evidence.stderr, None)
    lines = tuple(line for line in without_rank(said).splitlines() if line.strip())[-_TAIL_LINES:]
    about = _about(code, raised, evidence.stderr, lines) if code != 0 else None
    traced = ended_it and evidence.written_unix_s > 0
    ended_at = math.inf if end.after_s is None else began + end.after_s
    return Explained(
        end=end,
        kind=_kind(code, about, stopped=stopped and not ended_it),
        about=about,
        raised=raised,
        ended_it=ended_it,
        aborted_after_success=at_exit and raised is None,
        at=crashed_at if raised is None else raised.at,
        last_lines=lines if raised is None else (),
        log=log,
        failed_unix_s=min(ended_at, evidence.written_unix_s) if traced else ended_at,
    )


def _about(code: int, raised: Raised | None, stderr: str, lines: Sequence[str]) -> Consequence | None:
    if raised is not None and (found := consequence_of(raised)):
        return found
    if code == -signal.SIGABRT:
        return consequence_of_abort(stderr)
    return mentioned_in("\n".join(lines)) if raised is None and code > 0 else None


def _kind(
    code: int, about: Consequence | None, *, stopped: bool
) -> Literal["failed", "consequence", "left", "stopped"]:
    if code == 0:
        return "left"
    if stopped:
        return "stopped"
    return "consequence" if about else "failed"


def _stopped(end: RankExit, code: int, *, alone: bool) -> bool:
    """True if the launcher ended the rank. If that was not recorded, SIGTERM among failures counts."""
    if end.stopped is None or end.after_s is None:
        return not alone and code in (-signal.SIGTERM, 128 + signal.SIGTERM)
    return end.stopped and (code < 0 or code in (128 + signal.SIGTERM, 128 + signal.SIGINT))


def _recorded(error: dict[str, Any] | None) -> Raised | None:
    """The file of `@record`: {"message": {"message": str, "extraInfo": {"py_callstack": str, ...}}} or a text."""
    message = (error or {}).get("message")
    if isinstance(message, str):
        return Raised(message.strip().splitlines()[0] if message.strip() else message)
    if not isinstance(message, dict):
        return None
    extra = message.get("extraInfo")
    trace = parse_trace(str(extra.get("py_callstack", ""))) if isinstance(extra, dict) else None
    summary = str(message.get("message", "")).strip()
    if trace is not None:
        return trace
    return Raised(summary.splitlines()[0]) if summary else None


def _newest_attempt(logs_dir: Path, local_rank: int) -> Path | None:
    if logs_dir.name.startswith("attempt_"):
        folder = logs_dir / str(local_rank)
        return folder if folder.is_dir() else None
    found = [path for path in logs_dir.glob(f"**/attempt_*/{local_rank}") if path.is_dir()]

    def age(path: Path) -> tuple[float, int]:
        number = path.parent.name.removeprefix("attempt_")
        return (path.parents[1].stat().st_mtime, int(number) if number.isdigit() else -1)

    return max(found, key=age, default=None)


def _read_error(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):  # missing, or torn by the end of its writer
        return None
    return content if isinstance(content, dict) else None


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
