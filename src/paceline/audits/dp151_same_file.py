"""Several ranks write the same file.

What it finds:
    Ranks of one machine that overwrite the same file with no collective between them.

Why it matters:
    The writes interleave, and what is left may be a torn checkpoint or cache. The last rank to write wins.

Repair:
    Write on global rank 0 only, to a temporary name, rename, then `dist.barrier()`.

Known problems:
    Ranks of different machines may share a file system; they are not compared. Files that are put into place with
    `os.replace` are whole, and left alone.

References:
    F93. https://github.com/karpathy/nanochat/pull/336
    F103. https://github.com/pytorch/tutorials/issues/3065
    F104. https://github.com/open-mmlab/mmpretrain/pull/273
"""

from __future__ import annotations

from paceline.audits.audit import Audit
from paceline.audits.file_touches import (
    Touch,
    is_download,
    is_event_file,
    logger_writes,
    ranks_of,
    unordered,
)
from paceline.audits.wording import count_text, ranks_text
from paceline.records.schema import Finding


class SameFile(Audit):
    """Looks for paths that several ranks write."""

    code, name, topic = "DP151", "same-file", "files"
    faults = ("F93", "F103", "F104")
    needs = ("files",)

    def findings(self) -> list[Finding]:
        """At most one of files of the training, and one of files that are prepared before it."""
        conflicts = [each for each in map(self._conflict, self.run.files.paths()) if each]
        training = [each for each in conflicts if _of_training(each)]
        before = [each for each in conflicts if not _of_training(each)]
        return [self._found(group, training=group is training) for group in (training, before) if group]

    def looked_at(self) -> str:
        files = self.run.files.count(_writes)
        return f"writers of {count_text(files, 'file')}" if files and self.world > 1 else ""

    def _conflict(self, touches: list[Touch]) -> list[Touch]:
        return unordered(self.run.files.same_host([each for each in touches if _writes(each)]))

    def _found(self, conflicts: list[list[Touch]], *, training: bool) -> Finding:
        touches = min(conflicts, key=lambda each: (each[0].event.step, each[0].event.path))
        event, ranks = touches[0].event, ranks_of(touches)
        others = len({each[0].event.path for each in conflicts}) - 1
        files = event.path + (f" and {count_text(others, 'other file')}" if others else "")
        when = f"at step {event.step}" if event.step else "before the first step"
        if training:
            faults: tuple[str, ...] = ("F93",) if event.step else ("F93", "F104")
            advice = "write on rank 0 only (global, not local rank), then call dist.barrier()"
        else:
            faults = ("F103",) if is_download(event) else ("F104",)
            advice = "let local rank 0 make the file, and the other ranks wait in dist.barrier() before they read it"
        return self.finding(
            "error" if training else "warning",
            f"{ranks_text(ranks)} write {files} {when}, with no collective between them; the file may be torn",
            advice,
            faults=faults,
            place=event.place,
            rank=ranks[1],
            step=event.step,
            file=event.path,
            by=event.by,
            ranks=ranks,
        )


def _writes(touch: Touch) -> bool:
    """Written from empty by the script; logs that ranks share are DP154's."""
    event = touch.event
    if event.mode != "write" or event.place is None:
        return False
    return not logger_writes(event) and not is_event_file(event.path)


def _of_training(touches: list[Touch]) -> bool:
    return any(each.event.step > 0 or each.event.by == "torch.save" for each in touches)
