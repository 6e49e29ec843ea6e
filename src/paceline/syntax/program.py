"""A script as it runs: the file that is started, the files that it imports, and the functions that it reaches."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from paceline.syntax import call_arguments
from paceline.syntax.canonical_names import canonical
from paceline.syntax.evaluation import Evaluator
from paceline.syntax.local_imports import LocalImports, ParsedFiles
from paceline.syntax.module_index import Function, Module
from paceline.syntax.source_files import Source
from paceline.syntax.values import Argument, Context, Instance, Named, Object, Part, Value, Values


@dataclass(frozen=True)
class CallSite:
    """A call that the script can reach.

    Attributes:
        name: canonical, of the callee.
        function: in which it stands.
    """

    name: str
    node: ast.Call
    function: Function

    @property
    def module(self) -> Module:
        """The file."""
        return self.function.module


class Program:
    """One script, and what can be asked about it.

    Args:
        source: the file that is started.
        files: parsed so far, shared by the scripts of one command.
    """

    def __init__(self, source: Source, files: ParsedFiles | None = None) -> None:
        self.root = Module(source)
        self.imports = LocalImports(files or ParsedFiles(), self.root)
        self.evaluator = Evaluator(self.root, self.imports)

    @cached_property
    def functions(self) -> list[Function]:
        """Functions of the script itself, its body first, then those of other files that calls lead to."""
        found = list(self.root.functions)
        seen = set(found)
        queue = list(found)
        while queue:
            function = queue.pop(0)
            for call in function.calls:
                for callee, _ in self.evaluator.callees(call):
                    if callee not in seen:
                        seen.add(callee)
                        found.append(callee)
                        queue.append(callee)
        return found

    @cached_property
    def _named_calls(self) -> dict[str, list[CallSite]]:
        found: dict[str, list[CallSite]] = {}
        for function in self.functions:
            for call in function.calls:
                for name in self.callee_names(call):
                    found.setdefault(name, []).append(CallSite(name, call, function))
        return found

    def callee_names(self, call: ast.Call) -> list[str]:
        """Canonical names of what a call calls; methods as `torch.optim.SGD.step`, of unknown objects as `?.step`."""
        names = []
        for value in self.evaluator.values(call.func):
            if isinstance(value, Named):
                names.append(value.name)
            elif isinstance(value, Part):
                names.append(f"{self.evaluator.type_name(value.base)}.{value.name}")
        if not names and isinstance(call.func, ast.Attribute):
            names.append(f"?.{call.func.attr}")
        return sorted(set(names))

    def calls(self, *names: str) -> Iterator[CallSite]:
        """Calls of functions and classes of other packages, by canonical name."""
        for name in names:
            yield from self._named_calls.get(canonical(name), ())

    def method_calls(self, *names: str) -> Iterator[CallSite]:
        """Calls of methods by the name of the method alone, functions of the script left out."""
        wanted = set(names)
        for function in self.functions:
            for call in function.calls:
                if isinstance(call.func, ast.Attribute) and call.func.attr in wanted:
                    yield CallSite(f"?.{call.func.attr}", call, function)

    def values(self, node: ast.AST | None, context: Context | None = None) -> Values:
        """Values that an expression can have."""
        return self.evaluator.values(node, context)

    def argument(
        self, call: ast.Call | Object, name: str, position: int | None = None, context: Context | None = None
    ) -> Argument:
        """An argument of a call, or of the call that made an object."""
        if isinstance(call, Object):
            return call_arguments.argument(self.evaluator, call.call, name, position, call.context)
        return call_arguments.argument(self.evaluator, call, name, position, context)

    def argument_values(
        self, call: ast.Call | Object, name: str, position: int | None = None, context: Context | None = None
    ) -> Values:
        """Values that an argument can have; none if it is absent."""
        return self.evaluator.all_of(self.argument(call, name, position, context).given)

    def is_a(self, value: Value, *names: str) -> bool:
        """True if a value is an object of one of these classes, or of a class of the script derived from one."""
        if isinstance(value, Object):
            return value.name in names
        if isinstance(value, Instance):
            return any(each in names for each in self.evaluator.external_bases(value.cls))
        return False

    def objects(self, node: ast.AST | None, names: Iterable[str], context: Context | None = None) -> list[Object]:
        """Objects that an expression can be, of the named classes."""
        wanted = set(names)
        return [each for each in self.values(node, context) if isinstance(each, Object) and each.name in wanted]
