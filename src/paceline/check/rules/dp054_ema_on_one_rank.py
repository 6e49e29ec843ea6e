"""An average of the weights is updated on one rank, or made from the wrapper.

What it does:
    Looks for moving averages of weights (EMA, `AveragedModel`) whose update runs on rank 0 only while other ranks use
    them, and for averages made from the wrapper instead of the inner model.

Why is this bad:
    The average of the other ranks stays as it was at the start: in a sharded evaluation most of the samples are scored
    by the initial weights. An average of the wrapper has names with the prefix `module.`, which do not load elsewhere.

Repair:
    Update the average on every rank: the weights are equal there. Make it from `ddp.module`.

Known problems:
    An average that only rank 0 evaluates and saves is right, and not reported.

References:
    F61. https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.wrapped_models import wrapper_of
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import Function, dotted
from paceline.syntax.program import CallSite
from paceline.syntax.values import FunctionValue, Object

_AVERAGES = ("torch.optim.swa_utils.AveragedModel", "timm.utils.ModelEma", "timm.utils.ModelEmaV2",
             "timm.utils.ModelEmaV3", "ema_pytorch.EMA", "torch_ema.ExponentialMovingAverage")  # fmt: skip
_UPDATES = ("update", "update_parameters", "update_ema", "step", "step_ema", "ema_update", "update_average")
_SETUP = frozenset(["load_state_dict", "to", "cuda", "eval", "train", "requires_grad_", "state_dict"])
_EMA = """
            class EMA:
                def __init__(self, model):
                    self.shadow = copy.deepcopy(model).requires_grad_(False)

                @torch.no_grad()
                def update(self, model):
                    for s, p in zip(self.shadow.parameters(), model.parameters()):
                        s.lerp_(p, 0.01)

            dist.init_process_group("gloo")
            rank = dist.get_rank()
            model = DDP(nn.Linear(2, 1))
            ema = EMA(model.module)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loader = DataLoader(Numbers(), sampler=DistributedSampler(Numbers()))
"""


class EmaOnOneRank(Rule):
    """Averages that differ between ranks."""

    code, name, topic = "DP054", "ema-on-one-rank", "buffers"
    faults = ("F61",)
    severity = "warning"
    valid = {
        "updated on every rank": _EMA
        + """
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
                ema.update(model.module)
            print(ema.shadow(torch.zeros(1, 2)))
        """,
        "used by rank 0 alone": _EMA
        + """
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
                if rank == 0:
                    ema.update(model.module)
            if rank == 0:
                torch.save(ema.shadow.state_dict(), "ema.pt")
        """,
    }
    invalid = {
        "updated on rank 0, used by all": _EMA
        + """
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
                if rank == 0:
                    ema.update(model.module)  # here
            score = ema.shadow(torch.zeros(1, 2)).sum()
            dist.all_reduce(score)
        """,
        "an AveragedModel of the wrapper": """
            from torch.optim.swa_utils import AveragedModel

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            average = AveragedModel(model)  # here
        """,
        "in a Trainer": _EMA
        + """
            class Trainer:
                def __init__(self):
                    self.is_main = dist.get_rank() == 0
                    self.average = torch.optim.swa_utils.AveragedModel(model.module)

                def step(self, x, y):
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()
                    if self.is_main:
                        self.average.update_parameters(model.module)  # here

                def evaluate(self):
                    for x, y in loader:
                        print(self.average(x))

            trainer = Trainer()
            for x, y in loader:
                trainer.step(x, y)
            trainer.evaluate()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.wrappers:
            return
        for site in script.method_calls(*_UPDATES):
            owner = site.node.func.value  # type: ignore[attr-defined]
            if not _averages(script, site) or script.where(site.node) not in (Ranks.ZERO, Ranks.LOCAL_ZERO):
                continue
            use = _used_elsewhere(script, site, owner)
            if use is not None:
                yield Violation(
                    site.node,
                    f"{ast.unparse(owner)} is updated on rank 0 only, and every rank uses it in line {use.lineno}",
                    "update the average on every rank",
                )
        for site in script.calls(*_AVERAGES):
            if site.node.args and wrapper_of(script, site.node.args[0]):
                yield Violation(
                    site.node,
                    "the average is made from the wrapper, so the names of its weights begin with module.",
                    "make it from the inner model: model.module",
                    severity="info",
                )


def _averages(script: Script, site: CallSite) -> bool:
    """True if a call updates an average of weights."""
    assert isinstance(site.node.func, ast.Attribute)
    for value in script.values(site.node.func):
        if isinstance(value, FunctionValue):
            return _interpolates(value.function)
    return any(isinstance(each, Object) and each.name in _AVERAGES for each in script.values(site.node.func.value))


def _interpolates(function: Function) -> bool:
    """True if a function moves parameters towards others."""
    text = ast.unparse(function.node)
    moves = any(part in text for part in ("lerp_(", ".mul_(", "decay", "beta", "momentum"))
    return moves and any(part in text for part in ("parameters()", "state_dict()", "shadow"))


def _used_elsewhere(script: Script, site: CallSite, owner: ast.expr) -> ast.expr | None:
    """A use of the average on every rank, that is no preparation."""
    text = dotted(owner)
    name = text.rpartition(".")[2]
    if not name:
        return None
    for node in site.module.loads_by_name.get(name, ()):
        parent = site.module.parents.get(node)
        if dotted(node) != text or node is owner or _prepares(site, parent) or script.where(node) is not Ranks.ALL:
            continue
        return node
    for call in site.module.calls_by_name.get(name, ()):
        if dotted(call.func) == text and script.where(call) is Ranks.ALL:
            return call
    return None


def _prepares(site: CallSite, parent: ast.AST | None) -> bool:
    if isinstance(parent, ast.Attribute):
        return parent.attr in _SETUP or parent.attr in _UPDATES
    return isinstance(parent, ast.Compare | ast.If | ast.BoolOp | ast.UnaryOp | ast.IfExp)
