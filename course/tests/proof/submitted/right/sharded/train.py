"""W processes, each of which keeps and updates one W-th of the weights' optimizer state.

All trained weights are views into one vector. A step: gradients into a vector of the same layout, reduce-scatter (each
process gets the sum of its own piece only), the optimizer on that piece, all-gather of the pieces. That is what one
all-reduce sends, and the optimizer's work and memory are shared.

In the checkpoint the state is whole: it is gathered at the end of each epoch.
"""

import argparse
import csv
import math
import os
import time
import tomllib
from pathlib import Path

import torch
import torch.distributed as dist
from signals import VARIANTS, Signals, make_model, order
from sync_norm import synchronised
from torch import nn

COLUMNS = ("epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds")


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=8192, help="training samples")
    parser.add_argument("--eval-samples", type=int, default=2003, help="evaluation samples")
    parser.add_argument("--data-seed", type=int, default=1, help="other seeds give other samples")
    parser.add_argument("--variant", choices=VARIANTS, default="plain", help="of the network")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and of the order")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=64, help="samples of one step, of all processes together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--float64", action="store_true", help="compute in float64")
    parser.add_argument("--stop-at", type=float)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--name")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("result"))
    parser.add_argument("--rule", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--half-life", type=float, default=math.inf, help="epochs in which the rate is halved")
    options = parser.parse_args()
    if options.config is not None:
        runs = tomllib.loads(options.config.read_text(encoding="utf-8"))["runs"]
        chosen = next(run for run in runs if run["name"] == options.name)
        parser.set_defaults(**{key: value for key, value in chosen.items() if key != "name"})
        options = parser.parse_args()
    return options


class Sharded:
    """The trained weights as one vector, and the piece of it that is this process's own."""

    def __init__(self, model, make_optimizer):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.weights = [p for p in model.parameters() if p.requires_grad]  # a weight that is used twice comes once
        self.sizes = [p.numel() for p in self.weights]
        self.length = sum(self.sizes)
        piece = -(-self.length // self.world)
        self.vector = torch.zeros(piece * self.world)
        self.gradient = torch.zeros(piece * self.world)  # the padding at its end stays 0
        first = 0
        for weight, size in zip(self.weights, self.sizes, strict=True):
            self.vector[first : first + size] = weight.detach().flatten()
            weight.data = self.vector[first : first + size].view_as(weight)
            weight.grad = self.gradient[first : first + size].view_as(weight)
            first += size
        self.own = nn.Parameter(self.vector[self.rank * piece : (self.rank + 1) * piece].clone())
        self.own.grad = torch.zeros_like(self.own)
        self.optimizer = make_optimizer([self.own])

    def zero_grad(self):
        self.gradient.zero_()

    @torch.no_grad()
    def step(self, count):
        """Gradients here are sums over own samples; count is that of the whole batch."""
        dist.reduce_scatter_tensor(self.own.grad, self.gradient)
        self.own.grad /= count
        self.optimizer.step()
        dist.all_gather_into_tensor(self.vector, self.own.detach())

    def whole_state(self):
        """The optimizer's state of all processes; every process has to call this."""
        whole = {}
        for name, value in self.optimizer.state[self.own].items():
            if torch.is_tensor(value) and value.shape == self.own.shape:
                together = torch.empty_like(self.vector)
                dist.all_gather_into_tensor(together, value)
                whole[name] = together[: self.length].clone()
            else:
                whole[name] = value
        return whole

    def load_state(self, whole):
        piece = len(self.own)
        for name, value in whole.items():
            if torch.is_tensor(value) and value.shape == (self.length,):
                padded = torch.zeros_like(self.vector)
                padded[: self.length] = value
                value = padded[self.rank * piece : (self.rank + 1) * piece].clone()
            self.optimizer.state[self.own][name] = value


def evaluate(model, data, rank, world):
    model.eval()
    right = counted = 0
    with torch.no_grad():
        for indices in torch.arange(len(data)).tensor_split(world)[rank].split(256):
            signals, labels = data.batch(indices.tolist())
            right += (model(signals).argmax(dim=1) == labels).sum().item()
            counted += len(labels)
    return right, counted


def write_log(path, rows):
    fresh = path.with_suffix(".new")
    with fresh.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    fresh.replace(path)


def save(content, path):
    fresh = path.with_suffix(".new")
    torch.save(content, fresh)
    fresh.replace(path)


def main():
    begun = time.monotonic()
    options = read_options()
    torch.set_num_threads(1)
    if options.float64:
        torch.set_default_dtype(torch.float64)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rank, world = dist.get_rank(), dist.get_world_size()
    train_data = Signals(options.samples, seed=options.data_seed)
    eval_data = Signals(options.eval_samples, seed=options.data_seed + 1_000_000)
    model = synchronised(make_model(options.variant, options.seed))
    checkpoint = options.out / "checkpoint.pt"
    held = torch.load(checkpoint, weights_only=True) if options.resume and checkpoint.exists() else None
    if held is not None:
        model.load_state_dict(held["model"])

    def rule(weights):
        if options.rule == "adam":
            return torch.optim.Adam(weights, lr=options.lr)
        return torch.optim.SGD(weights, lr=options.lr, momentum=options.momentum)

    sharded = Sharded(model, rule)
    rows, good, late = [], 0, False
    if held is not None:
        sharded.load_state(held["state"])
        rows, good = held["rows"], held["good"]
    if rank == 0:
        options.out.mkdir(parents=True, exist_ok=True)
    steps_of_epoch = math.ceil(options.samples / options.batch)

    for epoch in range(len(rows), options.epochs):
        if good == 2 or late:
            break
        began = time.monotonic()
        model.train()
        loss_sum = 0.0
        rate = options.lr * 0.5 ** (epoch / options.half_life)
        sharded.optimizer.param_groups[0]["lr"] = rate
        for indices in order(options.samples, options.seed, epoch).split(options.batch):
            signals, labels = train_data.batch(indices.tensor_split(world)[rank].tolist())
            loss = nn.functional.cross_entropy(model(signals), labels, reduction="sum")
            sharded.zero_grad()
            loss.backward()
            sharded.step(len(indices))
            loss_sum += loss.item()
        right, counted = evaluate(model, eval_data, rank, world)
        up = options.seconds is not None and time.monotonic() - begun > options.seconds
        sums = torch.tensor([loss_sum, right, counted, up], dtype=torch.float64)
        dist.all_reduce(sums)
        loss_sum, right, counted, late = sums.tolist()
        state = sharded.whole_state()
        good = good + 1 if options.stop_at is not None and right >= options.stop_at * counted else 0
        row = [epoch, (epoch + 1) * options.samples, (epoch + 1) * steps_of_epoch, rate, loss_sum / options.samples]
        rows.append([*row, int(right), int(counted), time.monotonic() - began])
        if rank == 0:
            # Clones: as views, each of them would carry the whole vector into the file.
            weights = {name: value.clone() for name, value in model.state_dict().items()}
            write_log(options.out / "log.csv", rows)
            save(weights, options.out / f"epoch-{epoch}.pt")
            save({"model": weights, "state": state, "rows": rows, "good": good}, checkpoint)
            print(f"epoch {epoch}: {int(right)} of {int(counted)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
