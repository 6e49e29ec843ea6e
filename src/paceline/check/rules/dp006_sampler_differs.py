"""A DistributedSampler has another seed, epoch or rank than it needs on each rank.

What it does:
    Looks for a sampler seed or epoch with the rank, the time or the process id in it, and for a rank that is the same
    number on all ranks or the index within the node.

Why is this bad:
    Each rank takes every N-th entry of a permutation that all ranks have to draw alike. With different seeds the
    permutations differ: some samples are read by several ranks, others by none. With a wrong rank several ranks read
    the same shard.

Repair:
    Give the sampler one seed for all ranks, and `set_epoch(epoch)` one epoch. Leave out `rank` and `num_replicas`: they
    come from the process group.

Known problems:
    The index within the node is right on a single node, so it is reported as worth knowing.

References:
    F09, F107. https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.epoch_loops import receivers, set_epoch_calls
from paceline.check.analyses.framework_names import DISTRIBUTED_SAMPLERS
from paceline.check.analyses.random_streams import differs_by_chance
from paceline.check.analyses.rank_shares import distributed_samplers, is_run, rank_term
from paceline.check.analyses.rank_tests import RankKind, Ranks
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.call_graph import SPAWN_INDEX
from paceline.syntax.program import CallSite

_NAMES = {
    RankKind.GLOBAL: "the rank",
    RankKind.LOCAL: "the index within the node",
    RankKind.NODE: "the number of the node",
}


class SamplerDiffers(Rule):
    """Samplers of one data set that do not fit together."""

    code, name, topic = "DP006", "sampler-differs", "data"
    faults = ("F09", "F107")
    severity = "error"
    valid = {
        "one seed": """
            dist.init_process_group("gloo")
            seed, rank = 7, dist.get_rank()
            torch.manual_seed(seed + rank)
            sampler = DistributedSampler(Numbers(), rank=rank, num_replicas=dist.get_world_size(), seed=seed)
            for epoch in range(3):
                sampler.set_epoch(epoch)
        """,
        "one process evaluates": """
            dist.init_process_group("gloo")
            sampler = DistributedSampler(Numbers(), rank=0, num_replicas=1)
        """,
        "a configuration that a function of the rank makes": """
            def configure(rank):
                return argparse.Namespace(seed=3, device=f"cuda:{rank}")

            dist.init_process_group("gloo")
            config = configure(dist.get_rank())
            sampler = DistributedSampler(Numbers(), seed=config.seed)
        """,
    }
    invalid = {
        "the rank in the seed": """
            dist.init_process_group("gloo")
            sampler = DistributedSampler(Numbers(), shuffle=True, seed=42 + dist.get_rank())  # here
        """,
        "a helper that adds the rank": """
            def seed_of(base, rank):
                seed = base + 1000 * rank
                torch.manual_seed(seed)
                return seed

            class Data:
                def __init__(self, rank):
                    self.seed = seed_of(5, rank)
                    self.sampler = DistributedSampler(Numbers(), seed=self.seed)  # here

            dist.init_process_group("gloo")
            Data(int(os.environ["RANK"]))
        """,
        "the time": """
            dist.init_process_group("gloo")
            seed = int(time.time())
            sampler = DistributedSampler(Numbers(), seed=seed)  # here
        """,
        "an epoch with the rank": """
            dist.init_process_group("gloo")
            rank = dist.get_rank()
            sampler = DistributedSampler(Numbers())
            for epoch in range(3):
                sampler.set_epoch(epoch + 100 * rank)  # here
        """,
        "rank 0 on all ranks": """
            dist.init_process_group("gloo")
            sampler = DistributedSampler(Numbers(), num_replicas=dist.get_world_size(), rank=0)  # here
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        for site in script.calls(*DISTRIBUTED_SAMPLERS):
            found = self._seed(script, site) or self._rank(script, site)
            if found is not None:
                yield found
        for site in set_epoch_calls(script):
            if site.node.args and distributed_samplers(receivers(script, site)):
                kind = rank_term(script, site.node.args[0])
                if kind is not RankKind.NONE:
                    yield Violation(
                        site.node,
                        f"the epoch of the sampler contains {_NAMES[kind]}, so ranks permute the data set differently "
                        "and their shards overlap",
                        "call set_epoch with the same number on all ranks",
                        faults=("F09",),
                    )

    def _seed(self, script: Script, site: CallSite) -> Violation | None:
        for each in script.argument(site.node, "seed", 4).given:
            kind = rank_term(script, each.node)
            if kind is not RankKind.NONE:
                source = _NAMES[kind]
            elif name := differs_by_chance(script, each.node):
                source = f"{name}()"
            else:
                continue
            return Violation(
                site.node,
                f"the seed of the sampler comes from {source}, so ranks permute the data set differently and their "
                "shards overlap",
                "give the sampler the same seed on all ranks",
                faults=("F09",),
                severity=None if kind is not RankKind.NONE else "warning",
            )
        return None

    def _rank(self, script: Script, site: CallSite) -> Violation | None:
        rank = script.argument(site.node, "rank", 2)
        replicas = script.literals(site.node, "num_replicas", 1)
        constants = script.literals(site.node, "rank", 2)
        if constants and len(constants) == 1 and isinstance(next(iter(constants)), int):
            if replicas == {1} or script.where(site.node) is not Ranks.ALL or not is_run(script, site.function):
                return None
            return Violation(
                site.node,
                f"every rank gets the shard of rank {constants.pop()}",
                "leave out rank=, which then comes from the process group",
                faults=("F09",),
            )
        for each in rank.given:
            values = script.values(each.node, each.context)
            if script.ranks.kind(each.node, each.context) is RankKind.LOCAL and SPAWN_INDEX not in values:
                if isinstance(each.node, ast.Constant) or replicas is not None or len(values) > 1:
                    continue
                return Violation(
                    site.node,
                    "the sampler gets the index within the node as its rank: on several nodes, ranks with the same "
                    "index read the same shard",
                    "pass the global rank, or leave out rank=",
                    severity="info",
                    faults=("F107", "F09"),
                )
        return None
