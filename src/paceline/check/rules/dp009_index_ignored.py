"""Samples are drawn at random, without an index, from generators that all ranks seed alike.

What it does:
    Looks for `__getitem__` that does not use its index but draws from a global generator, and for training loops that
    draw positions in the data themselves (`get_batch`), where all ranks have the same seed.

Why is this bad:
    A DistributedSampler gives ranks different indices, but nobody uses them. With equal seeds all ranks draw the same
    samples, so N ranks train on the batch of one.

Repair:
    Seed with the rank: `torch.manual_seed(seed + rank)` after the model has been wrapped, or make the sample a function
    of the index.

Known problems:
    Draws from a generator object of the script's own are left out.

References:
    F12, F02, F64. https://docs.pytorch.org/docs/stable/notes/randomness.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import DATA_LOADERS
from paceline.check.analyses.random_streams import Seeding, draws, equal_seed
from paceline.check.analyses.rank_shares import may_depend
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.script_data_sets import data_set_classes, loaders_over
from paceline.check.analyses.training_loops import TrainingLoop
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function
from paceline.syntax.values import Object

_POSITIONS = ("randint", "randperm", "permutation", "choice", "choices", "sample", "randrange", "multinomial")


class IndexIgnored(Rule):
    """Random samples that are the same on all ranks."""

    code, name, topic = "DP009", "index-ignored", "data"
    faults = ("F12", "F02", "F64")
    severity = "warning"
    valid = {
        "seeds of the ranks": """
            class Crops(Dataset):
                def __len__(self):
                    return 1000

                def __getitem__(self, _):
                    start = torch.randint(0, 100, (1,))
                    return torch.arange(200.0)[start : start + 2], torch.ones(1)

            dist.init_process_group("gloo")
            torch.manual_seed(7 + dist.get_rank())
            data = Crops()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "batches with a seed offset": """
            def batch():
                rows = torch.randint(len(data), (8,))
                return torch.stack([data[i] for i in rows])

            dist.init_process_group("gloo")
            offset = int(os.environ["RANK"])
            torch.manual_seed(1337 + offset)
            data = torch.rand(1000, 2)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(100):
                model(batch()).mean().backward()
                optimizer.step()
        """,
        "timesteps for samples of a loader": """
            dist.init_process_group("gloo")
            torch.manual_seed(0)
            scale = torch.linspace(0, 1, 50)
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                t = torch.randint(0, 50, (len(x),))
                F.mse_loss(model(x * scale[t].unsqueeze(1)), y).backward()
                optimizer.step()
        """,
    }
    invalid = {
        "a data set of random crops": """
            class Crops(Dataset):
                def __len__(self):
                    return 1000

                def __getitem__(self, _):
                    start = torch.randint(0, 100, (1,))  # here
                    return torch.arange(200.0)[start : start + 2], torch.ones(1)

            dist.init_process_group("gloo")
            torch.manual_seed(7)
            data = Crops()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "get_batch with one seed": """
            def batch():
                rows = torch.randint(len(data), (8,))  # here
                return torch.stack([data[i] for i in rows])

            dist.init_process_group("gloo")
            torch.manual_seed(1337)
            data = torch.rand(1000, 2)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(100):
                model(batch()).mean().backward()
                optimizer.step()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not (script.wrappers or "fsdp" in script.engines):
            return
        yield from self._data_sets(script)
        reported: set[ast.AST] = set()
        for loop in script.loops.training:
            if script.where(loop.node) is not Ranks.ALL or not _draws_batches(script, loop):
                continue
            for call, library in draws(script, (each.node for each in loop.reached)):
                seeding = equal_seed(script, library)
                if call in reported or seeding is None or not _is_position(script, call) or may_depend(script, [call]):
                    continue
                reported.add(call)
                yield _violation(call, "the batches are drawn at random", seeding)
                break

    def _data_sets(self, script: Script) -> Iterator[Violation]:
        for cls in data_set_classes(script):
            method = cls.methods["__getitem__"]
            if _uses_index(method) or not loaders_over(script, cls):
                continue
            calls = (each.node for each in script.loops.reached_calls(method.node, method))
            for call, library in draws(script, calls):
                # Workers are seeded from the generator of torch.
                seeding = equal_seed(script, library) or equal_seed(script, "torch")
                if seeding is not None and not may_depend(script, [cls.node]):
                    yield _violation(call, f"{cls.name}.__getitem__ ignores its index and draws at random", seeding)
                    break


def _violation(call: ast.Call, drawing: str, seeding: Seeding) -> Violation:
    return Violation(
        call,
        f"{drawing}, and line {seeding.site.node.lineno} seeds all ranks alike, so all ranks train on the same samples",
        "seed with the rank: torch.manual_seed(seed + rank)",
        evidence={"seed": seeding.site.node.lineno},
    )


def _uses_index(method: Function) -> bool:
    index = method.positional[1:2]
    return any(isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and [each.id] == index
               for each in walk(method.node))  # fmt: skip


def _draws_batches(script: Script, loop: TrainingLoop) -> bool:
    """True if a training loop counts steps and takes nothing of a loader or an iterator."""
    values = script.batches_of(loop)
    if any(not isinstance(each, Object) or each.name != "builtins.range" for each in loop.iterated):
        return False
    if any(isinstance(each, Object) and each.name in DATA_LOADERS for each in values):
        return False
    return not any(
        "builtins.next" in script.program.callee_names(each.node)
        for each in loop.reached
        if isinstance(each.node, ast.Call)
    )


def _is_position(script: Script, call: ast.Call) -> bool:
    """True if what is drawn is used as an index."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in _POSITIONS:
        return False
    function = script.function_of(call)
    drawn = {
        each.id
        for at in function.module.ancestors(call)
        if isinstance(at, ast.Assign | ast.For | ast.comprehension)
        for target in (at.targets if isinstance(at, ast.Assign) else [at.target])
        for each in walk(target)
        if isinstance(each, ast.Name)
    }
    drawn |= _elements_of(function, drawn)
    for node in walk(function.node):
        if isinstance(node, ast.Subscript):
            inside = list(walk(node.slice))
            if call in inside or any(isinstance(each, ast.Name) and each.id in drawn for each in inside):
                return True
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("index_select", "gather", "take"):
            return any(isinstance(each, ast.Name) and each.id in drawn for each in walk(node))
    return False


def _elements_of(function: Function, names: set[str]) -> set[str]:
    """Variables of loops and comprehensions over what is drawn."""
    return {
        each.id
        for node in walk(function.node)
        if isinstance(node, ast.For | ast.comprehension)
        and any(isinstance(at, ast.Name) and at.id in names for at in walk(node.iter))
        for each in walk(node.target)
        if isinstance(each, ast.Name)
    }
