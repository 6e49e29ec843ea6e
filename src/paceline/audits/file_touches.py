"""Files that ranks opened, by path."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from paceline.records.event import Event, attempt_of
from paceline.records.observed import Collective
from paceline.records.observed_rank import FileTouched, RankStarted

_MOST_PATHS = 4000
_MOST_TOUCHES = 16
"""Of each path and rank."""
_PASSED_OVER = re.compile(
    r"^/(dev|proc|sys)/|/__pycache__/|\.pyc(\.\d+)?$|\.lock$|torchinductor|torch_extensions|ComputeCache|[./]triton/"
    r"|\.nb[ci]$|matplotlib|fontconfig|/wandb/"
)
_LOG = re.compile(r"\.(log|csv|tsv|jsonl|txt)$", re.IGNORECASE)
_DOWNLOADED = re.compile(
    r"[/_.-](down[-_]?loads?|datasets?|raw)([/_.-]|$)|/data/|\.(zip|tgz|tar|gz|xz|bz2)$",
    re.IGNORECASE,
)
_DOWNLOADS = ("download", "urlretrieve", "urlopen")


@dataclass(frozen=True)
class Touch:
    """One opening of a file.

    Attributes:
        rank: of the process.
        event: what was seen.
        seen: collectives of any group that this rank was seen to call before.
    """

    rank: int
    event: FileTouched
    seen: int


class FileTouches:
    """Collects openings of files, and which ranks share a machine."""

    def __init__(self) -> None:
        self.hosts: dict[int, str] = {}
        self.directories: dict[int, str] = {}
        self.processes: dict[tuple[int, int], int] = {}
        """Process id by attempt and rank."""
        self._seen: dict[int, int] = defaultdict(int)
        self._paths: dict[tuple[int, str], dict[int, list[Touch]]] = {}
        self._sorted: list[list[Touch]] | None = None

    def feed(self, rank: int, event: Event, world: int) -> None:
        """Take an opening; files of the system and of compilers are ignored."""
        if isinstance(event, RankStarted):
            self.hosts[rank] = event.host
            self.directories[rank] = event.directory
            self._seen[rank] = 0
            self.processes[attempt_of(event), rank] = event.pid
        elif isinstance(event, Collective):
            self._seen[rank] += 1
        elif isinstance(event, FileTouched) and not _PASSED_OVER.search(event.path):
            key = (attempt_of(event), event.path)
            if key not in self._paths and len(self._paths) >= _MOST_PATHS:
                return
            touches = self._paths.setdefault(key, {}).setdefault(rank, [])
            if len(touches) < _MOST_TOUCHES:
                touches.append(Touch(rank, event, self._seen[rank]))
                self._sorted = None

    def paths(self) -> list[list[Touch]]:
        """All openings of each path, ranks in order; paths in order, so that interleaving does not matter."""
        if self._sorted is None:
            self._sorted = [
                [touch for _, touches in sorted(ranks.items()) for touch in touches]
                for _, ranks in sorted(self._paths.items())
            ]
        return self._sorted

    def count(self, matches: Callable[[Touch], bool]) -> int:
        """Paths with such an opening."""
        return len({touches[0].event.path for touches in self.paths() if any(map(matches, touches))})

    def same_host(self, touches: list[Touch]) -> list[Touch]:
        """Those of the ranks of one machine that has at least two of them; empty where no machine has."""
        hosts: dict[str, list[Touch]] = defaultdict(list)
        for touch in touches:
            hosts[self.hosts.get(touch.rank, f"rank {touch.rank}")].append(touch)
        return next((each for each in hosts.values() if len({touch.rank for touch in each}) > 1), [])


def unordered(touches: list[Touch]) -> list[Touch]:
    """Openings by two or more ranks that no collective separates: the earliest such; empty where there are none.

    Ranks call the same collectives, so that openings of two ranks with different counts happened one after the other.
    """
    counts: dict[int, list[Touch]] = defaultdict(list)
    for touch in touches:
        counts[touch.event.collectives].append(touch)
    for _, each in sorted(counts.items()):
        if len({touch.rank for touch in each}) > 1:
            return each
    return []


def ranks_of(touches: list[Touch]) -> list[int]:
    """The ranks, each once."""
    return sorted({touch.rank for touch in touches})


def is_log(path: str) -> bool:
    """A file that is written line by line, by its name."""
    return bool(_LOG.search(path))


def is_event_file(path: str) -> bool:
    """A file of TensorBoard."""
    return path.rpartition("/")[2].startswith("events.out.tfevents.")


def is_download(event: FileTouched) -> bool:
    """A downloaded data set, by its name or by what wrote it."""
    return bool(_DOWNLOADED.search(event.path)) or any(word in event.by.lower() for word in _DOWNLOADS)


def logger_writes(event: FileTouched) -> bool:
    """A line-by-line log that is opened for all of the run: appended to, or begun before the first step."""
    if not is_log(event.path):
        return False
    return event.mode == "append" or (event.mode == "write" and (event.step == 0 or event.path.endswith(".log")))
