"""Imports that lead to other files of the script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from paceline.syntax.module_index import Module
from paceline.syntax.source_files import Source, parse, read_bytes

MAX_MODULES = 40
"""Files of one script that are followed; imports beyond them count as those of another package."""
MAX_DISTANCE = 3
"""Imports between the script and a file that is followed."""

Loader = Callable[[Path], Module | None]


class ParsedFiles:
    """Files parsed so far; those of several scripts of one folder are parsed once.

    Args:
        limit: files that are kept.
    """

    def __init__(self, limit: int = 200) -> None:
        self._sources: dict[Path, Source | None] = {}
        self._limit = limit

    def source(self, path: Path) -> Source | None:
        """A file parsed; None if it cannot be."""
        if path not in self._sources:
            if len(self._sources) >= self._limit:
                self._sources.pop(next(iter(self._sources)))
            content = read_bytes(path)
            parsed = parse(path, content) if isinstance(content, bytes) else None
            self._sources[path] = parsed if isinstance(parsed, Source) else None
        return self._sources[path]

    def keep(self, source: Source) -> None:
        """Add a file that was parsed elsewhere."""
        self._sources[source.path] = source


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

    @property
    def modules(self) -> list[Module]:
        """Files that were followed so far, the script first."""
        return list(self._modules.values())

    def find(self, importer: Module, name: str, level: int) -> Module | None:
        """The file that `import name` leads to; None if it is none of the script's.

        Args:
            importer: in which the import stands.
            name: dotted, without leading dots.
            level: number of leading dots.
        """
        folder = importer.source.path.absolute().parent
        parts = [part for part in name.split(".") if part]
        if level:
            for _ in range(level - 1):
                folder = folder.parent
            return self._below(importer, folder, parts)
        if not parts:
            return None
        for base in (folder, *_package_roots(folder)):
            if (found := self._below(importer, base, parts)) is not None:
                return found
        return None

    def _below(self, importer: Module, folder: Path, parts: list[str]) -> Module | None:
        path = folder.joinpath(*parts)
        candidates = (path / "__init__.py", path.with_name(path.name + ".py")) if parts else (path / "__init__.py",)
        return next((self._load(importer, each) for each in candidates if each.is_file()), None)

    def _load(self, importer: Module, path: Path) -> Module | None:
        known = self._modules.get(path)
        if known is not None:
            return known
        distance = self._distance[importer] + 1
        if distance > MAX_DISTANCE or len(self._modules) >= MAX_MODULES:
            return None
        source = self._files.source(path)
        if source is None:
            return None
        module = Module(source, path.stem)
        self._modules[path] = module
        self._distance[module] = distance
        return module


def _package_roots(folder: Path) -> list[Path]:
    """Folders above a file from which its package is imported: those around `__init__.py`, and one more."""
    roots = []
    at = folder
    while (at / "__init__.py").is_file() and at.parent != at:
        at = at.parent
        roots.append(at)
    if not roots and folder.parent != folder:  # scripts/train.py that imports a package beside scripts/
        roots.append(folder.parent)
    return roots
