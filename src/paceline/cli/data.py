"""`paceline data`: get a data set in the layout that torchvision expects, and say where it is."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli.output_format import Format, OutputFormat
from paceline.tasks.data.catalog import CATALOG, DataSet, lookup
from paceline.tasks.data.fetched_files import Progress, Tell
from paceline.tasks.data.obtain import Obtained, Whereabouts, obtain, whereabouts

if TYPE_CHECKING:
    from paceline.cli.live import LiveProgress

BAR_AFTER_S = 2.0
"""Nothing is drawn for what is over sooner."""


def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Data set; `paceline data list` shows the names.")],
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Directory of the data set. Existing files are checked, never replaced.",
        ),
    ] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Find a data set or fetch it, and check its sizes and checksums.

    Looks in --data-dir, ./data, your cache and the directory of Debian's package. If it is in none of them, it is
    downloaded from the mirrors that torchvision names or from Debian's package, into --data-dir or else your cache.
    Several processes that need the same set wait for the one that fetches it.
    """
    dataset = lookup(name)
    with show_progress() as on_progress:
        obtained = obtain(name, data_dir, on_progress)
    print(fetched_json(dataset, obtained) if output is Format.JSON else fetched_text(dataset, obtained))


def list_data(output: OutputFormat = Format.TEXT) -> None:
    """List the data sets with samples, size and location, without fetching anything."""
    rows = [(dataset, whereabouts(name)) for name, dataset in sorted(CATALOG.items())]
    print(listed_json(rows) if output is Format.JSON else listed_text(rows))


def fetched_text(dataset: DataSet, obtained: Obtained) -> str:
    """What `fetch` prints for people."""
    lines = [
        f"{dataset.title} is ready: {_samples(dataset)}, {_megabytes(dataset.size_bytes)}, every checksum right",
        f"  from  {obtained.source}",
        f"  in    {dataset.raw(obtained.root)}",
        *(f"  note  {note}" for note in obtained.notes),
        f"  use   torchvision.datasets.{dataset.folder}({str(obtained.root)!r}, download=False)",
    ]
    return "\n".join(lines)


def fetched_json(dataset: DataSet, obtained: Obtained) -> str:
    """What `fetch --format json` prints: one object."""
    raw = dataset.raw(obtained.root)
    files = [
        {"path": str(raw / file.name), "size_bytes": file.size_bytes, "sha256": file.sha256} for file in dataset.files
    ]
    return _json(
        {
            "name": dataset.name,
            "root": str(obtained.root),
            "source": obtained.source,
            "notes": obtained.notes,
            "samples": dict(dataset.samples),
            "files": files,
        }
    )


def listed_text(rows: list[tuple[DataSet, Whereabouts]]) -> str:
    """What `list` prints for people: a block for each data set."""
    lines = []
    for dataset, where in rows:
        lines.append(f"{dataset.name}  {_samples(dataset)}, {_megabytes(dataset.size_bytes)}")
        absent = f"  not here (get it: paceline data fetch {dataset.name})"
        lines.append(f"  is in    {where.place}" if where.place else absent)
        lines += [f"  note     {note}" for note in where.notes]
        lines.append(f"  licence  {dataset.licence}")
    return "\n".join(lines)


def listed_json(rows: list[tuple[DataSet, Whereabouts]]) -> str:
    """What `list --format json` prints: one object with a list."""
    return _json(
        {
            "datasets": [
                {
                    "name": dataset.name,
                    "title": dataset.title,
                    "samples": dict(dataset.samples),
                    "size_bytes": dataset.size_bytes,
                    "licence": dataset.licence,
                    "place": where.place,
                    "notes": where.notes,
                }
                for dataset, where in rows
            ]
        }
    )


@contextlib.contextmanager
def show_progress() -> Iterator[Tell]:
    """Draws on standard error: a bar on a terminal once it takes longer, elsewhere a plain line a message."""
    if not sys.stderr.isatty():
        yield _plain_lines()
        return
    display = _Display()
    try:
        yield display
    finally:
        display.close()


def _plain_lines() -> Tell:
    said: set[str] = set()

    def tell(progress: Progress) -> None:
        if progress.message not in said:
            said.add(progress.message)
            print(progress.message, file=sys.stderr, flush=True)

    return tell


class _Display:
    """A bar that appears after `BAR_AFTER_S`, and is gone when it is closed."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._bar: LiveProgress | None = None
        self._task: Any = None
        self._message = ""

    def __call__(self, progress: Progress) -> None:
        if self._bar is None and time.monotonic() - self._start < BAR_AFTER_S:
            return
        # Loaded only when there is something to draw: it costs a tenth of a second.
        from rich.console import Console

        from paceline.cli.live import LiveProgress, RecentRate

        if self._bar is None:
            self._bar = LiveProgress(Console(stderr=True))
            self._bar.start()
            self._task = self._bar.add_task(progress.message, total=progress.total_bytes)
        if progress.message != self._message:  # another file, or another place
            self._message, self._rate = progress.message, RecentRate()
        self._bar.update(
            self._task,
            description=progress.message,
            completed=progress.done_bytes,
            total=progress.total_bytes,
            parts=self._parts(progress),
        )

    def _parts(self, progress: Progress) -> list[str]:
        from paceline.cli.live import NO_RATE, clock

        self._rate.add(time.monotonic(), progress.done_bytes)
        speed = NO_RATE if self._rate.value is None else f"{self._rate.value / 1e6:.1f}"
        if not progress.total_bytes:
            return [_megabytes(progress.done_bytes), f"{speed} MB/s"] if progress.done_bytes else []
        done = f"{progress.done_bytes / 1e6:.1f}/{_megabytes(progress.total_bytes)}"
        return [done, clock(self._rate.left_s(progress.total_bytes)), f"{speed} MB/s"]

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()


def _samples(dataset: DataSet) -> str:
    words = {"train": "training", "eval": "evaluation"}
    counts = [f"{count:,} {words.get(split, split)}" for split, count in dataset.samples.items()]
    return f"{' and '.join(counts)} samples"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2)
