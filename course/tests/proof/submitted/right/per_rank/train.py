"""Signals on W processes. Each of them keeps a log and a checkpoint of its own; a thread reads one batch ahead.

    --out/log.csv, epoch-K.pt                    by process 0
    --out/process-R.log                          what process R had to say
    --out/checkpoint-R-K.pt                      of process R after epoch K; the last two are kept

A kill may come between two of these writes, so that processes hold different last epochs. They tell each other, and all
begin after the last epoch that everybody has.
"""

import argparse
import csv
import logging
import math
import os
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from signals import VARIANTS, Signals, make_model, order
from sync_norm import synchronised
from torch import nn

COLUMNS = ("epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds")
log = logging.getLogger("train")


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=8192, help="training samples")
    parser.add_argument("--eval-samples", type=int, default=2003, help="evaluation samples")
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
    parser.add_argument("--method", choices=("SGD", "NAdam", "RAdam"), default="SGD")
    parser.add_argument("--plan", choices=("flat", "cosine"), default="flat")
    options = parser.parse_args()
    if options.config is not None:
        runs = tomllib.loads(options.config.read_text(encoding="utf-8"))["runs"]
        chosen = next(run for run in runs if run["name"] == options.name)
        parser.set_defaults(**{key: value for key, value in chosen.items() if key != "name"})
        options = parser.parse_args()
    return options


def ahead(data, pieces):
    """Batches of these pieces, each read while the one before it is worked on."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        waiting = None
        for piece in pieces:
            fresh = reader.submit(data.batch, piece)
            if waiting is not None:
                yield waiting.result()
            waiting = fresh
        if waiting is not None:
            yield waiting.result()


class Gradients:
    """One buffer, of which every gradient is a part: nothing is copied to be sent."""

    def __init__(self, weights):
        self.buffer = torch.zeros(sum(w.numel() for w in weights))
        for weight, part in zip(weights, self.buffer.split([w.numel() for w in weights]), strict=True):
            weight.grad = part.view_as(weight)

    def mean(self, count):
        dist.all_reduce(self.buffer)
        self.buffer.div_(count)


class Checkpoints:
    """Of one process."""

    def __init__(self, folder, rank):
        self.folder, self.rank = folder, rank

    def path(self, epoch):
        return self.folder / f"checkpoint-{self.rank}-{epoch}.pt"

    def epochs(self):
        found = self.folder.glob(f"checkpoint-{self.rank}-*.pt")
        return sorted(int(path.stem.rpartition("-")[2]) for path in found)

    def agreed(self):
        """The last epoch of which all processes have a checkpoint; -1 for none."""
        last = torch.tensor(max(self.epochs(), default=-1))
        dist.all_reduce(last, op=dist.ReduceOp.MIN)
        return int(last)

    def save(self, epoch, content):
        save(content, self.path(epoch))
        for old in self.epochs():
            if old < epoch - 1 or old > epoch:  # later ones are of a training before a kill
                self.path(old).unlink()


def save(content, path):
    fresh = path.with_suffix(f".{os.getpid()}")
    torch.save(content, fresh)
    fresh.replace(path)


def write_log(path, rows):
    fresh = path.with_suffix(".new")
    with fresh.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    fresh.replace(path)


def make_optimizer(options, weights):
    if options.method == "SGD":
        return torch.optim.SGD(weights, lr=options.lr, momentum=options.momentum)
    return getattr(torch.optim, options.method)(weights, lr=options.lr)


def train(options, begun, rank, world):
    data = Signals(options.samples, options.data_seed)
    test = Signals(options.eval_samples, options.data_seed + 1_000_000)
    model = synchronised(make_model(options.variant, options.seed))
    weights = [p for p in model.parameters() if p.requires_grad]
    gradients, optimizer = Gradients(weights), make_optimizer(options, weights)
    checkpoints, rows = Checkpoints(options.out, rank), []
    torch.manual_seed(options.seed * 1000 + rank)  # nothing here draws; whoever adds noise finds its own stream saved
    if options.resume and (last := checkpoints.agreed()) >= 0:
        held = torch.load(checkpoints.path(last), weights_only=True)
        model.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optimizer"])
        torch.set_rng_state(held["random"])
        rows = held["rows"]
        log.info("going on after epoch %d", last)
    else:
        for old in checkpoints.epochs():
            checkpoints.path(old).unlink()
    if rank == 0:
        for path in options.out.glob("*.[0-9]*"):  # halves of a killed process 0 and its like
            if path.suffix[1:].isdigit():
                path.unlink()
    dist.barrier()
    steps = math.ceil(options.samples / options.batch)

    for epoch in range(len(rows), options.epochs):
        if options.stop_at is not None and len(rows) > 1 and all(r[5] >= options.stop_at * r[6] for r in rows[-2:]):
            log.info("good enough")
            return
        began = time.monotonic()
        batches = order(options.samples, options.seed, epoch).split(options.batch)
        own = [batch.tensor_split(world)[rank].tolist() for batch in batches]
        loss_sum = 0.0
        model.train()
        for number, (batch, (x, y)) in enumerate(zip(batches, ahead(data, own), strict=True), epoch * steps):
            rate = options.lr
            if options.plan == "cosine":
                rate *= math.cos(math.pi / 2 * number / (options.epochs * steps)) ** 2
            optimizer.param_groups[0]["lr"] = rate
            gradients.buffer.zero_()
            loss = nn.functional.cross_entropy(model(x), y, reduction="sum")
            loss.backward()
            gradients.mean(len(batch))
            optimizer.step()
            loss_sum += loss.item()
        model.eval()
        right = counted = 0
        mine = [piece.tolist() for piece in torch.arange(options.eval_samples).tensor_split(world)[rank].split(256)]
        with torch.no_grad():
            for x, y in ahead(test, mine):
                right += (model(x).argmax(1) == y).sum().item()
                counted += len(y)
        log.info("epoch %d: own loss %.4f, %d of %d", epoch, loss_sum, right, counted)
        late = options.seconds is not None and time.monotonic() - begun > options.seconds
        sums = torch.tensor([loss_sum, right, counted, late], dtype=torch.float64)
        dist.all_reduce(sums)
        loss_sum, right, counted, late = sums.tolist()
        row = [epoch, (epoch + 1) * options.samples, (epoch + 1) * steps, rate, loss_sum / options.samples]
        rows.append([*row, int(right), int(counted), time.monotonic() - began])
        if rank == 0:
            write_log(options.out / "log.csv", rows)
            save(model.state_dict(), options.out / f"epoch-{epoch}.pt")
            log.warning("epoch %d: loss %.4f, %d of %d right", epoch, rows[-1][4], right, counted)
        held = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rows": rows}
        checkpoints.save(epoch, held | {"random": torch.get_rng_state()})
        if late:
            log.info("time is up")
            return


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
    options.out.mkdir(parents=True, exist_ok=True)
    own = logging.FileHandler(options.out / f"process-{rank}.log", mode="a" if options.resume else "w")
    shown = logging.StreamHandler()
    shown.setLevel(logging.WARNING)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", handlers=[own, shown])
    try:
        train(options, begun, rank, world)
    except Exception:
        log.exception("process %d failed", rank)
        raise
    finally:
        dist.destroy_process_group()
        logging.shutdown()


if __name__ == "__main__":
    main()
