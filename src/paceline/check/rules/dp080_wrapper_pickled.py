"""The DDP wrapper itself is saved.

What it does:
    Looks for `torch.save` of a model in DDP, or of a dictionary with one, instead of a state dict.

Why is this bad:
    The pickle needs a process group when it is loaded, holds the settings of the run, and breaks with another version
    of the code. `torch.load` refuses it unless `weights_only=False`.

Repair:
    `torch.save(model.module.state_dict(), path)`.

Known problems:
    Models that a framework wraps out of sight are not recognized.

References:
    F97. https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.checkpoint_contents import saves
from paceline.check.analyses.framework_names import DDP
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.values import Context, Mapping


class WrapperPickled(Rule):
    """Saves of a whole wrapper."""

    code, name, topic = "DP080", "wrapper-pickled", "files"
    faults = ("F97",)
    severity = "warning"
    valid = {
        "a state dict": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            if dist.get_rank() == 0:
                torch.save({"model": model.module.state_dict(), "epoch": 3}, "model.pt")
        """,
        "the model without the wrapper": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            if dist.get_rank() == 0:
                torch.save(model.module, "model.pt")
        """,
        "the inner model through a function that hands its arguments on": """
            def save_on_master(*args, **kwargs):
                if dist.get_rank() == 0:
                    torch.save(*args, **kwargs)

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            model(torch.randn(4, 2)).mean().backward()
            save_on_master(model.module.state_dict(), "model.pt")
        """,
    }
    invalid = {
        "the wrapper": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            if dist.get_rank() == 0:
                torch.save(model, "model.pt")  # here
        """,
        "in a dictionary, in a helper": """
            def save(model, epoch):
                state = {"epoch": epoch, "model": model}
                if dist.get_rank() == 0:
                    torch.save(state, "model.pt")  # here

            dist.init_process_group("gloo")
            save(DDP(nn.Linear(2, 1)), 3)
        """,
        "through a function that hands its arguments on": """
            def save_on_master(*args, **kwargs):
                if dist.get_rank() == 0:
                    torch.save(*args, **kwargs)

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            model(torch.randn(4, 2)).mean().backward()
            save_on_master(model, "model.pt")  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain:
            return
        for save in saves(script):
            if any(_holds_wrapper(script, save.saved, each) for each in save.contexts):
                yield Violation(
                    save.node,
                    "torch.save pickles the DDP wrapper, which can be loaded in a process group only",
                    "save model.module.state_dict()",
                )


def _holds_wrapper(script: Script, node: ast.expr, context: Context | None) -> bool:
    """True if the object certainly is a wrapper, or a dictionary that holds one."""
    if _is_wrapper(script, node, context):
        return True
    return any(
        isinstance(each, Mapping)
        and isinstance(each.node, ast.Dict)
        and any(_is_wrapper(script, entry, each.context) for entry in each.node.values)
        for each in script.values(node, context)
    )


def _is_wrapper(script: Script, node: ast.expr, context: Context | None) -> bool:
    values = script.values(node, context)
    return bool(values) and len(script.program.objects(node, DDP, context)) == len(values)
