"""The optimizer holds parameters of a module that no wrapper holds.

What it does:
    Looks at what each optimizer is given, in a script that wraps some model in DDP: parameters of a loss with weights,
    of a projection head, of a second network, or of a model of which only a part is wrapped.

Why is this bad:
    DDP averages the gradients of the module that it was given, and of no other. Parameters outside it start and train
    differently on each rank, without an error.

Repair:
    Put everything that trains into one module and wrap that, or wrap each module in its own DDP.

Known problems:
    Scripts that average gradients by hand, and modules that use collectives themselves (model parallel heads), are left
    out. So are parameters that come from where reading does not show.

References:
    F41, F55. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.call_order import in_one_run
from paceline.check.analyses.framework_names import COLLECTIVES
from paceline.check.analyses.gradients_by_hand import reduces_by_hand
from paceline.check.analyses.model_structure import Structure, structure, wrapped_structure
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.trained_parameters import optimizers, parameter_owners
from paceline.check.analyses.wrapped_models import inner_values, is_wrapper, wrappers_are_known
from paceline.check.rule import Rule, Violation
from paceline.syntax.values import Instance, Object, Value, Values

_START = """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
"""
_LOSS = """
            class Center(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.center = nn.Parameter(torch.zeros(1))

                def forward(self, x, y):
                    return F.mse_loss(x + self.center, y)
"""
_LOOP = """
            for x, y in loader:
                criterion(model(x), y).backward()
                optimizer.step()
"""


class ParametersOutsideWrapper(Rule):
    """Trained parameters that DDP does not know."""

    code, name, topic = "DP039", "parameters-outside-wrapper", "wrapping"
    faults = ("F41", "F55")
    severity = "error"
    valid = {
        "the criterion is wrapped as well": _LOSS
        + _START
        + """
            model, criterion = DDP(nn.Linear(2, 1)), DDP(Center())
            optimizer = torch.optim.SGD([*model.parameters(), *criterion.parameters()], lr=0.1)
        """
        + _LOOP,
        "a criterion without parameters": _START
        + """
            model, criterion = DDP(nn.Linear(2, 1)), nn.MSELoss()
            optimizer = torch.optim.SGD(list(model.parameters()) + list(criterion.parameters()), lr=0.1)
        """
        + _LOOP,
        "a part of the wrapped model": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body, self.head = nn.Linear(2, 2), nn.Linear(2, 1)

                def forward(self, x):
                    return self.head(self.body(x))
        """
        + _START
        + """
            net = Net()
            model, criterion = DDP(net), nn.MSELoss()
            optimizer = torch.optim.SGD([{"params": net.head.parameters()}, {"params": net.body.parameters()}], lr=0.1)
        """
        + _LOOP,
        "a list of wrapped networks": _START
        + """
            networks = [DDP(each) for each in (nn.Linear(2, 2), nn.Linear(2, 1))]
            model, criterion = networks[0], nn.MSELoss()
            optimizer = torch.optim.SGD([p for each in networks for p in each.parameters()], lr=0.1)
        """
        + _LOOP,
        "a model of another package that is wrapped already": """
            from networks import Generator, ParallelCritic

            dist.init_process_group("gloo")
            generator, critic = DDP(Generator()), ParallelCritic()
            optimizers = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
            for step in range(3):
                critic(generator(torch.randn(4, 2))).mean().backward()
                for optimizer in optimizers:
                    optimizer.step()
        """,
    }
    invalid = {
        "a criterion with weights": _LOSS
        + _START
        + """
            model = DDP(nn.Linear(2, 1))
            criterion = Center()  # here
            groups = [{"params": model.parameters()}]
            optimizer = torch.optim.SGD([{"params": model.parameters()}, {"params": criterion.parameters()}], lr=0.1)
        """
        + _LOOP,
        "learned loss weights in a class": """
            class Trainer:
                def __init__(self):
                    self.model = DDP(nn.Linear(2, 1))
                    self.log_vars = nn.Parameter(torch.zeros(1))  # here
                    self.optimizer = torch.optim.Adam(list(self.model.parameters()) + [self.log_vars], lr=0.1)

                def run(self, loader):
                    for x, y in loader:
                        (F.mse_loss(self.model(x), y) * self.log_vars.exp()).sum().backward()
                        self.optimizer.step()

            dist.init_process_group("gloo")
            Trainer().run(DataLoader(Numbers(), sampler=DistributedSampler(Numbers())))
        """,
        "only the encoder is wrapped": """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.encoder, self.head = nn.Linear(2, 2), nn.Linear(2, 1)

                def forward(self, x):
                    return self.head(self.encoder(x))

            def build():
                model = Net()
                model.encoder = DDP(model.encoder)  # here
                return model
        """
        + _START
        + """
            model, criterion = build(), nn.MSELoss()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        """
        + _LOOP,
        "a second network with its own optimizer": _START
        + """
            generator = DDP(nn.Linear(2, 1))
            critic = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 1))  # here
            for_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
            for_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
            for x, y in loader:
                critic(generator(x)).mean().backward()
                for_generator.step()
                for_critic.step()
        """,
        "added to the optimizer later": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scale = nn.Linear(1, 1)  # here
            optimizer.add_param_group({"params": scale.parameters()})
            for x, y in loader:
                F.mse_loss(scale(model(x)), y).backward()
                optimizer.step()
        """,
        "the second network of another package": """
            from networks import Critic, Generator

            dist.init_process_group("gloo")
            generator, critic = Generator(), Critic()  # here
            optimizers = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
            generator = DDP(generator)
            for step in range(3):
                critic(generator(torch.randn(4, 2))).mean().backward()
                for optimizer in optimizers:
                    optimizer.step()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not script.wrappers or not wrappers_are_known(script) or "fsdp" in script.engines:
            return
        wrapped = wrapped_structure(script)
        reported: set[ast.AST] = set()
        for site in (*optimizers(script), *script.method_calls("add_param_group")):
            if script.where(site.node) is not Ranks.ALL:
                continue
            if not any(in_one_run(script, site.node, each.site.node) for each in script.wrappers):
                continue
            argument = script.argument(site.node, "params", 0)
            owners = [each for given in argument.given for each in parameter_owners(script, given.node, given.context)]
            for values in owners:
                if any(not isinstance(each, Object | Instance) for each in values) or _held(script, values, wrapped):
                    continue
                for value in values:
                    found = self._violation(script, value, wrapped, site.node)
                    if found is not None and found.node not in reported and not reduces_by_hand(script):
                        reported.add(found.node)
                        yield found

    def _violation(self, script: Script, value: Value, wrapped: Structure, optimizer: ast.Call) -> Violation | None:
        assert isinstance(value, Object | Instance)
        parts = structure(script, [value])
        outside = parts.parameters() - wrapped.made
        unread = isinstance(value, Object) and _is_model_of_other_package(value)
        if value.call is None or not (outside or unread) or _communicates(script, parts):
            return None
        line = optimizer.lineno
        if parts.made & wrapped.made:
            site = script.wrappers[0].site.node
            part = ast.unparse(site.args[0]) if site.args else "a part of the model"
            return Violation(
                site,
                f"only {part} is wrapped: the optimizer of line {line} also trains parameters outside it, whose "
                "gradients are not averaged",
                "wrap the whole model in DDP",
            )
        return Violation(
            value.call,
            f"the optimizer of line {line} trains the parameters of {ast.unparse(value.call.func)}(...), which no "
            "wrapper holds: their gradients are not averaged over the ranks",
            "wrap it in DDP too, or make it a part of the wrapped model",
            severity="warning" if unread else None,
        )


def _held(script: Script, values: Values, wrapped: Structure) -> bool:
    """True if an owner of parameters is a wrapper, a wrapped model or a part of one, on some path."""
    inner = inner_values(script)
    classes = {each.cls for each in inner if isinstance(each, Instance)}
    for value in values:
        if is_wrapper(value) or value in inner or script.unwrapped(frozenset({value})) & inner:
            return True
        if isinstance(value, Object | Instance) and value.call in wrapped.made:
            return True
        if isinstance(value, Instance) and value.call is None and value.cls in classes | wrapped.classes:
            return True
    return False


def _is_model_of_other_package(value: Object) -> bool:
    """True if parameters come from an object whose class is not shown, by its name no wrapper."""
    name = value.name.rpartition(".")[2]
    if value.name.startswith(("torch.", "builtins.", "?")) or not name[:1].isupper():
        return False
    return not any(part in name.lower() for part in ("parallel", "ddp", "distributed", "fsdp", "shard", "wrap"))


def _communicates(script: Script, parts: Structure) -> bool:
    """True if a class of a module uses collectives itself."""
    return any(
        name in COLLECTIVES
        for cls in parts.classes
        for method in cls.methods.values()
        for call in method.calls
        for name in script.program.callee_names(call)
    )
