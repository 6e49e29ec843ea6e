"""Evaluates expressions of a script to sets of values, across functions, classes and files.

Values flow through names, attributes, tuples, arguments and returns. A function is looked at for one call at a time
(`Context`), so that a helper which builds the loaders of training and evaluation gives two different loaders. Without a
context a parameter is the union over all calls that are found.

Results do not depend on the order of questions: what a recursion cuts short is not kept.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Callable, Iterable

from paceline.syntax import call_arguments
from paceline.syntax.call_graph import CallGraph
from paceline.syntax.canonical_names import canonical
from paceline.syntax.class_members import ClassMembers, is_classmethod, is_static
from paceline.syntax.iteration import SAME_ITEMS, Iteration
from paceline.syntax.local_imports import LocalImports
from paceline.syntax.module_index import Function, Module, dotted
from paceline.syntax.name_bindings import NameBindings, in_order
from paceline.syntax.reaching_definitions import Binding, Kind
from paceline.syntax.values import (
    ANY,
    NONE,
    UNKNOWN,
    ClassValue,
    Context,
    Elements,
    FunctionValue,
    Instance,
    Literal,
    LocalModule,
    Located,
    Mapping,
    Named,
    Object,
    Parameter,
    Part,
    Value,
    Values,
)

MAX_DEPTH = 6
"""Calls within calls that are told apart."""
MAX_VALUES = 24
"""Beyond that many, a set of values is cut, and `UNKNOWN` stands for the rest."""
MAX_STEPS = 60
"""Expressions within expressions that an evaluation follows."""
MAX_EVALUATIONS = 5_000
"""Expressions that are evaluated for one question."""
_NOT_CUT = MAX_STEPS + 1
_Question = tuple[ast.AST, Context | None]
SAME_OBJECT = frozenset(
    (
        "to", "cuda", "cpu", "float", "double", "half", "bfloat16", "train", "eval", "requires_grad_", "share_memory",
        "to_empty", "type", "xpu", "npu",
    )
)  # fmt: skip
"""Methods of modules and tensors that return the object itself."""


class Evaluator:
    """Evaluates expressions of one script and of the files that it imports.

    Args:
        root: the file that is started.
        imports: finds other files.
    """

    def __init__(self, root: Module, imports: LocalImports) -> None:
        self._imports = imports
        self._names = NameBindings(root, imports)
        self._classes = ClassMembers(self, self._names)
        self._graph = CallGraph(self, self._names, self._classes)
        self.home, self.bindings = self._names.home, self._names.bindings
        self.lineage, self.external_bases = self._classes.lineage, self._classes.external_bases
        self.call_sites, self.callees, self.escapes = self._graph.call_sites, self._graph.callees, self._graph.escapes
        self._iteration = Iteration(self, self._names, self._graph)
        self.iterated = self._iteration.iterated
        self._memo: dict[_Question, Values] = {}
        self._active: dict[_Question, int] = {}
        # What a recursion cuts short is kept while the expression that it lacks is being evaluated: else questions
        # within a recursion are asked again and again.
        self._partial: dict[_Question, tuple[int, Values]] = {}
        self._partial_of: dict[int, list[_Question]] = defaultdict(list)
        self._cut = _NOT_CUT
        self._budget = MAX_EVALUATIONS
        self._contexts: dict[tuple[object, ...], Context] = {}

    # Expressions

    def values(self, node: ast.AST | None, context: Context | None = None) -> Values:
        """Values that an expression can have.

        Args:
            node: an expression; None gives no value.
            context: the call for which the function around it is looked at; None for all calls together.
        """
        if node is None:
            return NONE
        key = (node, context)
        if key in self._memo:
            return self._memo[key]
        if key in self._active:
            self.cut_short(self._active[key])
            return NONE
        if key in self._partial:
            own, found = self._partial[key]
            self.cut_short(own)
            return found
        depth = len(self._active)
        if depth == 0:
            self._budget = MAX_EVALUATIONS
        self._budget -= 1
        if depth >= MAX_STEPS or self._budget < 0:
            self.cut_short(0)
            return ANY
        before, self._cut = self._cut, _NOT_CUT
        self._active[key] = depth
        try:
            found = self._evaluate(node, context)
        finally:
            del self._active[key]
            own, self._cut = self._cut, before
        if len(found) > MAX_VALUES:
            found = ANY
        if own >= depth:  # nothing was cut that began outside of this expression
            self._memo[key] = found
        else:
            self._partial[key] = own, found
            self._partial_of[own].append(key)
            self.cut_short(own)
        for each in self._partial_of.pop(depth, ()):  # they lack this expression, which is known now
            self._partial.pop(each, None)
        return found

    def depth(self) -> int:
        """Number of expressions that are being evaluated."""
        return len(self._active)

    def cut_short(self, depth: int) -> None:
        """Do not keep results of expressions deeper than this: they lack what is being computed."""
        if self._active:
            self._cut = min(self._cut, depth)

    def completely(self, ask: Callable[[], bool]) -> tuple[bool, bool]:
        """The answer to a question about values, and whether it lacks nothing that is being computed."""
        before, self._cut = self._cut, _NOT_CUT
        try:
            answer = ask()
        finally:
            own, self._cut = self._cut, before
        if own != _NOT_CUT:
            self.cut_short(own)
        return answer, own == _NOT_CUT

    def _evaluate(self, node: ast.AST, context: Context | None) -> Values:
        match node:
            case ast.Name():
                return self._name(node, context)
            case ast.Attribute():
                return self._each(self.values(node.value, context), lambda base: self.attribute(base, node.attr, node))
            case ast.Call():
                return self._call(node, context)
            case ast.Constant():
                return frozenset({Literal(node.value)})
            case ast.Tuple() | ast.List() | ast.Set():
                return frozenset({Elements(node, context)})
            case ast.Dict():
                return frozenset({Mapping(node, context)})
            case ast.IfExp():
                return self.values(node.body, context) | self.values(node.orelse, context)
            case ast.BoolOp():
                return self._each_of(node.values, context)
            case ast.NamedExpr() | ast.Await() | ast.Starred():
                return self.values(node.value, context)
            case ast.Subscript():
                return self._subscript(node, context)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return frozenset({Literal(-number)})
            case ast.UnaryOp(op=ast.Not()):
                known = self.values(node.operand, context)
                if known and all(isinstance(each, Literal) for each in known):
                    return frozenset({Literal(not each.value) for each in known})  # type: ignore[attr-defined]
                return ANY
            case ast.Lambda():
                return frozenset({FunctionValue(self._names.defined_by(node))})
        return ANY

    def _each(self, values: Values, follow: Callable[[Value], Values]) -> Values:
        return frozenset(found for each in values for found in follow(each))

    def _each_of(self, nodes: Iterable[ast.expr], context: Context | None) -> Values:
        return frozenset(found for node in nodes for found in self.values(node, context))

    # Names

    def _name(self, node: ast.Name, context: Context | None) -> Values:
        function = self.home(node)
        found: set[Value] = set()
        for binding, at in self.bindings(node):
            found |= self._bound(binding, at, context if at is function else _context_of(at, context))
        if found:
            return frozenset(found)
        if hasattr(builtins, node.id):
            return frozenset({Named(f"builtins.{node.id}")})
        return ANY if self.bindings(node) == [] else NONE

    def _bound(self, binding: Binding, function: Function, context: Context | None) -> Values:
        match binding.kind:
            case Kind.IMPORT:
                return self._imported(binding, function.module)
            case Kind.DEFINITION:
                if isinstance(binding.node, ast.ClassDef):
                    return frozenset({ClassValue(function.module.class_of(binding.node))})
                return frozenset({FunctionValue(function.module.function_of(binding.node))})
            case Kind.PARAMETER:
                return self.parameter(function, binding.name, context)
            case Kind.VALUE if binding.value is not None:
                found = self.values(binding.value, context)
                if not binding.path and any(isinstance(each, Mapping) and not each.name for each in found):
                    found = frozenset(
                        Mapping(each.node, each.context, binding.name, function)
                        if isinstance(each, Mapping) and not each.name
                        else each
                        for each in found
                    )
                return self.follow(found, binding.path)
            case Kind.ELEMENT if binding.value is not None:
                return self._iteration.element(binding.value, binding.path, context)
        return ANY

    def _imported(self, binding: Binding, module: Module) -> Values:
        node = binding.node
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name.partition(".")[0]) == binding.name:
                    name = alias.name if alias.asname else binding.name
                    found = self._imports.find(module, name, 0)
                    return frozenset({LocalModule(found) if found is not None else Named(canonical(name))})
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == binding.name:
                    return self.imported_name(module, node.module or "", node.level, alias.name)
        return ANY

    def imported_name(self, module: Module, package: str, level: int, name: str) -> Values:
        """Values of `name` after `from package import name`."""
        submodule = self._imports.find(module, f"{package}.{name}" if package else name, level)
        found = self._imports.find(module, package, level)
        if found is not None and found is not module:
            values = self.global_name(found, name)
            if values:
                return values
        if submodule is not None:
            return frozenset({LocalModule(submodule)})
        if level:
            return ANY
        return frozenset({Named(canonical(f"{package}.{name}"))})

    def global_name(self, module: Module, name: str) -> Values:
        """A name of the body of a file, at its end."""
        found: set[Value] = set()
        for binding in in_order(self._names.of_module(module).get(name, ())):
            found |= self._bound(binding, self.home(binding.node), None)
        return frozenset(found)

    # Parts

    def follow(self, values: Values, path: tuple[int, ...]) -> Values:
        """Items of items, by indices."""
        for index in path:
            values = frozenset(found for base in values for found in self.item(base, index))
        return values

    def item(self, base: Value, key: object) -> Values:
        """`base[key]`."""
        if isinstance(base, Elements) and isinstance(key, int):
            nodes = base.node.elts
            if not any(isinstance(each, ast.Starred) for each in nodes) and -len(nodes) <= key < len(nodes):
                return self.values(nodes[key], base.context)
            return ANY
        if isinstance(base, Mapping):
            entry = call_arguments.entry(self, base, key)
            return self.all_of(entry.given) if entry.given and entry.certain else ANY
        if isinstance(base, Object) and base.name in SAME_ITEMS:
            return ANY
        return frozenset({Part(base, f"[{key}]")}) if base != UNKNOWN else ANY

    def _subscript(self, node: ast.Subscript, context: Context | None) -> Values:
        bases = self.values(node.value, context)
        keys = self.values(node.slice, context)
        literal = [each.value for each in keys if isinstance(each, Literal)]
        if len(literal) == len(keys) and literal:
            return frozenset(value for base in bases for key in literal for value in self.item(base, key))
        return frozenset(UNKNOWN if base == UNKNOWN else Part(base, "[*]") for base in bases)

    def attribute(self, base: Value, name: str, node: ast.Attribute | None = None) -> Values:
        """`base.name`.

        Args:
            node: where it is read; assignments to the same text then count as well (`args.rank = ...`).
        """
        match base:
            case Named():
                return frozenset({Named(canonical(f"{base.name}.{name}"))})
            case LocalModule():
                found = self.global_name(base.module, name)
                if found:
                    return found
                submodule = self._imports.find(base.module, name, 1)
                return frozenset({LocalModule(submodule)}) if submodule is not None else ANY
            case Instance():
                return self._classes.member(base, name)
            case ClassValue():
                return self._classes.class_member(base.cls, name)
        stored = self._stored(node) if node is not None else NONE
        if base == UNKNOWN:
            return stored | ANY
        return stored | {Part(base, name)}

    def _stored(self, node: ast.Attribute) -> Values:
        """Values that are assigned to the same text elsewhere."""
        text = dotted(node)
        if not text or text.startswith("self."):
            return NONE
        found: set[Value] = set()
        for module in self._names.modules:
            for target in module.stores_by_attribute.get(node.attr, ()):
                statement = module.parents[target]
                if isinstance(statement, ast.Assign) and dotted(target) == text:
                    found |= self.values(statement.value)
                elif (
                    isinstance(statement, ast.Tuple)
                    and isinstance(module.parents[statement], ast.Assign)
                    and dotted(target) == text
                ):
                    value = module.parents[statement].value  # type: ignore[attr-defined]
                    found |= self.follow(self.values(value), (statement.elts.index(target),))
        return frozenset(found)

    # Calls

    def context(
        self, function: Function, call: ast.Call | None, outer: Context | None, receiver: Value | None = None
    ) -> Context | None:
        """The context of a call; None where calls are nested too deep."""
        depth = outer.depth + 1 if outer is not None else 1
        if depth > MAX_DEPTH:
            return None
        key = (function, call, outer, receiver)
        if key not in self._contexts:
            self._contexts[key] = Context(function, call, outer, receiver, depth)
        return self._contexts[key]

    def _call(self, node: ast.Call, context: Context | None) -> Values:
        found: set[Value] = set()
        for callee in self.values(node.func, context):
            found |= self._called(callee, node, context)
        return frozenset(found)

    def _called(self, callee: Value, node: ast.Call, context: Context | None) -> Values:
        match callee:
            case FunctionValue():
                if callee.function.yields or isinstance(callee.function.node, ast.AsyncFunctionDef):
                    return ANY
                return self.returned(callee.function, self.context(callee.function, node, context, callee.receiver))
            case ClassValue():
                return frozenset({Instance(callee.cls, node, context)})
            case Named(name="builtins.super"):
                return self._super(node, context)
            case Named(name="builtins.dict"):
                return frozenset({Mapping(node, context)})
            case Named(name="builtins.getattr") if len(node.args) >= 2:
                keys = self.values(node.args[1], context)
                return frozenset(
                    value
                    for base in self.values(node.args[0], context)
                    for key in keys
                    for value in (self.attribute(base, str(key.value)) if isinstance(key, Literal) else ANY)
                )
            case Named(name="functools.partial") if node.args:
                return self.values(node.args[0], context)
            case Named(name="builtins.int" | "builtins.float" | "builtins.str" | "builtins.bool") if node.args:
                return self.values(node.args[0], context)
            case Named(name="copy.deepcopy" | "copy.copy") if node.args:
                return frozenset({Object(callee.name, node, context)})
            case Named():
                if "tqdm" in callee.name and node.args:
                    return self.values(node.args[0], context)
                return frozenset({Object(callee.name, node, context)})
            case Part(base=Mapping() as mapping, name="get") if node.args:
                return self._entry_or_default(mapping, node, context)
            case Part():
                if callee.name in SAME_OBJECT:
                    return frozenset({callee.base})
                return frozenset({Object(f"{self.type_name(callee.base)}.{callee.name}", node, context, callee.base)})
            case Object() | Instance() | Parameter():
                return frozenset({Object(f"{self.type_name(callee)}.__call__", node, context, callee)})
        return ANY

    def _entry_or_default(self, mapping: Mapping, node: ast.Call, context: Context | None) -> Values:
        """`mapping.get(key, default)`."""
        found: set[Value] = set()
        for key in self.values(node.args[0], context):
            entry = call_arguments.entry(self, mapping, key.value) if isinstance(key, Literal) else None
            if entry is None or not entry.certain:
                return ANY
            found |= self.all_of(entry.given)
            if entry.absent or entry.may_be_absent:
                found |= self.values(node.args[1], context) if len(node.args) > 1 else {Literal(None)}
        return frozenset(found) or ANY

    def _super(self, node: ast.Call, context: Context | None) -> Values:
        method = self.home(node)
        if method.cls is None:
            return ANY
        bases = self.lineage(method.cls)[1:]
        return frozenset({Instance(bases[0])}) if bases else frozenset({Part(Instance(method.cls), "super()")})

    def type_name(self, value: Value) -> str:
        """A canonical name of the class of a value, `?` if it is not known."""
        match value:
            case Object() | Named():
                return value.name
            case Instance():
                bases = self.external_bases(value.cls)
                return bases[0] if bases else value.cls.name
            case Part():
                return f"{self.type_name(value.base)}.{value.name}"
        return "?"

    def returned(self, function: Function, context: Context | None) -> Values:
        """Values that a function returns."""
        if isinstance(function.node, ast.Lambda):
            return self.values(function.node.body, context)
        found: set[Value] = set()
        for statement in function.returns:
            found |= self.values(statement.value, context) if statement.value is not None else {Literal(None)}
        return frozenset(found) if function.returns else frozenset({Literal(None)})

    def parameter(self, function: Function, name: str, context: Context | None) -> Values:
        """Values of a parameter: in a context the argument of its call, else those of all calls that are found."""
        if context is not None and context.function is function:
            if context.receiver is not None and function.positional[:1] == [name] and not is_static(function):
                return frozenset({context.receiver})
            if context.call is not None:
                return self._given(function, name, context)
        if function.cls is not None and function.positional[:1] == [name] and not is_static(function):
            return frozenset({ClassValue(function.cls) if is_classmethod(function) else Instance(function.cls)})
        found: set[Value] = set()
        sites = self.call_sites(function)
        for _, call in sites:
            each = self.context(function, call, None, Instance(function.cls) if function.cls is not None else None)
            found |= self._given(function, name, each) if each is not None else ANY
        if not sites or self.escapes(function):
            found.add(Parameter(function, name))
        return frozenset(found)

    def _given(self, function: Function, name: str, context: Context) -> Values:
        if context.call is None:
            return frozenset({Parameter(function, name)})
        started = self._graph.started(function, context.call, context.outer)
        if started is not None:
            index = function.positional.index(name) if name in function.positional else -1
            index -= 1 if function.cls is not None and not is_static(function) else 0
            return started[index] if 0 <= index < len(started) else ANY
        argument = call_arguments.of_parameter(self, function, name, context)
        found = self.all_of(argument.given)
        if argument.absent or argument.may_be_absent:
            default = function.default(name)
            found |= self.values(default) if default is not None else NONE
        return found if argument.certain else found | ANY

    def all_of(self, nodes: Iterable[Located]) -> Values:
        """The union over expressions."""
        found: set[Value] = set()
        for each in nodes:
            found |= self.values(each.node, each.context)
        return frozenset(found)


def _context_of(function: Function, context: Context | None) -> Context | None:
    """The context of an enclosing function, as far as the calls that lead here show it."""
    at = context
    while at is not None and at.function is not function:
        at = at.outer
    return at
