"""A wrapped model is moved or converted between training steps.

What it does:
    Looks for `.cpu()`, `.to("cpu")`, `.half()`, `.float()` and `.double()` of a model in DDP, or of the inner model,
    inside a loop that trains.

Why is this bad:
    DDP's buckets and hooks belong to the parameters as they were when it wrapped them. A round trip to the CPU and back
    puts the parameters elsewhere: gradients may no longer be reduced, without an error.

Repair:
    Copy the tensors instead: `{name: value.cpu() for name, value in ddp.module.state_dict().items()}`, or a
    `copy.deepcopy` of the model.

Known problems:
    After the last training step a move is harmless, and not reported.

References:
    F45. https://github.com/pytorch/pytorch/issues/104336
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.call_order import repeats_with_training, runs_after
from paceline.check.analyses.script import Script
from paceline.check.analyses.wrapped_models import of_wrapped, unwraps, wrapped_for_certain
from paceline.check.rule import Rule, Violation
from paceline.syntax.program import CallSite
from paceline.syntax.values import Literal, Object

_CONVERTS = ("half", "float", "double", "bfloat16")
_TRAIN = """
            def train(model, loader, optimizer):
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()

            dist.init_process_group("nccl")
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            loader = DataLoader(Numbers(), sampler=DistributedSampler(Numbers()))
            model = DDP(nn.Linear(2, 1).to(device))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


class DeviceRoundTrip(Rule):
    """Moves of a model in DDP."""

    code, name, topic = "DP043", "device-round-trip", "wrapping"
    faults = ("F45",)
    severity = "warning"
    valid = {
        "tensors of the state are copied": _TRAIN
        + """
            for epoch in range(3):
                train(model, loader, optimizer)
                state = {name: value.cpu() for name, value in model.module.state_dict().items()}
                torch.save(state, f"{epoch}.pt")
        """,
        "after the last epoch": _TRAIN
        + """
            for epoch in range(3):
                train(model, loader, optimizer)
            torch.save(model.module.cpu().state_dict(), "model.pt")
        """,
        "a copy is moved": _TRAIN
        + """
            for epoch in range(3):
                train(model, loader, optimizer)
                export = copy.deepcopy(model.module).cpu()
        """,
    }
    invalid = {
        "to save in each epoch": _TRAIN
        + """
            for epoch in range(3):
                train(model, loader, optimizer)
                model.module.cpu()  # here
                torch.save(model.module.state_dict(), f"{epoch}.pt")
                model.module.to(device)
        """,
        "in a function": _TRAIN
        + """
            def save(model, path):
                net = model.module
                net.eval().to("cpu")  # here
                torch.save(net.state_dict(), path)
                net.to(device).train()

            for epoch in range(3):
                train(model, loader, optimizer)
                save(model, f"{epoch}.pt")
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers:
            return
        for site in script.method_calls("cpu", "to", *_CONVERTS):
            receiver = site.node.func.value  # type: ignore[attr-defined]
            if not _converts(script, site) or not _is_model(script, receiver):
                continue
            if not any(runs_after(script, site.node, each.site) for each in script.wrappers):
                continue
            if repeats_with_training(script, site.node):
                yield Violation(
                    site.node,
                    f"{ast.unparse(site.node)} moves a model in DDP between training steps: its gradients may no "
                    "longer be reduced",
                    "copy the tensors of state_dict() instead, or move a copy.deepcopy of the model",
                )


def _converts(script: Script, site: CallSite) -> bool:
    method = site.node.func.attr  # type: ignore[attr-defined]
    if method != "to":
        return True
    values = script.values(site.node.args[0]) if site.node.args else frozenset()
    return (
        bool(values)
        and all(
            each == Literal("cpu")
            or (
                isinstance(each, Object) and each.name == "torch.device" and script.literals(each, "type", 0) == {"cpu"}
            )
            for each in values
        )
        and script.uses_gpu
    )


def _is_model(script: Script, receiver: ast.expr) -> bool:
    at = receiver
    while isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute) and at.func.attr in ("eval", "train"):
        at = at.func.value
    if isinstance(at, ast.Call):
        return unwraps(script, at)
    return unwraps(script, at) or wrapped_for_certain(script, at) or of_wrapped(script, script.values(at))
