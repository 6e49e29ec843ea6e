"""The places that a data set can be fetched from, one class each.

A source hands out files one after another as streams, compressed or not. It never writes below the user's
directories and never judges what it hands out: the receiver checks every byte.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Protocol

from paceline.tasks.data.catalog import DataFile, DataSet
from paceline.tasks.data.progress import Progress, Tell
from paceline.tasks.data.store import Readable, SourceError

Streams = Generator[tuple[DataFile, Readable], None, None]


class Source(Protocol):
    """A place to fetch from."""

    @property
    def label(self) -> str:
        """What it is called in messages."""
        ...

    def streams(self, dataset: DataSet, files: list[DataFile], scratch: Path, tell: Tell) -> Streams:
        """The content of each of `files`, in that order.

        Args:
            scratch: an empty directory for temporary files; the caller removes it.
            tell: told what takes long before the first byte comes.

        Raises:
            SourceError: the place does not have a file, or cannot be reached in time.
        """
        ...


class Layout:
    """torchvision's own layout below a root: another copy on this machine."""

    def __init__(self, label: str, root: Path) -> None:
        self.label = label
        self.root = root

    def streams(self, dataset: DataSet, files: list[DataFile], scratch: Path, tell: Tell) -> Streams:
        """Each file as it lies there."""
        del scratch, tell
        yield from _files_of(dataset.raw(self.root), files)


class Installed:
    """Where Debian's package puts the files, compressed."""

    def __init__(self, dataset: DataSet) -> None:
        self.directory = Path(dataset.debian_dir)
        self.label = f"{self.directory} (Debian's package {dataset.debian_package})"

    def streams(self, dataset: DataSet, files: list[DataFile], scratch: Path, tell: Tell) -> Streams:
        """Each file, compressed or not."""
        del dataset, scratch, tell
        yield from _files_of(self.directory, files)


class Mirror:
    """An address on the network below which `<file>.gz` stands."""

    def __init__(self, address: str) -> None:
        self.address = address if address.endswith("/") else f"{address}/"
        self.label = self.address

    def streams(self, dataset: DataSet, files: list[DataFile], scratch: Path, tell: Tell) -> Streams:
        """Each file, downloaded while it is read."""
        del dataset, scratch
        from paceline.tasks.data.download import open_url  # loads urllib, which few calls need

        tell(Progress(f"connecting to {self.label}"))
        for file in files:
            with open_url(f"{self.address}{file.name}.gz") as stream:
                yield file, stream


class Apt:
    """Debian's package, fetched with apt into a temporary directory; nothing is installed."""

    def __init__(self, dataset: DataSet) -> None:
        self.package = dataset.debian_package
        self.label = f"Debian's package {self.package}, fetched with apt"

    def streams(self, dataset: DataSet, files: list[DataFile], scratch: Path, tell: Tell) -> Streams:
        """Each file, from the unpacked package."""
        from paceline.tasks.data.apt import unpack_package

        unpacked = unpack_package(self.package, scratch, tell)
        yield from _files_of(unpacked / dataset.debian_dir.lstrip("/"), files)


def fetchable(dataset: DataSet) -> list[Source]:
    """Every place outside Paceline's own directories, in the order in which they are tried."""
    debian = bool(dataset.debian_package)
    return [
        *([Installed(dataset)] if debian else []),
        *(Mirror(address) for address in dataset.mirrors),
        *([Apt(dataset)] if debian else []),
    ]


def _files_of(directory: Path, files: list[DataFile]) -> Streams:
    if not directory.is_dir():
        raise SourceError("there is no such directory")
    for file in files:
        yield from _file_of(directory, file)


def _file_of(directory: Path, file: DataFile) -> Streams:
    for name in (f"{file.name}.gz", file.name):
        try:
            stream = (directory / name).open("rb")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SourceError(f"{name} cannot be read: {error.strerror or error}") from error
        with stream:
            yield file, stream
        return
    raise SourceError(f"{file.name} is missing")
