"""A collective runs on some ranks only.

What it does:
    Looks for collectives, barriers, forward passes of a model in DDP that has buffers, `state_dict` of a model in FSDP
    and the like, which a test of the rank lets only some ranks reach, while the other ranks have no counterpart. Calls
    through functions and decorators are followed. Collectives of a group of their own are left out. Also looks for a
    test of the rank whose branches run different collectives.

Why is this bad:
    A collective waits for all ranks. The ranks that run it wait until the timeout, or meet a later collective of the
    others: the job hangs, crashes, or adds numbers that do not belong together.

Repair:
    Move the call out of the branch. Evaluate through `model.module` on rank 0.

Known problems:
    A forward pass through the wrapper on one rank passes as long as the model has no buffers.

References:
    F78, F87, F60, F130. https://github.com/pytorch/pytorch/issues/54059
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from paceline.check.analyses.framework_names import COLLECTIVES
from paceline.check.analyses.local_decisions import collective_within
from paceline.check.analyses.meeting_points import Alone, alone, of_own_group
from paceline.check.analyses.rank_tests import Ranks
from paceline.check.analyses.script import Script
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import last_name

_COLLECTIVES = frozenset(COLLECTIVES)


class CollectiveOnSomeRanks(Rule):
    """Collectives under a test of the rank."""

    code, name, topic = "DP066", "collective-on-some-ranks", "control flow"
    faults = ("F78", "F87", "F60", "F130")
    severity = "error"
    valid = {
        "the same collectives with other arguments": """
            dist.init_process_group("gloo")
            part, parts = torch.randn(4), None
            if dist.get_rank() == 0:
                parts = [torch.empty(4) for _ in range(dist.get_world_size())]
                dist.gather(part, parts)
                dist.barrier()
            else:
                dist.gather(part)
                dist.barrier()
        """,
        "a barrier in both branches": """
            dist.init_process_group("gloo")
            if dist.get_rank() == 0:
                print("prepare")
                dist.barrier()
            else:
                dist.barrier()
        """,
        "rank 0 goes first": """
            dist.init_process_group("gloo")
            rank = dist.get_rank()
            if rank != 0:
                dist.barrier()
            data = Numbers()
            if rank == 0:
                dist.barrier()
        """,
        "a broadcast with its source": """
            dist.init_process_group("gloo")
            if dist.get_rank() == 0:
                weights = torch.randn(3)
                dist.broadcast(weights, src=0)
            else:
                weights = torch.empty(3)
                dist.broadcast(weights, src=0)
        """,
        "rank 0 evaluates the module itself": """
            def evaluate(model):
                with torch.no_grad():
                    print(model.module(torch.randn(4, 2)).mean())

            dist.init_process_group("gloo")
            model = DDP(nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1)))
            for epoch in range(3):
                model(torch.randn(4, 2)).mean().backward()
                if dist.get_rank() == 0:
                    evaluate(model)
                dist.barrier()
        """,
        "a group of some ranks": """
            dist.init_process_group("gloo")
            rank = dist.get_rank()
            group = dist.new_group([0, 1])
            if rank == 0:
                dist.barrier(group=group)
        """,
    }
    invalid = {
        "another collective on the other ranks": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            loss = model(torch.randn(4, 2)).mean()
            loss.backward()
            worst = loss.detach()
            if dist.get_rank() == 0:
                dist.broadcast(worst, src=0)
            else:
                dist.all_reduce(worst)  # here
        """,
        "a barrier behind a checkpoint": """
            def save(model):
                torch.save(model.module.state_dict(), "model.pt")
                dist.barrier()  # here

            dist.init_process_group("gloo")
            rank = dist.get_rank()
            model = DDP(nn.Linear(2, 1))
            for epoch in range(3):
                model(torch.randn(4, 2)).mean().backward()
                if rank == 0 and epoch > 0:
                    save(model)
        """,
        "a metric that rank 0 reduces": """
            def is_main_process():
                return not dist.is_initialized() or dist.get_rank() == 0

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            for epoch in range(3):
                loss = model(torch.randn(4, 2)).mean()
                loss.backward()
                if is_main_process():
                    total = loss.detach()
                    dist.all_reduce(total)  # here
                    print(total)
        """,
        "an early return": """
            def log(loss, rank):
                if rank != 0:
                    return
                losses = [torch.zeros(1) for _ in range(dist.get_world_size())]
                dist.all_gather(losses, loss)  # here
                print(losses)

            def main(rank, world_size):
                dist.init_process_group("gloo", rank=rank, world_size=world_size)
                log(torch.zeros(1), rank)

            if __name__ == "__main__":
                mp.spawn(main, args=(2,), nprocs=2)
        """,
        "batch norm evaluated through the wrapper": """
            class Trainer:
                def __init__(self):
                    self.is_main = dist.get_rank() == 0
                    self.model = DDP(nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4)))

                @torch.no_grad()
                def evaluate(self):
                    self.model.eval()
                    return self.model(torch.randn(8, 2)).mean()  # here

                def fit(self):
                    for epoch in range(3):
                        self.model(torch.randn(4, 2)).mean().backward()
                        if self.is_main:
                            print(self.evaluate())

            dist.init_process_group("gloo")
            Trainer().fit()
        """,
        "a function that also serves one process": """
            def evaluate(args, model):
                right = model(torch.randn(4, 2)).sum().detach()
                if args.local_rank != -1:
                    dist.all_reduce(right)  # here
                return right

            parser = argparse.ArgumentParser()
            args = parser.parse_args()
            args.local_rank = int(os.environ.get("LOCAL_RANK", -1))
            if args.local_rank != -1:
                dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            for epoch in range(3):
                model(torch.randn(4, 2)).mean().backward()
                if args.local_rank in [-1, 0]:
                    print(evaluate(args, model))
        """,
        "an object that a class method makes": """
            class Place:
                def __init__(self, index):
                    self.index = index

                @classmethod
                def of_launcher(cls):
                    return cls(int(os.environ["RANK"]))

                @property
                def first(self):
                    return self.index == 0

            dist.init_process_group("gloo")
            place = Place.of_launcher()
            if place.first:
                dist.barrier()  # here
        """,
        "a helper for the first rank of the job or of a node": """
            def is_master(args, local=False):
                return args.local_rank == 0 if local else args.rank == 0

            def evaluate(args, model):
                if not is_master(args):
                    return
                total = model.module(torch.randn(4, 2)).sum().detach()
                dist.all_reduce(total)  # here
                print(total)

            args = argparse.ArgumentParser().parse_args()
            args.rank, args.local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            evaluate(args, model)
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        yield from _mismatched(script)
        reported: set[ast.AST] = set()
        for each in alone(script):
            if each.point.node not in reported:
                reported.add(each.point.node)
                module = script.function_of(each.at).module
                other = module is not each.point.function.module
                yield _violation(each, module.path.rpartition("/")[2] if other else "")


def _mismatched(script: Script) -> Iterator[Violation]:
    """Branches of a test of the rank that both run collectives, but others or in another order."""
    sites = (site for site in script.calls(*COLLECTIVES) if not site.name.endswith("new_group"))
    branches = {at: None for site in sites for at in site.module.ancestors(site.node) if isinstance(at, ast.If)}
    for branch in branches:
        if not branch.orelse or script.ranks.test(branch.test) not in (Ranks.ZERO, Ranks.OTHERS, Ranks.LOCAL_ZERO):
            continue
        first, second = _sequence(script, branch.body), _sequence(script, branch.orelse)
        for one, other in zip(first or (), second or (), strict=False):
            names = [last_name(each.func) for each in (one, other)]
            if names[0] != names[1]:
                yield Violation(
                    other,
                    f"the ranks of this branch run dist.{names[1]} while the others run dist.{names[0]} on line"
                    f" {one.lineno}: the collectives hang, or complete with garbage",
                    "let all ranks run the same collectives in the same order",
                    faults=("F130", "F78"),
                    evidence={"other_line": one.lineno},
                )
                break


def _sequence(script: Script, block: list[ast.stmt]) -> list[ast.Call] | None:
    """Collectives that a branch certainly runs, in order; None if calls in it cannot be read."""
    found: list[ast.Call] = []
    for statement in block:
        if not isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign):
            return None
        calls = [each for each in walk(statement) if isinstance(each, ast.Call)]
        met = [each for each in calls if not _COLLECTIVES.isdisjoint(script.program.callee_names(each))]
        if len(met) > 1 or any(of_own_group(script, each) for each in met):
            return None
        if any(collective_within(script, each) is not None for each in calls if each not in met):
            return None
        found += met
    return found


def _violation(each: Alone, file: str) -> Violation:
    point = each.point
    line = getattr(each.test if each.test is not None else each.at, "lineno", 0)
    guard = f"the test on line {line}" if each.test is not None else f"the guard around line {line}"
    if file:
        guard += f" of {file}"
    if point.certain:
        faults = ("F87", "F78") if point.what.endswith("barrier") else ("F78",)
        advice = f"call {point.what} on all ranks, outside of the branch"
    else:
        faults = ("F78", "F60")
        advice = "call model.module in the evaluation on one rank, or let all ranks evaluate"
    where = {Ranks.SOME: "some ranks"}.get(each.ranks, each.ranks.value)
    return Violation(
        point.node,
        f"{point.what} runs on {where} only, because of {guard}; it waits for the other ranks",
        advice,
        severity=None if point.certain else "warning",
        faults=faults,
        evidence={"test_line": line},
    )
