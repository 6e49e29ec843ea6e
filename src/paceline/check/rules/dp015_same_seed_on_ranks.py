"""All ranks draw the same noise, masks or augmentation, because they have the same seed.

What it does:
    Looks for training scripts that seed the generators alike on all ranks, or by the number of the node, and draw
    random numbers while they train: in the training loop, in `forward`, in dropout, in the data set, in environments.

Why is this bad:
    The batch of N ranks has only the variety of one: sample i of each rank gets the same dropout mask, the same
    timestep and the same noise. With the number of the node as seed this holds for all ranks of a node.

Repair:
    Seed the construction of the model with one number, and then `torch.manual_seed(seed + rank)` for the training loop.

Known problems:
    Dropout with equal masks costs little and is often accepted, so it is reported as worth knowing.

References:
    F64, F67, F122. https://github.com/huggingface/transformers/issues/31412
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.random_streams import Seeding, draws, equal_seed, seedings
from paceline.check.analyses.rank_shares import may_depend, rank_term, truth
from paceline.check.analyses.rank_tests import RankKind, Ranks
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.module_index import Class, last_name
from paceline.syntax.values import Literal

_DROPOUT = tuple(
    f"torch.nn.{name}"
    for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "functional.dropout")
)
_ENVIRONMENTS = ("gym.", "gymnasium.", "envpool.", "procgen.")


class SameSeedOnRanks(Rule):
    """Randomness of training that ranks share."""

    code, name, topic = "DP015", "same-seed-on-ranks", "data"
    faults = ("F64", "F67", "F122")
    severity = "warning"
    valid = {
        "seeds of the ranks after the model": """
            dist.init_process_group("gloo")
            torch.manual_seed(0)
            model = DDP(nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.1), nn.Linear(8, 1)))
            torch.manual_seed(dist.get_rank())
            data = Numbers()
            for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
                F.mse_loss(model(x + torch.randn_like(x)), y).backward()
        """,
        "no randomness": """
            dist.init_process_group("gloo")
            torch.manual_seed(0)
            model = DDP(nn.Linear(2, 1))
            data = Numbers()
            for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
                F.mse_loss(model(x), y).backward()
        """,
        "a generator of the rank": """
            dist.init_process_group("gloo")
            torch.manual_seed(0)
            model = DDP(nn.Linear(2, 1))
            own = torch.Generator().manual_seed(dist.get_rank())
            data = Numbers()
            for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
                F.mse_loss(model(x + torch.randn(x.shape, generator=own)), y).backward()
        """,
    }
    invalid = {
        "noise": """
            dist.init_process_group("gloo")
            torch.manual_seed(0)
            model = DDP(nn.Linear(2, 1))
            data = Numbers()
            for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
                F.mse_loss(model(x + torch.randn_like(x)), y).backward()  # here
        """,
        "dropout": """
            dist.init_process_group("gloo")
            torch.manual_seed(0)  # here
            model = DDP(nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.1), nn.Linear(8, 1)))
            data = Numbers()
            for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
                F.mse_loss(model(x), y).backward()
        """,
        "the number of the node": """
            class Masked(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Linear(2, 1)

                def forward(self, x):
                    return self.layer(x * (torch.rand_like(x) > 0.5))

            dist.init_process_group("gloo")
            torch.manual_seed(10 + int(os.environ["GROUP_RANK"]))  # here
            model = DDP(Masked())
            data = Numbers()
            for x, y in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
                F.mse_loss(model(x), y).backward()
        """,
        "environments": """
            import gymnasium

            dist.init_process_group("gloo")
            env = gymnasium.make("CartPole-v1")
            model = DDP(nn.Linear(4, 1))
            state, _ = env.reset(seed=1)  # here
            for step in range(100):
                model(torch.as_tensor(state)).mean().backward()
                state, *_ = env.step(env.action_space.sample())
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not script.loops.training or not (script.wrappers or "fsdp" in script.engines):
            return
        yield from self._environments(script)
        node_seed = next((each for each in seedings(script) if each.kind is RankKind.NODE), None)
        for library in ("torch", "numpy", "random"):
            seeding = equal_seed(script, library)
            drawn = list(_drawn(script, library)) if seeding is not None else []
            if library != "torch" and _has_workers(script):
                drawn = [each for each in drawn if each[1]]  # DP014 is about workers
            if seeding is None or (not drawn and (library != "torch" or not _drops(script))):
                continue
            if node_seed is not None:
                yield _by_node(node_seed)
            elif drawn and any(direct for _, direct in drawn):
                yield _noise(next(call for call, direct in drawn if direct), seeding)
            else:
                yield _little(seeding, "the data set draws" if drawn else "dropout draws")
            return

    def _environments(self, script: Script) -> Iterator[Violation]:
        """`env.reset(seed=1)` on every rank."""
        if not any(name in module.source.text for module in script.program.imports.modules for name in _ENVIRONMENTS):
            return
        for site in script.method_calls("reset", "seed"):
            seed = script.argument(site.node, "seed", 0 if last_name(site.node.func) == "seed" else None)
            names = script.program.callee_names(site.node)
            if not seed.given or not any(name.startswith(_ENVIRONMENTS) for name in names):
                continue
            values = script.program.evaluator.all_of(seed.given)
            known = bool(values) and values != {Literal(None)}
            if script.where(site.node) is Ranks.ALL and known and not _differs(script, seed.given[0].node):
                yield Violation(
                    site.node,
                    "the environments of all ranks get the same seed, so ranks collect the same experience",
                    "add the rank to the seed",
                    faults=("F122", "F64"),
                )
                return


def _differs(script: Script, seed: ast.expr) -> bool:
    return rank_term(script, seed) is not RankKind.NONE or may_depend(script, [seed])


def _by_node(seeding: Seeding) -> Violation:
    return Violation(
        seeding.site.node,
        "the seed is that of the node, so all ranks of a node draw the same random numbers while they train",
        "use the global rank: torch.manual_seed(seed + rank)",
        faults=("F67", "F64"),
    )


def _noise(call: ast.Call, seeding: Seeding) -> Violation:
    return Violation(
        call,
        f"line {seeding.site.node.lineno} seeds all ranks alike, so `{ast.unparse(call.func)}` gives the same numbers "
        "on all ranks in each step",
        "seed with the rank once the model is wrapped: torch.manual_seed(seed + rank)",
        faults=("F64",),
        evidence={"seed": seeding.site.node.lineno},
    )


def _little(seeding: Seeding, what: str) -> Violation:
    return Violation(
        seeding.site.node,
        f"all ranks have the same seed, so {what} the same random numbers on all of them",
        "seed with the rank once the model is wrapped: torch.manual_seed(seed + rank)",
        faults=("F64",),
        severity="info",
    )


def _drawn(script: Script, library: str) -> Iterator[tuple[ast.Call, bool]]:
    """Draws while the script trains; True for those of the loop and of models, False for those of data sets."""
    for loop in script.loops.training:
        yield from ((call, True) for call, of in draws(script, (each.node for each in loop.reached)) if of == library)
    for module in script.program.imports.modules:
        for cls in module.classes:
            forward, sample = cls.methods.get("forward"), cls.methods.get("__getitem__")
            if forward is not None and _is_used(script, cls):
                reached = (each.node for each in script.loops.reached_calls(forward.node, forward))
                yield from ((call, True) for call, of in draws(script, reached) if of == library)
            if sample is not None and _is_used(script, cls):
                reached = (each.node for each in script.loops.reached_calls(sample.node, sample))
                yield from ((call, False) for call, of in draws(script, reached) if of == library)


def _has_workers(script: Script) -> bool:
    return any(truth(script, script.argument(each.made, "num_workers", 5)) for each in script.loaders)


def _is_used(script: Script, cls: Class) -> bool:
    return any(cls.name in module.calls_by_name for module in script.program.imports.modules)


def _drops(script: Script) -> bool:
    """True if a model has dropout that certainly drops something."""
    for site in script.calls(*_DROPOUT):
        chances = script.program.argument_values(site.node, "p", 1 if "functional" in site.name else 0)
        numbers = [each.value for each in chances if isinstance(each, Literal)]
        if not chances or (numbers and len(numbers) == len(chances) and all(numbers)):
            return True
    return False
