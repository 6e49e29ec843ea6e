"""Signals on many processes, one of them the head: it sums gradients, takes the step, and sends the weights to all.

The optimizer's state is at the head only. Alone, the head has nobody to talk to.
"""

import argparse
import csv
import math
import os
import signal
import sys
import time
import tomllib
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from signals import VARIANTS, Signals, make_model, order
from sync_norm import synchronised

COLUMNS = ("epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds")
HEAD = 0


def read_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=8192)
    parser.add_argument("--eval-samples", type=int, default=2003)
    parser.add_argument("--data-seed", type=int, default=1)
    parser.add_argument("--variant", choices=VARIANTS, default="plain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--float64", action="store_true")
    parser.add_argument("--stop-at", type=float)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--name")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("result"))
    parser.add_argument("--optimizer", choices=("SGD", "AdamW"), default="SGD")
    parser.add_argument("--decay", type=float, default=0.0, help="weight decay")
    parser.add_argument("--to-zero", action="store_true", help="a linear schedule")
    options = parser.parse_args()
    if options.config is not None:
        runs = tomllib.loads(options.config.read_text(encoding="utf-8"))["runs"]
        (run,) = (run for run in runs if run["name"] == options.name)
        parser.set_defaults(**{key: value for key, value in run.items() if key != "name"})
        options = parser.parse_args()
    return options


class Network:
    """The one between the processes."""

    def __init__(self):
        self.size = int(os.environ.get("WORLD_SIZE", 1))
        self.rank = int(os.environ.get("RANK", HEAD))
        if self.size > 1:
            dist.init_process_group(backend="gloo", rank=self.rank, world_size=self.size)

    @property
    def head(self):
        return self.rank == HEAD

    def to_head(self, tensor):
        if self.size > 1:
            dist.reduce(tensor, dst=HEAD)
        return tensor

    def from_head(self, tensor):
        if self.size > 1:
            dist.broadcast(tensor, src=HEAD)
        return tensor

    def part(self, sequence):
        """Mine of a list: the r-th of W parts, as even as can be, the later ones larger."""
        cuts = [len(sequence) * k // self.size for k in range(self.size + 1)]
        return sequence[cuts[self.rank] : cuts[self.rank + 1]]


def flat(tensors):
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def unflat(vector, tensors):
    first = 0
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(vector[first : first + tensor.numel()].view_as(tensor))
            first += tensor.numel()


class Store:
    """Everything that is kept of a training, in a folder; only the head has one that writes."""

    def __init__(self, folder):
        self.folder = folder

    def read(self):
        path = self.folder / "checkpoint.pt"
        return torch.load(path, weights_only=True) if path.exists() else None

    def write(self, name, content):
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.incomplete").open("w" if name.endswith("csv") else "wb") as file:
            if name.endswith("csv"):
                csv.writer(file, lineterminator="\n").writerows(content)
            else:
                torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        (self.folder / f"{name}.incomplete").replace(self.folder / name)


def training(options, network, began):
    data, test = (
        Signals(options.samples, options.data_seed),
        Signals(options.eval_samples, options.data_seed + 1_000_000),
    )
    model = synchronised(make_model(options.variant, options.seed))
    weights = [p for p in model.parameters() if p.requires_grad]
    if options.optimizer == "AdamW":
        optimizer = torch.optim.AdamW(weights, lr=options.lr, weight_decay=options.decay)
    else:
        optimizer = torch.optim.SGD(weights, lr=options.lr, momentum=options.momentum, weight_decay=options.decay)
    store, rows = Store(options.out), []
    held = store.read() if options.resume else None
    if held is not None:
        model.load_state_dict(held["model"])
        rows = held["rows"]
        if network.head:
            optimizer.load_state_dict(held["optimizer"])
    steps = math.ceil(options.samples / options.batch)
    goal = math.inf if options.stop_at is None else options.stop_at

    def twice():
        return len(rows) >= 2 and all(row[5] >= goal * row[6] for row in rows[-2:])

    more = torch.tensor(len(rows) < options.epochs and not twice())
    while more:
        epoch, t = len(rows), time.monotonic()
        loss_sum = torch.zeros(1, dtype=torch.float64)
        model.train()
        for k, batch in enumerate(order(options.samples, options.seed, epoch).split(options.batch)):
            signals, labels = data.batch(network.part(batch.tolist()))
            loss = F.cross_entropy(model(signals), labels, reduction="sum")
            gradient = network.to_head(flat(torch.autograd.grad(loss, weights)))
            number = epoch * steps + k
            lr = options.lr * (1 - number / (steps * options.epochs) if options.to_zero else 1)
            if network.head:
                for weight in weights:
                    weight.grad = torch.empty_like(weight)
                unflat(gradient / len(batch), [weight.grad for weight in weights])
                optimizer.param_groups[0]["lr"] = lr
                optimizer.step()
            if network.size > 1:
                unflat(network.from_head(flat(weights)), weights)
            loss_sum += loss.item()

        model.eval()
        answers = torch.zeros(2, dtype=torch.int64)
        mine = network.part(range(options.eval_samples))
        with torch.no_grad():
            for first in range(0, len(mine), 250):
                signals, labels = test.batch(mine[first : first + 250])
                answers += torch.tensor([int((model(signals).argmax(1) == labels).sum()), len(labels)])
        late = torch.tensor([int(options.seconds is not None and time.monotonic() - began > options.seconds)])
        network.to_head(loss_sum)
        network.to_head(answers)
        network.to_head(late)
        if network.head:
            right, counted = answers.tolist()
            row = [epoch, (epoch + 1) * options.samples, (epoch + 1) * steps, lr, loss_sum.item() / options.samples]
            rows.append([*row, right, counted, time.monotonic() - t])
            store.write("log.csv", [COLUMNS, *rows])
            store.write(f"epoch-{epoch}.pt", model.state_dict())
            held = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rows": rows}
            store.write("checkpoint.pt", held)
            print(f"epoch {epoch}: {right}/{counted}", flush=True)
            more = torch.tensor(len(rows) < options.epochs and not twice() and not late)
        else:
            rows.append(None)  # the head knows them
        more = network.from_head(more.to(torch.int64))


if __name__ == "__main__":
    start = time.monotonic()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    given = read_options()
    torch.set_num_threads(1)
    if given.float64:
        torch.set_default_dtype(torch.float64)
    processes = Network()
    training(given, processes, start)
    if processes.size > 1:
        dist.barrier()
        dist.destroy_process_group()
    # Threads of gloo are not worth waiting for, and sometimes end badly while Python shuts down.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
