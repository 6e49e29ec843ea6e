"""Children of syntax nodes, faster than `ast.iter_child_nodes`: contexts and operators are left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_LEFT_OUT = frozenset({"ctx", "op", "ops", "kind", "type_comment", "type_ignores", "names"})
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {}


def child_nodes(node: ast.AST) -> list[ast.AST]:
    """Expressions, statements, arguments and other parts directly below a node, in the order of the source."""
    kind = node.__class__
    fields = _FIELDS.get(kind)
    if fields is None:
        fields = _FIELDS[kind] = tuple(name for name in kind._fields if name not in _LEFT_OUT)
    found: list[ast.AST] = []
    for name in fields:
        value = getattr(node, name, None)
        if value.__class__ is list:
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all nodes below it, in the order of `ast.walk`."""
    found = [node]
    for each in found:
        found += child_nodes(each)
        yield each
