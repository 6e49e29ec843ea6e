"""A process group is up, but the model that trains is never wrapped.

What it does:
    Looks at scripts that start a process group and train a model of their own, without DDP, FSDP or another engine, and
    without averaging gradients. With averaging by hand it looks for equal weights at the start: a broadcast, or one
    seed for all ranks.

Why is this bad:
    A process group does nothing by itself. Every rank trains its own model on its own shard; the checkpoint of rank 0
    has seen 1/N of the data. Gradients that are averaged by hand keep models equal only if they start equal.

Repair:
    `model = DistributedDataParallel(model)` before the loop, or broadcast the parameters before averaging by hand.

Known problems:
    Ensembles that train one model for each rank on purpose look the same: reported as a warning unless a
    DistributedSampler splits the data.

References:
    F39. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import DATA_PARALLEL
from paceline.check.analyses.gradients_by_hand import reduces_by_hand
from paceline.check.analyses.model_structure import has_parameters
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.trained_parameters import optimizers, parameter_owners
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import last_name
from paceline.syntax.values import Instance, Object, Values

_OTHER_WAYS = (
    *(
        f"torch.distributed.{each}"
        for each in (
            "rpc",
            "pipelin",
            "tensor",
            "optim",
            "_",
            "send",
            "recv",
            "isend",
            "irecv",
            "algorithms",
            "checkpoint",
        )
    ),
    *("deepspeed.", "megatron.", "fairscale.", "horovod.", "byteps.", "colossalai.", "torch_xla."),
    *DATA_PARALLEL,
)
_EQUAL_STARTS = ("broadcast", "load_state_dict", "broadcast_parameters", "sync_params", "from_pretrained",
                 "set_seed", "seed_everything", "set_random_seed", "sync_parameters", "broadcast_object_list",
                 "broadcast_model", "sync_model", "_broadcast_coalesced")  # fmt: skip
_WRAPPERS = ("DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP", "fully_shard", "replicate", "hvd")
_START = """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
"""


class NeverWrapped(Rule):
    """Training in a process group without a wrapper."""

    code, name, topic = "DP037", "never-wrapped", "wrapping"
    faults = ("F39",)
    severity = "error"
    valid = {
        "gradients are averaged by hand, from equal weights": _START
        + """
            model = nn.Linear(2, 1)
            for p in model.parameters():
                dist.broadcast(p.data, src=0)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                for p in model.parameters():
                    dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
                optimizer.step()
        """,
        "one seed for all ranks": _START
        + """
            def average_gradients(model):
                for p in model.parameters():
                    dist.all_reduce(p.grad)
                    p.grad /= dist.get_world_size()

            torch.manual_seed(0)
            model = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                average_gradients(model)
                optimizer.step()
        """,
        "wrapped": _START
        + """
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "rank 0 fits a probe": _START
        + """
            if dist.get_rank() == 0:
                probe = nn.Linear(2, 1)
                optimizer = torch.optim.SGD(probe.parameters(), lr=0.1)
                for x, y in loader:
                    F.mse_loss(probe(x), y).backward()
                    optimizer.step()
        """,
    }
    invalid = {
        "a sampler, but no wrapper": _START
        + """
            model = nn.Linear(2, 1)  # here
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "a Trainer class and metrics that are reduced": """
            class Trainer:
                def __init__(self, model, loader):
                    self.model, self.loader = model, loader
                    self.optimizer = torch.optim.Adam(self.model.parameters())

                def epoch(self):
                    total = torch.zeros(1)
                    for x, y in self.loader:
                        loss = F.mse_loss(self.model(x), y)
                        loss.backward()
                        self.optimizer.step()
                        total += loss.detach()
                    dist.all_reduce(total)

            def worker(rank, world):
                dist.init_process_group("gloo", rank=rank, world_size=world)
                loader = DataLoader(Numbers(), sampler=DistributedSampler(Numbers()))
                Trainer(nn.Linear(2, 1), loader).epoch()  # here

            mp.spawn(worker, args=(2,), nprocs=2)
        """,
        "averaged by hand from different weights": _START
        + """
            torch.manual_seed(1 + dist.get_rank())
            model = nn.Linear(2, 1)  # here
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                for p in model.parameters():
                    dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
                optimizer.step()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not script.starts_group or script.engines or _distributes_otherwise(script):
            return
        by_hand = reduces_by_hand(script)
        if by_hand and _starts_equal(script):
            return
        for owner in _trained(script):
            call = owner.call
            if call is None:
                continue
            name = ast.unparse(call.func)
            if by_hand:
                yield Violation(
                    call,
                    f"gradients are averaged by hand, but {name}(...) starts with other weights on each rank",
                    "broadcast the parameters of rank 0 before the first step, or wrap the model in DDP",
                )
            else:
                yield Violation(
                    call,
                    f"{name}(...) is trained in a process group but never wrapped, so every rank trains its own model",
                    "wrap the model: model = DistributedDataParallel(model)",
                    severity=None if _splits_data(script) else "warning",
                )
            return


def _distributes_otherwise(script: Script) -> bool:
    for module in script.program.imports.modules:
        if any(name in module.calls_by_name or name in module.loads_by_name for name in _WRAPPERS):
            return True
    return any(
        name.startswith(_OTHER_WAYS)
        for function in script.program.functions
        for call in function.calls
        for name in script.program.callee_names(call)
    )


def _splits_data(script: Script) -> bool:
    return any(True for _ in script.calls("torch.utils.data.DistributedSampler"))


def _starts_equal(script: Script) -> bool:
    """True if all ranks may start with the same weights: a broadcast, a checkpoint, or a seed without the rank."""
    for function in script.program.functions:
        if any(last_name(call.func) in _EQUAL_STARTS for call in function.calls):
            return True
    return any(
        site.node.args and not script.ranks.depends(site.node.args[0])
        for site in script.calls("torch.manual_seed", "torch.random.manual_seed")
    )


def _trained(script: Script) -> Iterator[Object | Instance]:
    """Models of the script whose parameters an optimizer of a training loop on every rank holds."""
    loops = [
        loop
        for loop in script.loops.training
        if loop.steps and script.where(loop.node) is Ranks.ALL and _is_reached(script, loop.node)
    ]
    if not loops:
        return
    for site in optimizers(script):
        if script.where(site.node) is not Ranks.ALL:
            continue
        for given in script.argument(site.node, "params", 0).given:
            for values in parameter_owners(script, given.node, given.context):
                yield from _models(script, values)


def _models(script: Script, values: Values) -> Iterator[Object | Instance]:
    if not all(isinstance(each, Object | Instance) for each in values):
        return
    for value in values:
        if isinstance(value, Object | Instance) and has_parameters(script, value):
            yield value


def _is_reached(script: Script, node: ast.AST) -> bool:
    """True if the file itself runs a loop: library code has callers that reading does not show."""
    function = script.function_of(node)
    evaluator = script.program.evaluator
    return function.parent is None or bool(evaluator.call_sites(function)) or evaluator.escapes(function)
