"""A rank leaves a training loop because of a value that only it has.

What it does:
    Looks for `break`, `return`, `sys.exit()` and `while` tests in loops in which ranks meet (backward passes of a
    distributed model, collectives), where the test rests on a loss, a metric of one shard, or the rank.

Why is this bad:
    Ranks see different batches, so their losses and metrics differ. One rank leaves the loop while the others wait for
    it in the next all-reduce: the job hangs, or an all-reduce of the loop meets another one behind it.

Repair:
    Decide on a value that is equal on all ranks: all-reduce the metric, or broadcast rank 0's flag, in every round.

Known problems:
    A value that passes a function of another package is taken to be reduced there. Evaluation loaders without a sampler
    give every rank the same data; tests on their metrics are left out.

References:
    F81. https://github.com/ultralytics/yolov5/pull/8345
"""

from __future__ import annotations

from collections.abc import Iterator

from paceline.check.analyses.local_decisions import local_exits, source_of
from paceline.check.analyses.script import Script
from paceline.check.analyses.value_spread import Cause
from paceline.check.rule import Rule, Violation


class LocalBreak(Rule):
    """Exits of loops on local values."""

    code, name, topic = "DP067", "local-break", "control flow"
    faults = ("F81",)
    severity = "error"
    valid = {
        "a metric that is reduced": """
            def evaluate(model, loader):
                hits = torch.zeros(2)
                for x, y in loader:
                    hits += torch.tensor([(model(x).argmax(1) == y).sum().item(), len(y)])
                dist.all_reduce(hits)
                return (hits[0] / hits[1]).item()

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            best = 0.0
            for epoch in range(10):
                for x, y in loader:
                    F.mse_loss(model(x), y).backward()
                    optimizer.step()
                accuracy = evaluate(model, loader)
                if accuracy < best:
                    break
                best = max(best, accuracy)
        """,
        "a flag that rank 0 broadcasts": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                stop = torch.tensor([int(loss.item() < 0.01)])
                dist.broadcast(stop, src=0)
                if stop.item():
                    break
        """,
        "a number of steps": """
            def main(args):
                dist.init_process_group("gloo")
                data = Numbers()
                loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
                model = DDP(nn.Linear(2, 1))
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                steps = 0
                while True:
                    for x, y in loader:
                        F.mse_loss(model(x), y).backward()
                        optimizer.step()
                        steps += 1
                    if steps >= args.max_steps:
                        return

            main(argparse.ArgumentParser().parse_args())
        """,
        "a helper that reduces if the job is distributed": """
            def mean(value):
                if not dist.is_initialized():
                    return value
                tensor = torch.tensor([value])
                dist.all_reduce(tensor)
                return tensor.item() / dist.get_world_size()

            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                loss.backward()
                if mean(loss.item()) < 0.01:
                    break
        """,
        "a signal that rank 0 tells the others about": """
            import signal

            STOP = False

            def on_signal(number, frame):
                global STOP
                STOP = True

            def main():
                signal.signal(signal.SIGUSR1, on_signal)
                dist.init_process_group("gloo")
                model = DDP(nn.Linear(2, 1))
                for step in range(100):
                    model(torch.randn(4, 2)).mean().backward()
                    stop = torch.tensor(float(STOP))
                    dist.all_reduce(stop, op=dist.ReduceOp.MAX)
                    if stop.item():
                        break

            main()
        """,
    }
    invalid = {
        "the loss of the batch": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                if loss.item() < 0.01:  # here
                    break
        """,
        "patience on the score of a shard": """
            class Trainer:
                def __init__(self):
                    self.model = DDP(nn.Linear(2, 1))
                    self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
                    data = Numbers()
                    self.loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
                    self.held_out = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=False))
                    self.best, self.waited = 0.0, 0

                def evaluate(self):
                    total = 0.0
                    for x, y in self.held_out:
                        total += F.mse_loss(self.model(x), y).item()
                    return total / len(self.held_out)

                def fit(self):
                    for epoch in range(10):
                        for x, y in self.loader:
                            F.mse_loss(self.model(x), y).backward()
                            self.optimizer.step()
                        value = self.evaluate()
                        if value < self.best:
                            self.best, self.waited = value, 0
                        else:
                            self.waited += 1
                        if self.waited > 3:  # here
                            break

            dist.init_process_group("gloo")
            Trainer().fit()
        """,
        "a stop that rank 0 keeps for itself": """
            dist.init_process_group("gloo")
            data = Numbers()
            loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
            model = DDP(nn.Linear(2, 1))
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                loss.backward()
                if dist.get_rank() == 0 and os.path.exists("stop"):  # here
                    break
        """,
        "a loop until the loss is small": """
            dist.init_process_group("gloo")
            x, y = torch.randn(100, 2), torch.randn(100, 1)
            x, y = x[dist.get_rank() :: dist.get_world_size()], y[dist.get_rank() :: dist.get_world_size()]
            model = DDP(nn.Linear(2, 1))
            loss = torch.tensor(1.0)
            while loss.item() > 0.01:  # here
                loss = F.mse_loss(model(x), y)
                loss.backward()
        """,
        "a signal that ranks notice at different steps": """
            import signal

            STOP = False

            def on_signal(number, frame):
                global STOP
                STOP = True

            def main():
                signal.signal(signal.SIGUSR1, on_signal)
                dist.init_process_group("gloo")
                model = DDP(nn.Linear(2, 1))
                for step in range(100):
                    model(torch.randn(4, 2)).mean().backward()
                    if STOP:  # here
                        break

            main()
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        reported = set()
        for _, each in local_exits(script):
            if each.origin.cause not in (Cause.DATA, Cause.RANK) or each.test in reported:
                continue
            reported.add(each.test)
            if each.origin.cause is Cause.RANK:
                reason = "by a test of the rank"
            else:
                reason = f"by a value of this rank alone, from {source_of(each.origin)}"
            yield Violation(
                each.test,
                f"a rank leaves this loop {reason}, while the others wait for it in the next collective",
                "all-reduce the value, or broadcast the decision of rank 0, before the test",
                evidence={"leaves_line": getattr(each.leaves, "lineno", 0)},
            )
