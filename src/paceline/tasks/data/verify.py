"""Judge the files of a data set where they lie: by size first, then by every byte. Changes nothing."""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

from paceline.tasks.data.catalog import DataFile, DataSet


@dataclass(frozen=True)
class Fault:
    """Why a file cannot be used.

    Attributes:
        path: the file.
        problem: expected and found, as half a sentence that follows the file's name.
        missing: whether it simply is not there.
    """

    path: Path
    problem: str
    missing: bool = False

    def __str__(self) -> str:
        return f"{self.path.name} {self.problem}"


def wrong_size(file: DataFile, found: str) -> str:
    """The half sentence for a file whose size is `found` and not what the table says."""
    return f"has {found} bytes, and {file.size_bytes:,} are expected"


def wrong_checksum(file: DataFile, found: str) -> str:
    """The half sentence for a file of the right size whose SHA-256 is `found`."""
    return f"has the wrong checksum: SHA-256 {found[:16]}..., and {file.sha256[:16]}... is expected"


def check_file(path: Path, file: DataFile) -> Fault | None:
    """None when the file at `path` is `file`, byte for byte."""
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            return Fault(path, "is not a regular file")
        if facts.st_size != file.size_bytes:
            return Fault(path, wrong_size(file, f"{facts.st_size:,}"))
        with path.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            return Fault(path, "is a link that leads nowhere")
        return Fault(path, "is missing", missing=True)
    except OSError as error:
        return Fault(path, f"cannot be read: {error.strerror or error}")
    return None if found == file.sha256 else Fault(path, wrong_checksum(file, found))


def check(root: Path, dataset: DataSet) -> list[Fault]:
    """All faults of `dataset` in torchvision's layout below `root`; an empty list when it is whole and right."""
    raw = dataset.raw(root)
    faults = (check_file(raw / file.name, file) for file in dataset.files)
    return [fault for fault in faults if fault is not None]


def is_absent(dataset: DataSet, faults: list[Fault]) -> bool:
    """Whether no file of the set is there at all, so that there is nothing to wonder about."""
    return len(faults) == len(dataset.files) and all(fault.missing for fault in faults)


def describe(root: Path, dataset: DataSet, faults: list[Fault]) -> str:
    """The faults in few words: nothing is there, or which file has what."""
    if is_absent(dataset, faults):
        return f"no {dataset.folder}/raw there" if root.is_dir() else "there is no such directory"
    return "; ".join(str(fault) for fault in faults)
