"""`torch.autograd.grad` computes gradients of a wrapped model's parameters.

What it does:
    Looks for `torch.autograd.grad` with respect to parameters of a model in DDP, within a loop.

Why is this bad:
    DDP reduces gradients in hooks that run when `backward()` accumulates into `.grad`. `autograd.grad` returns the
    gradients of the local batch: an update with them trains each rank on its own data.

Repair:
    Use `loss.backward()` and `p.grad`, or all-reduce the returned gradients.

Known problems:
    Gradients with respect to inputs (gradient penalties) are right and not reported. With `create_graph=True` the
    result is taken for a term of a loss.

References:
    F44. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.call_order import runs_in_a_loop
from paceline.check.analyses.gradients_by_hand import reduces_by_hand
from paceline.check.analyses.model_structure import wrapped_structure
from paceline.check.analyses.script import Script
from paceline.check.analyses.trained_parameters import parameter_owners
from paceline.check.analyses.wrapped_models import of_wrapped
from paceline.check.rule import Rule, Violation

_START = """
            dist.init_process_group("gloo")
            loader = DataLoader(Numbers(), sampler=DistributedSampler(Numbers()))
            model = DDP(nn.Linear(2, 1))
"""


class GradientsByAutograd(Rule):
    """Local gradients of a wrapped model."""

    code, name, topic = "DP042", "gradients-by-autograd", "wrapping"
    faults = ("F44",)
    severity = "error"
    valid = {
        "a penalty on the gradients of inputs": _START
        + """
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                x.requires_grad_(True)
                out = model(x)
                (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
                (F.mse_loss(out, y) + slope.pow(2).mean()).backward()
                optimizer.step()
        """,
        "averaged by hand": _START
        + """
            params = list(model.parameters())
            for x, y in loader:
                grads = torch.autograd.grad(F.mse_loss(model(x), y), params)
                for p, g in zip(params, grads):
                    dist.all_reduce(g, op=dist.ReduceOp.AVG)
                    p.data -= 0.1 * g
        """,
    }
    invalid = {
        "an update by hand": _START
        + """
            params = list(model.parameters())
            for x, y in loader:
                grads = torch.autograd.grad(F.mse_loss(model(x), y), params)  # here
                for p, g in zip(params, grads):
                    p.data -= 0.1 * g
        """,
        "parameters of the inner model, in a method": """
            class Learner:
                def __init__(self):
                    self.net = nn.Linear(2, 1)
                    self.model = DDP(self.net)

                def step(self, x, y):
                    loss = F.mse_loss(self.model(x), y)
                    weights = [p for p in self.model.module.parameters() if p.requires_grad]
                    for p, g in zip(weights, torch.autograd.grad(loss, weights)):  # here
                        p.data.sub_(g, alpha=0.1)

                def run(self, loader):
                    for x, y in loader:
                        self.step(x, y)

            dist.init_process_group("gloo")
            Learner().run(DataLoader(Numbers(), sampler=DistributedSampler(Numbers())))
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers or reduces_by_hand(script):
            return
        parts = frozenset(wrapped_structure(script).made)
        for site in script.calls("torch.autograd.grad"):
            if not script.argument(site.node, "create_graph", 4).absent or not runs_in_a_loop(script, site.node):
                continue
            given = script.argument(site.node, "inputs", 1).given
            owners = [values for each in given for values in parameter_owners(script, each.node, each.context)]
            if owners and all(of_wrapped(script, each, parts) for each in owners):
                yield Violation(
                    site.node,
                    f"{ast.unparse(site.node.func)} returns gradients of the local batch, which DDP does not reduce",
                    "use loss.backward() and the gradients in p.grad, or all-reduce what it returns",
                )
