"""Who calls whom, also through `mp.spawn` and processes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.syntax.class_members import ClassMembers
from paceline.syntax.conditions import asks_for_main
from paceline.syntax.evaluates import Evaluates
from paceline.syntax.module_index import Function, Module, last_name
from paceline.syntax.name_bindings import NameBindings
from paceline.syntax.values import ClassValue, Context, Elements, FunctionValue, Instance, Named, Value, Values

SPAWN = frozenset({"torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"})
PROCESS = frozenset({"torch.multiprocessing.Process", "multiprocessing.Process"})
_STARTERS = ("spawn", "start_processes", "Process", "Thread")
"""Last names of what starts a function elsewhere."""
_FEW_FILES = 8
"""In programs of more files, calls of objects are not looked for everywhere."""
SPAWN_INDEX = Named("torch.multiprocessing.spawn#index")
"""The first argument of a function that `mp.spawn` starts."""


class CallGraph:
    """Calls between the functions of one script.

    Args:
        evaluator: of the same script.
        names: likewise.
        classes: likewise.
    """

    def __init__(self, evaluator: Evaluates, names: NameBindings, classes: ClassMembers) -> None:
        self._evaluator = evaluator
        self._names = names
        self._classes = classes
        self._callers: dict[Function, list[tuple[Function, ast.Call]]] = {}
        self._active: dict[Function, tuple[int, int]] = {}
        self._lowest = 0
        self._escapes: dict[Function, bool] = {}
        self._variable_calls: dict[Module, list[ast.Call]] = {}

    def call_sites(self, function: Function) -> list[tuple[Function, ast.Call]]:
        """Calls that are found to reach a function, with the functions in which they stand, in order of the source."""
        known = self._callers.get(function)
        if known is not None:
            return known
        if function in self._active:
            position, depth = self._active[function]
            self._lowest = min(self._lowest, position)
            self._evaluator.cut_short(depth - 1)
            return []
        position = len(self._active)
        self._active[function] = position, self._evaluator.depth()
        before, self._lowest = self._lowest, position
        found = []
        for call in self._candidates(function):
            if self._runs_elsewhere(call):
                continue
            callees = self._evaluator.values(call.func)
            if any(self._reaches(callee, function) for callee in callees) or self._starts(call, function):
                found.append((self._names.home(call), call))
        found += self._entered(function)
        del self._active[function]
        if self._lowest >= position:  # complete: no question about callers further out was cut short
            self._callers[function] = found
        self._lowest = min(before, self._lowest) if self._active else 0
        return found

    def _entered(self, function: Function) -> Iterator[tuple[Function, ast.Call]]:
        """Objects made in `with Context() as context:`, which runs `__enter__` and `__exit__` of their class."""
        if function.cls is None or function.name not in ("__enter__", "__exit__"):
            return
        for module in self._names.modules:
            for node in module.with_statements:
                for item in node.items:
                    made = item.context_expr
                    owners = self._evaluator.values(made) if isinstance(made, ast.Call) else ()
                    if any(
                        isinstance(each, Instance) and self._method(each, function.name) is function for each in owners
                    ):
                        assert isinstance(made, ast.Call)
                        yield self._names.home(made), made

    def _method(self, owner: Instance, name: str) -> Function | None:
        methods = (each.methods.get(name) for each in self._classes.lineage(owner.cls))
        return next((each for each in methods if each is not None), None)

    def _candidates(self, function: Function) -> Iterator[ast.Call]:
        if function.cls is not None and function.name == "__call__":
            yield from self._calls_of_variables(function)
        names = [function.name]
        if function.cls is not None and function.name in ("__init__", "__call__", "forward"):
            names = [function.cls.name, function.name]
        for module in self._names.modules:
            for name in names:
                yield from module.calls_by_name.get(name, ())
            if function.name == "<lambda>":
                continue
            for name in _STARTERS:
                yield from module.calls_by_name.get(name, ())
        for alias in self._aliases(function):
            for module in self._names.modules:
                yield from module.calls_by_name.get(alias, ())

    def _runs_elsewhere(self, call: ast.Call) -> bool:
        """True if a call runs only where its file, which the script imports, is the script itself."""
        home = self._names.home(call)
        if home.parent is not None or not home.module.name:
            return False
        return any(isinstance(at, ast.If) and asks_for_main(at.test) for at in home.module.ancestors(call))

    def _calls_of_variables(self, function: Function) -> Iterator[ast.Call]:
        """Calls of what may be an object: `stopper(loss)`, `self.stopper(loss)`.

        In a large program only in the script, in the file of the class, and in files that have its name.
        """
        modules = self._names.modules
        name = function.cls.name if function.cls is not None else ""
        for number, module in enumerate(modules):
            few = number == 0 or module is function.module or len(modules) <= _FEW_FILES
            if few or name in module.source.text:
                if module not in self._variable_calls:
                    functions = {each.name for each in module.functions} | {each.name for each in module.classes}
                    self._variable_calls[module] = [
                        call
                        for called, calls in module.calls_by_name.items()
                        if called not in functions
                        for call in calls
                    ]
                yield from self._variable_calls[module]

    def _aliases(self, function: Function) -> set[str]:
        """Other names under which files import the function: `from engine import train as run`."""
        target = function.cls.name if function.cls is not None and function.name == "__init__" else function.name
        return {alias for module in self._names.modules for alias in module.aliases.get(target, ())}

    def _reaches(self, callee: Value, function: Function) -> bool:
        if isinstance(callee, FunctionValue):
            return callee.function is function
        if isinstance(callee, Instance) and function.name == "__call__":
            return self._method(callee, "__call__") is function
        if isinstance(callee, ClassValue) and function.name == "__init__":
            methods = (each.methods.get("__init__") for each in self._classes.lineage(callee.cls))
            return next((each for each in methods if each is not None), None) is function
        return False

    def _starts(self, call: ast.Call, function: Function) -> bool:
        if last_name(call.func) not in _STARTERS:
            return False
        names = {each.name for each in self._evaluator.values(call.func) if isinstance(each, Named)}
        if not names & (SPAWN | PROCESS):
            return False
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        target = keywords.get("fn") or keywords.get("target") or (call.args[0] if call.args else None)
        return any(
            isinstance(each, FunctionValue) and each.function is function for each in self._evaluator.values(target)
        )

    def started(self, function: Function, call: ast.Call, outer: Context | None) -> list[Values] | None:
        """Arguments of a function that a call starts in processes; None if it calls the function itself."""
        names = {each.name for each in self._evaluator.values(call.func, outer) if isinstance(each, Named)}
        if not names & (SPAWN | PROCESS):
            return None
        spawn = bool(names & SPAWN)
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        given = keywords.get("args") or (call.args[1] if spawn and len(call.args) > 1 else None)
        found: list[Values] = [frozenset({SPAWN_INDEX})] if spawn else []
        for value in self._evaluator.values(given, outer) if given is not None else ():
            if isinstance(value, Elements):
                found += [self._evaluator.values(each, value.context) for each in value.node.elts]
                break
        return found

    def callees(self, call: ast.Call, context: Context | None = None) -> list[tuple[Function, Context | None]]:
        """Functions of the script that a call runs, with the context of this call; constructors run `__init__`."""
        found: list[tuple[Function, Context | None]] = []
        for callee in self._evaluator.values(call.func, context):
            function, receiver = None, None
            if isinstance(callee, FunctionValue):
                function, receiver = callee.function, callee.receiver
            elif isinstance(callee, ClassValue):
                methods = (each.methods.get("__init__") for each in self._classes.lineage(callee.cls))
                function = next((each for each in methods if each is not None), None)
                receiver = Instance(callee.cls, call, context)
            elif isinstance(callee, Instance):
                methods = (
                    each.methods.get(name)
                    for each in self._classes.lineage(callee.cls)
                    for name in ("__call__", "forward")
                )
                function, receiver = next((each for each in methods if each is not None), None), callee
            if function is not None:
                found.append((function, self._evaluator.context(function, call, context, receiver)))
        return sorted(found, key=lambda each: (each[0].module.path, getattr(each[0].node, "lineno", 0)))

    def escapes(self, function: Function) -> bool:
        """True if somebody may call the function whom reading does not show: it is passed on as a value."""
        if function.name == "<lambda>":
            return True
        if function not in self._escapes:
            found, complete = self._evaluator.completely(lambda: self._is_passed_on(function))
            if not found and not complete:  # more that is known can only add to how it is used
                return False
            self._escapes[function] = found
        return self._escapes[function]

    def _is_passed_on(self, function: Function) -> bool:
        for module in self._names.modules:
            for node in module.loads_by_name.get(function.name, ()):
                parent = module.parents.get(node)
                if isinstance(parent, ast.keyword):
                    parent = module.parents.get(parent)
                if isinstance(parent, ast.Call) and self._starts(parent, function):
                    continue
                if self._is(node, function):
                    return True
        return False

    def _is(self, node: ast.expr | None, function: Function) -> bool:
        values = self._evaluator.values(node)
        return any(isinstance(each, FunctionValue) and each.function is function for each in values)
