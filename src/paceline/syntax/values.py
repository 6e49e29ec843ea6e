"""Abstract values: what an expression of a script can be, as far as reading shows.

A set of values is a union over all paths. `UNKNOWN` in it says that there may be others.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from paceline.syntax.module_index import Class, Function, Module


@dataclass(eq=False)
class Context:
    """The call for which a function is looked at: its arguments are those of this call.

    Attributes:
        outer: in which the arguments of the call are looked at.
        receiver: the object of a method.
        offset: parameters in front of the call's first argument, beyond the receiver (`mp.spawn` gives an index).
        depth: number of calls, this one included.
    """

    function: Function
    call: ast.Call | None
    outer: Context | None
    receiver: Value | None = None
    depth: int = 1


class Value:
    """Base class of all values."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Unknown(Value):
    """Something that reading does not show."""


UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True)
class Named(Value):
    """A module, function or class of another package, under its canonical name: `torch.distributed.get_rank`."""

    name: str


@dataclass(frozen=True, slots=True)
class Object(Value):
    """The result of a call of something named: `torch.utils.data.DataLoader(...)`, `loss.backward()`.

    Attributes:
        name: of the callee, canonical; of a method that of its object's class and its own.
        receiver: the object of a method.
    """

    name: str
    call: ast.Call
    context: Context | None
    receiver: Value | None = None


@dataclass(frozen=True, slots=True)
class Instance(Value):
    """An object of a class of the script; `call` is None for any of them."""

    cls: Class
    call: ast.Call | None = None
    context: Context | None = None


@dataclass(frozen=True, slots=True)
class ClassValue(Value):
    """A class of the script."""

    cls: Class


@dataclass(frozen=True, slots=True)
class FunctionValue(Value):
    """A function of the script; with a receiver a bound method."""

    function: Function
    receiver: Value | None = None


@dataclass(frozen=True, slots=True)
class LocalModule(Value):
    """Another file of the script."""

    module: Module


@dataclass(frozen=True, slots=True)
class Literal(Value):
    """A number, a string, True, False or None."""

    value: object


@dataclass(frozen=True, slots=True)
class Elements(Value):
    """A tuple, list or set display."""

    node: ast.Tuple | ast.List | ast.Set
    context: Context | None


@dataclass(frozen=True, slots=True)
class Mapping(Value):
    """A dict display or a call of `dict`.

    Attributes:
        name: the variable that it was assigned to, whose later changes count; empty if there is none.
        function: in which that variable is.
    """

    node: ast.Dict | ast.Call
    context: Context | None
    name: str = ""
    function: Function | None = None


@dataclass(frozen=True, slots=True)
class Parameter(Value):
    """A parameter of a function whose callers are not known."""

    function: Function
    name: str


@dataclass(frozen=True, slots=True)
class Part(Value):
    """An attribute, an item (`[key]`) or an element (`[*]`) of a value."""

    base: Value
    name: str


Values = frozenset[Value]
NONE: Values = frozenset()
ANY: Values = frozenset({UNKNOWN})


@dataclass(frozen=True)
class Located:
    """An expression with the context in which it is looked at."""

    node: ast.expr
    context: Context | None = None


@dataclass(frozen=True)
class Argument:
    """An argument of a call.

    Attributes:
        given: expressions that may be it.
        certain: it is one of `given`, or absent if there are none; else reading does not show it.
        may_be_absent: on some path the call does not have it.
    """

    given: tuple[Located, ...] = ()
    certain: bool = True
    may_be_absent: bool = field(default=False)

    @property
    def absent(self) -> bool:
        """The call certainly does not have it."""
        return self.certain and not self.given
