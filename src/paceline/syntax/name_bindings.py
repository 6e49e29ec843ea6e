"""Bindings that names refer to: in a function, in the functions around it, and in the body of the file."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from paceline.syntax.local_imports import LocalImports
from paceline.syntax.module_index import Function, Module
from paceline.syntax.reaching_definitions import Binding, ReachingDefinitions


class NameBindings:
    """Bindings in all files of one script.

    Args:
        root: the file that is started.
        imports: finds other files.
    """

    def __init__(self, root: Module, imports: LocalImports) -> None:
        self._root = root
        self._imports = imports
        self._reaching: dict[Function, ReachingDefinitions] = {}
        self._globals: dict[Module, dict[str, set[Binding]]] = {}
        self._home: dict[ast.AST, Function] = {}
        self._last = root

    @property
    def modules(self) -> list[Module]:
        """Files that were followed so far, the script first."""
        return self._imports.modules

    def home(self, node: ast.AST) -> Function:
        """The function in whose body a node stands."""
        found = self._home.get(node)
        if found is None:
            module = self._module_of(node)
            found = self._home[node] = module.around(node) if module is not None else self._root.body
        return found

    def defined_by(self, node: ast.AST) -> Function:
        """The function that a definition or a lambda makes."""
        module = self._module_of(node)
        return module.function_of(node) if module is not None else self._root.body

    def _module_of(self, node: ast.AST) -> Module | None:
        """The file in which a node stands; most questions in a row are about one file."""
        for module in (self._last, *self.modules):
            if node in module.parents or node is module.source.tree:
                self._last = module
                return module
        return None

    def reaching(self, function: Function) -> ReachingDefinitions:
        """Bindings in a function."""
        found = self._reaching.get(function)
        if found is None:
            found = self._reaching[function] = ReachingDefinitions(function)
        return found

    def bindings(self, node: ast.Name) -> list[tuple[Binding, Function]]:
        """Bindings that a name refers to, with the functions in which they are made. Empty for builtins."""
        function = self.home(node)
        if node.id not in function.global_names:
            uses = self.reaching(function).uses.get(node)
            if uses:
                return [(each, function) for each in in_order(uses)]
        at: Function | None = function.parent or function
        while at is not None:
            ends = self.of_module(at.module).get(node.id) if at.parent is None else None
            if at.parent is None and ends:
                return [(each, self.home(each.node)) for each in in_order(ends)]
            own = self.reaching(at).end.get(node.id) if at.parent is not None else None
            if own:
                return [(each, at) for each in in_order(own)]
            at = at.parent
        return []

    def of_module(self, module: Module) -> dict[str, set[Binding]]:
        """Bindings at the end of the body of a file, and those of functions that declare a name `global`."""
        found = self._globals.get(module)
        if found is None:
            found = {name: set(each) for name, each in self.reaching(module.body).end.items()}
            for function in module.functions:
                for name in function.global_names:
                    found.setdefault(name, set()).update(self.reaching(function).end.get(name, ()))
            self._globals[module] = found
        return found


def in_order(bindings: Iterable[Binding]) -> list[Binding]:
    """In the order of the source."""
    return sorted(bindings, key=lambda each: (getattr(each.node, "lineno", 0), getattr(each.node, "col_offset", 0)))
