"""The places that a data set can be fetched from.

A source hands out files one after another as streams, compressed or not. It never writes below the user's
directories and never judges what it hands out: the receiver checks every byte.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from paceline.tasks.data.catalog import DataFile, DataSet
from paceline.tasks.data.fetched_files import Progress, Readable, SourceError, Tell

Streams = Generator[tuple[DataFile, Readable], None, None]


@dataclass(frozen=True)
class Source:
    """A place to fetch from.

    Attributes:
        label: what it is called in messages.
        streams: streams(files, scratch, tell) yields each of `files` with its content, in that order. `scratch` is an
            empty directory for temporary files, which the caller removes; `tell` is told what takes long before the
            first byte comes. It raises SourceError when the place does not have a file or cannot be reached in time.
        remote: whether it takes a network.
    """

    label: str
    streams: Callable[[list[DataFile], Path, Tell], Streams]
    remote: bool = False


def layout(label: str, root: Path, dataset: DataSet) -> Source:
    """torchvision's own layout below a root: another copy on this machine."""
    return Source(label, lambda files, *_: _files_of(dataset.raw(root), files))


def mirror(address: str) -> Source:
    """An address on the network below which `<file>.gz` stands; files are downloaded while they are read."""
    address = address if address.endswith("/") else f"{address}/"

    def streams(files: list[DataFile], scratch: Path, tell: Tell) -> Streams:
        del scratch
        from paceline.tasks.data.download import open_url  # loads urllib, which few calls need

        tell(Progress(f"connecting to {address}"))
        for file in files:
            with open_url(f"{address}{file.name}.gz") as stream:
                yield file, stream

    return Source(address, streams, remote=True)


def apt(dataset: DataSet) -> Source:
    """Debian's package, fetched with apt into a temporary directory; nothing is installed."""

    def streams(files: list[DataFile], scratch: Path, tell: Tell) -> Streams:
        from paceline.tasks.data.apt import unpack_package

        unpacked = unpack_package(dataset.debian_package, scratch, tell)
        yield from _files_of(unpacked / dataset.debian_dir.lstrip("/"), files)

    return Source(f"Debian's package {dataset.debian_package}, fetched with apt", streams, remote=True)


def fetchable(dataset: DataSet) -> list[Source]:
    """Every place outside Paceline's own directories, in the order in which they are tried."""
    mirrors = [mirror(address) for address in dataset.mirrors]
    if not dataset.debian_package:
        return mirrors
    folder = Path(dataset.debian_dir)
    label = f"{folder} (Debian's package {dataset.debian_package})"
    return [Source(label, lambda files, *_: _files_of(folder, files)), *mirrors, apt(dataset)]


def _files_of(directory: Path, files: list[DataFile]) -> Streams:
    """Each file as it lies there, compressed or not."""
    if not directory.is_dir():
        raise SourceError("there is no such directory")
    for file in files:
        for name in (f"{file.name}.gz", file.name):
            try:
                stream = (directory / name).open("rb")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise SourceError(f"{name} cannot be read: {error.strerror or error}") from error
            with stream:
                yield file, stream
            break
        else:
            raise SourceError(f"{file.name} is missing")
