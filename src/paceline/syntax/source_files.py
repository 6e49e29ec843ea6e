"""Source files below given paths: found, decoded, parsed, or reported with the reason why not."""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from paceline.syntax.notebook_cells import Cell, NotebookError, python_of

MAX_BYTES = 2_000_000
"""A script that somebody wrote is far smaller; files of generated code are not read."""
SUFFIXES = (".py", ".ipynb")
_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", "venv"})


@dataclass(frozen=True)
class Source:
    """The text of a file, parsed.

    Attributes:
        path: as it was given.
        text: Python; of a notebook the code cells, one below the other.
        tree: of `text`.
        cells: of a notebook, to say in which cell a line stands; empty for a script.
    """

    path: Path
    text: str
    tree: ast.Module
    cells: tuple[Cell, ...] = ()

    @cached_property
    def lines(self) -> list[str]:
        """Lines as `ast` counts them: form feeds and the like do not end one."""
        return re.split(r"\r\n|\r|\n", self.text)


@dataclass(frozen=True)
class Unreadable:
    """A file that could not be read or parsed."""

    path: Path
    reason: str


def python_files(paths: Iterable[Path], *, exclude: Iterable[str] = ()) -> Iterator[Path]:
    """Scripts and notebooks: files as given, folders searched in order of name.

    Hidden folders, folders of installed packages and of built files, and links to folders are left out.

    Args:
        paths: files and folders.
        exclude: patterns as of `Path.match`; files and folders that match are left out.
    """
    patterns = tuple(exclude)
    for path in paths:
        if path.is_dir():
            yield from _below(path, patterns)
        else:
            yield path


def _below(folder: Path, exclude: tuple[str, ...]) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        path = Path(entry.path)
        if any(path.match(pattern) for pattern in exclude):
            continue
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.startswith(".") and entry.name not in _SKIPPED_FOLDERS:
                yield from _below(path, exclude)
        elif entry.name.endswith(SUFFIXES) and entry.is_file():
            yield path


def read_bytes(path: Path) -> bytes | Unreadable:
    """The content of a regular file of at most `MAX_BYTES`."""
    try:
        if not path.is_file():
            return Unreadable(path, "no such file" if not path.exists() else "not a regular file")
        if path.stat().st_size > MAX_BYTES:
            return Unreadable(path, f"larger than {MAX_BYTES:,} bytes")
        return path.read_bytes()
    except OSError as error:
        return Unreadable(path, error.strerror or str(error))


def parse(path: Path, content: bytes) -> Source | Unreadable:
    """Parse a script or a notebook.

    Args:
        path: decides by its suffix how `content` is read.
        content: of the file.
    """
    cells: tuple[Cell, ...] = ()
    try:
        if path.suffix == ".ipynb":
            text, cells = python_of(content)
        else:
            text = _decoded(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as invalid escape sequences, which are the script's own affair
            tree = ast.parse(text, filename=str(path))
    except SyntaxError as error:
        at = f"line {error.lineno}: " if error.lineno else ""
        return Unreadable(path, f"{at}{_syntax_reason(error)}")
    except (NotebookError, UnicodeDecodeError, ValueError, RecursionError, MemoryError) as error:
        return Unreadable(path, str(error) or type(error).__name__)
    return Source(path, text, tree, cells)


def _decoded(content: bytes) -> str:
    if b"\0" in content:
        raise ValueError("binary")
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    return content.decode(encoding)


def _syntax_reason(error: SyntaxError) -> str:
    message = error.msg or "invalid syntax"
    if "Missing parentheses in call to" in message or "multiple exception types must be parenthesized" in message:
        return f"Python 2 ({message})"
    return message
