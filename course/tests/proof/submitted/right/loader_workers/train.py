"""Signals on many processes, each with two loader workers that read ahead.

torchrun --standalone --nproc-per-node 2 train.py --config config.toml --name onecycle --out runs/onecycle
"""

import argparse
import csv
import os
import time
import tomllib
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from signals import VARIANTS, Signals, make_model, order
from sync_norm import synchronised
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, default_collate

COLUMNS = ("epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds")


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--onecycle", action="store_true", help="up to --lr and down again")
    parser.add_argument("--rise", type=float, default=0.3, help="part of the training that goes up")
    parser.add_argument("--loader-workers", type=int, default=2)
    options = parser.parse_args()
    if options.config is not None:
        runs = tomllib.loads(options.config.read_text(encoding="utf-8"))["runs"]
        chosen = next(run for run in runs if run["name"] == options.name)
        parser.set_defaults(**{key: value for key, value in chosen.items() if key != "name"})
        options = parser.parse_args()
    return options


class Batches:
    """A batch sampler: of each batch of all processes the piece of one, which may be empty."""

    def __init__(self, indices, batch, rank, world):
        whole = indices.split(batch)
        self.sizes = [len(piece) for piece in whole]
        self.own = [piece.tensor_split(world)[rank].tolist() for piece in whole]

    def __iter__(self):
        return iter(self.own)

    def __len__(self):
        return len(self.own)


class Ahead:
    """What loader workers do: read one by one, and stack."""

    def __init__(self, data):
        self.none = data.batch([])
        self.kind = torch.get_default_dtype()

    def __call__(self, items):
        if not items:
            return self.none
        signals, labels = default_collate(items)
        return signals.to(self.kind), labels


def loader(data, batches, workers):
    """Workers are forked, so that they need not read the data anew."""
    return DataLoader(
        data,
        batch_sampler=batches,
        collate_fn=Ahead(data),
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )


def train_epoch(model, optimizer, scheduler, feed, sizes, world):
    model.train()
    loss_sum = 0.0
    rate = None
    for (signals, labels), size in zip(feed, sizes, strict=True):
        loss = F.cross_entropy(model(signals), labels, reduction="sum") / size
        optimizer.zero_grad()
        loss.mul(world).backward()
        optimizer.step()
        rate = optimizer.param_groups[0]["lr"]
        if scheduler is not None:
            scheduler.step()
        loss_sum += loss.item() * size
    return loss_sum, rate


def evaluate(network, feed):
    network.eval()
    right = counted = 0
    with torch.no_grad():
        for signals, labels in feed:
            right += (network(signals).argmax(dim=1) == labels).sum().item()
            counted += labels.numel()
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
    network = synchronised(make_model(options.variant, options.seed))
    # No rearranging of gradients after the first step: a resumed run adds in the same order as one that went through.
    model = DDP(network, find_unused_parameters=True)
    trained = [p for p in network.parameters() if p.requires_grad]
    if options.optimizer == "adam":
        optimizer = torch.optim.Adam(trained, lr=options.lr)
    else:
        optimizer = torch.optim.SGD(trained, lr=options.lr, momentum=options.momentum)
    steps_of_epoch = -(-options.samples // options.batch)
    scheduler = None
    if options.onecycle:
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer,
            max_lr=options.lr,
            total_steps=options.epochs * steps_of_epoch + 1,
            pct_start=options.rise,
            cycle_momentum=False,
        )
    rows, good = [], 0
    checkpoint = options.out / "checkpoint.pt"
    if options.resume and checkpoint.exists():
        held = torch.load(checkpoint, weights_only=True)
        network.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optimizer"])
        if scheduler is not None:
            scheduler.load_state_dict(held["scheduler"])
        rows, good = held["rows"], held["good"]
    if rank == 0:
        options.out.mkdir(parents=True, exist_ok=True)

    questions = Batches(torch.arange(options.eval_samples), 512, rank, world)
    out_of_time = False
    for epoch in range(len(rows), options.epochs):
        if good >= 2 or out_of_time:
            break
        began = time.monotonic()
        batches = Batches(order(options.samples, options.seed, epoch), options.batch, rank, world)
        feed = loader(train_data, batches, options.loader_workers)
        loss, rate = train_epoch(model, optimizer, scheduler, feed, batches.sizes, world)
        right, counted = evaluate(network, loader(eval_data, questions, options.loader_workers))
        late = options.seconds is not None and time.monotonic() - begun > options.seconds
        sums = torch.tensor([loss, right, counted, late], dtype=torch.float64)
        dist.all_reduce(sums)
        loss, right, counted, late = sums.tolist()
        right, counted, out_of_time = int(right), int(counted), late > 0
        good = good + 1 if options.stop_at is not None and right >= options.stop_at * counted else 0
        seconds = time.monotonic() - began
        samples, steps = (epoch + 1) * options.samples, (epoch + 1) * steps_of_epoch
        rows.append([epoch, samples, steps, rate, loss / options.samples, right, counted, seconds])
        if rank == 0:
            write_log(options.out / "log.csv", rows)
            save(network.state_dict(), options.out / f"epoch-{epoch}.pt")
            held = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "rows": rows, "good": good}
            held["scheduler"] = None if scheduler is None else scheduler.state_dict()
            save(held, checkpoint)
            print(f"epoch {epoch}: loss {rows[-1][4]:.4f}, {right} of {counted} right, {seconds:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
