"""Imports that lead to other files of the script."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from paceline.syntax.module_index import Module
from paceline.syntax.source_files import Source, parse, read_bytes

MAX_MODULES = 25
"""Files of one script that are followed; imports beyond them count as those of another package."""
MAX_DISTANCE = 3
"""Imports between the script and a file that is followed."""

Signature = tuple[int, int]
"""Time of the last change in nanoseconds, and size in bytes."""
_Import = tuple[str, str, int]
"""Folder of the importing file, dotted name, number of leading dots."""


class ParsedFiles:
    """Files parsed so far, and where imports lead; shared by the scripts of one command.

    Args:
        limit: files that are kept.
    """

    def __init__(self, limit: int = 200) -> None:
        self._sources: dict[Path, Source | None] = {}
        self._modules: dict[Path, Module] = {}
        self._limit = limit
        self._signatures: dict[str, Signature | None] = {}
        self._found: dict[_Import, tuple[Path | None, tuple[str, ...]]] = {}
        self._roots: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def source(self, path: Path) -> Source | None:
        """A file parsed; None if it cannot be."""
        if path not in self._sources:
            if len(self._sources) >= self._limit:
                oldest = next(iter(self._sources))
                self._sources.pop(oldest)
                self._modules.pop(oldest, None)
            content = read_bytes(path)
            parsed = parse(path, content) if isinstance(content, bytes) else None
            self._sources[path] = parsed if isinstance(parsed, Source) else None
        else:
            self._sources[path] = self._sources.pop(path)  # the one that was not asked for the longest leaves first
        return self._sources[path]

    def module(self, path: Path) -> Module | None:
        """A file that scripts import, indexed; None if it cannot be parsed."""
        source = self.source(path)
        if source is None:
            return None
        found = self._modules.get(path)
        if found is None or found.source is not source:
            found = self._modules[path] = Module(source, path.stem)
        return found

    def keep(self, source: Source) -> None:
        """Add a file that was parsed elsewhere; its path is absolute."""
        self._sources[source.path] = source

    def signature(self, path: str) -> Signature | None:
        """Modification time and size of a file; None if there is no such file."""
        if path not in self._signatures:
            self._signatures[path] = file_signature(path)
        return self._signatures[path]

    def find(self, key: _Import) -> tuple[Path | None, tuple[str, ...]]:
        """The file that an import leads to, and the paths that were looked at for it."""
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._find(*key)
        return found

    def _find(self, folder: str, name: str, level: int) -> tuple[Path | None, tuple[str, ...]]:
        parts = [part for part in name.split(".") if part]
        looked_at: list[str] = []
        bases: tuple[str, ...] = (folder,)
        if level:
            for _ in range(level - 1):
                bases = (os.path.dirname(bases[0]),)  # noqa: PTH120  # pathlib is too slow for so many
        elif parts:
            roots, seen = self._package_roots(folder)
            bases, looked_at = (folder, *roots), list(seen)
        else:
            return None, ()
        for base in bases:
            if len(parts) > 1 and self.signature(folder_above := f"{base}/{parts[0]}/") is None:
                looked_at.append(folder_above)  # most imports are of other packages
                continue
            path = "/".join([base, *parts])
            for candidate in (f"{path}/__init__.py", f"{path}.py") if parts else (f"{path}/__init__.py",):
                looked_at.append(candidate)
                if self.signature(candidate) is not None:
                    return Path(candidate), tuple(looked_at)
        return None, tuple(looked_at)

    def _package_roots(self, folder: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Folders above a file from which its package is imported, and the paths that were looked at.

        Folders around `__init__.py`, and one more.
        """
        if folder not in self._roots:
            roots: list[str] = []
            looked_at = [f"{folder}/__init__.py"]
            at, above = folder, os.path.dirname(folder)  # noqa: PTH120
            while self.signature(looked_at[-1]) is not None and above != at:
                roots.append(above)
                looked_at.append(f"{above}/__init__.py")
                at, above = above, os.path.dirname(above)  # noqa: PTH120
            if not roots and above != folder:  # scripts/train.py that imports a package beside scripts/
                roots.append(above)
            self._roots[folder] = tuple(roots), tuple(looked_at)
        return self._roots[folder]


def file_signature(path: str) -> Signature | None:
    """Modification time and size of a file; None if there is no such file.

    Args:
        path: ends in a slash if it is a folder, of which only its existence counts.
    """
    try:
        found = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    if path.endswith("/"):
        return (0, 0) if stat.S_ISDIR(found.st_mode) else None
    return (found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None


class LocalImports:
    """Finds files that a script imports, in its own folder and in the packages around it.

    Args:
        files: parsed so far.
        root: the script.
    """

    def __init__(self, files: ParsedFiles, root: Module) -> None:
        self._files = files
        self._modules: dict[Path, Module] = {root.source.path.absolute(): root}
        self._distance: dict[Module, int] = {root: 0}
        self._folders: dict[Module, str] = {}
        self._asked: set[_Import] = set()

    @property
    def modules(self) -> list[Module]:
        """Files that were followed so far, the script first."""
        return list(self._modules.values())

    @property
    def looked_at(self) -> set[str]:
        """Paths whose existence or content the answers so far depend on, other than the script's own."""
        found = {str(path) for path in list(self._modules)[1:]}
        for key in self._asked:
            found.update(self._files.find(key)[1])
        return found

    def path_of(self, importer: Module, name: str, level: int) -> Path | None:
        """The file that an import leads to, which need not be parsed; None if it is none of the script's.

        Args:
            importer: in which the import stands.
            name: dotted, without leading dots.
            level: number of leading dots.
        """
        folder = self._folders.get(importer)
        if folder is None:
            folder = self._folders[importer] = str(importer.source.path.absolute().parent)
        key = (folder, name, level)
        self._asked.add(key)
        return self._files.find(key)[0]

    def find(self, importer: Module, name: str, level: int) -> Module | None:
        """The file that an import leads to, parsed; None if it is none of the script's, or too far from it."""
        path = self.path_of(importer, name, level)
        if path is None:
            return None
        known = self._modules.get(path)
        if known is not None:
            return known
        distance = self._distance[importer] + 1
        if distance > MAX_DISTANCE or len(self._modules) >= MAX_MODULES:
            return None
        module = self._files.module(path)
        if module is None:
            return None
        self._modules[path] = module
        self._distance[module] = distance
        return module
