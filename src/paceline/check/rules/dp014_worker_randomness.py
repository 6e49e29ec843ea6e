"""Loader workers of all ranks draw the same random numbers.

What it does:
    Looks for data sets that draw from the global generators of numpy or `random` for each sample, in loaders with
    workers and without `worker_init_fn`, where all ranks seed torch alike.

Why is this bad:
    A worker seeds its generators from one number that the loader draws from the generator of torch. With equal seeds
    that number is the same on all ranks: worker 0 of each rank flips, crops and shifts its samples alike. With numpy
    before torch 2, even the workers of one loader draw alike.

Repair:
    Seed with the rank after the model has been wrapped, or pass a `worker_init_fn` that seeds numpy and `random` from
    the rank and the worker.

Known problems:
    Generators that the data set makes itself are left out.

References:
    F66, F64. https://docs.pytorch.org/docs/stable/notes/faq.html#my-data-loader-workers-return-identical-random-numbers
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.check.analyses.random_streams import draws, equal_seed
from paceline.check.analyses.rank_shares import may_depend, truth
from paceline.check.analyses.script import Loader, Script
from paceline.check.analyses.script_data_sets import data_set_classes, loaders_over
from paceline.check.rule import Rule, Violation
from paceline.syntax.values import Literal


class WorkerRandomness(Rule):
    """Augmentation that is the same on all ranks."""

    code, name, topic = "DP014", "worker-randomness", "data"
    faults = ("F66", "F64")
    severity = "warning"
    valid = {
        "a worker_init_fn": """
            class Noisy(Numbers):
                def __getitem__(self, index):
                    return torch.full((2,), np.random.rand()), torch.ones(1)

            def seed_worker(worker):
                np.random.seed(dist.get_rank() * 100 + worker)

            dist.init_process_group("gloo")
            torch.manual_seed(0)
            loader = DataLoader(Noisy(), batch_size=8, num_workers=2, worker_init_fn=seed_worker)
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
        """,
        "seeds of the ranks": """
            class Noisy(Numbers):
                def __getitem__(self, index):
                    return torch.full((2,), random.random()), torch.ones(1)

            dist.init_process_group("gloo")
            torch.manual_seed(dist.get_rank())
            loader = DataLoader(Noisy(), batch_size=8, num_workers=2)
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
        """,
        "a generator of each sample": """
            class Noisy(Numbers):
                def __getitem__(self, index):
                    noise = np.random.default_rng(index).random()
                    return torch.full((2,), noise), torch.ones(1)

            dist.init_process_group("gloo")
            torch.manual_seed(0)
            loader = DataLoader(Noisy(), batch_size=8, num_workers=2)
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
        """,
    }
    invalid = {
        "numpy in __getitem__": """
            class Noisy(Numbers):
                def __getitem__(self, index):
                    return torch.full((2,), np.random.rand()), torch.ones(1)  # here

            dist.init_process_group("gloo")
            torch.manual_seed(0)
            loader = DataLoader(Noisy(), batch_size=8, num_workers=2)
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
        """,
        "random in a transform": """
            class Jitter:
                def __call__(self, value):
                    return value + random.uniform(-1, 1)  # here

            class Noisy(Numbers):
                def __init__(self):
                    self.transform = Jitter()

                def __getitem__(self, index):
                    return torch.full((2,), self.transform(index)), torch.ones(1)

            def seed_all(seed):
                random.seed(seed)
                torch.manual_seed(seed)

            dist.init_process_group("gloo")
            seed_all(1)
            data = Noisy()
            loader = DataLoader(data, batch_size=8, num_workers=4, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                F.mse_loss(model(x), y).backward()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        seeding = equal_seed(script, "torch")
        if seeding is None or not script.plain:
            return
        for cls in data_set_classes(script):
            method = cls.methods["__getitem__"]
            calls = [each.node for each in script.loops.reached_calls(method.node, method)]
            found = [(call, library) for call, library in draws(script, calls) if library != "torch"]
            if not found or not any(_has_workers(script, each) for each in loaders_over(script, cls)):
                continue
            call, library = found[0]
            if may_depend(script, [cls.node]):
                continue
            yield Violation(
                call,
                f"{cls.name} draws from {library} in workers that are seeded from torch, and line "
                f"{seeding.site.node.lineno} seeds torch alike on all ranks, so all ranks draw the same numbers",
                "seed with the rank, or pass worker_init_fn to the loader",
                evidence={"seed": seeding.site.node.lineno},
            )


def _has_workers(script: Script, loader: Loader) -> bool:
    """True if a loader has workers, and nothing that seeds them."""
    if truth(script, script.argument(loader.made, "num_workers", 5)) is not True:
        return False
    for name, position in (("worker_init_fn", 10), ("generator", 12)):
        argument = script.argument(loader.made, name, position)
        if not argument.certain:
            return False
        if argument.given and script.program.evaluator.all_of(argument.given) != {Literal(None)}:
            return False
    return True
