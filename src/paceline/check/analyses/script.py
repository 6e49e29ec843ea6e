"""Answers for rules about one script: process group, wrapped models, loaders, optimizers, loops, tests of the rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from paceline.check.analyses import framework_names as names
from paceline.check.analyses.expression_origins import Origins
from paceline.check.analyses.process_paths import ProcessPaths
from paceline.check.analyses.rank_tests import Ranks, RankTests
from paceline.check.analyses.training_loops import Loops, TrainingLoop
from paceline.syntax.module_index import Function
from paceline.syntax.program import CallSite, Program
from paceline.syntax.values import (
    UNKNOWN,
    Argument,
    Context,
    Elements,
    Instance,
    Literal,
    Mapping,
    Object,
    Part,
    Value,
    Values,
)

_THROUGH = (names.SYNC_BATCH_NORM, "torch.compile", "copy.deepcopy")
"""Calls whose result stands for the model that they are given."""


@dataclass(frozen=True)
class Wrapper:
    """A model in DDP: the call, and what is wrapped.

    Attributes:
        name: canonical, of the class.
        inner: models that it may hold, followed through `.to()`, `SyncBatchNorm` and `torch.compile`.
        converted: results of `SyncBatchNorm.convert_sync_batchnorm` on the way there, which are those models too.
    """

    name: str
    site: CallSite
    inner: Values
    converted: Values


@dataclass(frozen=True)
class Loader:
    """A DataLoader.

    Attributes:
        made: the object; one for each way in which the function around it is called.
        site: the call.
    """

    made: Object
    site: CallSite


class Script:
    """One script and what its rules ask. Everything is computed once, when it is asked for.

    Args:
        program: the script.

    Attributes:
        ranks: which ranks run what.
        loops: training loops, and what runs within a node.
        origins: what values are computed from.
        paths: how the ranks reach a node.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.ranks = RankTests(program)
        self.loops = Loops(program)
        self.origins = Origins(program, self.ranks)
        self.paths = ProcessPaths(program, self.ranks, self.origins)

    # Shortcuts

    def calls(self, *callees: str) -> Iterator[CallSite]:
        """Calls of functions and classes by canonical name."""
        return self.program.calls(*callees)

    def method_calls(self, *methods: str) -> Iterator[CallSite]:
        """Calls of methods by the name of the method alone."""
        return self.program.method_calls(*methods)

    def values(self, node: ast.AST | None, context: Context | None = None) -> Values:
        """Values that an expression can have."""
        return self.program.values(node, context)

    def argument(self, call: ast.Call | Object, name: str, position: int | None = None) -> Argument:
        """An argument of a call."""
        return self.program.argument(call, name, position)

    def literals(self, call: ast.Call | Object, name: str, position: int | None = None) -> set[object] | None:
        """Constants that an argument can be; None if it may be anything else or absent."""
        found = self.argument(call, name, position)
        if not found.certain or not found.given or found.may_be_absent:
            return None
        values = self.program.evaluator.all_of(found.given)
        constants = {each.value for each in values if isinstance(each, Literal)}
        return constants if values and all(isinstance(each, Literal) for each in values) else None

    def where(self, node: ast.AST) -> Ranks:
        """Ranks that run a node."""
        return self.ranks.where(node)

    # How the script is distributed

    @cached_property
    def engines(self) -> frozenset[str]:
        """Frameworks that distribute it: `ddp`, `fsdp`, `accelerate`, `fabric`, `lightning`, `trainer`, `other`."""
        found = set()
        for engine, callees in (
            ("ddp", names.DDP),
            ("fsdp", names.FSDP),
            ("accelerate", names.ACCELERATE),
            ("fabric", names.FABRIC),
            ("lightning", names.LIGHTNING),
            ("trainer", names.HF_TRAINER),
            ("other", names.OTHER_ENGINES),
        ):
            if any(True for _ in self.calls(*callees)):
                found.add(engine)
        for module in self.program.imports.modules:
            for cls in module.classes:
                bases = self.program.evaluator.external_bases(cls)
                if any(base in names.LIGHTNING for base in bases):
                    found.add("lightning")
                if any(base in names.HF_TRAINER for base in bases):
                    found.add("trainer")
        return frozenset(found)

    @cached_property
    def starts_group(self) -> bool:
        """True if it starts a process group itself."""
        return any(True for _ in self.calls(*names.START))

    @cached_property
    def distributed(self) -> bool:
        """True if it is written for several processes."""
        if self.starts_group or self.engines:
            return True
        root = self.program.root
        named = any(word in root.source.text for word in ("rank", "distributed", "ddp"))
        return any(
            (named or each.module is root) and self.literals(each.node, "num_replicas", 1) != {1}
            for each in self.calls(*names.DISTRIBUTED_SAMPLERS)
        )

    @cached_property
    def plain(self) -> bool:
        """True if it distributes itself, without a framework that takes over loaders and models."""
        return self.distributed and not self.engines & {"accelerate", "fabric", "lightning", "trainer", "other"}

    @cached_property
    def uses_gpu(self) -> bool:
        """True if it runs on GPUs, as far as reading shows: it names CUDA or NCCL anywhere."""
        return any(
            "cuda" in module.source.text or "nccl" in module.source.text for module in self.program.imports.modules
        )

    # Models

    @cached_property
    def wrappers(self) -> list[Wrapper]:
        """Models that it wraps in DDP."""
        found = []
        for site in self.calls(*names.DDP):
            given = self.program.argument_values(site.node, "module", 0)
            converted = (each for each in self._through(given) if getattr(each, "name", "") == names.SYNC_BATCH_NORM)
            found.append(Wrapper(site.name, site, self.unwrapped(given), frozenset(converted)))
        return found

    def unwrapped(self, values: Values) -> Values:
        """Models behind `SyncBatchNorm.convert_sync_batchnorm`, `torch.compile` and copies."""
        through = self._through(values)
        return frozenset(each for each in through if not (isinstance(each, Object) and each.name in _THROUGH))

    def _through(self, values: Values) -> set[Value]:
        """Values, and those behind them; each once, since `self.model = torch.compile(self.model)` is its own."""
        found: set[Value] = set()
        stack = list(values)
        while stack:
            value = stack.pop()
            if value in found:
                continue
            found.add(value)
            if isinstance(value, Object) and value.name in _THROUGH:
                stack.extend(self.program.argument_values(value, "module", 0))
        return found

    def is_wrapped(self, node: ast.AST | None, context: Context | None = None) -> bool:
        """True if an expression may be a model in DDP, also compiled."""
        return any(self._wraps(each) for each in self.values(node, context))

    def _wraps(self, value: Value) -> bool:
        behind = self._through(frozenset({value}))
        return any(isinstance(each, Object) and each.name in names.DDP for each in behind)

    def is_inner(self, node: ast.AST | None, context: Context | None = None) -> bool:
        """True if an expression certainly is the model within a wrapper: `ddp.module`, or what was wrapped."""
        values = self.values(node, context)
        return bool(values) and all(self._is_inner(each) for each in values)

    def _is_inner(self, value: Value) -> bool:
        if isinstance(value, Part) and value.name == "module":
            return self._wraps(value.base)
        return isinstance(value, Object | Instance) and any(
            value in each.inner | each.converted for each in self.wrappers
        )

    # Data

    @cached_property
    def loaders(self) -> list[Loader]:
        """DataLoaders, one for each way in which the loops that go over them get them; then those without a loop."""
        found: dict[Object, Loader] = {}
        for site in self.calls(*names.DATA_LOADERS):
            found.setdefault(made := Object(site.name, site.node, None), Loader(made, site))
        used = {value for loop in self.all_loops for value in self.iterated(loop) if isinstance(value, Object)}
        for value in sorted(
            (each for each in used if each.name in names.DATA_LOADERS), key=lambda each: each.call.lineno
        ):
            found.pop(Object(value.name, value.call, None), None)
            site = CallSite(value.name, value.call, self.program.evaluator.home(value.call))
            found[value] = Loader(value, site)
        return list(found.values())

    @cached_property
    def all_loops(self) -> list[ast.For | ast.AsyncFor]:
        """`for` loops of the script."""
        return [
            loop
            for function in self.program.functions
            for loop in function.loops
            if isinstance(loop, ast.For | ast.AsyncFor)
        ]

    def iterated(self, loop: ast.For | ast.AsyncFor) -> Values:
        """Values that a loop iterates over."""
        return self.program.evaluator.iterated(loop.iter)

    def trains_on(self, loader: Loader) -> list[TrainingLoop]:
        """Training loops that take batches of a loader: they go over it, or call `next` on it."""
        return [loop for loop in self.loops.training if loader.made in self.batches_of(loop)]

    def batches_of(self, loop: TrainingLoop) -> frozenset[Value]:
        """Loaders that a training loop takes batches of."""
        found = set(loop.iterated)
        for each in loop.reached:
            if (
                isinstance(each.node, ast.Call)
                and "builtins.next" in self.program.callee_names(each.node)
                and each.node.args
            ):
                found |= self.program.evaluator.iterated(each.node.args[0])
        return frozenset(found)

    def evaluates(self, loader: Loader) -> list[ast.For | ast.AsyncFor]:
        """Loops that go over a loader without training on it."""
        training = {id(loop.node) for loop in self.loops.training}
        return [
            loop
            for loop in self.all_loops
            if loader.made in self.iterated(loop) and id(loop) not in training and not self._has_backward(loop)
        ]

    def _has_backward(self, loop: ast.AST) -> bool:
        function = self.program.evaluator.home(loop)
        return any(self.loops.is_backward(each.node) for each in self.loops.reached_calls(loop, function))

    def sampler(self, loader: Loader) -> tuple[Values, Argument]:
        """Samplers that a loader may have, and the argument that gives them."""
        found = self.argument(loader.made, "sampler", 3)
        return self.program.evaluator.all_of(found.given), found

    def batch_sampler(self, loader: Loader) -> tuple[Values, Argument]:
        """Likewise the batch sampler."""
        found = self.argument(loader.made, "batch_sampler", 4)
        return self.program.evaluator.all_of(found.given), found

    # Collectives

    def collectives(self) -> Iterator[CallSite]:
        """Collectives that the script calls itself."""
        return self.calls(*names.COLLECTIVES)

    def reaches_collective(self, node: ast.AST) -> CallSite | None:
        """The first collective that runs within a node, in functions that it calls as well."""
        function = self.program.evaluator.home(node)
        for each in self.loops.reached_calls(node, function):
            if isinstance(each.node, ast.Call):
                for name in self.program.callee_names(each.node):
                    if name in names.COLLECTIVES:
                        return CallSite(name, each.node, each.function)
        return None

    # Values

    def unknown(self, values: Values) -> bool:
        """True if values may be anything."""
        return not values or UNKNOWN in values

    def elements(self, values: Values) -> list[ast.expr]:
        """Items of tuples and lists."""
        return [item for each in values if isinstance(each, Elements) for item in each.node.elts]

    def mappings(self, values: Values) -> list[Mapping]:
        """Dictionaries."""
        return [each for each in values if isinstance(each, Mapping)]

    def function_of(self, node: ast.AST) -> Function:
        """The function in whose body a node stands."""
        return self.program.evaluator.home(node)
