"""Programs from texts, for tests of `paceline.syntax`."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

from paceline.syntax.module_index import dotted
from paceline.syntax.program import Program
from paceline.syntax.source_files import Source, parse
from paceline.syntax.values import (
    ClassValue,
    Elements,
    FunctionValue,
    Instance,
    Literal,
    Mapping,
    Named,
    Object,
    Parameter,
    Part,
    Value,
)


def program_of(text: str, path: Path = Path("script.py")) -> Program:
    """A script with one text."""
    source = parse(path, textwrap.dedent(text).encode())
    assert isinstance(source, Source), source
    return Program(source)


def shown(program: Program, name: str) -> set[str]:
    """Values of the expression in `show(expression, "name")`, as short texts."""
    for module in program.imports.modules:
        for call in module.calls_by_name.get("show", ()):
            if isinstance(call.args[1], ast.Constant) and call.args[1].value == name:
                return {text_of(each) for each in program.values(call.args[0])}
    raise AssertionError(f"no show(..., {name!r})")


def text_of(value: Value) -> str:
    """A value as text: `DataLoader()`, `Net()`, `3`, `?`."""
    match value:
        case Object():
            return f"{value.name.rpartition('.')[2]}()" if "." in value.name else f"{value.name}()"
        case Instance():
            return f"{value.cls.name}()"
        case ClassValue():
            return value.cls.name
        case FunctionValue():
            return f"{value.function.name}"
        case Named():
            return value.name
        case Literal():
            return repr(value.value)
        case Elements() | Mapping():
            return ast.unparse(value.node)
        case Parameter():
            return f"<{value.name}>"
        case Part():
            return f"{text_of(value.base)}.{value.name}"
    return "?"


def call_at(program: Program, text: str) -> ast.Call:
    """The first call of what `text` names, as written."""
    for function in program.functions:
        for call in function.calls:
            if dotted(call.func) == text:
                return call
    raise AssertionError(f"no call of {text}")
