"""Names under which a file reaches a package, so that a repair needs no import of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Module


def reach(module: Module, package: str) -> str:
    """An expression for a package, as `dist` for `torch.distributed`; empty if no import at module level binds it."""
    for full, bound, text in _imported(module, package):
        if full == package:
            return text if _is_only_imported(module, bound) else ""
    return ""


def _imported(module: Module, package: str) -> Iterator[tuple[str, str, str]]:
    """An import: the object, the name that it binds, and the expression that refers to the object."""
    for statement in module.source.tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.asname:
                    yield alias.name, alias.asname, alias.asname
                elif alias.name == package or alias.name.startswith(f"{package}."):
                    yield package, package.partition(".")[0], package
        elif isinstance(statement, ast.ImportFrom) and statement.level == 0:
            for alias in statement.names:
                bound = alias.asname or alias.name
                yield f"{statement.module}.{alias.name}", bound, bound


def _is_only_imported(module: Module, name: str) -> bool:
    """True if nothing but imports binds a name in the file."""
    return not any(
        (isinstance(each, ast.Name) and each.id == name and not isinstance(each.ctx, ast.Load))
        or (isinstance(each, ast.arg) and each.arg == name)
        or (isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and each.name == name)
        for each in walk(module.source.tree)
    )
