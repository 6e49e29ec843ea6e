"""A submission, frozen: a copy of what may be handed in, its digest, and what its config.toml says."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.records.errors import PacelineError
from paceline_course.assess.kit import GIVEN, kit_folder
from paceline_course.assess.rubric import LimitNumbers, Rubric, load_rubric
from paceline_course.sandbox.foreign_files import read_foreign

PROGRAM, CONFIG, ANSWERS, RUNS = "train.py", "config.toml", "answers.toml", "runs"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_ENDINGS = (".py", ".toml")
_MEASURED = ("comm.csv", "compute.csv", "assessment.json")
_DEPTH = 4
_MOST_SEED = 2**31 - 1


@dataclass(frozen=True)
class Configuration:
    """One of the learner's `[[runs]]`.

    Attributes:
        name: of the run.
        workers: processes.
        batch: global.
        epochs: at most.
        settings: all keys, as written.
    """

    name: str
    workers: int
    batch: int
    epochs: int
    settings: dict[str, Any]


@dataclass(frozen=True)
class Submission:
    """What was handed in.

    Attributes:
        folder: the frozen copy.
        digest: sha256 of all files and their names.
        files: names, sorted.
        learner: as they call themselves; may be empty.
        chosen: name of the configuration that they stand by.
        runs: their configurations.
        changed: given files that differ from ours; ours are used.
        left_out: what was in the folder and is not part of a submission, as far as that matters.
    """

    folder: Path
    digest: str
    files: tuple[str, ...]
    learner: str
    chosen: str
    runs: tuple[Configuration, ...]
    changed: tuple[str, ...] = ()
    left_out: tuple[str, ...] = field(default=())

    def run(self, name: str) -> Configuration | None:
        """The configuration of that name."""
        return next((run for run in self.runs if run.name == name), None)

    @property
    def chosen_run(self) -> Configuration:
        """The one that they stand by."""
        found = self.run(self.chosen)
        assert found is not None
        return found


def freeze(source: Path, target: Path, rubric: Rubric | None = None) -> Submission:
    """Copy what may be handed in to a new folder, and read it from there.

    Raises:
        PacelineError: something is missing, too large, or not what it should be; nothing was run.
    """
    rubric = rubric or load_rubric()
    if not source.is_dir():
        raise PacelineError(f"{source} is no folder", hint="paceline learn assess start makes one")
    if not (source / PROGRAM).is_file():
        raise PacelineError(f"{source} has no {PROGRAM}", hint="paceline learn assess start makes the folder")
    contents = dict(_contents(source, rubric.limits))
    changed = tuple(name for name in GIVEN if name in contents and contents[name] != _ours(name))
    kept = {name: content for name, content in contents.items() if name not in GIVEN}
    digest = hashlib.sha256()
    for name in sorted(kept):
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(kept[name])
        digest.update(f"{name}\0{hashlib.sha256(kept[name]).hexdigest()}\n".encode())
    learner, chosen, runs = read_config(kept.get(CONFIG), rubric)
    return Submission(target, digest.hexdigest(), tuple(sorted(kept)), learner, chosen, runs, changed)


def _ours(name: str) -> bytes:
    return (kit_folder() / name).read_bytes()


def _contents(source: Path, limits: LimitNumbers) -> Iterator[tuple[str, bytes]]:
    """Names and contents of all files that belong to a submission."""
    files = total = 0
    for path in sorted(_paths(source)):
        name = path.relative_to(source).as_posix()
        if not name.isprintable():
            raise PacelineError(f"a file has the name {name!r}", hint="rename it: letters, digits, - and _ are safe")
        content = read_foreign(path, limits.file_bytes + 1)
        if content is None:
            raise PacelineError(f"{name} is no ordinary file", hint="hand in plain files, no links")
        files, total = files + 1, total + len(content)
        if len(content) > limits.file_bytes:
            raise PacelineError(f"{name} is larger than {limits.file_bytes:,} bytes", hint="hand in code, not data")
        if files > limits.files or total > limits.total_bytes:
            raise PacelineError(
                f"more than {limits.files} files or {limits.total_bytes:,} bytes were handed in",
                hint=f"{source} should hold your code, {CONFIG}, {ANSWERS} and {RUNS}/NAME/log.csv",
            )
        yield name, content


def _paths(source: Path) -> Iterator[Path]:
    for depth in range(1, _DEPTH + 1):
        for ending in _ENDINGS:
            for path in source.glob("/".join(["*"] * (depth - 1) + [f"*{ending}"])):
                parts = path.relative_to(source).parts
                outside = any(part.startswith((".", "__pycache__")) or part == "graded" for part in parts)
                if not outside and not _behind_link(path, source) and parts[0] != RUNS:
                    yield path
    yield from (path for path in source.glob(f"{RUNS}/*/log.csv") if not _behind_link(path, source))
    yield from (source / name for name in _MEASURED if (source / name).exists())


def _behind_link(path: Path, source: Path) -> bool:
    """Whether a folder on the way to it is a link; the submission's own folder may be one."""
    return any(folder.is_symlink() for folder in path.parents if folder != source and folder.is_relative_to(source))


def read_config(content: bytes | None, rubric: Rubric) -> tuple[str, str, tuple[Configuration, ...]]:
    """Learner, chosen run and configurations.

    Raises:
        PacelineError: it cannot be graded by it; says which run and which key.
    """
    if content is None:
        raise PacelineError(f"there is no {CONFIG}", hint="it names your configurations and the one you stand by")
    try:
        parsed = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise PacelineError(f"{CONFIG} is no TOML", why=str(error)) from error
    runs = parsed.get("runs")
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise PacelineError(f"{CONFIG} has no [[runs]]", hint="each configuration is one [[runs]] with a name")
    found = tuple(_configuration(run, number, rubric) for number, run in enumerate(runs, start=1))
    names = [run.name for run in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PacelineError(f"{CONFIG} has two runs named {twice[0]}")
    if len(found) > 12:
        raise PacelineError(f"{CONFIG} has {len(found)} runs", hint="12 at most: each is trained again")
    chosen = parsed.get("chosen")
    if chosen not in names:
        raise PacelineError(
            f"{CONFIG}: chosen is {chosen!r}, which is none of the runs",
            hint=f"one of {', '.join(names) or 'your runs'}",
        )
    learner = parsed.get("learner", "")
    return (learner.strip()[:100] if isinstance(learner, str) else ""), str(chosen), found


def _configuration(run: dict[str, Any], number: int, rubric: Rubric) -> Configuration:
    name = run.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PacelineError(
            f"{CONFIG}, run {number}: name is {name!r}",
            hint="letters, digits, - and _, which is a folder in runs/, too",
        )

    def whole(key: str, low: int, high: int) -> int:
        value = run.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise PacelineError(f"{CONFIG}, run {name}: {key} is {value!r}", hint=f"a whole number, {low} to {high}")
        return value

    task = rubric.task
    seed = run.get("seed", 0)
    if isinstance(seed, int) and abs(seed) > _MOST_SEED:  # more than torch can take, perhaps
        raise PacelineError(f"{CONFIG}, run {name}: seed is too large", hint=f"a whole number, {_MOST_SEED} at most")
    return Configuration(
        name=name,
        workers=whole("workers", 1, task.most_workers),
        batch=whole("batch", 1, task.samples),
        epochs=whole("epochs", 1, task.most_epochs),
        settings=dict(run),
    )


def read_rows(content: bytes | None, most: int = 10_000) -> list[dict[str, str]]:
    """The lines of a CSV file with a head, as far as they can be read; values are texts. Empty when there is none."""
    if content is None:
        return []
    text = content.decode(errors="replace").replace("\0", "")
    try:
        rows = [row for _, row in zip(range(most), csv.DictReader(io.StringIO(text)), strict=False)]
    except csv.Error:
        return []
    return [{str(key): str(value) for key, value in row.items() if key is not None} for row in rows]
