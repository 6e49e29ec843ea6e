"""The model is compiled before it is wrapped.

What it does:
    Looks for `DDP(torch.compile(model))`.

Why is this bad:
    The compiler does not see DDP then: it compiles the backward pass as a whole, so that gradients are reduced after
    all of it instead of during it. Checkpoints of the inner model get the prefix `_orig_mod.`.

Repair:
    `model = torch.compile(DDP(model))`: the compiler splits the graph at DDP's buckets, and communication overlaps.

Known problems:
    Results are the same; only speed and the names in checkpoints differ. `model.compile()` adds no prefix.

References:
    F53. https://docs.pytorch.org/docs/stable/notes/ddp.html#torchdynamo-ddpoptimizer
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.call_order import runs_again_after
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.values import Object


class CompileBeforeWrap(Rule):
    """DDP around a compiled model."""

    code, name, topic = "DP048", "compile-before-wrap", "wrapping"
    faults = ("F53",)
    severity = "info"
    valid = {
        "compiled after wrapping": """
            dist.init_process_group("gloo")
            model = torch.compile(DDP(nn.Linear(2, 1)))
        """,
        "the compiled model evaluates": """
            dist.init_process_group("gloo")
            net = nn.Linear(2, 1)
            fast = torch.compile(net)
            model = DDP(net)
        """,
    }
    invalid = {
        "in one expression": """
            dist.init_process_group("gloo")
            model = DDP(torch.compile(nn.Linear(2, 1)))  # here
        """,
        "if an option is set": """
            parser = argparse.ArgumentParser()
            parser.add_argument("--compile", action="store_true")
            args = parser.parse_args()
            dist.init_process_group("gloo")
            model = nn.Linear(2, 1)
            if args.compile:
                model = torch.compile(model)
            model = DDP(model)  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        for wrapper in script.wrappers:
            given = script.program.argument_values(wrapper.site.node, "module", 0)
            compiled = [
                each
                for each in given
                if isinstance(each, Object)
                and each.name == "torch.compile"
                and (runs_again_after(script, wrapper.site.node, each.call) or _within(wrapper.site.node, each.call))
            ]
            if compiled:
                yield Violation(
                    wrapper.site.node,
                    f"the model is compiled in line {compiled[0].call.lineno} before DDP wraps it, so gradients are "
                    "not reduced while the backward pass runs",
                    "compile the wrapper: torch.compile(DDP(model))",
                )


def _within(outer: ast.Call, node: ast.Call) -> bool:
    return any(at is node for at in ast.walk(outer))
