"""Several ranks log to the same place.

What it finds:
    TensorBoard event files of several ranks in one folder, and one log, CSV or JSON-lines file that several ranks open.

Why it matters:
    Curves are drawn once for each rank on top of each other, and lines of a shared file are lost or mixed.

Repair:
    Make the logger on rank 0 only.

Known problems:
    Ranks that take turns, with a collective in between, are left alone.

References:
    F101. https://github.com/huggingface/pytorch-image-models/issues/1309
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePath

from paceline.audits.audit import Audit
from paceline.audits.file_touches import Touch, is_event_file, logger_writes, ranks_of, unordered
from paceline.audits.wording import count_text, ranks_text
from paceline.records.event import Severity
from paceline.records.schema import Finding

_TABLES = (".csv", ".tsv", ".jsonl")


class DuplicateLoggers(Audit):
    """Looks for logs that several ranks of one machine open for writing."""

    code, name, topic = "DP154", "duplicate-loggers", "files"
    faults = ("F101",)
    needs = ("files",)

    def findings(self) -> list[Finding]:
        """At most one: TensorBoard's before tables, tables before text."""
        folders = self._event_folders()
        if folders:
            folder, touches = min(folders.items())
            what = f"TensorBoard event files into {folder}; each curve is drawn once for each rank"
            return [self._found("warning", touches, what, folder)]
        shared = self._shared_logs()
        shared.sort(key=lambda each: (not _is_table(each), each[0].event.step, each[0].event.path))
        if not shared:
            return []
        path = shared[0][0].event.path
        if _is_table(shared[0]):
            return [self._found("warning", shared[0], f"to {path}; its rows are repeated, mixed or lost", path)]
        return [self._found("info", shared[0], f"to {path}; its lines are repeated or mixed", path)]

    def looked_at(self) -> str:
        logs = self.run.files.count(_logs)
        return f"writers of {count_text(logs, 'log')}" if logs and self.world > 1 else ""

    def _event_folders(self) -> dict[str, list[Touch]]:
        found: dict[str, list[Touch]] = defaultdict(list)
        for touches in self.run.files.paths():
            if is_event_file(touches[0].event.path):
                folder = str(PurePath(touches[0].event.path).parent)
                found[folder] += [each for each in touches if each.event.mode in ("write", "append")]
        hosts = {folder: self.run.files.same_host(touches) for folder, touches in found.items()}
        return {folder: touches for folder, touches in hosts.items() if touches}

    def _shared_logs(self) -> list[list[Touch]]:
        logs = ([each for each in touches if logger_writes(each.event)] for touches in self.run.files.paths())
        return [each for each in (unordered(self.run.files.same_host(touches)) for touches in logs) if each]

    def _found(self, severity: Severity, touches: list[Touch], what: str, path: str) -> Finding:
        ranks = ranks_of(touches)
        touch = next(each for each in touches if each.rank == ranks[1])
        return self.finding(
            severity,
            f"{ranks_text(ranks)} write {what}",
            "make the logger on rank 0 only",
            place=touch.event.place,
            rank=ranks[1],
            step=touch.event.step,
            file=path,
            ranks=ranks,
        )


def _logs(touch: Touch) -> bool:
    return logger_writes(touch.event) or (is_event_file(touch.event.path) and touch.event.mode != "read")


def _is_table(touches: list[Touch]) -> bool:
    return PurePath(touches[0].event.path).suffix.lower() in _TABLES
