"""A loss is computed from gathered outputs that carry no gradient.

What it does:
    Looks for `dist.all_gather` and `all_gather_into_tensor` of outputs of the model whose result reaches `backward`
    while the rank's own part is not put back into it.

Why is this bad:
    Collectives of `torch.distributed` are not differentiable: all gathered tensors are constants, the rank's own as
    well. The loss has no gradient for the model, or only that of other terms, and training goes wrong without an error.

Repair:
    `gathered[rank] = own` behind the collective, or `torch.distributed.nn.functional.all_gather`.

Known problems:
    A gather in a function of another package is not seen.

References:
    F34. https://github.com/facebookresearch/DPR/issues/109
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.loss_terms import behind, loss_of
from paceline.check.analyses.script import Script
from paceline.check.analyses.value_origins import without_gradients
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function, last_name
from paceline.syntax.program import CallSite
from paceline.syntax.values import Context, Object

_GATHERS = (
    "torch.distributed.all_gather",
    "torch.distributed.all_gather_into_tensor",
    "torch.distributed._all_gather_base",
)


class GatherCutsGradient(Rule):
    """Gathered outputs in a loss."""

    code, name, topic = "DP030", "gather-cuts-gradient", "gradients"
    faults = ("F34",)
    severity = "error"
    valid = {
        "the own part is put back": """
            def gathered(t):
                parts = [torch.empty_like(t) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, t)
                parts[dist.get_rank()] = t
                return torch.cat(parts)

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            for x in torch.randn(10, 4, 2):
                z = gathered(model(x))
                loss = torch.cdist(z, z).mean()
                loss.backward()
        """,
        "targets": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                targets = [torch.empty_like(y) for _ in range(dist.get_world_size())]
                dist.all_gather(targets, y)
                loss = F.mse_loss(model(x), y) - torch.cat(targets).mean()
                loss.backward()
        """,
        "a function with a backward pass of its own": """
            class Gather(torch.autograd.Function):
                @staticmethod
                def forward(ctx, t):
                    parts = [torch.empty_like(t) for _ in range(dist.get_world_size())]
                    dist.all_gather(parts, t)
                    return torch.cat(parts)

                @staticmethod
                def backward(ctx, grad):
                    dist.all_reduce(grad)
                    return grad.chunk(dist.get_world_size())[dist.get_rank()]

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            for x in torch.randn(10, 4, 2):
                z = Gather.apply(model(x))
                torch.cdist(z, z).mean().backward()
        """,
    }
    invalid = {
        "embeddings of all ranks": """
            def gathered(t):
                parts = [torch.empty_like(t) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, t)  # here
                return torch.cat(parts)

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            for x in torch.randn(10, 4, 2):
                z = gathered(model(x))
                loss = torch.cdist(z, z).mean()
                loss.backward()
        """,
        "one tensor for all": """
            class Trainer:
                def __init__(self):
                    self.model = DDP(nn.Linear(2, 1))
                    data = Numbers()
                    self.loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))

                def loss(self, x, y):
                    z = self.model(x)
                    everything = torch.empty(len(z) * dist.get_world_size(), 1)
                    dist.all_gather_into_tensor(everything, z)  # here
                    return (z @ everything.T).mean()

                def fit(self):
                    for x, y in self.loader:
                        self.loss(x, y).backward()

            dist.init_process_group("gloo")
            Trainer().fit()
        """,
        "a criterion that gathers": """
            def gathered(t):
                parts = [torch.empty_like(t) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, t)  # here
                return torch.cat(parts)

            class Contrast(nn.Module):
                def forward(self, image, text):
                    images, texts = gathered(image), gathered(text)
                    logits = images @ texts.t()
                    return F.cross_entropy(logits, torch.arange(len(logits)))

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            criterion = Contrast()
            for x in torch.randn(10, 2, 4, 2):
                image, text = model(x)
                criterion(image, text).backward()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        sites = [site for site in script.calls(*_GATHERS) if _keeps_nothing(script, site)]
        if not sites:
            return
        reached = _reached_by_losses(script)
        for site in sites:
            output = site.node.args[0]
            if not isinstance(output, ast.Name):
                continue
            bound = [each.value for each, _ in script.program.evaluator.bindings(output) if each.value is not None]
            contexts = {context for each in bound for context in reached.get(each, ())}
            if any(_of_outputs(script, site.node.args[1], context) for context in contexts):
                yield Violation(
                    site.node,
                    f"{output.id} holds outputs of all ranks without a gradient, also this rank's own, and the"
                    " loss is computed from it",
                    f"put the own part back with {output.id}[rank] = ..., or use"
                    " torch.distributed.nn.functional.all_gather",
                )


def _reached_by_losses(script: Script) -> dict[ast.expr, set[Context | None]]:
    """Expressions that losses are computed from, with the calls that lead to them."""
    found: dict[ast.expr, set[Context | None]] = {}
    for loop in script.loops.training:
        for each in loop.backwards:
            assert isinstance(each.node, ast.Call)
            loss = loss_of(script, each.node)
            if loss is not None:
                for node, context in behind(script, loss, models_too=True):
                    found.setdefault(node, set()).add(context)
    return found


def _keeps_nothing(script: Script, site: CallSite) -> bool:
    """True if the rank's own part is not put back into what is gathered."""
    return (
        len(site.node.args) >= 2
        and not _has_backward(script, site.function)
        and not _puts_back(site.function, site.node.args[0])
    )


def _of_outputs(script: Script, given: ast.expr, context: Context | None) -> bool:
    """True if outputs of the model are gathered that carry a gradient."""
    calls = [node for node, _ in behind(script, given, context) if isinstance(node, ast.Call)]
    if any(last_name(each.func) == "detach" for each in calls):
        return False
    return any(_is_model(script, each.func) and not without_gradients(script, each) for each in calls)


def _is_model(script: Script, node: ast.expr) -> bool:
    """True if an expression is a wrapped model, or a module of which models are built."""
    if script.is_wrapped(node) or script.is_inner(node):
        return True
    values = script.values(node)
    return bool(values) and all(isinstance(each, Object) and each.name.startswith("torch.nn.") for each in values)


def _has_backward(script: Script, function: Function) -> bool:
    bases = script.program.evaluator.external_bases(function.cls) if function.cls is not None else []
    return any("Function" in each for each in bases)


def _puts_back(function: Function, output: ast.expr) -> bool:
    """`parts[rank] = own`, or a concatenation of the own tensor with some of the parts."""
    text = ast.unparse(output)
    for node in walk(function.node):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and ast.unparse(target.value) == text:
                    return True
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and ast.unparse(node.value) == text:
            return True  # `torch.cat([own, *parts[1:]])`
        if (
            isinstance(node, ast.Call)
            and last_name(node.func) in ("insert", "pop", "remove")
            and text in ast.unparse(node)
        ):
            return True
    return False
