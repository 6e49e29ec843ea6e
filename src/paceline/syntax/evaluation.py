"""Evaluates expressions of a script to sets of values, across functions, classes and files.

Values flow through names, attributes, tuples, arguments and returns. A function is looked at for one call at a time
(`Context`), so that a helper which builds the loaders of training and evaluation gives two different loaders. Without a
context a parameter is the union over all calls that are found.

Results do not depend on the order of questions: what a recursion cuts short is not kept.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator

from paceline.syntax import call_arguments
from paceline.syntax.canonical_names import canonical
from paceline.syntax.local_imports import LocalImports
from paceline.syntax.module_index import Assigned, Class, Function, Module, dotted, last_name
from paceline.syntax.reaching_definitions import Binding, Kind, ReachingDefinitions
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
SAME_OBJECT = frozenset(
    [
        "to",
        "cuda",
        "cpu",
        "float",
        "double",
        "half",
        "bfloat16",
        "train",
        "eval",
        "requires_grad_",
        "share_memory",
        "to_empty",
        "type",
        "xpu",
        "npu",
    ]
)
"""Methods of modules and tensors that return the object itself."""
SAME_ITEMS = frozenset(
    [
        "tqdm.tqdm",
        "tqdm.trange",
        "builtins.iter",
        "builtins.reversed",
        "builtins.list",
        "builtins.tuple",
        "builtins.sorted",
        "itertools.cycle",
        "itertools.islice",
        "itertools.chain",
        "rich.progress.track",
    ]
)
"""Functions that give the items of their first argument."""
SPAWN = frozenset({"torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"})
PROCESS = frozenset({"torch.multiprocessing.Process", "multiprocessing.Process"})
SPAWN_INDEX = Named("torch.multiprocessing.spawn#index")
"""The first argument of a function that `mp.spawn` starts."""


class Evaluator:
    """Evaluates expressions of one script and of the files that it imports.

    Args:
        root: the file that is started.
        imports: finds other files.
    """

    def __init__(self, root: Module, imports: LocalImports) -> None:
        self.root = root
        self.imports = imports
        self._reaching: dict[Function, ReachingDefinitions] = {}
        self._memo: dict[tuple[ast.AST, Context | None], Values] = {}
        self._active: dict[tuple[ast.AST, Context | None], int] = {}
        self._cut = MAX_STEPS + 1
        self._contexts: dict[tuple[object, ...], Context] = {}
        self._module_of: dict[ast.Module, Module] = {root.source.tree: root}
        self._globals: dict[Module, dict[str, set[Binding]]] = {}
        self._callers: dict[Function, list[tuple[Function, ast.Call]]] = {}
        self._bases: dict[Class, tuple[list[Class], list[str]]] = {}
        self._home: dict[ast.AST, Function] = {}

    # Where things are

    @property
    def modules(self) -> list[Module]:
        """Files that were followed so far, the script first."""
        return self.imports.modules

    def home(self, node: ast.AST) -> Function:
        """The function in whose body a node stands."""
        found = self._home.get(node)
        if found is None:
            for module in self.modules:
                if node in module.parents or node is module.source.tree:
                    found = module.around(node)
                    break
            else:
                found = self.root.body
            self._home[node] = found
        return found

    def reaching(self, function: Function) -> ReachingDefinitions:
        """Bindings in a function."""
        found = self._reaching.get(function)
        if found is None:
            found = self._reaching[function] = ReachingDefinitions(function)
        return found

    # Expressions

    def values(self, node: ast.AST | None, context: Context | None = None) -> Values:
        """What an expression can be.

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
            self._cut = min(self._cut, self._active[key])
            return NONE
        depth = len(self._active)
        if depth >= MAX_STEPS:
            self._cut = 0
            return ANY
        self._active[key] = depth
        try:
            found = self._evaluate(node, context)
        finally:
            del self._active[key]
        if len(found) > MAX_VALUES:
            found = ANY
        if self._cut >= depth:  # nothing outside of this expression was cut short
            self._cut = MAX_STEPS + 1 if depth == 0 or self._cut == depth else self._cut
            self._memo[key] = found
        return found

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
                return frozenset({FunctionValue(self._function(node))})
        return ANY

    def _function(self, node: ast.AST) -> Function:
        for module in self.modules:
            if node in module.parents or node is module.source.tree:
                return module.function_of(node)
        return self.root.body

    def _each(self, values: Values, follow: object) -> Values:
        found: set[Value] = set()
        for each in values:
            found |= follow(each)  # type: ignore[operator]
        return frozenset(found)

    def _each_of(self, nodes: Iterable[ast.expr], context: Context | None) -> Values:
        found: set[Value] = set()
        for node in nodes:
            found |= self.values(node, context)
        return frozenset(found)

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

    def bindings(self, node: ast.Name) -> list[tuple[Binding, Function]]:
        """What a name refers to: bindings with the functions in which they are made. Empty for builtins."""
        function = self.home(node)
        if node.id not in function.global_names:
            uses = self.reaching(function).uses.get(node)
            if uses:
                return [(each, function) for each in _in_order(uses)]
        at = function.parent if function.parent is not None else function
        while at is not None:
            ends = self._global_bindings(at.module).get(node.id) if at.parent is None else None
            if at.parent is None and ends:
                return [(each, self.home(each.node)) for each in _in_order(ends)]
            own = self.reaching(at).end.get(node.id) if at.parent is not None else None
            if own:
                return [(each, at) for each in _in_order(own)]
            at = at.parent
        return []

    def _global_bindings(self, module: Module) -> dict[str, set[Binding]]:
        found = self._globals.get(module)
        if found is None:
            found = {name: set(each) for name, each in self.reaching(module.body).end.items()}
            for function in module.functions:
                for name in function.global_names:
                    found.setdefault(name, set()).update(self.reaching(function).end.get(name, ()))
            self._globals[module] = found
        return found

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
                return self._follow(found, binding.path)
            case Kind.ELEMENT if binding.value is not None:
                return self._element(binding.value, binding.path, context)
        return ANY

    def _imported(self, binding: Binding, module: Module) -> Values:
        node = binding.node
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name.partition(".")[0]) == binding.name:
                    name = alias.name if alias.asname else binding.name
                    found = self.imports.find(module, name, 0)
                    return frozenset({LocalModule(found) if found is not None else Named(canonical(name))})
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == binding.name:
                    return self.imported_name(module, node.module or "", node.level, alias.name)
        return ANY

    def imported_name(self, module: Module, package: str, level: int, name: str) -> Values:
        """What `from package import name` gives."""
        submodule = self.imports.find(module, f"{package}.{name}" if package else name, level)
        found = self.imports.find(module, package, level)
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
        for binding in _in_order(self._global_bindings(module).get(name, ())):
            found |= self._bound(binding, self.home(binding.node), None)
        return frozenset(found)

    # Parts

    def _follow(self, values: Values, path: tuple[int, ...]) -> Values:
        for index in path:
            values = self._each(values, lambda base, index=index: self.item(base, index))
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

    def iterated(self, node: ast.expr, context: Context | None = None) -> Values:
        """What a loop goes over: `loader` of `for i, batch in enumerate(tqdm(loader))`."""
        if isinstance(node, ast.Call) and node.args:
            for callee in self.values(node.func, context):
                if isinstance(callee, Named) and (
                    callee.name in SAME_ITEMS or callee.name == "builtins.enumerate" or "tqdm" in callee.name
                ):
                    return self.iterated(node.args[0], context)
                if isinstance(callee, Named) and callee.name == "builtins.zip":
                    found: set[Value] = set()
                    for each in node.args:
                        found |= self.iterated(each, context)
                    return frozenset(found)
        found = set()
        for value in self.values(node, context):
            if (
                isinstance(value, Object)
                and value.call is not node
                and value.call.args
                and _goes_over_first(value.name)
            ):
                found |= self.iterated(value.call.args[0], value.context)
            else:
                found.add(value)
        return frozenset(found)

    def _element(self, iterable: ast.expr, path: tuple[int, ...], context: Context | None) -> Values:
        if isinstance(iterable, ast.Call):
            callees = self.values(iterable.func, context)
            if callees == {Named("builtins.enumerate")} and path and iterable.args:
                return ANY if path[0] == 0 else self._element(iterable.args[0], path[1:], context)
            if callees == {Named("builtins.zip")} and path and 0 <= path[0] < len(iterable.args):
                return self._element(iterable.args[path[0]], path[1:], context)
        found: set[Value] = set()
        for base in self.iterated(iterable, context):
            if isinstance(base, Elements):
                inner = self._each_of(base.node.elts, base.context)
            else:
                inner = frozenset({Part(base, "[*]")}) if base != UNKNOWN else ANY
            found |= self._follow(inner, path)
        return frozenset(found)

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
                submodule = self.imports.find(base.module, name, 1)
                return frozenset({LocalModule(submodule)}) if submodule is not None else ANY
            case Instance():
                return self._member(base, name)
            case ClassValue():
                return self._class_member(base.cls, name)
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
        for module in self.modules:
            for target in module.stores_by_attribute.get(node.attr, ()):
                statement = module.parents[target]
                if isinstance(statement, ast.Assign) and dotted(target) == text:
                    found |= self.values(statement.value)
                elif isinstance(statement, ast.Tuple) and isinstance(module.parents[statement], ast.Assign):
                    value = module.parents[statement].value  # type: ignore[attr-defined]
                    found |= self._follow(self.values(value), (statement.elts.index(target),))
        return frozenset(found)

    def _member(self, base: Instance, name: str) -> Values:
        found: set[Value] = set()
        for cls in self.lineage(base.cls):
            if name in cls.methods:
                method = cls.methods[name]
                if _is_property(method):
                    found |= self.returned(method, self.context(method, None, None, base))
                else:
                    found.add(FunctionValue(method, base))
                break
            for assigned in cls.attributes.get(name, ()):
                found |= self._assigned(assigned, base)
        found |= self._stored_from_outside(base, name)
        if found:
            return frozenset(found)
        return frozenset({Part(base, name)})

    def _class_member(self, cls: Class, name: str) -> Values:
        for each in self.lineage(cls):
            if name in each.methods:
                return frozenset({FunctionValue(each.methods[name])})
            if name in each.attributes:
                return frozenset(
                    value for assigned in each.attributes[name] for value in self._assigned(assigned, Instance(each))
                )
        return ANY

    def _assigned(self, assigned: Assigned, base: Instance) -> Values:
        if assigned.value is None:
            return ANY
        method = self.home(assigned.node)
        context = None
        if method.cls is not None:
            call = base.call if method.name == "__init__" else None
            if call is not None or method.name != "__init__":
                context = self.context(method, call, base.context, base) if call is not None else None
        return self._follow(self.values(assigned.value, context), assigned.path)

    def _stored_from_outside(self, base: Instance, name: str) -> Values:
        """`trainer.model = ...` outside of the class."""
        found: set[Value] = set()
        for module in self.modules:
            for target in module.stores_by_attribute.get(name, ()):
                statement = module.parents[target]
                if not isinstance(statement, ast.Assign) or dotted(target.value) in ("self", "cls", ""):
                    continue
                owners = self.values(target.value)
                if any(isinstance(each, Instance) and each.cls is base.cls for each in owners):
                    found |= self.values(statement.value)
        return frozenset(found)

    # Classes

    def lineage(self, cls: Class) -> list[Class]:
        """A class and its bases within the script, nearest first."""
        return self._ancestry(cls)[0]

    def external_bases(self, cls: Class) -> list[str]:
        """Canonical names of bases from other packages, of its own bases too."""
        return self._ancestry(cls)[1]

    def _ancestry(self, cls: Class) -> tuple[list[Class], list[str]]:
        if cls not in self._bases:
            self._bases[cls] = ([cls], [])  # of a class that is its own base
            own, external = [cls], []
            for node in cls.node.bases:
                for value in self.values(node):
                    if isinstance(value, ClassValue) and value.cls not in own:
                        more, others = self._ancestry(value.cls)
                        own += [each for each in more if each not in own]
                        external += others
                    elif isinstance(value, Named):
                        external.append(value.name)
                    elif value == UNKNOWN and (name := dotted(node)):
                        external.append(name)
            self._bases[cls] = (own, external)
        return self._bases[cls]

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
            case Part():
                if callee.name in SAME_OBJECT:
                    return frozenset({callee.base})
                return frozenset({Object(f"{self.type_name(callee.base)}.{callee.name}", node, context, callee.base)})
            case Object() | Instance() | Parameter():
                return frozenset({Object(f"{self.type_name(callee)}.__call__", node, context, callee)})
        return ANY

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
        """What a function returns."""
        if isinstance(function.node, ast.Lambda):
            return self.values(function.node.body, context)
        found: set[Value] = set()
        for statement in function.returns:
            found |= self.values(statement.value, context) if statement.value is not None else {Literal(None)}
        return frozenset(found) if function.returns else frozenset({Literal(None)})

    def parameter(self, function: Function, name: str, context: Context | None) -> Values:
        """What a parameter can be: in a context the argument of its call, else those of all calls that are found."""
        if context is not None and context.function is function:
            if context.receiver is not None and function.positional[:1] == [name] and not _is_static(function):
                return frozenset({context.receiver})
            if context.call is not None:
                return self._given(function, name, context)
        if function.cls is not None and function.positional[:1] == [name] and not _is_static(function):
            return frozenset({ClassValue(function.cls) if _is_classmethod(function) else Instance(function.cls)})
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
        started = self._started(function, context.call, context.outer)
        if started is not None:
            index = function.positional.index(name) if name in function.positional else -1
            index -= 1 if function.cls is not None and not _is_static(function) else 0
            return started[index] if 0 <= index < len(started) else ANY
        argument = call_arguments.of_parameter(self, function, name, context)
        found = self.all_of(argument.given)
        if argument.absent or argument.may_be_absent:
            default = function.default(name)
            found |= self.values(default) if default is not None else NONE
        return found if argument.certain else found | ANY

    def _started(self, function: Function, call: ast.Call, outer: Context | None) -> list[Values] | None:
        """Arguments of a function that a call starts in processes; None if it calls the function itself."""
        names = {each.name for each in self.values(call.func, outer) if isinstance(each, Named)}
        if not names & (SPAWN | PROCESS):
            return None
        spawn = bool(names & SPAWN)
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        given = keywords.get("args") or (call.args[1] if spawn and len(call.args) > 1 else None)
        found: list[Values] = [frozenset({SPAWN_INDEX})] if spawn else []
        for value in self.values(given, outer) if given is not None else ():
            if isinstance(value, Elements):
                found += [self.values(each, value.context) for each in value.node.elts]
                break
        return found

    def all_of(self, nodes: Iterable[Located]) -> Values:
        """The union over expressions."""
        found: set[Value] = set()
        for each in nodes:
            found |= self.values(each.node, each.context)
        return frozenset(found)

    # Who calls whom

    def call_sites(self, function: Function) -> list[tuple[Function, ast.Call]]:
        """Calls that are found to reach a function, with the functions in which they stand, in order of the source."""
        known = self._callers.get(function)
        if known is not None:
            return known
        self._callers[function] = []
        found = []
        for call in self._candidates(function):
            callees = self.values(call.func)
            if any(self._reaches(callee, function) for callee in callees) or self._starts(call, function):
                found.append((self.home(call), call))
        self._callers[function] = found
        return found

    def _candidates(self, function: Function) -> Iterator[ast.Call]:
        names = [function.name]
        if function.cls is not None and function.name in ("__init__", "__call__", "forward"):
            names = [function.cls.name, function.name]
        for module in self.modules:
            for name in names:
                yield from module.calls_by_name.get(name, ())
            if function.name == "<lambda>":
                continue
            for name in ("spawn", "start_processes", "Process", "Thread"):
                yield from module.calls_by_name.get(name, ())
            if module is not function.module:
                continue
        for alias in self._aliases(function):
            for module in self.modules:
                yield from module.calls_by_name.get(alias, ())

    def _aliases(self, function: Function) -> set[str]:
        """Other names under which files import the function: `from engine import train as run`."""
        target = function.cls.name if function.cls is not None and function.name == "__init__" else function.name
        return {
            alias.asname
            for module in self.modules
            for node in module.source.tree.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.name == target and alias.asname
        }

    def _reaches(self, callee: Value, function: Function) -> bool:
        if isinstance(callee, FunctionValue):
            return callee.function is function
        if isinstance(callee, ClassValue) and function.name == "__init__":
            methods = (each.methods.get("__init__") for each in self.lineage(callee.cls))
            return next((each for each in methods if each is not None), None) is function
        return False

    def _starts(self, call: ast.Call, function: Function) -> bool:
        names = {each.name for each in self.values(call.func) if isinstance(each, Named)}
        if not names & (SPAWN | PROCESS):
            return False
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        target = keywords.get("fn") or keywords.get("target") or (call.args[0] if call.args else None)
        return any(isinstance(each, FunctionValue) and each.function is function for each in self.values(target))

    def callees(self, call: ast.Call, context: Context | None = None) -> list[tuple[Function, Context | None]]:
        """Functions of the script that a call runs, with the context of this call; constructors run `__init__`."""
        found: list[tuple[Function, Context | None]] = []
        for callee in self.values(call.func, context):
            function, receiver = None, None
            if isinstance(callee, FunctionValue):
                function, receiver = callee.function, callee.receiver
            elif isinstance(callee, ClassValue):
                methods = (each.methods.get("__init__") for each in self.lineage(callee.cls))
                function = next((each for each in methods if each is not None), None)
                receiver = Instance(callee.cls, call, context)
            elif isinstance(callee, Instance):
                methods = (
                    each.methods.get(name) for each in self.lineage(callee.cls) for name in ("__call__", "forward")
                )
                function, receiver = next((each for each in methods if each is not None), None), callee
            if function is not None:
                found.append((function, self.context(function, call, context, receiver)))
        return sorted(found, key=lambda each: (each[0].module.path, getattr(each[0].node, "lineno", 0)))

    def escapes(self, function: Function) -> bool:
        """Whether somebody may call the function whom reading does not show: it is passed on as a value."""
        if function.name == "<lambda>":
            return True
        for module in self.modules:
            for node in module.loads_by_name.get(function.name, ()):
                parent = module.parents.get(node)
                if isinstance(parent, ast.Call) and self._starts(parent, function):
                    continue
                if isinstance(parent, ast.keyword) and isinstance(grand := module.parents.get(parent), ast.Call):
                    if self._starts(grand, function):
                        continue
                if any(isinstance(each, FunctionValue) and each.function is function for each in self.values(node)):
                    return True
        return False


def _in_order(bindings: Iterable[Binding]) -> list[Binding]:
    return sorted(bindings, key=lambda each: (getattr(each.node, "lineno", 0), getattr(each.node, "col_offset", 0)))


def _context_of(function: Function, context: Context | None) -> Context | None:
    """The context of an enclosing function, as far as the calls that lead here show it."""
    at = context
    while at is not None and at.function is not function:
        at = at.outer
    return at


def _goes_over_first(name: str) -> bool:
    return name in SAME_ITEMS or name == "builtins.enumerate"


def _decorated(function: Function, *names: str) -> bool:
    return any(last_name(each.func if isinstance(each, ast.Call) else each) in names for each in function.decorators)


def _is_property(function: Function) -> bool:
    return _decorated(function, "property", "cached_property", "lazy_property")


def _is_static(function: Function) -> bool:
    return _decorated(function, "staticmethod")


def _is_classmethod(function: Function) -> bool:
    return _decorated(function, "classmethod")
