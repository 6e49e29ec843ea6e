"""Two forwards of one wrapper enter the same backward pass.

What it does:
    Looks for a training loss that comes from two forwards of one DDP model with BatchNorm layers, as in GANs and
    contrastive learning.

Why is this bad:
    DDP broadcasts buffers before each forward. That changes tensors which the backward pass of the first forward needs:
    versions of torch from 2.6 on fail with "modified by an inplace operation", later ones are repaired.

Repair:
    One forward of the concatenated batch, SyncBatchNorm, or `broadcast_buffers=False`.

Known problems:
    Whether it fails depends on the version of torch.

References:
    F52. https://github.com/pytorch/pytorch/issues/175024
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.bypassed_wrappers import losses
from paceline.check.analyses.model_structure import structure, synchronizes_batch_norm
from paceline.check.analyses.script import Script, Wrapper
from paceline.check.analyses.value_origins import calls_behind
from paceline.check.analyses.wrapped_models import wrapper_of
from paceline.check.rule import Rule, Violation

_START = """
            dist.init_process_group("gloo")
            loader = DataLoader(Numbers(), sampler=DistributedSampler(Numbers()))
            critic = DDP(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)))
            optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
"""


class TwoForwards(Rule):
    """Buffers that change between two forwards."""

    code, name, topic = "DP050", "two-forwards", "wrapping"
    faults = ("F52",)
    severity = "info"
    valid = {
        "one forward of both batches": _START
        + """
            for x, y in loader:
                real, fake = critic(torch.cat([x, -x])).chunk(2)
                (fake - real).mean().backward()
                optimizer.step()
        """,
        "a backward pass for each": _START
        + """
            for x, y in loader:
                (-critic(x).mean()).backward()
                critic(-x).mean().backward()
                optimizer.step()
        """,
    }
    invalid = {
        "real and fake": _START
        + """
            for x, y in loader:
                real, fake = critic(x), critic(-x)  # here
                loss = (fake - real).mean()
                loss.backward()
                optimizer.step()
        """,
        "two views in a function": _START
        + """
            def loss_of(model, x):
                first = model(x)
                second = model(x + 0.1)  # here
                return F.mse_loss(first, second)

            for x, y in loader:
                loss_of(critic, x).backward()
                optimizer.step()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.loops.training or synchronizes_batch_norm(script):
            return
        for wrapper in script.wrappers:
            if script.literals(wrapper.site.node, "broadcast_buffers") == {False}:
                continue
            layers = structure(script, wrapper.inner).batch_norms()
            second = _second_forward(script, wrapper) if layers else None
            if second is not None:
                yield Violation(
                    second,
                    "a second forward of one wrapper enters the same backward pass: the broadcast of buffers in "
                    "between fails in some versions of torch",
                    "use one forward of the concatenated batch, or broadcast_buffers=False",
                )


def _second_forward(script: Script, wrapper: Wrapper) -> ast.Call | None:
    for loop in script.loops.training:
        for backward in loop.backwards:
            for loss, context in losses(script, backward):
                found = {
                    each.node
                    for each in calls_behind(script, loss, context)
                    if isinstance(each.node, ast.Call)
                    and any(at.call is wrapper.site.node for at in wrapper_of(script, each.node.func, each.context))
                }
                if len(found) > 1:
                    return sorted(found, key=lambda at: (at.lineno, at.col_offset))[1]
    return None
