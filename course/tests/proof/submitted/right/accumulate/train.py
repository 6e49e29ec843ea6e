"""W processes, each with micro-batches: large batches that would not fit at once.

A process goes through its piece of the batch in micro-batches of at most --micro samples. All but the last one only
add to its gradients (`no_sync`); the last one sums over the processes. Each sample weighs 1 / batch, wherever it is,
so the step is that of the mean over the whole batch. Batch norms need the whole batch at once: there it is one.
"""

import argparse
import contextlib
import csv
import math
import os
import sys
import time
import tomllib
from pathlib import Path

import torch
import torch.distributed as dist
from signals import VARIANTS, Signals, make_model, order
from sync_norm import synchronised
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HEAD = ("epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds")
CHECKPOINT = "checkpoint.pt"


def command_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=8192, help="training samples")
    parser.add_argument("--eval-samples", type=int, default=2003, help="evaluation samples")
    parser.add_argument("--data-seed", type=int, default=1)
    parser.add_argument("--variant", choices=VARIANTS, default="plain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=64, help="samples of a step, of all processes")
    parser.add_argument("--micro", type=int, default=128, help="samples of a process at once")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--method", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--cooldown", type=float, default=0.0, help="part at the end in which the rate falls to 0")
    parser.add_argument("--float64", action="store_true")
    parser.add_argument("--stop-at", type=float)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--name")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("result"))
    args = parser.parse_args()
    if args.config:
        # The flags of the run go first and those of the command line after them: the last one counts.
        run = next(r for r in tomllib.loads(args.config.read_text())["runs"] if r["name"] == args.name)
        flags = []
        for key, value in run.items():
            if key in ("name", "workers"):
                continue
            flag = "--" + key.replace("_", "-")
            flags += ([flag] if value else []) if isinstance(value, bool) else [flag, str(value)]
        args = parser.parse_args([*flags, *sys.argv[1:]])
    return args


def pieces(indices, micro):
    """At least one, which may be empty: every process has something to be summed."""
    return indices.split(micro) if len(indices) else [indices]


def step(model, optimizer, data, own, size, args):
    """One step; the loss sum of my samples."""
    optimizer.zero_grad()
    micro = pieces(own, max(1, len(own)) if args.variant == "norm" else args.micro)
    total = 0.0
    for number, indices in enumerate(micro):
        signals, labels = data.batch(indices.tolist())
        with contextlib.nullcontext() if number == len(micro) - 1 else model.no_sync():
            loss = nn.functional.cross_entropy(model(signals), labels, reduction="sum")
            # DDP takes the mean over the processes; here the sum is wanted.
            (loss * dist.get_world_size() / size).backward()
        total += loss.item()
    optimizer.step()
    return total


def rate_at(args, number, total):
    """Constant, with a straight line down at the end."""
    falling = args.cooldown * total
    left = total - number
    return args.lr * min(1.0, left / falling) if falling else args.lr


def put(path, writer):
    fresh = path.parent / f".{path.name}"
    writer(fresh)
    fresh.replace(path)


def write_rows(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([HEAD, *rows])


def work(args, begun):
    rank, world = dist.get_rank(), dist.get_world_size()
    data = Signals(args.samples, seed=args.data_seed)
    exam = Signals(args.eval_samples, seed=args.data_seed + 1_000_000)
    network = synchronised(make_model(args.variant, args.seed))
    model = DistributedDataParallel(network, bucket_cap_mb=100)
    with_gradient = [p for p in network.parameters() if p.requires_grad]
    if args.method == "adam":
        optimizer = torch.optim.Adam(with_gradient, lr=args.lr, foreach=True)
    else:
        optimizer = torch.optim.SGD(with_gradient, lr=args.lr, momentum=args.momentum, foreach=True)
    # A first backward for nothing, after which DDP has its gradients in their final order (restarts then round alike).
    model.eval()
    model(torch.ones(2, 1, 64)).sum().backward()
    optimizer.zero_grad()
    rows = []
    if args.resume and (args.out / CHECKPOINT).exists():
        was = torch.load(args.out / CHECKPOINT, weights_only=True)
        network.load_state_dict(was["network"])
        optimizer.load_state_dict(was["optimizer"])
        rows = was["rows"]

    a_pass = math.ceil(args.samples / args.batch)

    def stop():
        last = rows[-2:]
        return args.stop_at is not None and len(last) == 2 and all(row[5] >= args.stop_at * row[6] for row in last)

    timeout = torch.zeros(1)
    while len(rows) < args.epochs and not stop() and not timeout:
        began = time.monotonic()
        epoch = len(rows)
        model.train()
        loss = 0.0
        for number, whole in enumerate(order(args.samples, args.seed, epoch).split(args.batch), epoch * a_pass):
            rate = rate_at(args, number, args.epochs * a_pass)
            for group in optimizer.param_groups:
                group["lr"] = rate
            cut = [len(whole) * k // world for k in (rank, rank + 1)]
            loss += step(model, optimizer, data, whole[cut[0] : cut[1]], len(whole), args)
        model.eval()
        right = counted = 0
        with torch.no_grad():
            for indices in torch.arange(rank, args.eval_samples, world).split(args.micro):
                signals, labels = exam.batch(indices.tolist())
                right += network(signals).argmax(1).eq(labels).sum().item()
                counted += len(indices)
        numbers = torch.tensor([loss, right, counted], dtype=torch.float64)
        dist.all_reduce(numbers)
        timeout = torch.tensor([float(args.seconds is not None and time.monotonic() - begun > args.seconds)])
        dist.all_reduce(timeout, op=dist.ReduceOp.MAX)
        loss, right, counted = numbers.tolist()
        row = [epoch, (epoch + 1) * args.samples, (epoch + 1) * a_pass, rate, loss / args.samples]
        rows.append([*row, round(right), round(counted), time.monotonic() - began])
        if rank == 0:
            put(args.out / "log.csv", lambda path: write_rows(path, rows))
            put(args.out / f"epoch-{epoch}.pt", lambda path: torch.save(network.state_dict(), path))
            state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "rows": rows}
            put(args.out / CHECKPOINT, lambda path, state=state: torch.save(state, path))
            print(*rows[-1], flush=True)


def main():
    begun = time.monotonic()
    args = command_line()
    torch.set_num_threads(1)
    if args.float64:
        torch.set_default_dtype(torch.float64)
    args.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    if os.environ["WORLD_SIZE"] == "1":
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group("gloo")
    work(args, begun)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
