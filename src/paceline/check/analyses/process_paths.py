"""How the processes of a job reach a call: chains of calls from the start of the script, with the tests on the way.

Functions without callers that reading shows are on no path, so that code of a library is never judged as if every rank
ran it. Where the script starts its own processes, only what these run counts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.check.analyses import framework_names as names
from paceline.check.analyses.expression_origins import Origins
from paceline.check.analyses.rank_tests import Ranks, RankTests
from paceline.syntax.conditions import asks_for_main, conditions
from paceline.syntax.module_index import Function, last_name
from paceline.syntax.program import Program
from paceline.syntax.values import Context, FunctionValue, Literal

MAX_PATHS = 40
MAX_CALLS = 8
_STARTERS = frozenset({"spawn", "start_processes", "Process", "launch", "launch_job", "notebook_launcher", "submit",
                       "elastic_launch", "run_distributed", "map_array", "launch_distributed"})  # fmt: skip
_CHOSEN = (
    "rank",
    "main",
    "master",
    "primary",
    "chief",
    "leader",
    "zero",
    "writer",
    "logger",
    "saver",
    "local",
)
"""Parts of names of tests that hold on one rank, as a rule."""
_SEVERAL = ("world_size", "distributed", "ddp", "is_initialized", "n_gpu", "num_gpus", "nprocs", "multi_gpu", "dist_on",
                "ngpus", "use_dist", "is_dist", "num_processes", "parallel", "num_devices", "world")  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """A call on the way, in one call of the function in which it stands."""

    function: Function
    node: ast.AST
    context: Context | None


@dataclass(frozen=True)
class Path:
    """One way in which processes reach a node.

    Attributes:
        frames: from the start of the script to the node itself.
        ranks: that take it.
        certain: all ranks take it; no test on the way may hold on some ranks only, or asks for a run in one process.
        in_turns: ranks take it one after another: within `main_process_first()`, or behind a barrier of the others.
    """

    frames: tuple[Frame, ...]
    ranks: Ranks
    certain: bool
    in_turns: bool

    @property
    def context(self) -> Context | None:
        """In which the node is looked at."""
        return self.frames[-1].context

    @property
    def everywhere(self) -> bool:
        """All ranks certainly take it, at the same time."""
        return self.ranks is Ranks.ALL and self.certain and not self.in_turns


class ProcessPaths:
    """Finds the paths to nodes of a script.

    Args:
        program: the script.
        ranks: tells which ranks a test lets through.
        origins: tells whether a value rests on the rank.
    """

    def __init__(self, program: Program, ranks: RankTests, origins: Origins) -> None:
        self._program = program
        self._ranks = ranks
        self._origins = origins
        self._chains: dict[Function, list[tuple[ast.Call, ...]]] = {}
        self._paths: dict[ast.AST, list[Path]] = {}
        self._barriers: dict[Function, list[int]] = {}
        self._own_processes: bool | None = None

    def to(self, node: ast.AST) -> list[Path]:
        """Paths to a node, from the start of the script."""
        if node not in self._paths:
            function = self._program.evaluator.home(node)
            found = [self._path(chain, function, node) for chain in self._chains_to(function)]
            self._paths[node] = [each for each in found if not any(map(self._never, each.frames))]
        return self._paths[node]

    def to_unstarted(self, node: ast.AST) -> list[Path]:
        """Paths from the body of the script in the process that starts the others, where the script starts its own."""
        function = self._program.evaluator.home(node)
        chains = (chain for chain, _ in zip(self._up(function, (), frozenset()), range(MAX_PATHS), strict=False))
        return [self._path(chain, function, node) for chain in chains]

    def everywhere(self, node: ast.AST) -> Path | None:
        """A path on which all ranks certainly run the node at the same time."""
        return next((each for each in self.to(node) if each.everywhere), None)

    @property
    def starts_processes(self) -> bool:
        """True if the script starts its processes itself, so that its main function runs once."""
        if self._own_processes is None:
            self._own_processes = any(
                self._starts_processes(call) for function in self._program.functions for call in function.calls
            )
        return self._own_processes

    def _starts_processes(self, call: ast.Call) -> bool:
        if last_name(call.func) not in _STARTERS:
            return False
        given = [*call.args[:1], *(each.value for each in call.keywords if each.arg in ("fn", "target", "main_func"))]
        return any(isinstance(value, FunctionValue) for each in given for value in self._program.values(each))

    # Chains of calls

    def _chains_to(self, function: Function) -> list[tuple[ast.Call, ...]]:
        if function not in self._chains:
            found = self._up(function, (), frozenset())
            chains = [chain for chain, _ in zip(found, range(MAX_PATHS), strict=False)]
            if self.starts_processes:
                chains = [each for each in chains if any(self._starts_processes(call) for call in each)]
            self._chains[function] = chains
        return self._chains[function]

    def _up(
        self, function: Function, below: tuple[ast.Call, ...], seen: frozenset[Function]
    ) -> Iterator[tuple[ast.Call, ...]]:
        if function.parent is None:
            yield below
        elif len(below) < MAX_CALLS and function not in seen:
            for caller, call in self._program.evaluator.call_sites(function):
                yield from self._up(caller, (call, *below), seen | {function})

    def _path(self, chain: tuple[ast.Call, ...], last: Function, node: ast.AST) -> Path:
        evaluator = self._program.evaluator
        frames: list[Frame] = []
        context: Context | None = None
        for index, call in enumerate(chain):
            function = evaluator.home(call)
            frames.append(Frame(function, call, context))
            below = evaluator.home(chain[index + 1]) if index + 1 < len(chain) else last
            context = self._entered(call, below, context)
        frames.append(Frame(last, node, context))
        ranks = next((found for each in frames if (found := self._of_frame(each)) is not Ranks.ALL), Ranks.ALL)
        certain = ranks is Ranks.ALL and not any(self._may_be_left(each) for each in frames)
        return Path(tuple(frames), ranks, certain, any(map(self._takes_turns, frames)))

    def _may_be_left(self, frame: Frame) -> bool:
        """True if some ranks may not come to a node, for a reason other than a test of the rank itself."""
        tests = conditions(frame.function.module, frame.node)
        return _in_handler(frame) or any(self._may_choose(each.test, each.holds, frame.context) for each in tests)

    def _entered(self, call: ast.Call, function: Function, context: Context | None) -> Context | None:
        evaluator = self._program.evaluator
        for callee, inner in evaluator.callees(call, context):
            if callee is function:
                return inner
        if self._starts_processes(call):
            return evaluator.context(function, call, context, None)
        return None

    # Tests on the way

    def _of_frame(self, frame: Frame) -> Ranks:
        return self._ranks.within(frame.function, frame.node, frame.context)

    def _may_choose(self, test: ast.expr, holds: bool, context: Context | None) -> bool:
        """True if a test may hold on some ranks only, or asks for a run in one process."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._may_choose(test.operand, not holds, context)
        if isinstance(test, ast.BoolOp):
            return any(self._may_choose(each, holds, context) for each in test.values)
        if asks_for_main(test):
            return False
        if self._ranks.test(test, context) is not Ranks.ALL:
            return True
        if (of_several := of_several_processes(test)) is not None:
            return of_several is not holds
        text = ast.unparse(test).lower()
        return any(part in text for part in _CHOSEN) or self._origins.rest_on_rank(test, context)

    def _never(self, frame: Frame) -> bool:
        """True if an argument of this call keeps the node from running: `if download:` with `download=False`."""
        return frame.context is not None and any(
            self._is_never(each.test, each.holds, frame) for each in conditions(frame.function.module, frame.node)
        )

    def _is_never(self, test: ast.expr, holds: bool, frame: Frame) -> bool:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._is_never(test.operand, not holds, frame)
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and holds:
            return any(self._is_never(each, holds, frame) for each in test.values)
        if not isinstance(test, ast.Name) or test.id not in {each.arg for each in frame.function.parameters}:
            return False
        values = self._program.values(test, frame.context)
        return bool(values) and all(isinstance(each, Literal) and bool(each.value) is not holds for each in values)

    def _takes_turns(self, frame: Frame) -> bool:
        module = frame.function.module
        for at in module.ancestors(frame.node):
            if at is frame.function.node:
                break
            if isinstance(at, ast.With | ast.AsyncWith):
                for item in at.items:
                    expression = item.context_expr
                    name = last_name(expression.func if isinstance(expression, ast.Call) else expression)
                    if "first" in name.lower() or "lock" in name.lower():
                        return True
        return self._behind_barrier(frame)

    def _behind_barrier(self, frame: Frame) -> bool:
        """`if rank != 0: dist.barrier()` in front of a node lets rank 0 go first."""
        function = frame.function
        if function not in self._barriers:
            barriers = (call for call in function.calls if self._is_barrier(call))
            some = (Ranks.OTHERS, Ranks.SOME)
            self._barriers[function] = [call.lineno for call in barriers if self._ranks.own(call)[0] in some]
        return any(line < getattr(frame.node, "lineno", 0) for line in self._barriers[function])

    def _is_barrier(self, call: ast.Call) -> bool:
        if last_name(call.func) in ("barrier", "synchronize", "wait_for_everyone", "monitored_barrier"):
            return True
        return any(name in names.COLLECTIVES for name in self._program.callee_names(call))


def of_several_processes(test: ast.expr) -> bool | None:
    """True if a test holds in a job of several processes: `args.distributed`, `world_size > 1`, `local_rank != -1`."""
    text = ast.unparse(test).lower()
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        against, op = ast.unparse(test.comparators[0]), test.ops[0]
        one = isinstance(op, ast.Eq | ast.LtE | ast.Lt | ast.Is)
        if against in ("-1", "None") and ("rank" in text or "gpu" in text):
            return not one
        return not one if any(part in text for part in _SEVERAL) else None
    return True if any(part in text for part in _SEVERAL) else None


def _in_handler(frame: Frame) -> bool:
    """True if a node runs only where something failed."""
    for at in frame.function.module.ancestors(frame.node):
        if isinstance(at, ast.ExceptHandler):
            return True
        if at is frame.function.node:
            return False
    return False


def meeting(first: Path, second: Path) -> tuple[Frame, Frame, int] | None:
    """Where two paths part: their frames in the function that both take last, and their index."""
    for index, (one, other) in enumerate(zip(first.frames, second.frames, strict=False)):
        if one.function is not other.function:
            return None
        if one.node is not other.node:
            return one, other, index
    return None


def runs_before(first: Path, second: Path) -> bool:
    """True if the node of one path stands before that of another one, in the function in which the paths part."""
    found = meeting(first, second)
    if found is None:
        return False
    one, other = found[0].node, found[1].node
    if _holds(other, one):
        return True
    return not _holds(one, other) and _start(one) < _start(other)


def _holds(outer: ast.AST, inner: ast.AST) -> bool:
    """True if an expression is computed for another one first: `Model()` of `Trainer(Model()).fit()`."""
    return isinstance(outer, ast.expr) and _start(outer) <= _start(inner) and _end(inner) <= _end(outer)


def _start(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _end(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "end_lineno", 0) or 0, getattr(node, "end_col_offset", 0) or 0
