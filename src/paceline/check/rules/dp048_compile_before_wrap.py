"""The model is compiled before it is wrapped.

What it does:
    Looks for `DDP(torch.compile(model))`.

Why is this bad:
    The compiler does not see DDP then: it compiles the backward pass as a whole, so that gradients are reduced after
    all of it instead of during it. Checkpoints of the inner model get the prefix `_orig_mod.`.

Repair:
    `model = torch.compile(DDP(model))`: the compiler splits the graph at DDP's buckets, and communication overlaps.

Fix safety:
    Only `DDP(torch.compile(model))` in one expression, in a script that saves no state and tests no types: the keys of
    a state dict and the type of the model change.

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
from paceline.check.edits import Edit, replace
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.program import CallSite
from paceline.syntax.values import Object


class CompileBeforeWrap(Rule):
    """DDP around a compiled model."""

    code, name, topic = "DP048", "compile-before-wrap", "wrapping"
    faults = ("F53",)
    severity = "info"
    fixes = True
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
                call = compiled[0].call
                module = script.function_of(call).module
                file = "" if module is wrapper.site.module else f" of {module.path.rpartition('/')[2]}"
                yield Violation(
                    wrapper.site.node,
                    f"the model is compiled in line {call.lineno}{file} before DDP wraps it, so gradients are "
                    "not reduced while the backward pass runs",
                    "compile the wrapper: torch.compile(DDP(model))",
                    edits=_repair(script, wrapper.site),
                )


def _within(outer: ast.Call, node: ast.Call) -> bool:
    return any(at is node for at in walk(outer))


def _repair(script: Script, site: CallSite) -> tuple[Edit, ...]:
    """`torch.compile(DDP(model, ...), ...)` in the place of `DDP(torch.compile(model, ...), ...)`."""
    call, text = site.node, site.module.source.text
    inner = call.args[0] if call.args else None
    texts = [module.source.text for module in script.program.imports.modules]
    if any(word in each for each in texts for word in ("state_dict", "torch.save", "isinstance", "_orig_mod")):
        return ()
    if not isinstance(inner, ast.Call) or script.program.callee_names(inner) != ["torch.compile"]:
        return ()
    model = ast.get_source_segment(text, inner.args[0]) if len(inner.args) == 1 else None
    if model is None or isinstance(inner.args[0], ast.Starred):
        return ()
    options = [ast.get_source_segment(text, each) for each in inner.keywords]
    start, end = (call.lineno, call.col_offset), (call.end_lineno or 0, call.end_col_offset or 0)
    rest = "".join(f", {each}" for each in options)
    return Edit(start, start, f"{ast.unparse(inner.func)}("), replace(inner, model), Edit(end, end, f"{rest})")
