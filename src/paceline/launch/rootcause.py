"""Why a job failed: from the failure records and log files of its ranks to one cause, and to one card.

When a rank fails, the others fail too, because their peer is gone or because the launcher stops them. The cause is
the rank that failed by itself, first:

1. ranks that the launcher stopped (SIGTERM, SIGKILL after it) come last;
2. then ranks that complain about a lost peer;
3. among the rest the earliest counts, by failure time, then by the time of the last line in the log.

What it raised is read from error.json where the script used torch elastic's `@record`, else from the end of its
stderr log. Pure functions of records and texts; whoever starts jobs may use them.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.launch.endings import advice, ending, signal_name, stopped_by_launcher
from paceline.launch.traces import Raised, parse_trace, without_rank

_TAIL_BYTES = 256 * 1024
_TAIL_LINES = 6
_ABORT_AT_EXIT = "terminate called without an active exception"
_LOST_PEER = re.compile(
    r"closed by peer|reset by peer|remote process exited|remote error|Broken pipe|socket closed|"
    r"DistBackendError|DistNetworkError|peer.*(gone|died|unreachable)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Failure:
    """One rank that ended with something else than 0, as a launcher knows it.

    Attributes:
        rank: global.
        local_rank: on its machine; names the directory of its logs.
        pid: its process id.
        exit_code: above 0 its exit code, below 0 the negative number of the signal that killed it.
        at_unix_s: when it failed, to the precision that the launcher has.
    """

    rank: int
    local_rank: int
    pid: int
    exit_code: int
    at_unix_s: float = 0.0


@dataclass(frozen=True)
class Evidence:
    """What a rank left behind.

    Attributes:
        folder: the directory of its logs; None when there is none.
        error: error.json decoded; None when there is none.
        stderr: the end of its stderr log; empty when nothing was captured.
        written_unix_s: when the stderr log was last written; 0 when there is none.
    """

    folder: Path | None = None
    error: dict[str, Any] | None = None
    stderr: str = ""
    written_unix_s: float = 0.0


@dataclass(frozen=True)
class RootCause:
    """The rank that failed first, and why.

    Attributes:
        failure: its record.
        raised: its exception; None when none was found (sys.exit, a signal).
        source: where `raised` was found: "error.json", "stderr.log", or "" when it was not.
        aborted_after_success: it finished its work and was aborted while the interpreter went down.
        last_lines: of its stderr, when there is no exception to show.
        log: the file or directory to look into; None when nothing was kept.
        others: the other ranks that failed, in the order of their ranks.
    """

    failure: Failure
    raised: Raised | None = None
    source: str = ""
    aborted_after_success: bool = False
    last_lines: tuple[str, ...] = ()
    log: Path | None = None
    others: tuple[Failure, ...] = ()


def diagnose(failures: Sequence[Failure], logs_dir: Path | None) -> RootCause:
    """Find the cause among the failures of one job.

    Args:
        failures: at least one.
        logs_dir: the directory that the launcher was given for logs, with torch elastic's layout below it, or the
            directory of one attempt; None when there are no logs.

    Raises:
        ValueError: no failure was given.
    """
    if not failures:
        raise ValueError("a job without failures has no root cause")
    evidence = {each.rank: gather(logs_dir, each.local_rank) for each in failures}
    causes = [_explain(each, evidence[each.rank]) for each in failures]
    first = min(causes, key=lambda cause: _order(cause, evidence[cause.failure.rank], len(failures)))
    others = sorted((each for each in failures if each is not first.failure), key=lambda each: each.rank)
    return replace(first, others=tuple(others))


def gather(logs_dir: Path | None, local_rank: int) -> Evidence:
    """Read what a rank left in the newest attempt below `logs_dir`."""
    folder = _newest_attempt(logs_dir, local_rank) if logs_dir is not None else None
    if folder is None:
        return Evidence()
    stderr = folder / "stderr.log"
    written = stderr.stat().st_mtime if stderr.is_file() else 0.0
    return Evidence(folder, _read_error(folder / "error.json"), _tail(stderr), written)


def card(cause: RootCause) -> str:
    """The cause as a person reads it: some lines of plain text, without a newline at the end."""
    failure = cause.failure
    title = f"rank {failure.rank} failed first" if cause.others else f"rank {failure.rank} failed"
    rows: list[tuple[str, str]] = []
    if cause.aborted_after_success:
        title = f"rank {failure.rank} was aborted at its exit, after its work was done"
    elif cause.raised is not None:
        rows.append(("raised", cause.raised.summary))
        if cause.raised.path:
            rows.append(("at", cause.raised.place))
    how = "killed by SIGABRT" if cause.aborted_after_success else ending(failure.exit_code)
    rows.append(("ended", f"process {failure.pid} {how}"))
    if cause.raised is None and not cause.aborted_after_success:
        rows += [("said" if index == 0 else "", line) for index, line in enumerate(cause.last_lines)]
    if cause.log is not None:
        rows.append(("log", str(cause.log)))
    if cause.others:
        rows.append(("others", "; ".join(_other(each) for each in cause.others)))
    rows.append(("next", _next_step(cause)))
    lines = [f"-- {title} ".ljust(80, "-"), *(f"  {name:<8}{text}".rstrip() for name, text in rows), "-" * 80]
    return "\n".join(lines)


def _order(cause: RootCause, evidence: Evidence, count: int) -> tuple[int, float, float, int]:
    failure = cause.failure
    place = 0
    if cause.raised is None and stopped_by_launcher(failure.exit_code, alone=count == 1):
        place = 2
    elif cause.raised is not None and _LOST_PEER.search(cause.raised.summary):
        place = 1
    written = evidence.written_unix_s or float("inf")
    return (place, failure.at_unix_s, written, failure.rank)


def _explain(failure: Failure, evidence: Evidence) -> RootCause:
    log = None
    if evidence.folder is not None:
        stderr = evidence.folder / "stderr.log"
        log = stderr if stderr.is_file() else evidence.folder
    recorded = _recorded(evidence.error)
    if recorded is not None:
        return RootCause(failure, recorded, "error.json", log=log)
    raised = parse_trace(evidence.stderr)
    at_exit = failure.exit_code == -signal.SIGABRT and _ABORT_AT_EXIT in evidence.stderr
    # Other signals are no consequence of an exception, so an older trace in the log is not their reason.
    if raised is not None and (failure.exit_code > 0 or at_exit):
        return RootCause(failure, raised, "stderr.log", log=log)
    aborted = at_exit and raised is None
    lines = [line for line in without_rank(evidence.stderr).splitlines() if line.strip()]
    return RootCause(failure, aborted_after_success=aborted, last_lines=tuple(lines[-_TAIL_LINES:]), log=log)


def _recorded(error: dict[str, Any] | None) -> Raised | None:
    """What `@record` wrote: {"message": {"message": str, "extraInfo": {"py_callstack": str, ...}}} or a text."""
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


def _other(failure: Failure) -> str:
    if stopped_by_launcher(failure.exit_code, alone=False):
        return f"rank {failure.rank} was stopped by the launcher"
    name = signal_name(failure.exit_code)
    return f"rank {failure.rank} {f'killed by {name}' if name else ending(failure.exit_code)}"


def _next_step(cause: RootCause) -> str:
    if cause.aborted_after_success:
        return (
            "results are complete as far as the script wrote them; call torch.distributed.destroy_process_group() "
            "as the script's last act"
        )
    if cause.raised is not None:
        more = "; run again with one worker to see whether the ranks matter" if cause.others else ""
        return f"the log has the whole traceback{more}"
    return advice(cause.failure.exit_code)
