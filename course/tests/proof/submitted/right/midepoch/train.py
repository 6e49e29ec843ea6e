"""Train on W processes, with a checkpoint every few steps: a kill costs some steps, not an epoch.

The checkpoint says how many steps of the current epoch are done, and the sum of their losses over all processes; what
--resume reads is only the rest of the epoch.
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
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

COLUMNS = ("epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds")


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
    parser.add_argument("--checkpoint-steps", type=int, default=3, help="a checkpoint after so many steps")
    parser.add_argument("--rmsprop", action="store_true")
    parser.add_argument("--milestones", type=float, nargs="*", default=[], help="epochs after which the rate is halved")
    options = parser.parse_args()
    if options.config is not None:
        runs = tomllib.loads(options.config.read_text(encoding="utf-8"))["runs"]
        chosen = next(run for run in runs if run["name"] == options.name)
        parser.set_defaults(**{key: value for key, value in chosen.items() if key != "name"})
        options = parser.parse_args()
    return options


def total(*numbers):
    tensor = torch.tensor(numbers, dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(tensor)
    return tensor.tolist()


class Progress:
    """Where the training is. `rows` has the epochs that are complete; `done` steps of the next one are."""

    def __init__(self, folder, model, optimizer):
        self.path, self.model, self.optimizer = folder / "checkpoint.pt", model, optimizer
        self.rows, self.done, self.loss = [], 0, 0.0

    def load(self):
        if self.path.exists():
            held = torch.load(self.path, weights_only=True)
            self.model.load_state_dict(held["model"])
            self.optimizer.load_state_dict(held["optimizer"])
            self.rows, self.done, self.loss = held["rows"], held["done"], held["loss"]

    def save(self):
        content = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        write(self.path, content | {"rows": self.rows, "done": self.done, "loss": self.loss})


def write(path, content):
    fresh = path.with_suffix(".fresh")
    if isinstance(content, list):
        with fresh.open("w", newline="") as file:
            csv.writer(file).writerows(content)
    else:
        torch.save(content, fresh)
    fresh.replace(path)


def main():
    begun = time.monotonic()
    options = read_options()
    torch.set_num_threads(1)
    if options.float64:
        torch.set_default_dtype(torch.float64)
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1:
        dist.init_process_group("gloo")
    options.out.mkdir(parents=True, exist_ok=True)
    train_data = Signals(options.samples, seed=options.data_seed)
    eval_data = Signals(options.eval_samples, seed=options.data_seed + 1_000_000)
    model = synchronised(make_model(options.variant, options.seed))
    weights = [p for p in model.parameters() if p.requires_grad]
    if options.rmsprop:
        optimizer = torch.optim.RMSprop(weights, lr=options.lr, momentum=options.momentum)
    else:
        optimizer = torch.optim.SGD(weights, lr=options.lr, momentum=options.momentum)
    progress = Progress(options.out, model, optimizer)
    if options.resume:
        progress.load()
    in_epoch = math.ceil(options.samples / options.batch)

    def step(indices):
        x, y = train_data.batch(indices.tensor_split(world)[rank].tolist())
        loss = cross_entropy(model(x), y, reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        flat = parameters_to_vector([p.grad for p in weights]) / len(indices)
        if world > 1:
            dist.all_reduce(flat)
        for p, part in zip(weights, flat.split([p.numel() for p in weights]), strict=True):
            p.grad = part.view_as(p)
        optimizer.step()
        return loss.item()

    def enough():
        if options.stop_at is None or len(progress.rows) < 2:
            return False
        return all(row[5] >= options.stop_at * row[6] for row in progress.rows[-2:])

    late = False
    while len(progress.rows) < options.epochs and not enough() and not late:
        began = time.monotonic()
        epoch = len(progress.rows)
        lr = options.lr * 0.5 ** sum(epoch >= milestone for milestone in options.milestones)
        optimizer.param_groups[0]["lr"] = lr
        model.train()
        losses = 0.0  # own ones, since the last checkpoint
        batches = order(options.samples, options.seed, epoch).split(options.batch)
        for indices in batches[progress.done :]:
            losses += step(indices)
            progress.done += 1
            if progress.done % options.checkpoint_steps == 0 and progress.done < in_epoch:
                progress.loss += total(losses)[0]
                losses = 0.0
                if rank == 0:
                    progress.save()

        model.eval()
        right = counted = 0
        with torch.no_grad():
            for indices in torch.arange(options.eval_samples).tensor_split(world)[rank].split(256):
                x, y = eval_data.batch(indices.tolist())
                right += (model(x).argmax(dim=1) == y).sum().item()
                counted += len(y)
        up = options.seconds is not None and time.monotonic() - begun > options.seconds
        losses, right, counted, late = total(losses, right, counted, up)
        row = [epoch, (epoch + 1) * options.samples, (epoch + 1) * in_epoch, lr]
        row += [(progress.loss + losses) / options.samples, int(right), int(counted), time.monotonic() - began]
        progress.rows.append(row)
        progress.done, progress.loss = 0, 0.0
        if rank == 0:
            write(options.out / "log.csv", [COLUMNS, *progress.rows])
            write(options.out / f"epoch-{epoch}.pt", model.state_dict())
            progress.save()
            print(f"epoch {epoch}: {int(right)} of {int(counted)} right", flush=True)
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
