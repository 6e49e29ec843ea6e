"""The training as functions of one vector: loss, gradient, update. The state is a handful of tensors, and nothing else.

vector -> weights by name -> torch.func.functional_call -> loss -> gradient of the vector -> sum over processes
"""

import argparse
import csv
import functools
import math
import os
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from signals import VARIANTS, Signals, make_model, order
from sync_norm import synchronised
from torch.func import functional_call
from torch.nn.functional import cross_entropy

HEADER = ["epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds"]


class State(NamedTuple):
    """All that a step changes, but the statistics of batch norms: these live in the network."""

    vector: torch.Tensor
    first: torch.Tensor  # momentum
    second: torch.Tensor  # mean square, of Adam
    step: int


class Shape(NamedTuple):
    """Which part of the vector belongs to which weight."""

    names: list
    sizes: list
    shapes: list


def shape_of(network):
    trained = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
    return Shape([n for n, _ in trained], [p.numel() for _, p in trained], [p.shape for _, p in trained])


def to_vector(network, shape):
    named = dict(network.named_parameters())
    return torch.cat([named[name].detach().flatten() for name in shape.names])


def by_name(vector, shape):
    parts = vector.split(shape.sizes)
    return {name: part.view(form) for name, part, form in zip(shape.names, parts, shape.shapes, strict=True)}


def loss_and_gradient(network, shape, vector, x, y):
    """Sums over the samples."""
    leaf = vector.detach().requires_grad_()
    loss = cross_entropy(functional_call(network, by_name(leaf, shape), (x,)), y, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.item(), gradient


def sgd(state, gradient, lr, momentum):
    first = gradient if state.step == 0 else momentum * state.first + gradient
    return State(state.vector - lr * first, first, state.second, state.step + 1)


def adam(state, gradient, lr, _, near=0.9, far=0.99, eps=1e-8):
    step = state.step + 1
    first = near * state.first + (1 - near) * gradient
    second = far * state.second + (1 - far) * gradient**2
    move = (first / (1 - near**step)) / ((second / (1 - far**step)).sqrt() + eps)
    return State(state.vector - lr * move, first, second, step)


def summed(tensor):
    if dist.is_initialized():
        dist.all_reduce(tensor)
    return tensor


def share(n, rank, world):
    return slice(n * rank // world, n * (rank + 1) // world)


def train_epoch(state, step, batches, data, gradient_of, rank, world):
    losses = []
    for batch in batches:
        x, y = data.batch(batch[share(len(batch), rank, world)].tolist())
        loss, gradient = gradient_of(state.vector, x, y)
        state, lr = step(state, summed(gradient) / len(batch))
        losses.append(loss)
    return state, math.fsum(losses), lr


@torch.no_grad()
def count_right(network, weights, data, indices):
    right = 0
    for k in range(0, len(indices), 256):
        x, y = data.batch(indices[k : k + 256])
        right += (functional_call(network, weights, (x,)).argmax(1) == y).sum().item()
    return right


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = {"samples": 8192, "eval-samples": 2003, "data-seed": 1, "seed": 0, "epochs": 6, "batch": 64}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in {"lr": 0.05, "momentum": 0.9, "stop-at": None, "seconds": None, "floor": 1.0}.items():
        parser.add_argument(f"--{name}", type=float, default=default)
    for name in ("float64", "resume", "adam"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--variant", choices=VARIANTS, default="plain")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--name")
    parser.add_argument("--out", type=Path, default=Path("result"))
    options = parser.parse_args()
    if options.config is None:
        return options
    runs = {run["name"]: run for run in tomllib.loads(options.config.read_text())["runs"]}
    parser.set_defaults(**{key: runs[options.name][key] for key in runs[options.name] if key != "name"})
    return parser.parse_args()


def written(path, write):
    beside = Path(f"{path}~")
    write(beside)
    os.replace(beside, path)


def log(rows, path):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows])


def plain_weights(network, state, shape):
    """A state_dict of the plain network; both names of a weight that is used twice are in it."""
    network.load_state_dict(by_name(state.vector, shape), strict=False)
    return {name: value.clone() for name, value in network.state_dict().items()}


def main():
    begun = time.monotonic()
    o = read_options()
    torch.set_num_threads(1)
    if o.float64:
        torch.set_default_dtype(torch.float64)
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world > 1:
        dist.init_process_group("gloo")
    data, exam = Signals(o.samples, o.data_seed), Signals(o.eval_samples, o.data_seed + 1_000_000)
    network = synchronised(make_model(o.variant, o.seed))
    shape = shape_of(network)
    start = to_vector(network, shape)
    state, rows = State(start, torch.zeros_like(start), torch.zeros_like(start), 0), []
    if o.resume and (o.out / "checkpoint.pt").exists():
        held = torch.load(o.out / "checkpoint.pt", weights_only=True)
        network.load_state_dict(held["network"])  # frozen layers and statistics
        state, rows = State(*held["state"]), held["rows"]
    elif rank == 0:
        o.out.mkdir(parents=True, exist_ok=True)
    steps = -(-o.samples // o.batch)

    def step(state, gradient):
        falling = (1 + math.cos(math.pi * state.step / (o.epochs * steps))) / 2
        lr = o.lr * (o.floor + (1 - o.floor) * falling)
        return (adam if o.adam else sgd)(state, gradient, lr, o.momentum), lr

    gradient_of = functools.partial(loss_and_gradient, network, shape)

    def done():
        return o.stop_at is not None and len(rows) > 1 and all(r[5] >= o.stop_at * r[6] for r in rows[-2:])

    up = False
    while not up and not done() and len(rows) < o.epochs:
        t, epoch = time.monotonic(), len(rows)
        batches = order(o.samples, o.seed, epoch).split(o.batch)
        network.train()
        state, loss, lr = train_epoch(state, step, batches, data, gradient_of, rank, world)
        network.eval()
        indices = range(o.eval_samples)[share(o.eval_samples, rank, world)]
        right = count_right(network, by_name(state.vector, shape), exam, indices)
        late = float(o.seconds is not None and time.monotonic() - begun > o.seconds)
        sums = summed(torch.tensor([loss, right, len(indices), late], dtype=torch.float64)).tolist()
        row = [epoch, (epoch + 1) * o.samples, state.step, lr, sums[0] / o.samples, int(sums[1]), int(sums[2])]
        rows.append([*row, time.monotonic() - t])
        up = sums[3] > 0
        if rank == 0:
            weights = plain_weights(network, state, shape)
            held = {"network": weights, "state": tuple(state), "rows": rows}
            written(o.out / "log.csv", functools.partial(log, rows))
            written(o.out / f"epoch-{epoch}.pt", functools.partial(torch.save, weights))
            written(o.out / "checkpoint.pt", functools.partial(torch.save, held))
            print(*rows[-1], flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
