"""Each rank makes an output path of its own from the time or its process id.

What it finds:
    Files or folders that ranks write under names that are equal but for a time or the process id.

Why it matters:
    One run is scattered over several folders, and a rank that looks for rank 0's checkpoint does not find it.

Repair:
    Make the name on rank 0 and broadcast it: `dist.broadcast_object_list([name])`.

Known problems:
    Names that are made at random are not recognized. Files of one folder may have such names on purpose, as traces do;
    the finding is of severity `info` then.

References:
    F100. https://github.com/Lightning-AI/pytorch-lightning/issues/8945
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import PurePath

from paceline.audits.across_ranks import differing
from paceline.audits.audit import Audit
from paceline.audits.file_touches import Touch, is_event_file
from paceline.audits.wording import count_text, ranks_text
from paceline.records.event import attempt_of
from paceline.records.schema import Finding

_TIMES = re.compile(
    r"(20\d\d[-_.]?[01]\d[-_.]?[0-3]\d[-_T .]{0,2}[0-2]\d[-_:.h]?[0-5]\d([-_:.m]?[0-5]\d)?([-_.,]?\d{1,6})?"
    r"|(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[-_]?[0-3]\d[-_][0-2]\d[-_:.]?[0-5]\d[-_:.]?[0-5]\d"
    r"|(?<!\d)1[5-9]\d{8}(\d{3}){0,3}(\.\d+)?(?!\d))"
)
"""A date with a time, TensorBoard's form of it, and seconds to nanoseconds since 1970."""
_WRITES = ("write", "append", "directory", "rename")
_SCRATCH = ("/tmp/", "/var/tmp/")
"""A process may have a folder of its own there, unless the job itself runs there."""
_LEAST_PROCESS = 10
"""A smaller process id may be any number."""


class PathPerRank(Audit):
    """Compares the names of ranks' files, without times and process ids."""

    code, name, topic = "DP153", "path-per-rank", "files"
    faults = ("F100",)
    needs = ("files",)

    def findings(self) -> list[Finding]:
        found = [names for names in self._names().values() if len({path for path, _ in names.values()}) > 1]
        if not found:
            return []
        names = min(found, key=_sort_key)
        paths = {rank: path for rank, (path, _) in sorted(names.items())}
        one, first = paths[min(paths)], differing(paths)[0]
        other, touch = names[first]
        scattered = _is_folder(touch) or PurePath(one).parent != PurePath(other).parent
        return [
            self.finding(
                "warning" if scattered else "info",
                f"{ranks_text(paths)} write to paths that differ in a time or process id: {one} and {other}"
                + ("; the output of one run is scattered" if scattered else ""),
                "make the name on rank 0 and broadcast it with dist.broadcast_object_list",
                place=touch.event.place,
                rank=first,
                step=touch.event.step,
                paths={str(rank): path for rank, path in paths.items()},
            )
        ]

    def looked_at(self) -> str:
        paths = self.run.files.count(_writes)
        return f"names of {count_text(paths, 'written path')}" if paths and self.world > 1 else ""

    def _names(self) -> dict[str, dict[int, tuple[str, Touch]]]:
        """By the name without times and process ids, each rank's first name with them."""
        found: dict[str, dict[int, tuple[str, Touch]]] = defaultdict(dict)
        for touches in self.run.files.paths():
            for touch in filter(_writes, touches):
                path = touch.event.path
                if path.startswith(_SCRATCH) and not path.startswith(self.run.files.directories.get(touch.rank, "/")):
                    continue
                if is_event_file(path):  # times in the names of these files are right: one a logger
                    path = str(PurePath(path).parent)
                common = self._common(path, touch)
                if common != path:
                    found[common].setdefault(touch.rank, (path, touch))
        return found

    def _common(self, path: str, touch: Touch) -> str:
        common = _TIMES.sub("<time>", path)
        process = self.run.files.processes.get((attempt_of(touch.event), touch.rank), 0)
        if process < _LEAST_PROCESS:
            return common
        return re.sub(rf"(?<!\d){process}(?!\d)", "<process>", common)


def _sort_key(names: dict[int, tuple[str, Touch]]) -> tuple[bool, int, str]:
    """Folders first, then what was written first."""
    folders = {str(PurePath(name).parent) for name, _ in names.values()}
    step, name = min((touch.event.step, name) for name, touch in names.values())
    made = any(_is_folder(touch) for _, touch in names.values())
    return not made and len(folders) == 1, step, name


def _is_folder(touch: Touch) -> bool:
    """Its name is that of a folder."""
    return touch.event.mode == "directory" or is_event_file(touch.event.path)


def _writes(touch: Touch) -> bool:
    return touch.event.mode in _WRITES and touch.event.place is not None
