"""Ranks gather tensors of different sizes.

What it does:
    Looks for `all_gather` and `gather` of tensors whose first size depends on the data or on the rank: what a mask
    selects, `nonzero`, `unique`, results for a share `range(rank, n, world_size)` that is not padded.

Why is this bad:
    These collectives take tensors of equal size on all ranks. With other sizes gloo returns garbage or fails, and NCCL
    hangs or returns garbage.

Repair:
    Gather the sizes first, pad to the largest, and cut after gathering; or `dist.all_gather_object`.

Known problems:
    Functions in which something is padded, or sizes are gathered, are left out. A data set whose length is a multiple
    of the number of ranks has equal shares; an `assert` that says so is recognized.

References:
    F75, F130. https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.evaluated_shares import appended
from paceline.check.analyses.rank_tests import RankKind
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function, last_name
from paceline.syntax.program import CallSite
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import Named

_TENSOR_AT = {"all_gather": 1, "gather": 0, "all_gather_into_tensor": 1}
_SELECTS = ("nonzero", "masked_select", "unique", "unique_consecutive", "argwhere", "nms", "flatnonzero")
_SAME_SIZE = frozenset(
    (
        "float", "double", "half", "long", "int", "bool", "to", "cuda", "cpu", "detach", "contiguous", "clone", "type",
        "sigmoid", "tanh", "relu", "exp", "log", "abs", "round", "softmax", "log_softmax", "squeeze", "unsqueeze",
        "view", "reshape", "flatten", "tensor", "as_tensor", "from_numpy", "list", "tuple", "array", "asarray", "eq",
        "normalize", "type_as",
    )
)  # fmt: skip
_ALONG = ("argmax", "sum", "mean", "max", "amax", "norm", "prod", "any", "all")
"""Keep the first size where they are given another dimension."""


class UnequalGather(Rule):
    """Collectives of tensors whose sizes differ between ranks."""

    code, name, topic = "DP063", "unequal-gather", "evaluation"
    faults = ("F75", "F130")
    severity = "warning"
    valid = {
        "padded": """
            def gather(part):
                sizes = [torch.zeros(1, dtype=torch.long) for _ in range(dist.get_world_size())]
                dist.all_gather(sizes, torch.tensor([len(part)]))
                longest = max(int(each) for each in sizes)
                padded = torch.cat([part, part.new_zeros(longest - len(part))])
                parts = [torch.empty_like(padded) for _ in sizes]
                dist.all_gather(parts, padded)
                return torch.cat([each[:size] for each, size in zip(parts, sizes)])

            dist.init_process_group("gloo")
            scores = torch.rand(100)
            gather(scores[scores > 0.5])
        """,
        "one number of each rank": """
            dist.init_process_group("gloo")
            rank, world = dist.get_rank(), dist.get_world_size()
            mine = torch.arange(101.0)[rank::world]
            total = mine.sum()
            parts = [torch.zeros_like(total) for _ in range(world)]
            dist.all_gather(parts, total)
        """,
        "equal shares": """
            dist.init_process_group("gloo")
            rank, world = dist.get_rank(), dist.get_world_size()
            data = torch.arange(1000.0)
            assert len(data) % world == 0
            mine = data[rank::world]
            parts = [torch.zeros_like(mine) for _ in range(world)]
            dist.all_gather(parts, mine)
        """,
    }
    invalid = {
        "what a mask selects": """
            dist.init_process_group("gloo")
            scores = torch.rand(100)
            chosen = scores[scores > 0.5]
            parts = [torch.zeros_like(chosen) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, chosen)  # here
        """,
        "a share that is not padded": """
            def evaluate(model, data):
                rank, world = dist.get_rank(), dist.get_world_size()
                mine = list(range(rank, len(data), world))
                x, y = data[mine]
                right = (model(x).argmax(1) == y).float()
                parts = [torch.zeros_like(right) for _ in range(world)]
                dist.all_gather(parts, right)  # here
                return torch.cat(parts).mean()

            dist.init_process_group("gloo")
            data = torch.utils.data.TensorDataset(torch.rand(61, 2), torch.ones(61))
            evaluate(DDP(nn.Linear(2, 3)), data)
        """,
        "through a helper": """
            def gather(part):
                parts = [torch.zeros_like(part) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, part)
                return torch.cat(parts)

            dist.init_process_group("gloo")
            labels = torch.randint(0, 5, (100,))
            seen = gather(labels.unique())  # here
        """,
        "rows that were kept of each batch": """
            def gather(part):
                parts = [torch.zeros_like(part) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, part)
                return torch.cat(parts)

            dist.init_process_group("gloo")
            kept = []
            for x, _ in DataLoader(Numbers(), batch_size=8):
                scores = nn.Linear(2, 5)(x)
                kept.append(scores[scores.max(1).values > 0.5])
            rows = gather(torch.cat(kept))  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        for name, position in _TENSOR_AT.items():
            for site in script.calls(f"torch.distributed.{name}"):
                given = script.argument(site.node, "tensor", position).given
                if not given or _pads(site.function) or _agrees(script):
                    continue
                for at, node in _given(script, site, given[0].node):
                    function = script.function_of(at)
                    source = None if _pads(function) else _varies(script, node, 10)
                    if source is not None:
                        yield Violation(
                            at,
                            f"ranks gather tensors whose size depends on `{ast.unparse(source)[:60]}`, and differs "
                            "between ranks",
                            "gather the sizes, pad to the largest and cut after gathering; or use all_gather_object",
                        )


def _given(script: Script, site: CallSite, node: ast.expr) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The argument of a collective: in its own function, or by the callers of a helper."""
    bindings = script.program.evaluator.bindings(node) if isinstance(node, ast.Name) else []
    if not any(binding.kind is Kind.PARAMETER for binding, _ in bindings):
        yield site.node, node
        return
    for binding, function in bindings:
        if binding.kind is not Kind.PARAMETER:
            continue
        for _, call in script.program.evaluator.call_sites(function):
            position = function.positional.index(binding.name) if binding.name in function.positional else None
            if position is not None and function.cls is not None:
                position -= 1
            for each in script.argument(call, binding.name, position).given:
                yield call, each.node


def _pads(function: Function) -> bool:
    """True if a function pads, or looks at sizes of ranks."""
    for node in walk(function.node):
        name = last_name(node) if isinstance(node, ast.Name | ast.Attribute) else ""
        if "pad" in name.lower() or name in ("new_zeros", "all_gather_object", "max_len", "max_size", "sizes"):
            return True
    return False


def _agrees(script: Script) -> bool:
    """True if the script asserts that shares are equal."""
    return any(
        isinstance(node, ast.Assert)
        and any(isinstance(at, ast.BinOp) and isinstance(at.op, ast.Mod) for at in walk(node))
        for node in walk(script.program.root.source.tree)
    )


def _varies(script: Script, node: ast.expr | None, depth: int) -> ast.expr | None:
    """The reason why the first size of a value differs between ranks; None if nothing shows that it does."""
    if node is None or depth == 0:
        return None
    match node:
        case ast.Name():
            for binding, _ in script.program.evaluator.bindings(node):
                if binding.kind is not Kind.VALUE or isinstance(binding.node, ast.AugAssign):
                    return None
                if (found := _varies(script, binding.value, depth - 1)) is not None:
                    return found
        case ast.BinOp(op=ast.MatMult()):
            return _varies(script, node.left, depth - 1)
        case ast.BinOp() | ast.Compare() | ast.UnaryOp():
            parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
            return next((found for each in parts if (found := _varies(script, each, depth - 1)) is not None), None)
        case ast.Subscript():
            return _of_subscript(script, node, depth)
        case ast.Call():
            return _of_call(script, node, depth)
    return None


def _of_subscript(script: Script, node: ast.Subscript, depth: int) -> ast.expr | None:
    index = node.slice
    if isinstance(index, ast.Slice):
        is_share = index.step is not None and index.lower is not None
        kind = script.ranks.kind(index.lower) if is_share and index.lower is not None else RankKind.NONE
        return node if kind is not RankKind.NONE else None
    if _is_mask(script, index):
        return node
    return _varies(script, index, depth - 1)


def _is_mask(script: Script, node: ast.expr, depth: int = 3) -> bool:
    """True if an index selects by truth values: a comparison of tensors, or a name for one."""
    match node:
        case ast.Compare():
            return not isinstance(node.ops[0], ast.In | ast.NotIn | ast.Is | ast.IsNot)
        case ast.UnaryOp(op=ast.Invert()):
            return _is_mask(script, node.operand, depth)
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            return _is_mask(script, node.left, depth) or _is_mask(script, node.right, depth)
        case ast.Call(func=ast.Attribute(attr="bool")):
            return True
        case ast.Name() if depth:
            bindings = script.program.evaluator.bindings(node)
            return bool(bindings) and all(
                each.kind is Kind.VALUE and each.value is not None and _is_mask(script, each.value, depth - 1)
                for each, _ in bindings
            )
    return False


def _of_call(script: Script, node: ast.Call, depth: int) -> ast.expr | None:
    name = last_name(node.func)
    if name in ("cat", "concat", "concatenate", "vstack") and node.args and isinstance(node.args[0], ast.Name):
        kept = (call.args[0] for call in appended(script, node.args[0]) if call.args)
        return next((found for each in kept if (found := _varies(script, each, depth - 1)) is not None), None)
    if name in _SELECTS or (name == "where" and len(node.args) == 1):
        return node
    if name == "range":
        stepped = len(node.args) == 3 and script.ranks.kind(node.args[0]) is not RankKind.NONE
        return node if stepped else None
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    method = receiver is not None and not any(isinstance(each, Named) for each in script.values(receiver))
    if name in _ALONG:
        other = [*node.args, *(each.value for each in node.keywords if each.arg in ("dim", "axis"))]
        along = any(isinstance(each, ast.Constant) and each.value not in (0, None) for each in other)
        along = along or any(isinstance(each, ast.UnaryOp) for each in other)
        return _varies(script, receiver, depth - 1) if along and method else None
    if name in _SAME_SIZE:
        return _varies(script, receiver if method else (node.args[0] if node.args else None), depth - 1)
    if script.is_wrapped(node.func) or script.is_inner(node.func) or name == "model":
        return _varies(script, node.args[0] if node.args else None, depth - 1)
    return None
