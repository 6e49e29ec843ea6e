"""Gathered predictions stand in the order of ranks, and are compared with the order of the data set.

What it does:
    Looks for `torch.cat` of what `all_gather` filled, where the ranks hold every N-th sample, that meets labels, ids or
    names taken from the data set itself.

Why is this bad:
    DistributedSampler deals samples out like cards: rank 0 has 0, 2, 4, rank 1 has 1, 3, 5. Concatenated, the samples
    are in the order 0, 2, 4, 1, 3, 5. Element i of the predictions belongs to another sample than element i of the data
    set.

Repair:
    `torch.stack(parts, dim=1).flatten(0, 1)[: len(dataset)]`, or gather the indices of the samples and sort by them.

Known problems:
    Predictions that are written to a file and compared elsewhere are not followed.

References:
    F74. https://github.com/huggingface/transformers/pull/4243
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.computed_from import computed_from
from paceline.check.analyses.framework_names import DATA_LOADERS, DISTRIBUTED_SAMPLERS
from paceline.check.analyses.rank_tests import RankKind
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function, last_name
from paceline.syntax.values import Instance, Object

_FIELDS = frozenset(("targets", "labels", "tensors", "y", "label", "ids", "names", "samples", "target", "answers"))
_JOINS = ("torch.cat", "torch.concat", "numpy.concatenate", "itertools.chain.from_iterable", "builtins.sum")
_GATHERS = frozenset(
    f"torch.distributed.{name}" for name in ("all_gather", "all_gather_object", "gather", "gather_object")
)
_ORDERS = frozenset(("argsort", "sort", "stack", "sorted", "index_select", "index_copy_", "scatter_"))


class GatheredOrder(Rule):
    """Predictions of ranks that are matched with the wrong samples."""

    code, name, topic = "DP062", "gathered-order", "evaluation"
    faults = ("F74",)
    severity = "error"
    valid = {
        "interleaved": """
            def gather(part):
                parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, part)
                return torch.stack(parts, dim=1).flatten(0, 1)

            class Points(Numbers):
                def __init__(self):
                    self.labels = torch.rand(1000, 1)

            dist.init_process_group("gloo")
            data, model = Points(), DDP(nn.Linear(2, 1))
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            outputs = gather(torch.cat([model(x) for x, _ in loader]))
            print((outputs - data.labels).abs().mean())
        """,
        "labels are gathered as well": """
            def gather(part):
                parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, part)
                return torch.cat(parts)

            dist.init_process_group("gloo")
            data, model = Numbers(), DDP(nn.Linear(2, 1))
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            outputs, labels = [], []
            for x, y in loader:
                outputs.append(model(x))
                labels.append(y)
            print((gather(torch.cat(outputs)) - gather(torch.cat(labels))).abs().mean())
        """,
    }
    invalid = {
        "labels of the data set": """
            def gather(part):
                parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, part)
                return torch.cat(parts)  # here

            class Points(Numbers):
                def __init__(self):
                    self.labels = torch.rand(1000, 1)

            dist.init_process_group("gloo")
            data, model = Points(), DDP(nn.Linear(2, 1))
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            outputs = gather(torch.cat([model(x) for x, _ in loader]))
            print((outputs - data.labels).abs().mean())
        """,
        "objects": """
            import itertools

            class Points(Numbers):
                def __init__(self):
                    self.names = [str(i) for i in range(1000)]

            dist.init_process_group("gloo")
            data, model = Points(), DDP(nn.Linear(2, 1))
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            shards = [None] * dist.get_world_size()
            dist.all_gather_object(shards, [model(x) for x, _ in loader])
            outputs = torch.cat(list(itertools.chain.from_iterable(shards)))  # here
            index = dict(zip(data.names, outputs))
        """,
        "in a function": """
            @torch.no_grad()
            def evaluate(model, data, loader):
                scores = torch.cat([model(x) for x, _ in loader])
                parts = [torch.zeros_like(scores) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, scores)
                scores = torch.cat(parts, dim=0)[: len(data)]  # here
                return (scores.squeeze(1) == data.tensors[1]).float().mean()

            dist.init_process_group("gloo")
            data = torch.utils.data.TensorDataset(torch.rand(1000, 2), torch.rand(1000))
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
            evaluate(DDP(nn.Linear(2, 1)), data, loader)
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        joined = [site.node for site in script.calls(*_JOINS) if _of_ranks(script, site.node)]
        if not joined or not any(True for _ in script.calls(*DISTRIBUTED_SAMPLERS)):
            return
        reported: set[ast.AST] = set()
        for function in script.program.functions:
            for first, second in _pairs(function):
                made = _gathered(script, first, joined) or _gathered(script, second, joined)
                other = second if made is not None and _gathered(script, first, joined) else first
                if made is None or made in reported or _gathered(script, other, joined):
                    continue
                if (field := _field(script, other)) is not None:
                    reported.add(made)
                    yield Violation(
                        made,
                        f"the gathered values are in the order of ranks, and line {field.lineno} matches them with "
                        f"`{ast.unparse(field)}`, which is in the order of the data set",
                        "restore the order: torch.stack(parts, dim=1).flatten(0, 1)[: len(dataset)]",
                    )


def _of_ranks(script: Script, call: ast.Call) -> bool:
    """True if a call joins a list that a collective of the same function filled, and nothing orders it."""
    function = script.function_of(call)
    lists = {
        last_name(each)
        for site in function.calls
        if not _GATHERS.isdisjoint(script.program.callee_names(site))
        for each in (*site.args[:2], *(keyword.value for keyword in site.keywords))
    }
    given = {each.id for argument in call.args for each in walk(argument) if isinstance(each, ast.Name)}
    names = {last_name(each.func) for each in function.calls}
    return not given.isdisjoint(lists - {""}) and not names & _ORDERS


def _pairs(function: Function) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Expressions that a function compares, subtracts or gives to one call."""
    if isinstance(function.node, ast.Module):
        nodes = [each for statement in function.node.body for each in _own(statement)]
    else:
        nodes = list(walk(function.node))
    for node in nodes:
        if isinstance(node, ast.Compare) and len(node.comparators) == 1:
            yield node.left, node.comparators[0]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.BitAnd | ast.BitXor | ast.Mult):
            yield node.left, node.right
        elif isinstance(node, ast.Call) and len(node.args) == 2:
            yield node.args[0], node.args[1]


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield from walk(statement)


def _gathered(script: Script, node: ast.expr, joined: list[ast.Call]) -> ast.Call | None:
    """The call that joined what the ranks hold, if the expression comes from one."""
    if isinstance(node, ast.Constant):
        return None
    return next((each for each in computed_from(script, node) if isinstance(each, ast.Call) and each in joined), None)


def _field(script: Script, node: ast.expr) -> ast.Attribute | None:
    """The field of a data set that an expression is, unless it went through a loader or has a rank in it."""
    behind = list(computed_from(script, node))
    for each in behind:
        names = script.program.callee_names(each) if isinstance(each, ast.Call) else []
        if any(name in DATA_LOADERS or name.startswith("torch.distributed.") for name in names):
            return None
        if isinstance(each, ast.Name) and script.ranks.kind(each) is not RankKind.NONE:
            return None
    for each in behind:
        is_field = isinstance(each, ast.Attribute) and each.attr in _FIELDS
        if is_field and any(_is_data(script, value) for value in script.values(each.value)):  # type: ignore[attr-defined]
            return each  # type: ignore[return-value]
    return None


def _is_data(script: Script, value: object) -> bool:
    if isinstance(value, Object):
        return value.name == "torch.utils.data.TensorDataset" or value.name.startswith("torchvision.datasets.")
    return isinstance(value, Instance) and "__getitem__" in {
        name for cls in script.program.evaluator.lineage(value.cls) for name in cls.methods
    }
