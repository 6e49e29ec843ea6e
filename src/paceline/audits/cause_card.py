"""The root cause in words."""

from __future__ import annotations

import re
from pathlib import Path

from paceline.audits.process_ends import advice, ending, signal_name
from paceline.audits.root_cause import Explained, RootCause, diagnose
from paceline.audits.wording import ranks_text
from paceline.records.launched import Attempt, Cause

_TOO_FEW = re.compile(r"(\d+)/(\d+) clients joined")
_IN_USE = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)


def cause_of(attempt: Attempt, logs: Path | None) -> Cause | None:
    """Why an attempt failed; None when no rank of this machine did.

    Args:
        attempt: as its launcher records it.
        logs: the directory that holds `<local_rank>/`; None when none was kept.
    """
    cause = diagnose(attempt, logs)
    return None if cause is None else as_record(cause)


def as_record(cause: RootCause) -> Cause:
    """The cause as it is recorded and shown."""
    rank = cause.first.end.rank
    return Cause(
        kind=cause.kind,
        title=_title(cause),
        rank=None if cause.kind == "unknown" else rank,
        rows=[*_rows(cause), *_other_rows(cause), ("next", _next_step(cause))],
        place=cause.first.at,
        sure=cause.sure,
        finished=cause.kind == "failed" and cause.first.aborted_after_success,
    )


def _title(cause: RootCause) -> str:
    rank, first = cause.first.end.rank, cause.first
    if cause.kind == "left":
        return f"rank {rank} {'left' if cause.sure else 'probably left'} early, while others waited for it"
    if cause.kind == "unknown":
        if first.kind != "consequence":
            if first.end.stopped:
                return "the launcher stopped all ranks of this machine; the first cause is not known"
            return "all ranks were stopped; who asked for it is not known"
        what = "waited for another rank in vain" if first.about == "waited" else "lost another rank"
        return f"rank {rank} {what}; the first cause is not known"
    if first.aborted_after_success:
        return f"rank {rank} was aborted at its exit, after its work was done"
    if cause.tied:
        ranks = ranks_text([rank, *(each.end.rank for each in cause.tied)])
        summaries = {each.raised.summary if each.raised else "" for each in (first, *cause.tied)}
        if len(summaries) == 1 and first.raised:
            return f"{ranks} failed with the same exception"
        return f"{ranks} failed at the same time; which was first is not known"
    how = "failed" if cause.sure else "probably failed"
    return f"rank {rank} {how} first" if cause.others else f"rank {rank} {how}"


def _rows(cause: RootCause) -> list[tuple[str, str]]:
    first = cause.first
    rows: list[tuple[str, str]] = []
    if first.raised is not None:
        rows.append(("raised" if first.ended_it else "printed", first.raised.summary))
    if first.at is not None:
        rows.append(("at", str(first.at)))
    how = ending(first.end.exit_code, stopped=first.end.stopped)
    if first.aborted_after_success:
        how = "killed by SIGABRT"
    rows.append(("ended", f"process {first.end.pid} {how}{_ahead(cause)}"))
    if first.raised is None and not first.aborted_after_success:
        rows += [("said" if index == 0 else "", line) for index, line in enumerate(first.last_lines)]
    if first.log is not None:
        rows.append(("log", str(first.log)))
    return rows


def _ahead(cause: RootCause) -> str:
    if cause.ahead_s is None:
        return ""
    return (
        f", {cause.ahead_s:.1f} s before the others"
        if cause.ahead_s >= 0
        else f", {-cause.ahead_s:.1f} s after the others noticed"
    )


def _other_rows(cause: RootCause) -> list[tuple[str, str]]:
    """The other ranks: those that said something each in a row, the rest together."""
    telling = [each for each in cause.others if each.raised is not None and each.kind != "stopped"]
    rows = [
        ("others" if index == 0 else "", f"rank {each.end.rank}: {_at(each)}") for index, each in enumerate(telling[:4])
    ]
    rest = [each for each in cause.others if each not in telling[:4]]
    if rest:
        rows.append(("" if rows else "others", "; ".join(_other(each) for each in rest[:8])))
    if len(rest) > 8:
        rows.append(("", f"and {len(rest) - 8} more"))
    return rows


def _at(each: Explained) -> str:
    assert each.raised is not None
    at = each.raised.at
    place = f" ({Path(at.path).name}:{at.line})" if at is not None else ""
    summary = each.raised.summary
    return f"{summary[:117]}...{place}" if len(summary) > 120 else f"{summary}{place}"


def _other(each: Explained) -> str:
    end = each.end
    if each.kind == "stopped":
        return f"rank {end.rank} was stopped by the launcher"
    name = signal_name(end.exit_code)
    return f"rank {end.rank} {f'was killed by {name}' if name else ending(end.exit_code)}"


def _next_step(cause: RootCause) -> str:
    first = cause.first
    if cause.kind == "left":
        return (
            "all ranks must run the same number of steps: look for sys.exit, return, or fewer batches on "
            f"rank {first.end.rank}"
        )
    if cause.kind == "unknown":
        if first.raised is not None and (few := _TOO_FEW.search(f"{first.raised.summary}\n{first.raised.detail}")):
            return f"{few[1]} of {few[2]} processes came: does the script set world_size itself?"
        running = [each.end.rank for each in cause.others if each.kind == "stopped"]
        if running:
            were = f"{ranks_text(running)} {'was' if len(running) == 1 else 'were'}"
            return f"{were} still running when the launcher stopped the job: look at the end of the log"
        return "look at the end of each rank's log, and at the other machines where there are some"
    if first.aborted_after_success:
        return (
            "results are complete as far as the script wrote them; call torch.distributed.destroy_process_group() "
            "as the script's last act"
        )
    if first.raised is not None and _IN_USE.search(f"{first.raised.summary}\n{first.raised.detail}"):
        return (
            "a port is taken: where the script sets MASTER_PORT or starts its own processes (mp.spawn), start it with "
            "python instead; else leave the port to the launcher"
        )
    if first.raised is not None and first.ended_it:
        more = "; run again with one worker to see whether the ranks matter" if cause.others else ""
        return f"the log has the whole traceback{more}"
    if any("collective mismatch" in line for line in first.last_lines):
        return "ranks met in different collectives: compare this line with the lines of the other ranks"
    if first.raised is None and first.at is not None:
        return "the log has the stacks of all threads; a debugger shows what happened below that line"
    return advice(first.end.exit_code)
