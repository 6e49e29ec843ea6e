"""A loss compares the samples of one rank's batch with each other.

What it does:
    Looks for losses with products or distances between all samples of the batch (`z @ z.T`, `torch.cdist(z, z)`), and
    for advantages that are normalized over the local batch, where nothing gathers the samples of the other ranks.

Why is this bad:
    Such a loss is no mean over samples. N losses over small batches are another objective than one over the global
    batch: a contrastive loss sees N times fewer negatives, and each rank scales its advantages differently.

Repair:
    Gather the samples differentiably (`torch.distributed.nn.functional.all_gather`), or all-reduce the moments. If the
    local loss is what is meant, nothing has to change.

Known problems:
    Local negatives are a common choice; therefore `info`.

References:
    F31. https://github.com/facebookresearch/vissl/issues/474
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.loss_terms import behind, is_local, loss_of
from paceline.check.analyses.script import Script
from paceline.check.analyses.synchronized_names import may_synchronize
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import last_name
from paceline.syntax.values import Context

_DISTANCES = frozenset(("torch.cdist", "torch.pdist", "torch.nn.functional.pdist"))
_PRODUCTS = frozenset(("mm", "matmul", "einsum"))


class LossOverBatch(Rule):
    """Losses over pairs of the local batch."""

    code, name, topic = "DP029", "loss-over-batch", "gradients"
    faults = ("F31",)
    severity = "info"
    valid = {
        "gathered samples": """
            import torch.distributed.nn.functional

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 4))
            for x, y in loader:
                z = torch.cat(torch.distributed.nn.functional.all_gather(model(x)))
                loss = F.cross_entropy(z @ z.T, torch.arange(len(z)))
                loss.backward()
        """,
        "a product with weights": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 4))
            classes = torch.randn(10, 4)
            for x, y in loader:
                loss = F.cross_entropy(model(x) @ classes.T, y)
                loss.backward()
        """,
    }
    invalid = {
        "a contrastive loss": """
            def info_nce(a, b):
                logits = F.normalize(a, dim=1) @ F.normalize(b, dim=1).t() / 0.1  # here
                return F.cross_entropy(logits, torch.arange(len(a)))

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 4))
            for x, y in loader:
                loss = info_nce(model(x), model(x + 0.1))
                loss.backward()
        """,
        "distances between all samples": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 4))
            for x, y in loader:
                z = model(x)
                distance = torch.cdist(z, z)  # here
                F.relu(1 - distance).mean().backward()
        """,
        "advantages of one rank": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, reward in loader:
                advantage = reward - model(x).detach()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)  # here
                loss = -(model(x) * advantage).mean()
                loss.backward()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers and "fsdp" not in script.engines:
            return
        reported: set[ast.AST] = set()
        for loop in script.loops.training:
            for each in loop.backwards:
                assert isinstance(each.node, ast.Call)
                loss = loss_of(script, each.node)
                nodes = list(behind(script, loss, losses_too=True)) if loss is not None else []
                if any(isinstance(at, ast.Call) and may_synchronize(last_name(at.func)) for at, _ in nodes):
                    continue
                for node, context in nodes:
                    reason = _pairs(script, node, context) or _normalizes(script, node, context)
                    if reason and node not in reported:
                        reported.add(node)
                        yield Violation(
                            node,
                            f"{reason} of this rank's batch only, so the loss is another one than over the global"
                            " batch",
                            "gather the samples with torch.distributed.nn.functional.all_gather if the global loss is"
                            " meant",
                        )


def _pairs(script: Script, node: ast.expr, context: Context | None) -> str | None:
    """Products or distances between all samples of local tensors."""
    sides: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        sides = [node.left, node.right]
    elif isinstance(node, ast.Call):
        if set(script.program.callee_names(node)) & _DISTANCES:
            return "it takes distances between samples" if _local(script, node.args, context) else None
        if last_name(node.func) in _PRODUCTS and isinstance(node.func, ast.Attribute):
            torch = ast.unparse(node.func.value) == "torch"
            sides = [*node.args] if torch else [node.func.value, *node.args]
    if len(sides) == 2 and _transposed(script, sides[1]) and _local(script, sides, context):
        return "it multiplies samples with samples"
    return None


def _local(script: Script, nodes: list[ast.expr], context: Context | None) -> bool:
    return bool(nodes) and all(is_local(script, each, context) for each in nodes[:2])


def _transposed(script: Script, node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "T"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "t":
            return True
        axes = {each.value for each in node.args if isinstance(each, ast.Constant)}
        return node.func.attr in ("transpose", "permute") and axes == {0, 1}
    return False


def _normalizes(script: Script, node: ast.expr, context: Context | None) -> str | None:
    """`(a - a.mean()) / a.std()` of advantages, rewards or returns."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
        return None
    top, bottom = ast.unparse(node.left), ast.unparse(node.right)
    named = any(part in top.lower() for part in ("adv", "reward", "return", "gae"))
    if named and ".mean()" in top and ".std(" in bottom and _local(script, [node.left], context):
        return "advantages are normalized with the moments"
    return None
