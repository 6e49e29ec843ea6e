"""Signals on W processes: weights are broadcast once, gradients are gathered and averaged by hand, as counts say.

Muon for the kernels where a configuration asks for it: momentum, made orthogonal by a few Newton-Schulz rounds.
"""

import argparse
import csv
import os
import pathlib
import time
import tomllib

import signals
import torch
import torch.distributed as dist
import torch.nn.functional as F
from sync_norm import synchronised

COLUMNS = ("epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds")


def arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--samples", type=int, default=8192)
    p.add_argument("--eval-samples", type=int, default=2003)
    p.add_argument("--data-seed", type=int, default=1)
    p.add_argument("--variant", choices=signals.VARIANTS, default="plain")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--momentum", type=float, default=0.9)
    p.add_argument("--float64", action="store_true")
    p.add_argument("--stop-at", type=float)
    p.add_argument("--seconds", type=float)
    p.add_argument("--config", type=pathlib.Path)
    p.add_argument("--name")
    p.add_argument("--resume", action="store_true")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("result"))
    p.add_argument("--kernel-lr", type=float, help="Muon with this rate for the kernels; without, SGD for all")
    p.add_argument("--linear-decay", action="store_true", help="rates fall to nothing along a line")
    a = p.parse_args()
    if a.config:
        run = [each for each in tomllib.loads(a.config.read_text())["runs"] if each["name"] == a.name]
        p.set_defaults(**{k: v for k, v in run[0].items() if k != "name"})
        a = p.parse_args()
    return a


class Muon(torch.optim.Optimizer):
    def __init__(self, kernels, lr, momentum=0.9):
        super().__init__(kernels, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for kernel in group["params"]:
                state = self.state[kernel]
                if "buffer" not in state:
                    state["buffer"] = torch.zeros_like(kernel)
                state["buffer"].mul_(group["momentum"]).add_(kernel.grad)
                ahead = kernel.grad + group["momentum"] * state["buffer"]
                kernel.add_(orthogonal(ahead.flatten(1)).view_as(kernel), alpha=-group["lr"])


def orthogonal(matrix, rounds=6):
    """Nearly U V' of the singular value decomposition U S V'."""
    turned = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if turned else matrix) / (matrix.norm() + 1e-12)
    for _ in range(rounds):
        square = x @ x.T
        x = 2.0 * x - 1.5 * square @ x + 0.5 * square @ square @ x
    return x.T if turned else x


class Many:
    """Gathering, for one process and for many."""

    def __init__(self):
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        dist.init_process_group("gloo", **({} if "RANK" in os.environ else {"store": dist.HashStore(), **self.place()}))

    def place(self):
        return {"rank": self.rank, "world_size": self.world}

    def average(self, parameters, count):
        """Gradients: the mean over the samples of all processes. `count` own samples gave the own means."""
        own = torch.cat([p.grad.flatten() for p in parameters] + [torch.tensor([float(count)])])
        table = [torch.empty_like(own) for _ in range(self.world)]
        dist.all_gather(table, own)
        table = torch.stack(table)
        counts = table[:, -1]
        mean = (table[:, :-1] * (counts / counts.sum())[:, None]).sum(dim=0)
        for p, part in zip(parameters, mean.split([p.numel() for p in parameters]), strict=True):
            p.grad.copy_(part.view_as(p))

    def told(self, thing):
        """What each process says, as a list."""
        answers = [None] * self.world
        dist.all_gather_object(answers, thing)
        return answers


def mean_loss(model, x, y):
    """Mean over own samples; a graph with zero gradients where there are none."""
    scores = model(x)
    return F.cross_entropy(scores, y) if len(y) else scores.sum()


def store(path, how):
    how(path.with_suffix(".half"))
    path.with_suffix(".half").replace(path)


def table_into(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])


def train(a, many, begun):
    data = signals.Signals(a.samples, a.data_seed)
    test = signals.Signals(a.eval_samples, a.data_seed + 1_000_000)
    model = synchronised(signals.make_model(a.variant, a.seed))
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor, 0)
    weights = [p for p in model.parameters() if p.requires_grad]
    kernels = [p for p in weights if p.dim() == 3] if a.kernel_lr else []
    rest = [p for p in weights if all(p is not kernel for kernel in kernels)]
    optimizers = [torch.optim.SGD(rest, lr=a.lr, momentum=a.momentum)]
    if kernels:
        optimizers.append(Muon(kernels, a.kernel_lr, a.momentum))
    rates = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    lines = []
    held = a.out / "checkpoint.pt"
    if a.resume and held.exists():
        was = torch.load(held, weights_only=True)
        model.load_state_dict(was["model"])
        for optimizer, state in zip(optimizers, was["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        lines = was["lines"]
    a.out.mkdir(exist_ok=True, parents=True)
    step = sum(-(-a.samples // a.batch) for _ in lines)
    last_step = a.epochs * -(-a.samples // a.batch)
    quiet = a.stop_at is None

    while len(lines) < a.epochs:
        if not quiet and len(lines) > 1 and min(r / c for *_, r, c, _ in lines[-2:]) >= a.stop_at:
            break
        began = time.time()
        epoch = len(lines)
        model.train()
        losses = 0.0
        for batch in torch.split(signals.order(a.samples, a.seed, epoch), a.batch):
            own = batch[many.rank :: many.world]
            x, y = data.batch(own.tolist())
            loss = mean_loss(model, x, y) if a.variant != "norm" else F.cross_entropy(model(x), y, reduction="sum")
            for optimizer in optimizers:
                optimizer.zero_grad()
            if a.variant == "norm":
                # Through the shared statistics a sample moves the losses of others: here only sums may be added.
                loss.backward()
                many.average(weights, 1)
                for p in weights:
                    p.grad.mul_(many.world / len(batch))
                losses += loss.item()
            else:
                loss.backward()
                many.average(weights, len(y))
                losses += loss.item() * len(y)
            for optimizer, rate in zip(optimizers, rates, strict=True):
                optimizer.param_groups[0]["lr"] = rate * (1 - step / last_step if a.linear_decay else 1)
                optimizer.step()
            step += 1
        model.eval()
        right = 0
        share = torch.arange(many.rank, a.eval_samples, many.world)
        with torch.no_grad():
            for part in share.split(100):
                x, y = test.batch(part.tolist())
                right += int(torch.sum(model(x).argmax(1) == y))
        said = many.told((losses, right, len(share), a.seconds is not None and time.time() - begun > a.seconds))
        sums = [sum(values) for values in zip(*said, strict=True)]
        lr = optimizers[0].param_groups[0]["lr"]
        line = [epoch, (epoch + 1) * a.samples, step, lr, sums[0] / a.samples, sums[1], sums[2], time.time() - began]
        lines.append(line)
        if many.rank == 0:
            content = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "lines": lines}
            store(a.out / "log.csv", lambda path: table_into(path, lines))
            store(a.out / f"epoch-{epoch}.pt", lambda path, content=content: torch.save(content["model"], path))
            store(held, lambda path, content=content: torch.save(content, path))
            print(line, flush=True)
        if sums[3]:
            break


if __name__ == "__main__":
    start = time.time()
    args = arguments()
    torch.set_num_threads(1)
    if args.float64:
        torch.set_default_dtype(torch.double)
    everybody = Many()
    train(args, everybody, start)
    dist.destroy_process_group()
