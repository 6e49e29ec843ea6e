"""A training forward goes through the inner model, so DDP does not reduce its gradients.

What it does:
    Follows the loss of each backward pass in a training loop back to the forward passes that it comes from, and
    reports those through `ddp.module(...)`, `ddp.module.method(...)`, `unwrap_model(model)(...)` or a submodule, if no
    forward of the wrapper contributes to a backward pass of the loop.

Why is this bad:
    DDP averages gradients only in backward passes of its own forward. Every other forward trains each rank on its own
    data: the ranks drift apart without an error, and the checkpoint holds a model trained on 1/N of the data.

Repair:
    Call the wrapper: `ddp(x)`. A method other than `forward` is reached through an argument of `forward`, for example
    `ddp(batch, mode="loss")`.

Fix safety:
    Only `ddp.module(...)` becomes `ddp(...)`, where `ddp` certainly is the wrapper. It is safe: the wrapper runs the
    same forward, and averages the gradients.

Known problems:
    A script that averages gradients by hand is left out. Losses that another package computes are not followed.

References:
    F37. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.bypassed_wrappers import bypasses
from paceline.check.analyses.framework_names import DDP, HF_TRAINER
from paceline.check.analyses.script import Script
from paceline.check.analyses.value_origins import calls_behind
from paceline.check.edits import Edit, replace
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import Function, dotted, last_name

_UNWRAPPING = ("unwrap_model", "extract_model_from_parallel")
_NET = """
            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body = nn.Linear(2, 1)

                def forward(self, x):
                    return self.body(x)

                def loss(self, x, y):
                    return F.mse_loss(self(x), y)

                def penalty(self):
                    return self.body.weight.pow(2).sum()

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
"""


class ForwardBypassesWrapper(Rule):
    """Training through the model within the wrapper."""

    code, name, topic = "DP035", "forward-bypasses-wrapper", "wrapping"
    faults = ("F37",)
    severity = "error"
    fixes = True
    valid = {
        "the wrapper is called": _NET
        + """
            model = DDP(Net())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                print(model.module(x))
        """,
        "a further term through the inner model": _NET
        + """
            model = DDP(Net())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                loss = F.mse_loss(model(x), y) + 0.1 * model.module.penalty()
                loss.backward()
                optimizer.step()
        """,
        "the old policy acts without gradients": _NET
        + """
            @torch.no_grad()
            def collect(policy, x):
                return policy(x)

            model = DDP(Net())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                target = collect(model.module, x)
                F.mse_loss(model(x), target + y).backward()
                optimizer.step()
        """,
        "a method of the model that nothing wraps in its own code": _NET
        + """
            class Learner(nn.Module):
                def __init__(self, net):
                    super().__init__()
                    self.net = net

                def forward(self, x, y):
                    return self.net.loss(x, y)

            learner = DDP(Learner(Net()))
            optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
            for x, y in loader:
                loss = learner(x, y)
                loss.backward()
                optimizer.step()
        """,
    }
    invalid = {
        "the inner model": _NET
        + """
            model = DDP(Net())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model.module(x), y).backward()  # here
                optimizer.step()
        """,
        "a method of the inner model": _NET
        + """
            model = DDP(Net())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                loss = model.module.loss(x, y)  # here
                loss.backward()
                optimizer.step()
        """,
        "a name for the inner model": _NET
        + """
            ddp = int(os.environ.get("RANK", -1)) != -1
            model = Net()
            if ddp:
                model = DDP(model)
            raw_model = model.module if ddp else model
            optimizer = torch.optim.SGD(raw_model.parameters(), lr=0.1)
            for x, y in loader:
                out = raw_model(x)  # here
                loss = F.mse_loss(out, y)
                loss.backward()
                optimizer.step()
        """,
        "a function that unwraps": _NET
        + """
            def unwrap(model):
                if hasattr(model, "module"):
                    return model.module
                return model

            class Trainer:
                def __init__(self):
                    self.model = DDP(Net())
                    self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

                def losses(self, x, y):
                    net = unwrap(self.model)
                    return {"fit": net.loss(x, y), "size": net.penalty()}  # here

                def step(self, x, y):
                    losses = self.losses(x, y)
                    total = sum(losses.values())
                    total.backward()
                    self.optimizer.step()

                def run(self):
                    for x, y in loader:
                        self.step(x, y)

            Trainer().run()
        """,
        "a Trainer that unwraps in compute_loss": """
            from transformers import Trainer

            class Mine(Trainer):
                def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
                    net = self.accelerator.unwrap_model(model)
                    return net(**inputs).loss  # here

            Mine(model="x").train()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        lines: set[int] = set()
        for found in bypasses(script):
            if found.kind == "module" and found.node.lineno not in lines:
                lines.add(found.node.lineno)
                yield _violation(found.node, ast.unparse(found.base), _repair(script, found.node))
        for function in _methods_of_trainers(script):
            yield from _check_method(script, function)


def _violation(node: ast.Call, base: str, edits: tuple[Edit, ...] = ()) -> Violation:
    text = ast.unparse(node.func)
    return Violation(
        node,
        f"the loss comes from {text}(...), a forward that bypasses DDP: its gradients are not averaged over ranks",
        "call the wrapped model itself; reach other methods through an argument of forward",
        edits=edits,
        evidence={"model": base},
    )


def _repair(script: Script, call: ast.Call) -> tuple[Edit, ...]:
    """`ddp(...)` in the place of `ddp.module(...)`."""
    match call.func:
        case ast.Attribute(attr="module", value=ast.Name() as wrapper) if _is_wrapper(script, wrapper):
            return (replace(call.func, wrapper.id),)
    return ()


def _is_wrapper(script: Script, node: ast.expr) -> bool:
    values = script.values(node)
    return bool(values) and len(script.program.objects(node, DDP)) == len(values)


def _methods_of_trainers(script: Script) -> Iterator[Function]:
    for module in script.program.imports.modules:
        for cls in module.classes:
            if any(base in HF_TRAINER for base in script.program.evaluator.external_bases(cls)):
                for name in ("compute_loss", "training_step"):
                    if name in cls.methods and len(cls.methods[name].positional) > 1:
                        yield cls.methods[name]


def _check_method(script: Script, function: Function) -> Iterator[Violation]:
    """A method that a Trainer calls with the wrapped model as its first argument."""
    model = function.positional[1]
    inner = {model + ".module"}
    for call in function.calls:
        statement = function.module.statement(call)
        if last_name(call.func) not in _UNWRAPPING or not call.args or dotted(call.args[0]) != model:
            continue
        if isinstance(statement, ast.Assign) and statement.value is call:
            inner |= {dotted(each) for each in statement.targets}
    calls = [
        each.node
        for statement in function.returns
        if statement.value is not None
        for each in calls_behind(script, statement.value)
        if isinstance(each.node, ast.Call) and script.function_of(each.node) is function
    ]
    if any(_touches(each, model) for each in calls):
        return
    for call in calls:
        if any(dotted(call.func) == each or dotted(call.func).startswith(each + ".") for each in inner):
            yield _violation(call, model)


def _touches(call: ast.Call, model: str) -> bool:
    """True if a call is one of the model, or is handed the model."""
    given = [*call.args, *(each.value for each in call.keywords)]
    if last_name(call.func) in _UNWRAPPING:
        return False
    return dotted(call.func) == model or any(dotted(each) == model for each in given)
