"""A training loader draws from the whole data set on every rank, because its sampler does not know the rank.

What it does:
    Looks for training loaders with a WeightedRandomSampler, SubsetRandomSampler, RandomSampler or a sampler of the
    script that is not sharded by the rank, and for such samplers that a DistributedSampler replaces on several
    processes.

Why is this bad:
    DDP does not split data. Such a sampler gives every rank the indices of the whole data set. If its generator has the
    same seed on all ranks, all of them train on identical batches. Where a plain DistributedSampler replaces it, the
    balance of classes or the curriculum that it stands for is lost.

Repair:
    Draw the list of all indices with the same generator on all ranks, and yield its part `[rank::world_size]`; or give
    each rank the indices of its own share.

Known problems:
    Ranks that draw with replacement from different seeds train on different samples: this is reported only where the
    number of draws is that of the whole data set.

References:
    F10, F01, F02. https://github.com/pytorch/pytorch/issues/77154
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import RANDOM_SAMPLERS
from paceline.check.analyses.random_streams import Equality, equality, generator_seed, has_generator
from paceline.check.analyses.rank_shares import (
    data_may_differ,
    distributed_samplers,
    is_sampler,
    may_depend,
    rank_term,
    samplers,
    trained_on,
    unknown_origin,
)
from paceline.check.analyses.rank_tests import RankKind
from paceline.check.analyses.script import Loader, Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.values import Instance, Object, Value, Values

_WEIGHTED = "torch.utils.data.WeightedRandomSampler"


class SamplerNotSharded(Rule):
    """Samplers of training loaders that give every rank all indices."""

    code, name, topic = "DP007", "sampler-not-sharded", "data"
    faults = ("F10", "F01", "F02")
    severity = "warning"
    valid = {
        "a slice of the rank": """
            class Balanced(torch.utils.data.Sampler):
                def __init__(self, weights, rank, world):
                    self.weights, self.rank, self.world = weights, rank, world

                def __iter__(self):
                    drawn = torch.multinomial(self.weights, 1000, True, generator=torch.Generator().manual_seed(1))
                    return iter(drawn[self.rank :: self.world].tolist())

            dist.init_process_group("gloo")
            sampler = Balanced(torch.ones(1000), dist.get_rank(), dist.get_world_size())
            loader = DataLoader(Numbers(), batch_size=8, sampler=sampler)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "indices of the rank": """
            dist.init_process_group("gloo")
            mine = list(range(1000))[dist.get_rank() :: dist.get_world_size()]
            loader = DataLoader(Numbers(), batch_size=8, sampler=torch.utils.data.SubsetRandomSampler(mine))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "draws of different seeds": """
            dist.init_process_group("gloo")
            rank, world = dist.get_rank(), dist.get_world_size()
            torch.manual_seed(3 + rank)
            sampler = torch.utils.data.WeightedRandomSampler(torch.ones(1000), 1000 // world)
            loader = DataLoader(Numbers(), batch_size=8, sampler=sampler)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
    }
    invalid = {
        "weighted draws with one seed": """
            dist.init_process_group("gloo")
            generator = torch.Generator()
            generator.manual_seed(0)
            sampler = torch.utils.data.WeightedRandomSampler(torch.ones(1000), 500, generator=generator)  # here
            loader = DataLoader(Numbers(), batch_size=8, sampler=sampler)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "a random subset": """
            dist.init_process_group("gloo")
            chosen = torch.randperm(1000)[:800].tolist()
            sampler = torch.utils.data.SubsetRandomSampler(chosen)  # here
            loader = DataLoader(Numbers(), batch_size=8, sampler=sampler)
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "weights on one process alone": """
            def sampler_of(data):
                if dist.is_initialized():
                    return DistributedSampler(data)  # here
                return torch.utils.data.WeightedRandomSampler(torch.ones(1000), 1000)

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=sampler_of(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
        "a batch sampler of the script": """
            class Buckets:
                def __init__(self, lengths, size):
                    self.order = sorted(range(len(lengths)), key=lengths.__getitem__)
                    self.size = size

                def __iter__(self):
                    starts = list(range(0, len(self.order), self.size))
                    random.shuffle(starts)
                    for start in starts:
                        yield self.order[start : start + self.size]

            dist.init_process_group("gloo")
            loader = DataLoader(Numbers(), batch_sampler=Buckets(list(range(1000)), 8))  # here
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
                optimizer.step()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not (script.wrappers or "fsdp" in script.engines):
            return
        reported: set[ast.AST] = set()
        for loader in script.loaders:
            if not trained_on(script, loader):
                continue
            found = samplers(script, loader)
            if not found or unknown_origin(script, found) or data_may_differ(script, loader):
                continue
            yield from self._dropped(script, found, reported)
            if not all(_is_own(script, each) or _is_random(each) for each in found):
                continue
            for sampler in found:
                node = sampler.call if isinstance(sampler, Object | Instance) else None
                if node is None or node in reported or not _whole(script, sampler):
                    continue
                reported.add(node)
                yield self._violation(script, loader, sampler, node)

    def _dropped(self, script: Script, found: Values, reported: set[ast.AST]) -> Iterator[Violation]:
        """A sampler that chooses samples on one process, where a DistributedSampler takes its place on several."""
        distributed = distributed_samplers(found)
        chosen = [each for each in found if getattr(each, "name", "") == _WEIGHTED or _is_own(script, each)]
        if not distributed or not chosen or distributed[0].call in reported:
            return
        if all(_whole(script, each) or getattr(each, "name", "") == _WEIGHTED for each in chosen):
            reported.add(distributed[0].call)
            yield Violation(
                distributed[0].call,
                f"on several processes this DistributedSampler takes the place of {_name(chosen[0])}, and the samples "
                "are no longer drawn as on one",
                f"draw with {_name(chosen[0])} on all ranks alike, and yield the part [rank::world_size]",
                faults=("F10",),
            )

    def _violation(self, script: Script, loader: Loader, sampler: Value, node: ast.Call) -> Violation:
        same = _same_draws(script, sampler)
        own = isinstance(sampler, Instance)
        reading = "all ranks train on the same samples" if same else "each rank reads the whole data set"
        return Violation(
            node,
            f"the sampler {_name(sampler)} of the training loader does not know the rank, so {reading}",
            "draw all indices with one seed and yield the part [rank::world_size]",
            faults=("F01", "F10") if own else (("F10", "F02") if same else ("F10", "F01")),
            severity=None if same or own or getattr(sampler, "name", "") != _WEIGHTED else "info",
            evidence={"loader": loader.made.call.lineno},
        )


def _name(sampler: Value) -> str:
    return sampler.cls.name if isinstance(sampler, Instance) else getattr(sampler, "name", "").rpartition(".")[2]


def _is_random(sampler: Value) -> bool:
    return isinstance(sampler, Object) and sampler.name in RANDOM_SAMPLERS


def _is_own(script: Script, sampler: Value) -> bool:
    """A sampler of a class of the script, which shows what it yields."""
    if not isinstance(sampler, Instance) or sampler.call is None:
        return False
    bases = script.program.evaluator.external_bases(sampler.cls)
    return all(base.startswith(("torch.utils.data.", "builtins.", "typing.")) for base in bases) and any(
        "__iter__" in cls.methods for cls in script.program.evaluator.lineage(sampler.cls)
    )


def _whole(script: Script, sampler: Value) -> bool:
    """True if a sampler gives every rank indices of the whole data set."""
    if isinstance(sampler, Instance):
        given = [*sampler.call.args, *(each.value for each in sampler.call.keywords)] if sampler.call else []
        if any(is_sampler(script, value) for node in given for value in script.values(node, sampler.context)):
            return False
        nodes: list[ast.AST] = [cls.node for cls in script.program.evaluator.lineage(sampler.cls)]
        bases = script.program.evaluator.external_bases(sampler.cls)
        return not any(base.endswith("DistributedSampler") for base in bases) and not may_depend(
            script, [*nodes, sampler.call]
        )
    if not isinstance(sampler, Object):
        return False
    if sampler.name != _WEIGHTED:
        return not may_depend(script, [sampler.call])
    weights = script.argument(sampler, "weights", 0).given
    if may_depend(script, [each.node for each in weights]):
        return False
    return _same_draws(script, sampler) or not _share_of_draws(script, sampler)


def _same_draws(script: Script, sampler: Value) -> bool:
    """True if the sampler draws from equal random states on all ranks."""
    if not isinstance(sampler, Object):
        return False
    if has_generator(script, sampler):
        seed = generator_seed(script, sampler)
        return seed is not None and rank_term(script, seed) is RankKind.NONE
    return equality(script, "torch") is Equality.EQUAL


def _share_of_draws(script: Script, sampler: Object) -> bool:
    """True if the number of draws is divided, as by the number of ranks."""
    for each in script.argument(sampler, "num_samples", 1).given:
        if any(isinstance(at, ast.BinOp) and isinstance(at.op, ast.FloorDiv | ast.Div) for at in walk(each.node)):
            return True
        if not isinstance(each.node, ast.Constant | ast.Call):
            return True
    return False
