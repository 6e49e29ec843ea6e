"""Listings of directories and sets whose order decides which sample or parameter an index means.

Python gives the entries of a directory in the order of the file system, and those of a set of strings in an order that
is random in each process. `destination` follows such a value forwards, until it is sorted, or becomes the samples of a
data set or the members of a module.
"""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator

from paceline.check.analyses.script import Script
from paceline.check.analyses.script_data_sets import is_data_set
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Class, Function, last_name
from paceline.syntax.values import ClassValue, FunctionValue, Object

_SAME_ORDER = frozenset(
    (
        "list", "tuple", "enumerate", "zip", "map", "filter", "reversed", "iter", "array", "asarray", "tensor", "chain",
        "tqdm", "islice", "from_iterable", "dict", "fromkeys", "concatenate", "copy", "deepcopy", "items", "keys",
    )
)  # fmt: skip
_MODULES = ("torch.nn.ModuleDict", "torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.ParameterDict")
_DATA = tuple(f"torch.utils.data.{name}" for name in ("DataLoader", "Subset", "random_split", "DistributedSampler"))
_GROWS = ("append", "extend", "insert")
_MAX_STEPS = 80


class Destination(enum.Enum):
    """Where the order matters."""

    DATA = "samples"
    MODULES = "modules"


def destination(script: Script, node: ast.AST) -> Destination | None:
    """The place that a value reaches with its order as it is; None if it is sorted, counted or not followed there."""
    return _Flow(script).follow(node)


def may_arrive(script: Script) -> bool:
    """True if the script has data sets or lists of modules at all."""
    if any(True for _ in script.calls(*_MODULES, *_DATA)):
        return True
    return any(
        "__getitem__" in cls.methods or "__iter__" in cls.methods
        for module in script.program.imports.modules
        for cls in module.classes
    )


class _Flow:
    """One value on its way."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._seen: set[object] = set()

    def follow(self, node: ast.AST) -> Destination | None:
        if node in self._seen or len(self._seen) > _MAX_STEPS:
            return None
        self._seen.add(node)
        module = self._script.function_of(node).module
        parent = module.parents.get(node)
        given = node
        if isinstance(parent, ast.keyword):
            given, parent = parent, module.parents.get(parent)
        match parent:
            case ast.Call() if given is not parent.func:
                return self._argument(parent, node)
            case ast.comprehension() if parent.iter is node:
                made = module.parents[parent]
                return None if isinstance(made, ast.SetComp) else self.follow(made)
            case ast.For() if parent.iter is node:
                return self._loop(parent)
            case ast.BinOp(op=ast.Add()) | ast.IfExp() | ast.Starred() | ast.List() | ast.Tuple() | ast.NamedExpr():
                nested = isinstance(parent, ast.List | ast.Tuple) and not isinstance(node, ast.Starred)
                return None if nested else self.follow(parent)
            case ast.Subscript() if parent.value is node and isinstance(parent.slice, ast.Slice):
                return self.follow(parent)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() if parent.value is node:
                targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
                return self._first(self._stored(each, parent) for each in targets)
            case ast.Return():
                function = self._script.function_of(parent)
                sites = self._script.program.evaluator.call_sites(function)
                return self._first(self.follow(call) for _, call in sites)
            case ast.Attribute() if parent.attr in ("items", "keys", "copy") and isinstance(
                call := module.parents.get(parent), ast.Call
            ):
                return self.follow(call)
        return None

    def _first(self, found: Iterator[Destination | None]) -> Destination | None:
        return next((each for each in found if each is not None), None)

    def _argument(self, call: ast.Call, node: ast.AST) -> Destination | None:
        """A value that is given to a call."""
        names = self._script.program.callee_names(call)
        if any(name in _MODULES for name in names):
            return Destination.MODULES
        if any(name.startswith("torch.utils.data.") for name in names):
            return Destination.DATA
        name = last_name(call.func)
        if name in _GROWS and isinstance(call.func, ast.Attribute):
            return self._stored(call.func.value, call)
        own = [each for each in self._script.values(call.func) if isinstance(each, FunctionValue | ClassValue)]
        if own:
            return self._first(self._parameter(function, call, node) for function, _ in self._callees(call))
        return self.follow(call) if name in _SAME_ORDER else None

    def _callees(self, call: ast.Call) -> list[tuple[Function, object]]:
        return list(self._script.program.evaluator.callees(call))

    def _parameter(self, function: Function, call: ast.Call, node: ast.AST) -> Destination | None:
        """Goes on with the parameter of a function of the script."""
        names = function.positional[1:] if function.cls is not None else function.positional
        given = dict(zip(names, call.args, strict=False)) | {each.arg: each.value for each in call.keywords if each.arg}
        name = next((key for key, value in given.items() if value is node), None)
        return self._uses(function, name, function.node) if name is not None else None

    def _loop(self, loop: ast.For) -> Destination | None:
        """Lists that the body of a loop builds in the order of its rounds."""
        for at in walk(loop):
            if isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute):
                if at.func.attr == "add_module":
                    return Destination.MODULES
                if at.func.attr in _GROWS and (found := self._stored(at.func.value, loop)) is not None:
                    return found
            elif isinstance(at, ast.Assign) and isinstance(at.targets[0], ast.Subscript):
                base = at.targets[0].value
                made = [each for each in self._script.values(base) if getattr(each, "name", "") in _MODULES]
                if made:
                    empty = all(isinstance(each, Object) and not each.call.args for each in made)
                    return Destination.MODULES if empty and not _is_read(loop, base) else None
                if (found := self._stored(base, loop)) is not None:
                    return found
        return None

    def _stored(self, target: ast.expr, at: ast.AST) -> Destination | None:
        """Goes on with a variable or an attribute."""
        function = self._script.function_of(at)
        if isinstance(target, ast.Name):
            return self._uses(function, target.id, at)
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and function.cls is not None:
            return self._member(function.cls, target.attr)
        return None

    def _uses(self, function: Function, name: str, at: ast.AST) -> Destination | None:
        """Goes on with the places that read a variable."""
        if (function, name) in self._seen:
            return None
        self._seen.add((function, name))
        module = function.module
        loads = [each for each in module.loads_by_name.get(name, ()) if isinstance(each, ast.Name)]
        loads = [each for each in loads if function in (owner := module.around(each), owner.parent)]
        if any(_is_sorted(module.parents.get(each)) for each in loads):
            return None
        bound = (ast.Assign, ast.AnnAssign)
        for load in loads:
            if isinstance(at, bound):
                bindings = self._script.program.evaluator.bindings(load)
                if not any(binding.node is at for binding, _ in bindings):
                    continue
            if (found := self.follow(load)) is not None:
                return found
        return None

    def _member(self, cls: Class, name: str) -> Destination | None:
        """Goes on with an attribute of `self`."""
        if (cls, name) in self._seen:
            return None
        self._seen.add((cls, name))
        loads = [
            each
            for each in cls.module.loads_by_name.get(name, ())
            if isinstance(each, ast.Attribute) and self._script.function_of(each).cls is cls
        ]
        if any(_is_sorted(cls.module.parents.get(each)) for each in loads) or self._sorted_in(cls, name):
            return None
        for load in loads:
            owner = self._script.function_of(load).name
            parent = cls.module.parents.get(load)
            if owner in ("__getitem__", "__iter__") and is_data_set(self._script, cls):
                if isinstance(parent, ast.Subscript) and parent.value is load:
                    return Destination.DATA
            elif (found := self.follow(load)) is not None:
                return found
        return None

    def _sorted_in(self, cls: Class, name: str) -> bool:
        return any(
            isinstance(each.value, ast.Call) and last_name(each.value.func) == "sorted"
            for each in cls.attributes.get(name, ())
        )


def _is_read(loop: ast.For, base: ast.expr) -> bool:
    """True if a loop reads members of a container as well: it replaces what is there, in the order that it has."""
    text = ast.unparse(base)
    return any(
        isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Load) and ast.unparse(each.value) == text
        for each in walk(loop)
    )


def _is_sorted(parent: ast.AST | None) -> bool:
    return isinstance(parent, ast.Attribute) and parent.attr == "sort"
