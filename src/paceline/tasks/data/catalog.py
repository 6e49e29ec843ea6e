"""The data sets that Paceline can get: what they are made of, and how each byte is known to be right.

Sizes and checksums are of the decompressed files, because each place compresses them in its own way. Files are judged
where they lie, by size first, then by every byte.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paceline.records.errors import PacelineError, choices


@dataclass(frozen=True)
class DataFile:
    """One file of a data set, decompressed.

    Attributes:
        name: its name in torchvision's layout, without `.gz`.
        size_bytes: exact.
        sha256: of the whole file, 64 hexadecimal digits.
    """

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class DataSet:
    """One data set and where it comes from.

    Attributes:
        name: what users type.
        title: what people call it.
        folder: the name of torchvision's class, which is its folder below the root.
        files: all that must be there.
        samples: by split: "train" and "eval".
        licence: its terms and its holder.
        mirrors: addresses below which `<file>.gz` stands, tried in this order.
        debian_package: the Debian package that holds it; empty when there is none.
        debian_dir: where that package puts `<file>.gz`.
    """

    name: str
    title: str
    folder: str
    files: tuple[DataFile, ...]
    samples: Mapping[str, int] = field(default_factory=dict)
    licence: str = ""
    mirrors: tuple[str, ...] = ()
    debian_package: str = ""
    debian_dir: str = ""

    @property
    def size_bytes(self) -> int:
        """Of all files, decompressed."""
        return sum(file.size_bytes for file in self.files)

    def raw(self, root: Path) -> Path:
        """The directory of the files in torchvision's layout below `root`."""
        return root / self.folder / "raw"


CATALOG: dict[str, DataSet] = {
    "fashion-mnist": DataSet(
        name="fashion-mnist",
        title="Fashion-MNIST",
        folder="FashionMNIST",
        # Taken from Debian's dataset-fashion-mnist 0.0~git20200523.55506a9-1. They are the files that torchvision
        # names: with the file name and the time of 2017-08-31 put back into their gzip headers (1504176606 for
        # train, 1504176627 for t10k), all four have the MD5 that torchvision 0.24 lists for its downloads.
        files=(
            DataFile(
                "train-images-idx3-ubyte",
                47_040_016,
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            ),
            DataFile(
                "train-labels-idx1-ubyte", 60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"
            ),
            DataFile(
                "t10k-images-idx3-ubyte", 7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"
            ),
            DataFile(
                "t10k-labels-idx1-ubyte", 10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"
            ),
        ),
        samples={"train": 60_000, "eval": 10_000},
        licence="MIT (Expat), copyright 2017 Zalando SE; Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747",
        mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        debian_package="dataset-fashion-mnist",
        debian_dir="/usr/share/datasets/fashion-mnist",
    ),
}


def lookup(name: str) -> DataSet:
    """The data set called `name`.

    Raises:
        PacelineError: there is none; the message lists the names.
    """
    try:
        return CATALOG[name]
    except KeyError:
        raise PacelineError(
            f"there is no data set called {name!r}",
            hint=f"choose one of: {choices(sorted(CATALOG))} (`paceline data list` says more)",
        ) from None


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


def find_faults(root: Path, dataset: DataSet) -> list[Fault]:
    """All faults of `dataset` in torchvision's layout below `root`; an empty list when it is whole and right."""
    raw = dataset.raw(root)
    faults = (check_file(raw / file.name, file) for file in dataset.files)
    return [fault for fault in faults if fault is not None]


def is_absent(dataset: DataSet, faults: list[Fault]) -> bool:
    """Whether no file of the set is there at all, so that there is nothing to wonder about."""
    return len(faults) == len(dataset.files) and all(fault.missing for fault in faults)


def describe_faults(root: Path, dataset: DataSet, faults: list[Fault]) -> str:
    """The faults in few words: nothing is there, or which file has what."""
    if is_absent(dataset, faults):
        return f"no {dataset.folder}/raw there" if root.is_dir() else "there is no such directory"
    return "; ".join(str(fault) for fault in faults)
