"""Steps that belong before wrapping come after it.

What it does:
    Looks for a wrapped model that is converted to SyncBatchNorm, moved to its device, converted to another type, or
    initialized with random numbers afterwards.

Why is this bad:
    DDP copies rank 0's parameters and buffers when it is made, and registers them. What is initialized afterwards
    starts differently on each rank; layers and tensors that are exchanged afterwards are not those that DDP knows.

Repair:
    Build, load, initialize and freeze, move to the device, convert to SyncBatchNorm, wrap, compile, make the optimizer.

Known problems:
    Initializing after wrapping is right if all ranks draw the same numbers: a seed without the rank is taken for that.

References:
    F54, F43. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.call_order import repeats_with_training, runs_later
from paceline.check.analyses.framework_names import SYNC_BATCH_NORM
from paceline.check.analyses.gradients_by_hand import synchronizes_parameters
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.trained_parameters import owners_of_parameter
from paceline.check.analyses.wrapped_models import of_wrapped, wrapped_for_certain, wrapper_of
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import Function, last_name
from paceline.syntax.program import CallSite
from paceline.syntax.values import FunctionValue, Literal, Object, Values

_DRAWS = frozenset(
    ["normal_", "uniform_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "orthogonal_",
     "trunc_normal_", "reset_parameters", "sparse_"]
)  # fmt: skip
_MOVES = ("to", "cuda", "half", "bfloat16", "double")
_NET = """
            def init_weights(module):
                if isinstance(module, nn.Linear):
                    nn.init.orthogonal_(module.weight)

            dist.init_process_group("nccl")
            rank = dist.get_rank()
            torch.cuda.set_device(rank)
            net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
"""


class WrapOrder(Rule):
    """Preparation of a model after wrapping."""

    code, name, topic = "DP049", "wrap-order", "wrapping"
    faults = ("F54", "F43")
    severity = "warning"
    valid = {
        "everything before wrapping": _NET
        + """
            torch.manual_seed(rank)
            net.apply(init_weights)
            net = nn.SyncBatchNorm.convert_sync_batchnorm(net.cuda())
            model = DDP(net, device_ids=[rank])
        """,
        "initialized with one seed": _NET
        + """
            torch.manual_seed(0)
            model = DDP(net.cuda())
            model.apply(init_weights)
        """,
        "a move without an effect": _NET
        + """
            model = DDP(net.cuda())
            model.cuda()
        """,
    }
    invalid = {
        "initialized on each rank": _NET
        + """
            torch.manual_seed(rank)
            model = DDP(net.cuda())
            model.apply(init_weights)  # here
        """,
        "parameters drawn in a loop": _NET
        + """
            model = DDP(net.cuda())
            for p in model.module.parameters():
                nn.init.normal_(p, std=0.02)  # here
        """,
        "SyncBatchNorm afterwards": _NET
        + """
            model = DDP(net.cuda(), device_ids=[rank])
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # here
        """,
        "moved afterwards": _NET
        + """
            model = DDP(net)
            model = model.to(f"cuda:{rank}")  # here
        """,
        "half precision afterwards": _NET
        + """
            model = DDP(net.cuda())
            model.half()  # here
        """,
        "moved in the expression that wraps": """
            dist.init_process_group("nccl")
            model = DDP(nn.Linear(2, 1)).cuda()  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers:
            return
        yield from _converted(script)
        yield from _moved(script)
        if not _same_numbers(script) and not synchronizes_parameters(script):
            yield from _initialized(script)


def _converted(script: Script) -> Iterator[Violation]:
    for site in script.calls(SYNC_BATCH_NORM):
        given = site.node.args[0] if site.node.args else None
        if given is not None and wrapped_for_certain(script, given) and _broadcasts(script, wrapper_of(script, given)):
            yield Violation(
                site.node,
                "BatchNorm layers are converted to SyncBatchNorm after DDP has registered their buffers",
                "convert the model before wrapping: DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model))",
                faults=("F54",),
            )


def _broadcasts(script: Script, wrappers: list[Object]) -> bool:
    return all(script.literals(each, "broadcast_buffers") != {False} for each in wrappers)


def _moved(script: Script) -> Iterator[Violation]:
    for site in script.method_calls(*_MOVES):
        assert isinstance(site.node.func, ast.Attribute)
        receiver, method = site.node.func.value, site.node.func.attr
        if not wrapper_of(script, receiver) or not wrapped_for_certain(script, receiver):
            continue
        if repeats_with_training(script, site.node):  # DP043
            continue
        if method in ("to", "cuda") and (_to_cpu(script, site) or _moved_before(script, wrapper_of(script, receiver))):
            continue
        yield Violation(
            site.node,
            f"{ast.unparse(site.node.func)}(...) moves the model after DDP has registered its parameters",
            "move and convert the model before wrapping it",
            faults=("F54",),
        )


def _to_cpu(script: Script, site: CallSite) -> bool:
    values = script.values(site.node.args[0]) if site.node.args else frozenset()
    return bool(values) and all(each == Literal("cpu") for each in values)


def _moved_before(script: Script, wrappers: list[Object]) -> bool:
    """True if the model was moved to a device before it was wrapped, as far as its own name shows."""
    for wrapper in wrappers:
        given = wrapper.call.args[0] if wrapper.call.args else None
        if given is None or (isinstance(given, ast.Call) and last_name(given.func) in ("to", "cuda")):
            return True
        values = script.values(given)
        for site in script.method_calls("to", "cuda"):
            receiver = site.node.func.value  # type: ignore[attr-defined]
            same = receiver is not given and script.values(receiver) & values
            if same and not runs_later(script, site.node, wrapper.call):
                return True
        if any(True for _ in script.calls("torch.set_default_device", "torch.device")) and not script.uses_gpu:
            return True
    return False


def _same_numbers(script: Script) -> bool:
    """True if all ranks draw the same numbers: a seed that does not depend on the rank."""
    seeds = [*script.calls("torch.manual_seed", "torch.random.manual_seed", "torch.cuda.manual_seed_all")]
    named = any(
        last_name(call.func)
        in ("set_seed", "seed_everything", "set_random_seed", "init_seeds", "fix_seed", "setup_seed")
        for function in script.program.functions
        for call in function.calls
    )
    fixed = [each for each in seeds if each.node.args and not script.ranks.depends(each.node.args[0])]
    return (named and not seeds) or (bool(seeds) and len(fixed) == len(seeds))


def _initialized(script: Script) -> Iterator[Violation]:
    for site in script.method_calls("apply", *sorted(_DRAWS)):
        assert isinstance(site.node.func, ast.Attribute)
        method, receiver = site.node.func.attr, site.node.func.value
        if method == "apply":
            owners = [script.values(receiver)]
            draws = bool(site.node.args) and _draws(script, script.values(site.node.args[0]))
        else:
            target = site.node.args[0] if site.node.args and "init" in ast.unparse(receiver) else receiver
            owners = owners_of_parameter(script, target)
            draws = True
        if not draws or not any(_is_inner(script, each) for each in owners) or script.where(site.node) is not Ranks.ALL:
            continue
        if any(runs_later(script, site.node, each.site.node) for each in script.wrappers):
            yield Violation(
                site.node,
                f"{ast.unparse(site.node.func)}(...) draws new weights after DDP has made them equal, so ranks start "
                "with different models",
                "initialize the model before wrapping it",
            )


def _is_inner(script: Script, values: Values) -> bool:
    """A wrapper, `.module` of one, or the variable that was wrapped."""
    return of_wrapped(script, values)


def _draws(script: Script, functions: Values) -> bool:
    """True if a function that is applied to each layer draws random numbers."""
    return any(isinstance(each, FunctionValue) and _draws_in(each.function) for each in functions)


def _draws_in(function: Function) -> bool:
    return any(last_name(call.func) in _DRAWS for call in function.calls)
