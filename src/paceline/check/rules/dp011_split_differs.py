"""Ranks split or permute the data set differently.

What it does:
    Looks for `random_split`, `train_test_split` and permutations that all ranks draw before training, and for noise in
    the `step` of an optimizer of the script, from generators that are not seeded, or are seeded with the rank.

Why is this bad:
    Each rank holds out other samples. What one rank validates on, another trains on: with two ranks and random seeds
    most of the validation set is trained on, and its loss is too good. A permutation of input features that differs
    between ranks makes them train on different tasks. Noise that an optimizer adds to the parameters has to be equal as
    well, for the parameters to stay equal.

Repair:
    Pass `generator=torch.Generator().manual_seed(seed)`, or `random_state=seed`, with one seed for all ranks; or draw
    on rank 0 and broadcast.

Fix safety:
    Only a `random_split` without a generator gets one with seed 0. It is safe: the order of an unseeded split means
    nothing, and the file imports torch.

Known problems:
    Where a script seeds the generator alike on all ranks at one place and differently at another, nothing is reported.

References:
    F65. https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.random_split
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.imported_names import reach
from paceline.check.analyses.random_streams import (
    Equality,
    differs_by_chance,
    draws,
    equality,
    generator_of,
    generator_seed,
    has_generator,
    never_equal,
)
from paceline.check.analyses.rank_shares import instantiations, is_run, may_depend, rank_term
from paceline.check.analyses.rank_tests import RankKind, Ranks
from paceline.check.analyses.script import Script
from paceline.check.analyses.script_data_sets import is_data_set
from paceline.check.edits import Edit, add_keyword
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import Function, last_name
from paceline.syntax.program import CallSite
from paceline.syntax.values import ClassValue, Literal

_SPLITS = {
    "torch.utils.data.random_split": ("torch", "generator"),
    "sklearn.model_selection.train_test_split": ("numpy", "random_state"),
}
_DRAWS = {
    "numpy.random.permutation": "numpy",
    "numpy.random.shuffle": "numpy",
    "random.shuffle": "random",
    "random.sample": "random",
    "torch.randperm": "torch",
}
_UNSEEDED = "is not seeded alike on all ranks"
_PER_SAMPLE = ("__getitem__", "__iter__", "__call__", "forward", "collate", "collate_fn", "training_step")


class SplitDiffers(Rule):
    """Splits and permutations that are not the same on all ranks."""

    code, name, topic = "DP011", "split-differs", "data"
    faults = ("F65",)
    severity = "error"
    fixes = True
    valid = {
        "a generator of its own": """
            dist.init_process_group("gloo")
            torch.manual_seed(dist.get_rank())
            seeded = torch.Generator().manual_seed(0)
            train, test = torch.utils.data.random_split(Numbers(), [800, 200], generator=seeded)
        """,
        "a generator by position": """
            dist.init_process_group("gloo")
            train, test = torch.utils.data.random_split(Numbers(), [800, 200], torch.Generator().manual_seed(0))
        """,
        "equal seeds before the split": """
            def set_seed(seed):
                np.random.seed(seed)
                torch.manual_seed(seed)

            dist.init_process_group("gloo")
            set_seed(3)
            train, test = torch.utils.data.random_split(Numbers(), [800, 200])
            set_seed(3 + dist.get_rank())
        """,
        "drawn on rank 0": """
            dist.init_process_group("gloo")
            order = torch.zeros(1000, dtype=torch.long)
            if dist.get_rank() == 0:
                order = torch.randperm(1000)
            dist.broadcast(order, 0)
            train, test = order[:800], order[800:]
        """,
        "its own samples in a new order": """
            dist.init_process_group("gloo")
            mine = list(range(dist.get_rank(), 1000, dist.get_world_size()))
            random.shuffle(mine)
            loader = DataLoader(torch.utils.data.Subset(Numbers(), mine[:400]))
        """,
        "pairs within a batch": """
            def mix(x):
                batch_size = x.size(0)
                order = torch.randperm(batch_size)
                return 0.5 * x + 0.5 * x[order, :]

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            print(model(mix(torch.ones(4, 2))))
        """,
    }
    invalid = {
        "the global generator": """
            dist.init_process_group("gloo")
            train, test = torch.utils.data.random_split(Numbers(), [800, 200])  # here
        """,
        "seeded with the rank": """
            from sklearn.model_selection import train_test_split

            def main(rank):
                np.random.seed(7 + rank)
                train, test = train_test_split(list(range(1000)), test_size=0.2)  # here
                return DataLoader(torch.utils.data.Subset(Numbers(), train))

            dist.init_process_group("gloo")
            main(dist.get_rank())
        """,
        "a permutation that is cut": """
            class Data:
                def __init__(self, data, share):
                    order = np.random.permutation(len(data))  # here
                    cut = int(share * len(data))
                    self.train = torch.utils.data.Subset(data, order[cut:])
                    self.test = torch.utils.data.Subset(data, order[:cut])

            dist.init_process_group("gloo")
            Data(Numbers(), 0.2)
        """,
        "noise of an optimizer": """
            class Langevin(torch.optim.Optimizer):
                def step(self):
                    for group in self.param_groups:
                        for p in group["params"]:
                            p.add_(torch.randn_like(p), alpha=0.01)  # here

            dist.init_process_group("gloo")
            torch.manual_seed(1 + dist.get_rank())
            model = DDP(nn.Linear(2, 1))
            optimizer = Langevin(model.parameters(), {})
        """,
        "a generator with the rank in its seed": """
            dist.init_process_group("gloo")
            rank = dist.get_rank()
            mine = torch.Generator().manual_seed(rank)
            train, test = torch.utils.data.random_split(Numbers(), [800, 200], generator=mine)  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        for name, (library, keyword) in _SPLITS.items():
            for site in script.calls(name):
                if _is_judged(script, site) and (why := _split_differs(script, site, library, keyword)):
                    edits = _repair(script, site) if keyword == "generator" and why == _UNSEEDED else ()
                    yield _violation(site.node, f"{name.rpartition('.')[2]} draws", why, edits)
        for name, library in _DRAWS.items():
            for site in script.calls(name):
                if not has_generator(script, site.node) and never_equal(script, library):
                    yield from self._draw(script, site, _UNSEEDED)
        for site in script.method_calls("permutation", "shuffle"):
            if (why := _own_generator(script, site)) != "":
                yield from self._draw(script, site, why)

        yield from self._optimizers(script)

    def _optimizers(self, script: Script) -> Iterator[Violation]:
        """Noise that the optimizer of the script adds to parameters, which have to stay equal."""
        for module in script.program.imports.modules:
            for cls in module.classes:
                step = cls.methods.get("step")
                bases = script.program.evaluator.external_bases(cls)
                if step is None or "torch.optim.Optimizer" not in bases or not instantiations(script, cls):
                    continue
                for call, library in draws(script, step.calls):
                    if equality(script, library) in (Equality.DIFFERENT, Equality.UNSEEDED):
                        yield Violation(
                            call,
                            f"{cls.name}.step adds random numbers to the parameters, and ranks draw different ones, so "
                            "their parameters drift apart",
                            "draw with a generator that has the same seed on all ranks",
                        )

    def _draw(self, script: Script, site: CallSite, why: str) -> Iterator[Violation]:
        """A permutation that is cut in parts or indexes features."""
        if _is_judged(script, site) and _divides(script, site) and not may_depend(script, site.node.args):
            yield _violation(site.node, f"{last_name(site.node.func)} draws", why)


def _violation(node: ast.Call, what: str, why: str, edits: tuple[Edit, ...] = ()) -> Violation:
    return Violation(
        node,
        f"{what} from a generator that {why}, so ranks split or permute the data differently",
        "draw with one seed on all ranks: generator=torch.Generator().manual_seed(seed), or random_state=seed",
        severity="warning" if why == _UNSEEDED else None,
        edits=edits,
    )


def _repair(script: Script, site: CallSite) -> tuple[Edit, ...]:
    """A generator with a seed, unless generators are on another device by default."""
    torch = reach(site.module, "torch")
    given = [
        *(isinstance(each, ast.Starred) for each in site.node.args),
        *(not each.arg for each in site.node.keywords),
    ]
    texts = [module.source.text for module in script.program.imports.modules]
    if not torch or any(given) or any("set_default_" in text for text in texts):
        return ()
    return (add_keyword(site.node, f"generator={torch}.Generator().manual_seed(0)", site.module.source.text),)


def _split_differs(script: Script, site: CallSite, library: str, keyword: str) -> str:
    """Why a split differs; empty if it does not, or may not."""
    if keyword == "generator" and not has_generator(script, site.node):
        return _UNSEEDED if never_equal(script, library) else ""
    if keyword == "generator":
        seed = generator_seed(script, site.node)
    else:
        found = script.argument(site.node, keyword)
        if found.absent or (found.certain and script.program.evaluator.all_of(found.given) == {Literal(None)}):
            return _UNSEEDED if never_equal(script, library) else ""
        seed = found.given[0].node if found.certain and found.given else None
    if seed is None:
        return ""
    if rank_term(script, seed) is not RankKind.NONE:
        return "has the rank in its seed"
    if name := differs_by_chance(script, seed):
        return f"is seeded by {name}()"
    return ""


def _own_generator(script: Script, site: CallSite) -> str:
    """Why a generator object differs between ranks; empty if it does not, or may not."""
    made = generator_of(script, site.node)
    if made is None:
        return ""
    seed = made.call.args[0] if made.call.args else next((each.value for each in made.call.keywords), None)
    if seed is None or (isinstance(seed, ast.Constant) and seed.value is None):
        return "has no seed"
    return "has the rank in its seed" if rank_term(script, seed) is not RankKind.NONE else ""


def _is_judged(script: Script, site: CallSite) -> bool:
    """True if all ranks run a call once, before they train."""
    if script.where(site.node) is not Ranks.ALL or not is_run(script, site.function):
        return False
    function, node = site.function, site.node
    if function.name in _PER_SAMPLE or _agreed(script, site):
        return False
    if any("batch" in ast.unparse(each).lower() for each in node.args):
        return False  # the order within a batch, as in mixup
    return not _in_loop(function, node) and not any(
        _in_loop(caller, call) for caller, call in script.program.evaluator.call_sites(function)
    )


def _in_loop(function: Function, node: ast.AST) -> bool:
    for at in function.module.ancestors(node):
        if at is function.node:
            return False
        if isinstance(at, ast.For | ast.AsyncFor | ast.While):
            return True
    return False


def _agreed(script: Script, site: CallSite) -> bool:
    """True if a collective makes what is drawn the same on all ranks."""
    drawn = _drawn(site)
    names = (each for each in walk(site.function.node) if isinstance(each, ast.Name) and each.id in drawn)
    return any(script.origins.agreed(each) for each in names)


def _drawn(site: CallSite) -> set[str]:
    """Variables that hold what is drawn: those that are assigned, or shuffled in place."""
    statement = site.module.statement(site.node)
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = list(statement.targets)
    elif last_name(site.node.func) == "shuffle":
        targets = site.node.args[:1]
    return {
        last_name(each)
        for target in targets
        for each in walk(target)
        if isinstance(each, ast.Name | ast.Attribute) and last_name(each) != "self"
    }


def _divides(script: Script, site: CallSite) -> bool:
    """True if what is drawn is cut in parts, or is an index of features."""
    drawn = _drawn(site)
    owner = site.function.cls.node if site.function.cls is not None else site.function.node
    return any(_uses(script, node, drawn) for node in walk(owner))


def _uses(script: Script, node: ast.AST, drawn: set[str]) -> bool:
    """True if a node cuts what is drawn, takes it as an index, or makes a data set of it."""
    if isinstance(node, ast.Subscript):
        if isinstance(node.slice, ast.Slice):
            return last_name(node.value) in drawn
        return any(isinstance(each, ast.Name) and each.id in drawn for each in _indices(node.slice))
    if isinstance(node, ast.Call) and any(last_name(each) in drawn for each in node.args):
        return last_name(node.func) == "Subset" or _makes_data(script, node)
    return False


def _indices(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _makes_data(script: Script, call: ast.Call) -> bool:
    return any(isinstance(each, ClassValue) and is_data_set(script, each.cls) for each in script.values(call.func))
