"""Make a data set available: find it, check it, or fetch it.

The order: `--data-dir`, `./data`, the user's cache, where Debian's package is installed, the mirrors that torchvision
names, Debian's package fetched with apt. The first place that has the set whole and right wins; the reasons of the
others are kept, and told when none has it.

What the user named is never replaced: damage there is an error. Damage in the cache is repaired, damage in `./data`
passed over with a note.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.records.errors import PacelineError
from paceline.tasks.data.catalog import DataFile, DataSet, Fault, describe_faults, find_faults, is_absent, lookup
from paceline.tasks.data.fetch_lock import fetch_lock
from paceline.tasks.data.fetched_files import Progress, SourceError, Tell, put_in_place, receive, scratch_dir, writing
from paceline.tasks.data.sources import Source, fetchable, layout

LOCAL_ROOT = Path("data")
"""Where torchvision's tutorials put it, relative to the working directory."""


@dataclass(frozen=True)
class Obtained:
    """A data set that is whole and right.

    Attributes:
        root: absolute; `torchvision.datasets.<Class>(root, download=False)` reads it.
        source: where the files are from, in words.
        notes: what a person should know: copies that were damaged or incomplete, places that failed, waiting.
    """

    root: Path
    source: str
    notes: list[str]


@dataclass(frozen=True)
class Whereabouts:
    """Where a data set is on this machine, without fetching it.

    Attributes:
        place: in words; None when it is not here.
        notes: damaged and incomplete copies.
    """

    place: str | None
    notes: list[str]


@dataclass(frozen=True)
class _Place:
    """A root of torchvision's layout; `named` if the user named it."""

    label: str
    root: Path
    named: bool = False


@dataclass
class _Trail:
    """What was tried."""

    attempts: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def failed(self, place: str, reason: str, *, worth_a_note: bool) -> None:
        self.attempts.append((place, reason))
        if worth_a_note:
            self.notes.append(f"{place}: {reason}")


def cache_root() -> Path:
    """Where Paceline keeps data sets of this user: `$XDG_CACHE_HOME/paceline/data`, `~/.cache/paceline/data`.

    Raises:
        PacelineError: the user has no home directory.
    """
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if configured.is_absolute():  # the standard says that relative paths are to be ignored
        return configured / "paceline" / "data"
    try:
        return Path.home() / ".cache" / "paceline" / "data"
    except RuntimeError as error:
        raise PacelineError(
            "there is no home directory to keep data sets in",
            why=str(error),
            hint="set XDG_CACHE_HOME, or name a directory with --data-dir",
        ) from error


def obtain(name: str, data_dir: Path | None = None, on_progress: Tell | None = None) -> Obtained:
    """Find a data set or fetch it; every byte is checked each time (SHA-256).

    Any number of processes may call this at once: one fetches, the others wait and use the result.

    Args:
        name: of the catalogue, such as "fashion-mnist".
        data_dir: a root of torchvision's layout that the user named. Damage in it is an error; when the set is
            missing, it is put there. None: `./data`, the cache, or fetched into the cache.
        on_progress: called while it waits or fetches, many times a second.

    Raises:
        PacelineError: unknown name; damaged files in `data_dir`; nothing could be written (exit code CANNOT_WRITE);
            or no place has the set (the message names each place and why it failed).
    """
    dataset = lookup(name)
    tell = on_progress or (lambda _: None)
    trail = _Trail()
    if data_dir is not None:
        target = _Place(f"{data_dir} (--data-dir)", _expand(data_dir).absolute(), named=True)
        _refuse_odd_root(target, dataset)
        faults = find_faults(target.root, dataset)
        _refuse_damage(target, faults)
        if not faults:
            return Obtained(target.root, target.label, [])
        trail.failed(target.label, describe_faults(target.root, dataset, faults), worth_a_note=False)
        near = [layout(place.label, place.root, dataset) for place in _places_beside(target)]
        return _fetch(dataset, target, [*near, *fetchable(dataset)], trail, tell)
    places = _own_places()
    found = _search(dataset, places, trail)
    if found is not None:
        return Obtained(found.root, found.label, trail.notes)
    return _fetch(dataset, places[-1], fetchable(dataset), trail, tell)


def whereabouts(name: str) -> Whereabouts:
    """Where the data set is now, its bytes checked; fetches and writes nothing.

    Raises:
        PacelineError: unknown name.
    """
    dataset = lookup(name)
    trail = _Trail()
    found = _search(dataset, _own_places(), trail)
    if found is not None:
        return Whereabouts(found.label, trail.notes)
    installed = Path(dataset.debian_dir)
    if dataset.debian_dir and all((installed / f"{file.name}.gz").is_file() for file in dataset.files):
        return Whereabouts(f"{installed} (Debian's package, unpacked when it is fetched)", trail.notes)
    return Whereabouts(None, trail.notes)


def _search(dataset: DataSet, places: Sequence[_Place], trail: _Trail) -> _Place | None:
    """The first place that has the set whole and right."""
    for place in places:
        faults = find_faults(place.root, dataset)
        if not faults:
            return place
        trail.failed(
            place.label, describe_faults(place.root, dataset, faults), worth_a_note=not is_absent(dataset, faults)
        )
    return None


def _expand(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # no home directory: then "~" is a name like any other
        return path


def _own_places() -> list[_Place]:
    """The places that are searched when the user names none; the last is the cache, which is also filled."""
    cache = cache_root()
    return [
        _Place(f"./{LOCAL_ROOT} (torchvision's layout)", LOCAL_ROOT.absolute()),
        _Place(f"{cache} (your cache)", cache),
    ]


def _places_beside(target: _Place) -> list[_Place]:
    try:
        places = _own_places()
    except PacelineError:  # no home directory: no reason to fail where the user named another
        places = []
    return [place for place in places if place.root != target.root]


def _refuse_odd_root(target: _Place, dataset: DataSet) -> None:
    root = target.root
    if os.path.lexists(root) and not os.path.isdir(root):  # noqa: PTH112 - Path.is_dir raises where it may not look
        raise PacelineError(f"{target.label} is not a directory", hint="name a directory")
    # Filling such a directory would put a second copy inside the first one's folder.
    if any(os.path.lexists(root / file.name) for file in dataset.files):
        above = root.parent.parent if root.name == "raw" and root.parent.name == dataset.folder else None
        raise PacelineError(
            f"{target.label} holds the files themselves",
            why=f"name the root: the files stand in {dataset.folder}/raw below it, as torchvision has them",
            hint=f"use --data-dir {above}" if above else f"move them to <root>/{dataset.folder}/raw",
        )


def _refuse_damage(target: _Place, faults: list[Fault]) -> None:
    damaged = [fault for fault in faults if not fault.missing]
    if not damaged:
        return
    more = f" (and {len(damaged) - 1} more)" if damaged[1:] else ""
    raise PacelineError(
        f"{damaged[0].path} {damaged[0].problem}{more}",
        why="the files in --data-dir are yours, and Paceline does not replace them",
        hint="move them away and run the same command again (what is missing is fetched), or choose another --data-dir",
    )


def _fetch(dataset: DataSet, target: _Place, sources: Sequence[Source], trail: _Trail, tell: Tell) -> Obtained:
    """Fill the target from the first source that has what is missing, under the lock."""
    root = target.root
    waited_for: set[str] = set()

    def waiting(holder: str) -> None:
        waited_for.add(holder)
        tell(Progress(f"waiting for process {holder}, which is fetching or checking {dataset.title}"))

    with fetch_lock(root / dataset.folder, waiting):
        faults = find_faults(root, dataset)
        if not faults:
            waited = ["waited while another process fetched it"] if waited_for else []
            return Obtained(root, target.label, [*trail.notes, *waited])
        if target.named:
            _refuse_damage(target, faults)
        bad = {fault.path.name for fault in faults}
        needed = [file for file in dataset.files if file.name in bad]
        for source in sources:
            try:
                _take(source, dataset, needed, root, tell)
            except SourceError as error:
                trail.failed(source.label, str(error), worth_a_note=source.remote)
            else:
                return Obtained(root, source.label, trail.notes)
    raise _nowhere(dataset, trail)


def _take(source: Source, dataset: DataSet, needed: list[DataFile], root: Path, tell: Tell) -> None:
    """Fetch `needed` from one source and put them in place; all of them or none."""
    total = sum(file.size_bytes for file in needed)
    done = 0

    def arrived(size: int) -> None:
        nonlocal done
        done += size
        tell(Progress(f"getting {dataset.title} from {source.label}", done, total))

    with scratch_dir(root / dataset.folder) as scratch:
        work, ready = scratch / "work", scratch / "ready"
        with writing(scratch):
            work.mkdir()
            ready.mkdir()
        with contextlib.closing(source.streams(needed, work, tell)) as streams:
            for file, stream in streams:
                receive(stream, file, ready / file.name, arrived)
        put_in_place(ready, dataset.raw(root), needed)


def _nowhere(dataset: DataSet, trail: _Trail) -> PacelineError:
    tried = "".join(f"\n        {place}: {reason}" for place, reason in trail.attempts)
    debian = f", or on Debian `sudo apt-get install {dataset.debian_package}`" if dataset.debian_package else ""
    return PacelineError(
        f"{dataset.title} is not on this machine and could not be fetched",
        why=f"each place was tried:{tried}",
        hint=f"run `paceline data fetch {dataset.name} --data-dir DIR` on a machine with a network, copy DIR here and "
        f"name it with --data-dir{debian}",
    )
