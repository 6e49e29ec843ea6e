"""One parsed file with what every question about it needs: parents, functions, classes, calls."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from paceline.syntax.child_nodes import child_nodes
from paceline.syntax.source_files import Source

FunctionNode = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(eq=False)
class Class:
    """A class of the script.

    Attributes:
        attributes: values that are assigned to its attributes: in its body, and to `self` in its methods.
    """

    module: Module
    node: ast.ClassDef
    scope: Function
    methods: dict[str, Function] = field(default_factory=dict)
    attributes: dict[str, list[Assigned]] = field(default_factory=lambda: defaultdict(list))

    @property
    def name(self) -> str:
        """The name in its definition."""
        return self.node.name


@dataclass(frozen=True, eq=False)
class Assigned:
    """A value given to an attribute.

    Attributes:
        value: None where it cannot be read: a target of a loop or `with`, an augmented assignment.
        path: indices that lead from `value` to the part that is assigned, for tuples.
    """

    node: ast.AST
    value: ast.expr | None
    path: tuple[int, ...] = ()


@dataclass(eq=False)
class Function:
    """A function, a lambda, or the body of a module.

    Attributes:
        cls: the class of a method.
        parent: the function around it; None for the body of a module.
        calls: in its own body, those of functions within it excluded.
    """

    module: Module
    node: FunctionNode
    cls: Class | None
    parent: Function | None
    calls: list[ast.Call] = field(default_factory=list)
    loops: list[ast.For | ast.AsyncFor | ast.While] = field(default_factory=list)
    returns: list[ast.Return] = field(default_factory=list)
    yields: bool = False
    global_names: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        """The name in its definition; `<module>` or `<lambda>`."""
        if isinstance(self.node, ast.Module):
            return "<module>"
        return "<lambda>" if isinstance(self.node, ast.Lambda) else self.node.name

    @property
    def parameters(self) -> list[ast.arg]:
        """Those that can be given by position, then those by keyword only."""
        if isinstance(self.node, ast.Module):
            return []
        arguments = self.node.args
        return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]

    @property
    def positional(self) -> list[str]:
        """Names of parameters that can be given by position, `self` included."""
        if isinstance(self.node, ast.Module):
            return []
        return [each.arg for each in (*self.node.args.posonlyargs, *self.node.args.args)]

    @property
    def decorators(self) -> list[ast.expr]:
        """Outermost first."""
        return getattr(self.node, "decorator_list", [])

    def default(self, name: str) -> ast.expr | None:
        """The default of a parameter."""
        if isinstance(self.node, ast.Module):
            return None
        arguments = self.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults = dict(zip([each.arg for each in positional][::-1], arguments.defaults[::-1], strict=False))
        defaults.update(
            (each.arg, value)
            for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if value is not None
        )
        return defaults.get(name)


class Module:
    """A file: its tree, and indices over it.

    Attributes:
        name: dotted, as other files of the same program import it; empty if it is the script that is started.
        functions: the body of the module first.
        body: the function that stands for the body of the module.
        calls_by_name: by the last part of the callee's name.
        loads_by_name: names and attributes that are read without being called.
        aliases: other names that its imports give: `run` of `from engine import train as run`, by `train`.
    """

    def __init__(self, source: Source, name: str = "") -> None:
        self.source = source
        self.name = name
        self.parents: dict[ast.AST, ast.AST] = {}
        self.functions: list[Function] = []
        self.classes: list[Class] = []
        self.calls_by_name: dict[str, list[ast.Call]] = defaultdict(list)
        self.loads_by_name: dict[str, list[ast.expr]] = defaultdict(list)
        self.aliases: dict[str, set[str]] = defaultdict(set)
        self.with_statements: list[ast.With | ast.AsyncWith] = []
        self.stores_by_attribute: dict[str, list[ast.Attribute]] = defaultdict(list)
        self._owner: dict[ast.AST, Function] = {}
        self._class_of: dict[ast.ClassDef, Class] = {}
        self.body = Function(self, source.tree, None, None)
        self._add(self.body)
        _Indexer(self).run()

    @property
    def path(self) -> str:
        """The path of the file."""
        return str(self.source.path)

    def _add(self, function: Function) -> None:
        self.functions.append(function)
        self._owner[function.node] = function

    def function_of(self, node: ast.AST) -> Function:
        """The function whose own definition `node` is, or in whose body it stands."""
        at: ast.AST | None = node
        while at is not None:
            if at in self._owner:
                return self._owner[at]
            at = self.parents.get(at)
        return self.body

    def around(self, node: ast.AST) -> Function:
        """The function in whose body `node` stands; decorators and defaults stand in the function around theirs."""
        child, at = node, self.parents.get(node)
        while at is not None:
            if isinstance(at, ast.FunctionDef | ast.AsyncFunctionDef):
                if child in at.body:
                    return self._owner[at]
            elif isinstance(at, ast.Lambda) and child is at.body:
                return self._owner[at]
            child, at = at, self.parents.get(at)
        return self.body

    def class_of(self, node: ast.ClassDef) -> Class:
        """The class that a definition makes."""
        return self._class_of[node]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Nodes around `node`, innermost first, functions included."""
        at = self.parents.get(node)
        while at is not None:
            yield at
            at = self.parents.get(at)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds `node`."""
        at = node
        while not isinstance(at, ast.stmt):
            at = self.parents[at]
        return at


class _Indexer:
    """One pass over the tree, with an explicit stack: chains of calls can be deeper than Python recurses."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def run(self) -> None:
        module = self.module
        parents = module.parents
        stack: list[tuple[ast.AST, Function, Class | None]] = [(module.source.tree, module.body, None)]
        while stack:
            parent, owner, klass = stack.pop()
            inner: list[tuple[ast.AST, Function, Class | None]] = []
            for child in child_nodes(parent):
                parents[child] = parent
                index = _INDEXED.get(child.__class__)
                inner.append((child, owner, klass) if index is None else (child, *index(self, child, owner, klass)))
            inner.reverse()
            stack += inner

    # Each indexes a node, and returns the function and the class in which its children stand.

    def _name(self, node: ast.Name, owner: Function, cls: Class | None) -> _Around:
        if isinstance(node.ctx, ast.Load) and not self._is_called(node):
            self.module.loads_by_name[node.id].append(node)
        return owner, cls

    def _attribute(self, node: ast.Attribute, owner: Function, cls: Class | None) -> _Around:
        if isinstance(node.ctx, ast.Store):
            self.module.stores_by_attribute[node.attr].append(node)
        elif not self._is_called(node):
            self.module.loads_by_name[node.attr].append(node)
        return owner, cls

    def _is_called(self, node: ast.expr) -> bool:
        parent = self.module.parents[node]
        return parent.__class__ is ast.Call and parent.func is node

    def _call(self, node: ast.Call, owner: Function, cls: Class | None) -> _Around:
        owner.calls.append(node)
        if name := last_name(node.func):
            self.module.calls_by_name[name].append(node)
        return owner, cls

    def _function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, owner: Function, cls: Class | None
    ) -> _Around:
        made = Function(self.module, node, None if isinstance(node, ast.Lambda) else cls, owner)
        self.module._add(made)
        if made.cls is not None:
            made.cls.methods[made.name] = made
        return made, None

    def _class(self, node: ast.ClassDef, owner: Function, cls: Class | None) -> _Around:
        made = Class(self.module, node, owner)
        self.module.classes.append(made)
        self.module._class_of[node] = made
        return owner, made

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, owner: Function, cls: Class | None) -> _Around:
        owner.loops.append(node)
        return owner, cls

    def _import(self, node: ast.ImportFrom, owner: Function, cls: Class | None) -> _Around:
        for alias in node.names:
            if alias.asname:
                self.module.aliases[alias.name].add(alias.asname)
        return owner, cls

    def _with(self, node: ast.With | ast.AsyncWith, owner: Function, cls: Class | None) -> _Around:
        self.module.with_statements.append(node)
        return owner, cls

    def _return(self, node: ast.Return, owner: Function, cls: Class | None) -> _Around:
        owner.returns.append(node)
        return owner, cls

    def _yield(self, node: ast.Yield | ast.YieldFrom, owner: Function, cls: Class | None) -> _Around:
        owner.yields = True
        return owner, cls

    def _global(self, node: ast.Global | ast.Nonlocal, owner: Function, cls: Class | None) -> _Around:
        owner.global_names.update(node.names)
        return owner, cls

    def _assignment(
        self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, owner: Function, cls: Class | None
    ) -> _Around:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        value = None if isinstance(node, ast.AugAssign) else node.value
        for target, path in ((each, path) for top in targets for each, path in _targets(top, ())):
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and owner.cls is not None:
                if owner.positional[:1] == [target.value.id]:
                    owner.cls.attributes[target.attr].append(Assigned(node, value, path))
            elif isinstance(target, ast.Name) and cls is not None:
                cls.attributes[target.id].append(Assigned(node, value, path))
        return owner, cls


_Around = tuple[Function, Class | None]
_INDEXED: dict[type[ast.AST], Callable[..., _Around]] = {
    ast.Name: _Indexer._name,
    ast.Attribute: _Indexer._attribute,
    ast.Call: _Indexer._call,
    ast.FunctionDef: _Indexer._function,
    ast.AsyncFunctionDef: _Indexer._function,
    ast.Lambda: _Indexer._function,
    ast.ClassDef: _Indexer._class,
    ast.For: _Indexer._loop,
    ast.AsyncFor: _Indexer._loop,
    ast.While: _Indexer._loop,
    ast.ImportFrom: _Indexer._import,
    ast.With: _Indexer._with,
    ast.AsyncWith: _Indexer._with,
    ast.Return: _Indexer._return,
    ast.Yield: _Indexer._yield,
    ast.YieldFrom: _Indexer._yield,
    ast.Global: _Indexer._global,
    ast.Nonlocal: _Indexer._global,
    ast.Assign: _Indexer._assignment,
    ast.AnnAssign: _Indexer._assignment,
    ast.AugAssign: _Indexer._assignment,
}


def _targets(target: ast.expr, path: tuple[int, ...]) -> Iterator[tuple[ast.expr, tuple[int, ...]]]:
    """Names and attributes within a target, with the indices that lead there; a starred one has index -1."""
    if isinstance(target, ast.Tuple | ast.List):
        for index, each in enumerate(target.elts):
            yield from _targets(each, (*path, -1 if isinstance(each, ast.Starred) else index))
    elif isinstance(target, ast.Starred):
        yield from _targets(target.value, path)
    else:
        yield target, path


def targets_of(target: ast.expr) -> Iterator[tuple[ast.expr, tuple[int, ...]]]:
    """Names, attributes and subscripts that an assignment target holds, with the indices that lead there."""
    return _targets(target, ())


def last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`, `f` of `f`; empty for other expressions."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.expr) -> str:
    """`a.b.c` as written; empty if it is no chain of names."""
    parts: list[str] = []
    at = node
    while isinstance(at, ast.Attribute):
        parts.append(at.attr)
        at = at.value
    if not isinstance(at, ast.Name):
        return ""
    return ".".join([at.id, *reversed(parts)])
