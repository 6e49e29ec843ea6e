"""A cheap look at a script before it is analyzed: can it be distributed at all?

Most files that import torch are not. A script whose text names nothing that distributes, and that uses nothing of the
files it imports that does, need not be evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from paceline.check.analyses import framework_names as names
from paceline.syntax.child_nodes import walk
from paceline.syntax.local_imports import ParsedFiles
from paceline.syntax.source_files import Source, read_bytes

_CALLED = (
    *names.START, *names.DDP, *names.FSDP, *names.ACCELERATE, *names.LIGHTNING, *names.FABRIC, *names.HF_TRAINER,
    *names.OTHER_ENGINES, *names.DISTRIBUTED_SAMPLERS, "torch.distributed.fsdp.FSDP",
)  # fmt: skip
_HINTS = sorted({(name.partition(".")[0], name.rpartition(".")[2]) for name in _CALLED})
"""Package and last part of each name: a file that uses one has both words, whatever alias it gives them."""
_WORD = re.compile(r"\w+")
_HINT = ""
"""Stands among the words of a part that distributes."""


class DistributionHints:
    """Looks at the scripts of one command.

    Args:
        files: parsed so far.
    """

    def __init__(self, files: ParsedFiles) -> None:
        self._files = files
        self._imported: dict[Path, dict[str, set[str]]] = {}
        """Files with a hint: words of each of their parts; others have no parts."""

    def distributes(self, source: Source) -> tuple[bool, set[str]]:
        """True if a script may be distributed; if not, with the paths of other files that the answer depends on."""
        if _hints(source.text) and _hints(" ".join(_identifiers(source.tree))):
            return True, set()
        folder = str(source.path.absolute().parent)
        used = set(_WORD.findall(source.text))
        looked_at: set[str] = set()
        for name, level, imported in _imported(source.tree):
            path, candidates = self._files.find((folder, name, level))
            if path is not None and self._is_used(path, imported or used):
                return True, set()
            looked_at.update(candidates)
        return False, looked_at

    def _is_used(self, path: Path, used: set[str]) -> bool:
        """True if functions and classes of a file that are used by name, or those that they use, distribute."""
        if path not in self._imported:
            self._imported[path] = self._parts(path)
        parts = self._imported[path]
        queue = [name for name in parts if name in used]
        seen = set(queue)
        while queue:
            words = parts[queue.pop()]
            if _HINT in words:
                return True
            more = {name for name in words if name in parts} - seen
            queue += more
            seen |= more
        return False

    def _parts(self, path: Path) -> dict[str, set[str]]:
        content = read_bytes(path)
        if not isinstance(content, bytes) or not _hints(content.decode(errors="replace")):
            return {}
        source = self._files.source(path)
        if source is None:
            return {}
        hints = _hints(source.text)
        for hint in tuple(hints):
            hints.update(re.findall(rf"\b{hint}\s+as\s+(\w+)", source.text))
        parts: dict[str, set[str]] = {}
        for name, words, node in _named_parts(source):
            distributes = bool(words & hints) and bool(_identifiers(node) & hints)
            parts[name] = parts.get(name, set()) | words | ({_HINT} if distributes else set())
        return parts


def _hints(text: str) -> set[str]:
    """Words of a file that stand for something that distributes."""
    return {last for package, last in _HINTS if last in text and package in text}


def _identifiers(tree: ast.AST) -> set[str]:
    """Names, attributes and imported names."""
    found: set[str] = set()
    for node in walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found.update([node.module or "", *(alias.name for alias in node.names)])
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


def _named_parts(source: Source) -> Iterator[tuple[str, set[str], ast.stmt]]:
    """Functions, classes and variables of a file by name, each with the words in it and its statement."""
    for node in source.tree.body:
        words = set(_WORD.findall("\n".join(source.lines[node.lineno - 1 : node.end_lineno])))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, words, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, words, node
        else:  # assignments, and definitions within `if` and `try`
            for each in walk(node):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    yield each.id, words, node
                elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield each.name, words, node


def _imported(tree: ast.Module) -> Iterator[tuple[str, int, set[str]]]:
    """Modules that a file may import, at any depth of its statements.

    Yields:
        Name, number of leading dots, and the names that are imported from it; none if it is the module that is.
    """
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0, set()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            wanted = {alias.name for alias in node.names}
            yield module, node.level, wanted - {"*"}
            yield from ((f"{module}.{name}" if module else name, node.level, set()) for name in sorted(wanted))
        for field in ("body", "orelse", "handlers", "finalbody", "cases"):
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                stack += inner
