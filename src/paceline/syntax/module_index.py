"""One parsed file with what every question about it needs: parents, functions, classes, calls."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

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
        """As in its definition."""
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
        """As in its definition; `<module>` or `<lambda>`."""
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
    """

    def __init__(self, source: Source, name: str = "") -> None:
        self.source = source
        self.name = name
        self.parents: dict[ast.AST, ast.AST] = {}
        self.functions: list[Function] = []
        self.classes: list[Class] = []
        self.calls_by_name: dict[str, list[ast.Call]] = defaultdict(list)
        self.loads_by_name: dict[str, list[ast.expr]] = defaultdict(list)
        self.stores_by_attribute: dict[str, list[ast.Attribute]] = defaultdict(list)
        self._owner: dict[ast.AST, Function] = {}
        self._class_of: dict[ast.ClassDef, Class] = {}
        self.body = Function(self, source.tree, None, None)
        self._add(self.body)
        _Indexer(self).run()

    @property
    def path(self) -> str:
        """Of the file."""
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
    """One pass over the tree, without recursion into deep expressions by hand-written code."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def run(self) -> None:
        self._visit_children(self.module.source.tree, self.module.body, None)

    def _visit_children(self, node: ast.AST, function: Function, cls: Class | None) -> None:
        """Index what stands below a node. An explicit stack: chains of calls can be deeper than Python recurses."""
        module = self.module
        stack: list[tuple[ast.AST, Function, Class | None]] = [(node, function, cls)]
        while stack:
            parent, owner, klass = stack.pop()
            inner: list[tuple[ast.AST, Function, Class | None]] = []
            for child in ast.iter_child_nodes(parent):
                module.parents[child] = parent
                inner.append((child, *self._enter(child, parent, owner, klass)))
            stack.extend(reversed(inner))

    def _enter(
        self, node: ast.AST, parent: ast.AST, owner: Function, cls: Class | None
    ) -> tuple[Function, Class | None]:
        """Index a node. Returns the function and the class in which its children stand."""
        module = self.module
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load) and not (isinstance(parent, ast.Call) and parent.func is node):
                module.loads_by_name[node.id].append(node)
        elif isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Store):
                module.stores_by_attribute[node.attr].append(node)
            elif not (isinstance(parent, ast.Call) and parent.func is node):
                module.loads_by_name[node.attr].append(node)
        elif isinstance(node, ast.Call):
            owner.calls.append(node)
            if name := last_name(node.func):
                module.calls_by_name[name].append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            made = Function(module, node, None if isinstance(node, ast.Lambda) else cls, owner)
            module._add(made)
            if made.cls is not None:
                made.cls.methods[made.name] = made
            return made, None
        elif isinstance(node, ast.ClassDef):
            klass = Class(module, node, owner)
            module.classes.append(klass)
            module._class_of[node] = klass
            return owner, klass
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            owner.loops.append(node)
        elif isinstance(node, ast.Return):
            owner.returns.append(node)
        elif isinstance(node, ast.Yield | ast.YieldFrom):
            owner.yields = True
        elif isinstance(node, ast.Global | ast.Nonlocal):
            owner.global_names.update(node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            self._attributes(node, owner, cls)
        return owner, cls

    def _attributes(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, owner: Function, cls: Class | None) -> None:
        method_class = owner.cls
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        value = None if isinstance(node, ast.AugAssign) else node.value
        for target, path in ((each, path) for top in targets for each, path in _targets(top, ())):
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and method_class is not None:
                first = owner.positional[:1]
                if first == [target.value.id]:
                    method_class.attributes[target.attr].append(Assigned(node, value, path))
            elif isinstance(target, ast.Name) and cls is not None:
                cls.attributes[target.id].append(Assigned(node, value, path))


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
