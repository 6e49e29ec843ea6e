"""Arguments of a call, also where they come in `*args` and `**kwargs` dictionaries."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.syntax.child_nodes import walk
from paceline.syntax.evaluates import Evaluates
from paceline.syntax.module_index import Function
from paceline.syntax.values import (
    Argument,
    Context,
    Elements,
    Literal,
    Located,
    Mapping,
    Parameter,
    Value,
)

_NOT_SHOWN = Argument(certain=False, may_be_absent=True)
_open_questions: set[tuple[ast.AST, object]] = set()
"""Keys of dictionaries that are being looked for, to end at dictionaries that hold themselves."""


def argument(
    evaluator: Evaluates, call: ast.Call, name: str, position: int | None = None, context: Context | None = None
) -> Argument:
    """An argument of a call.

    Args:
        name: its keyword; empty if it can be given by position only.
        position: its index among positional arguments, from 0; None if it can be given by keyword only.
        context: in which the call is looked at.
    """
    for keyword in call.keywords:
        if keyword.arg == name and name:
            return Argument((Located(keyword.value, context),))
    if position is not None:
        for at, node in enumerate(call.args[: position + 1]):
            if isinstance(node, ast.Starred):
                return _starred(evaluator, call, node, name, position - at, context)
            if at == position:
                return Argument((Located(node, context),))
    found = Argument()
    for keyword in call.keywords:
        if keyword.arg is None and name:
            found = _either(found, _expanded(evaluator, keyword.value, name, context))
    return found


def _starred(
    evaluator: Evaluates, call: ast.Call, star: ast.Starred, name: str, index: int, context: Context | None
) -> Argument:
    values = evaluator.values(star.value, context)
    if len(values) == 1 and isinstance(value := next(iter(values)), Elements) and star is call.args[-1]:
        nodes = value.node.elts
        if not any(isinstance(each, ast.Starred) for each in nodes):
            if index < len(nodes):
                return Argument((Located(nodes[index], value.context),))
            without = ast.Call(func=call.func, args=[], keywords=call.keywords)
            return argument(evaluator, without, name, None, context)
    return _NOT_SHOWN


def _either(first: Argument, second: Argument) -> Argument:
    """An argument that one of two `**` may give."""
    if first.absent:
        return second
    if second.absent:
        return first
    return Argument(
        first.given + second.given, first.certain and second.certain, first.may_be_absent and second.may_be_absent
    )


def _expanded(evaluator: Evaluates, node: ast.expr, name: str, context: Context | None) -> Argument:
    """The value that `**node` gives for a keyword."""
    given: list[Located] = []
    certain, missing = True, False
    values = sorted(evaluator.values(node, context), key=_place)
    for value in values:
        each = _NOT_SHOWN
        if isinstance(value, Mapping):
            each = entry(evaluator, value, name)
        elif isinstance(value, Parameter) and context is not None:
            each = _from_keywords(evaluator, value, name, context)
        given += each.given
        certain = certain and each.certain
        missing = missing or each.absent or each.may_be_absent
    if not values:
        return _NOT_SHOWN
    return Argument(tuple(given), certain, missing)


def _place(value: Value) -> tuple[int, int, str]:
    """Order of values in the source, to give the same answer every time."""
    node = getattr(value, "node", None) or getattr(value, "call", None)
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0), type(value).__name__


def _from_keywords(evaluator: Evaluates, value: Parameter, name: str, context: Context) -> Argument:
    """A keyword that a function takes as `**kwargs` and hands on."""
    arguments = getattr(value.function.node, "args", None)
    is_rest = arguments is not None and arguments.kwarg is not None and arguments.kwarg.arg == value.name
    if context.function is not value.function or context.call is None or not is_rest:
        return _NOT_SHOWN
    return argument(evaluator, context.call, name, None, context.outer)


def entry(evaluator: Evaluates, mapping: Mapping, key: object) -> Argument:
    """The value of a key of a dictionary, with what is set later under the variable's name."""
    question = (mapping.node, key)
    if question in _open_questions:  # `options = {**options, "a": 1}` in a loop
        return _NOT_SHOWN
    _open_questions.add(question)
    try:
        return _entry(evaluator, mapping, key)
    finally:
        _open_questions.discard(question)


def _entry(evaluator: Evaluates, mapping: Mapping, key: object) -> Argument:
    found = _initial(evaluator, mapping, key)
    for located, certain in _changes(evaluator, mapping, key):
        if located is None:
            found = Argument(found.given, False, found.may_be_absent or found.absent)
        else:
            found = Argument((*found.given, located), found.certain and certain, found.absent or found.may_be_absent)
    return found


def _initial(evaluator: Evaluates, mapping: Mapping, key: object) -> Argument:
    node, context = mapping.node, mapping.context
    found = Argument()
    if isinstance(node, ast.Dict):
        for name, value in zip(node.keys, node.values, strict=True):
            if name is None:
                found = _either(found, _expanded(evaluator, value, str(key), context))
            elif isinstance(name, ast.Constant):
                if name.value == key:
                    found = Argument((Located(value, context),))
            elif not _cannot_be(evaluator, name, key, context):
                return _NOT_SHOWN
        return found
    for keyword in node.keywords:
        if keyword.arg == key:
            return Argument((Located(keyword.value, context),))
        if keyword.arg is None:
            found = _either(found, _expanded(evaluator, keyword.value, str(key), context))
    for positional in node.args:
        found = _either(found, _expanded(evaluator, positional, str(key), context))
    return found


def _cannot_be(evaluator: Evaluates, name: ast.expr, key: object, context: Context | None) -> bool:
    values = evaluator.values(name, context)
    return bool(values) and all(isinstance(each, Literal) and each.value != key for each in values)


def _changes(evaluator: Evaluates, mapping: Mapping, key: object) -> Iterator[tuple[Located | None, bool]]:
    """Values set under the variable's name; None where something is set that cannot be read."""
    if not mapping.name or mapping.function is None:
        return
    function: Function = mapping.function
    module = function.module
    for call in (*module.calls_by_name.get("update", ()), *module.calls_by_name.get("setdefault", ())):
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        if not isinstance(receiver, ast.Name) or receiver.id != mapping.name or module.around(call) is not function:
            continue
        if call.func.attr == "setdefault":
            if len(call.args) == 2 and isinstance(call.args[0], ast.Constant) and call.args[0].value == key:
                yield Located(call.args[1], mapping.context), True
            continue
        for keyword in call.keywords:
            if keyword.arg == key:
                yield Located(keyword.value, mapping.context), True
            elif keyword.arg is None:
                yield from _of_expanded(_expanded(evaluator, keyword.value, str(key), mapping.context))
        for node in call.args:
            yield from _of_expanded(_expanded(evaluator, node, str(key), mapping.context))
    for node in _subscript_stores(function, mapping.name):
        target = node.targets[0]
        assert isinstance(target, ast.Subscript)
        if isinstance(target.slice, ast.Constant):
            if target.slice.value == key:
                yield Located(node.value, mapping.context), True
        elif not _cannot_be(evaluator, target.slice, key, mapping.context):
            yield None, False


def _of_expanded(found: Argument) -> Iterator[tuple[Located | None, bool]]:
    for each in found.given:
        yield each, found.certain
    if not found.certain:
        yield None, False


def _subscript_stores(function: Function, name: str) -> Iterator[ast.Assign]:
    """`name[...] = value` in a function."""
    for node in walk(function.node):
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Subscript)
            and isinstance(node.targets[0].value, ast.Name)
            and node.targets[0].value.id == name
        ):
            yield node


def of_parameter(evaluator: Evaluates, function: Function, name: str, context: Context) -> Argument:
    """The argument that a call gives for a parameter of a function of the script."""
    call = context.call
    if call is None:
        return _NOT_SHOWN
    positional = function.positional
    position: int | None = positional.index(name) if name in positional else None
    if position is not None and context.receiver is not None:
        position -= 1
    names = {each.arg for each in function.parameters}
    if name not in names:  # *args or **kwargs
        return _NOT_SHOWN
    return argument(evaluator, call, name, position, context.outer)


def literal(evaluator: Evaluates, found: Argument) -> set[object] | None:
    """The constants that an argument can be; None if it can be anything else, or is absent."""
    if not found.certain or not found.given or found.may_be_absent:
        return None
    values: set[Value] = set(evaluator.all_of(found.given))
    if not values or not all(isinstance(each, Literal) for each in values):
        return None
    return {each.value for each in values if isinstance(each, Literal)}
