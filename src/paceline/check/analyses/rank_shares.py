"""Tells if the input of ranks differs: shares of data, seeds, and code that all ranks run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from paceline.check.analyses.branch_values import possible
from paceline.check.analyses.framework_names import DATA_LOADERS, DISTRIBUTED_SAMPLERS, FSDP, LIGHTNING
from paceline.check.analyses.rank_tests import RankKind, Ranks
from paceline.check.analyses.script import Loader, Script
from paceline.check.analyses.training_loops import TrainingLoop
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Class, Function, dotted, last_name
from paceline.syntax.program import CallSite
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import (
    UNKNOWN,
    Argument,
    ClassValue,
    Elements,
    FunctionValue,
    Instance,
    Literal,
    Mapping,
    Object,
    Parameter,
    Part,
    Value,
    Values,
)

_MAX_SEEN = 600
_RANK_WORDS = frozenset(
    ["rank", "num_replicas", "global_rank", "local_rank", "world_rank", "shard_id", "shard_index", "process_index"]
)
_RANK_CALLS = frozenset(["get_rank", "get_global_rank", "get_local_rank", "split_dataset_by_node", "split_by_node"])


def may_depend(script: Script, nodes: Iterable[ast.AST | None]) -> bool:
    """True if the rank may decide what expressions are: also in functions and classes that they use.

    Errs towards yes: a function that has the rank anywhere in it counts.
    """
    return _Closure(script).has_rank(nodes)


class _Closure:
    """Everything that an expression is made of, at any depth."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._seen: set[ast.AST] = set()

    def has_rank(self, nodes: Iterable[ast.AST | None]) -> bool:
        stack = [each for each in nodes if each is not None]
        while stack and len(self._seen) < _MAX_SEEN * 10:
            at = stack.pop()
            if at in self._seen:
                continue
            self._seen.add(at)
            if _names_rank(at):
                return True
            if isinstance(at, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
                if self._script.ranks.kind(at) is not RankKind.NONE:
                    return True
                stack.extend(self._behind(at))
            stack.extend(ast.iter_child_nodes(at))
        return False

    def _behind(self, node: ast.expr) -> Iterator[ast.AST]:
        evaluator = self._script.program.evaluator
        if isinstance(node, ast.Name):
            for binding, function in evaluator.bindings(node):
                if binding.value is not None:
                    yield binding.value
                elif binding.kind is Kind.PARAMETER:
                    if function.cls is not None and function.positional[:1] == [node.id]:
                        return  # of `self.name` the attribute counts, not all of the class
                    yield from arguments_for(self._script, function, binding.name)
                elif binding.kind is Kind.DEFINITION and not isinstance(binding.node, ast.ClassDef):
                    yield binding.node
        if isinstance(node, ast.Attribute):
            for base in self._script.values(node.value):
                lineage = evaluator.lineage(base.cls) if isinstance(base, Instance) else []
                assigned = (each for cls in lineage for each in cls.attributes.get(node.attr, ()))
                yield from (each.value for each in assigned if each.value is not None)
        for value in self._script.values(node):
            yield from _definitions(self._script, value)


def _definitions(script: Script, value: Value) -> Iterator[ast.AST]:
    """Code behind a value: the class of an object, the call that made it, the function itself."""
    match value:
        case Instance() | ClassValue():
            for cls in script.program.evaluator.lineage(value.cls):
                yield cls.node
            if isinstance(value, Instance) and value.call is not None:
                yield value.call
        case FunctionValue():
            yield value.function.node
        case Object():
            yield value.call
            if value.receiver is not None:
                yield from _definitions(script, value.receiver)
        case Elements() | Mapping():
            yield value.node
        case Part():
            yield from _definitions(script, value.base)


def _names_rank(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return name.lower().lstrip("_") in _RANK_WORDS or name in _RANK_CALLS
        case ast.keyword(arg=str(name)):
            return name in _RANK_WORDS
    return False


def arguments_for(script: Script, function: Function, name: str, *, default: bool = True) -> list[ast.expr]:
    """Expressions that calls give for a parameter, and its default."""
    found = []
    for _, call in script.program.evaluator.call_sites(function):
        position = function.positional.index(name) if name in function.positional else None
        if position is not None and function.cls is not None:
            position -= 1
        found += [each.node for each in script.argument(call, name, position).given]
    usual = function.default(name) if default or not found else None
    return [*found, usual] if usual is not None else found


def rank_term(script: Script, node: ast.expr | None, depth: int = 8) -> RankKind:
    """The rank that is a term of a number, as in `seed + rank`; through names, arguments and helper functions.

    Exact: the rank has to be part of the arithmetic, not only of a call that the number comes from.
    """
    if node is None or depth < 0:
        return RankKind.NONE
    if (kind := script.ranks.kind(node)) is not RankKind.NONE:
        return kind
    for each in _terms(script, node):
        if (kind := rank_term(script, each, depth - 1)) is not RankKind.NONE:
            return kind
    return RankKind.NONE


def terms_of(script: Script, node: ast.expr, depth: int = 6) -> Iterator[ast.expr]:
    """An expression and what it is computed from."""
    yield node
    if depth > 0:
        for each in _terms(script, node):
            yield from terms_of(script, each, depth - 1)


def _terms(script: Script, node: ast.expr) -> Iterator[ast.expr]:
    evaluator = script.program.evaluator
    match node:
        case ast.BinOp(op=ast.Sub()):
            yield node.left  # `seed - rank` takes away what was added before
        case ast.BinOp():
            yield from (node.left, node.right)
        case ast.IfExp():
            yield from (node.body, node.orelse)
        case ast.BoolOp():
            yield from node.values
        case ast.UnaryOp():
            yield node.operand
        case ast.Name():
            for binding, function in evaluator.bindings(node):
                if binding.kind is Kind.VALUE and binding.value is not None and not binding.path:
                    yield binding.value
                elif binding.kind is Kind.PARAMETER:
                    yield from arguments_for(script, function, binding.name)
        case ast.Attribute():
            yield from _stored(script, node)
            for value in script.values(node.value):
                if isinstance(value, Instance):
                    for cls in evaluator.lineage(value.cls):
                        for assigned in cls.attributes.get(node.attr, ()):
                            if assigned.value is not None and not assigned.path:
                                yield assigned.value
        case ast.Call():
            if isinstance(node.func, ast.Name) and node.func.id in ("int", "abs", "hash", "sum", "str"):
                yield from node.args
            for callee, _ in evaluator.callees(node):
                if not isinstance(callee.node, ast.Lambda):
                    yield from (each.value for each in callee.returns if each.value is not None)


def is_run(script: Script, function: Function, depth: int = 8) -> bool:
    """True if the script itself runs a function, so that its ranks are known: not a function for other files alone."""
    if function.parent is None or depth < 0:
        return function.module is script.program.root
    evaluator = script.program.evaluator
    if any(is_run(script, caller, depth - 1) for caller, _ in evaluator.call_sites(function)):
        return True
    if any(last_name(each.func if isinstance(each, ast.Call) else each) in _ENTRY for each in function.decorators):
        return True
    if function.cls is not None:
        if any(base in LIGHTNING for base in evaluator.external_bases(function.cls)):
            return True
        if function.name.startswith("__"):
            return any(is_run(script, evaluator.home(call), depth - 1) for call in instantiations(script, function.cls))
    return False


def _stored(script: Script, node: ast.Attribute) -> Iterator[ast.expr]:
    """Values that are assigned, or added, to the same text: `args.seed += rank`."""
    text = dotted(node)
    for module in script.program.imports.modules if text and not text.startswith("self.") else ():
        for target in module.stores_by_attribute.get(node.attr, ()):
            statement = module.parents[target]
            if isinstance(statement, ast.Assign | ast.AugAssign) and dotted(target) == text:
                yield statement.value


_ENTRY = frozenset({"main", "record", "command", "hydra_main"})


def instantiations(script: Script, cls: Class) -> list[ast.Call]:
    """Calls that make objects of a class."""
    return [
        call
        for module in script.program.imports.modules
        for call in module.calls_by_name.get(cls.name, ())
        if any(isinstance(each, ClassValue) and each.cls is cls for each in script.values(call.func))
    ]


# Data


def has_sampler(script: Script, loader: Loader) -> bool:
    """True if a loader has, or may have, a sampler or batch sampler other than None."""
    for _, argument in (script.sampler(loader), script.batch_sampler(loader)):
        if not argument.certain or (argument.given and possible(script, argument) != {Literal(None)}):
            return True
    return False


def samplers(script: Script, loader: Loader) -> Values:
    """Samplers behind a loader: its own, and those that a `BatchSampler` or an own batch sampler is given."""
    found = set(possible(script, script.sampler(loader)[1]))
    for value in possible(script, script.batch_sampler(loader)[1]):
        found |= _within_batches(script, value)
    return frozenset(each for each in found if each != Literal(None))


def _within_batches(script: Script, value: Value) -> set[Value]:
    if isinstance(value, Object) and value.name == "torch.utils.data.BatchSampler":
        return set(script.program.argument_values(value, "sampler", 0))
    if isinstance(value, Instance) and value.call is not None:
        given = [*value.call.args, *(each.value for each in value.call.keywords)]
        inner = {each for node in given for each in script.values(node, value.context) if is_sampler(script, each)}
        return inner or {value}
    return {value}


def is_sampler(script: Script, value: Value) -> bool:
    """True if a value is a sampler of torch, or of a class derived from one."""
    if isinstance(value, Object):
        return value.name.startswith("torch.utils.data.") and value.name.endswith("Sampler")
    return isinstance(value, Instance) and any(
        base.endswith("Sampler") for base in script.program.evaluator.external_bases(value.cls)
    )


def distributed_samplers(values: Iterable[Value]) -> list[Object]:
    """Those that torch shards."""
    return [each for each in values if isinstance(each, Object) and each.name in DISTRIBUTED_SAMPLERS]


def data_may_differ(script: Script, loader: Loader) -> bool:
    """True if the data set of a loader depends on the rank, or may do so where reading does not show it."""
    argument = script.argument(loader.made, "dataset", 0)
    if not argument.certain or not argument.given:
        return True
    for each in argument.given:
        if unknown_origin(script, script.values(each.node, each.context)):
            return True
    workers = script.argument(loader.made, "worker_init_fn", 10)
    return may_depend(script, [each.node for each in (*argument.given, *workers.given)])


def unknown_origin(script: Script, values: Values) -> bool:
    """True if some of the values come from where reading does not lead."""
    if not values:
        return True
    for value in values:
        while isinstance(value, Part):
            value = value.base
        if value == UNKNOWN or isinstance(value, Parameter):
            return True
    return False


def truth(script: Script, argument: Argument) -> bool | None:
    """An argument as a constant truth value, also of `workers > 0`; None if reading does not show it."""
    if not argument.certain or not argument.given or argument.may_be_absent:
        return None
    found = {_truth(script, each.node, each.context) for each in argument.given}
    return found.pop() if len(found) == 1 else None


def _truth(script: Script, node: ast.expr, context: object) -> bool | None:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Gt):
        left = script.values(node.left, context)  # type: ignore[arg-type]
        right = node.comparators[0]
        if isinstance(right, ast.Constant) and right.value == 0:
            numbers = [each.value for each in left if isinstance(each, Literal) and isinstance(each.value, int)]
            if len(numbers) == len(left) and numbers:
                return numbers[0] > 0 if len({number > 0 for number in numbers}) == 1 else None
        return None
    values = script.values(node, context)  # type: ignore[arg-type]
    constants = {bool(each.value) for each in values if isinstance(each, Literal)}
    if len(constants) == 1 and all(isinstance(each, Literal) for each in values):
        return constants.pop()
    return None


def streamed(script: Script, value: Value) -> Object | None:
    """The `load_dataset(..., streaming=True)` from which a value comes through `.map`, `.shuffle` and such."""
    at: Value | None = value
    while isinstance(at, Object | Part):
        if isinstance(at, Object):
            if at.name == "datasets.load_dataset":
                return at if script.literals(at, "streaming") == {True} else None
            if at.name.endswith("split_dataset_by_node"):
                return None
            at = at.receiver
        else:
            at = at.base
    return None


def ways(script: Script, site: CallSite) -> list[Object]:
    """The object that a call makes, once for each call of the function around it, so that arguments stay together."""
    evaluator = script.program.evaluator
    function = site.function
    calls = evaluator.call_sites(function) if function.parent is not None else []
    receiver = Instance(function.cls) if function.cls is not None else None
    found = []
    for _, call in calls:
        made_by = Instance(function.cls, call) if function.cls is not None and function.name == "__init__" else receiver
        context = evaluator.context(function, call, None, made_by)
        if context is not None:
            found.append(Object(site.name, site.node, context))
    return found or [Object(site.name, site.node, None)]


def trained_on(script: Script, loader: Loader) -> list[TrainingLoop]:
    """Training loops of all ranks that certainly take their batches of a loader as it was made.

    A loop that may go over something else is left out: a framework may have put its own loader into the variable. So
    is one in which the rank chooses a part of each batch.
    """
    return [
        loop
        for loop in script.trains_on(loader)
        if script.where(loop.node) is Ranks.ALL
        and all(
            isinstance(each, Object) and (each.name in DATA_LOADERS or each.name.startswith("builtins."))
            for each in script.batches_of(loop)
        )
        and not _divides_batches(script, loop)
        and not _trains_alone(script, loop)
    ]


def _trains_alone(script: Script, loop: TrainingLoop) -> bool:
    """True if a loop trains a model that certainly is not wrapped: training on one device, beside a distributed one."""
    called = [each.node.func for each in loop.reached if isinstance(each.node, ast.Call)]
    if any(site.module is script.program.root for site in script.calls(*FSDP)):
        return False  # `fully_shard` changes the model in place
    if any(script.is_wrapped(each) or script.is_inner(each) for each in called):
        return False
    models = [value for each in called for value in script.values(each) if isinstance(value, Instance)]
    return any("torch.nn.Module" in script.program.evaluator.external_bases(each.cls) for each in models)


def _divides_batches(script: Script, loop: TrainingLoop) -> bool:
    """True if each rank takes its part of a batch that all ranks read: `x.chunk(world_size)[rank]`."""
    nodes = [loop.node, *{each.function.node for each in loop.reached if each.function is not loop.function}]
    return any(
        isinstance(at, ast.Subscript)
        and any(
            script.ranks.kind(part) is not RankKind.NONE
            for part in walk(at.slice)
            if isinstance(part, ast.Name | ast.Attribute | ast.Call)
        )
        for node in nodes
        for at in walk(node)
    )
