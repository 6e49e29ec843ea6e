"""Data-parallel training without DDP: one flat vector of gradients, one sum of it a step."""

import argparse
import csv
import math
import os
import time
import tomllib
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from signals import VARIANTS, Signals, make_model, order
from sync_norm import synchronised

COLUMNS = ["epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds"]
DEFAULTS = {
    "samples": 8192,
    "eval_samples": 2003,
    "data_seed": 1,
    "variant": "plain",
    "seed": 0,
    "epochs": 6,
    "batch": 64,
    "lr": 0.05,
    "momentum": 0.9,
    "float64": False,
    "stop_at": None,
    "seconds": None,
    "resume": False,
    "out": Path("result"),
    # my own
    "nesterov": False,
    "warmup_epochs": 0.0,
    "decay": "none",
}


def parse():
    p = argparse.ArgumentParser(description=__doc__, argument_default=argparse.SUPPRESS)
    for name in ("samples", "eval-samples", "data-seed", "seed", "epochs", "batch"):
        p.add_argument(f"--{name}", type=int)
    for name in ("lr", "momentum", "stop-at", "seconds", "warmup-epochs"):
        p.add_argument(f"--{name}", type=float)
    p.add_argument("--variant", choices=VARIANTS)
    p.add_argument("--decay", choices=("none", "cosine"))
    for name in ("float64", "resume", "nesterov"):
        p.add_argument(f"--{name}", action="store_true")
    p.add_argument("--config", type=Path)
    p.add_argument("--name")
    p.add_argument("--out", type=Path)
    given = vars(p.parse_args())
    described = {}
    if "config" in given:
        with given["config"].open("rb") as file:
            described = {run["name"]: run for run in tomllib.load(file)["runs"]}[given["name"]]
    return argparse.Namespace(**(DEFAULTS | described | given))


class Team:
    """The processes. Alone, everything is the identity."""

    def __init__(self):
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        if self.size > 1:
            dist.init_process_group("gloo", rank=self.rank, world_size=self.size)

    def sum(self, tensor):
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def own(self, indices):
        """My part of a list: from n * rank / size to n * (rank + 1) / size."""
        n = len(indices)
        return indices[n * self.rank // self.size : n * (self.rank + 1) // self.size]

    def leave(self):
        if self.size > 1:
            dist.barrier()
            dist.destroy_process_group()


def lr_at(o, step, per_epoch):
    warm, total = o.warmup_epochs * per_epoch, o.epochs * per_epoch
    if step < warm:
        return o.lr * (step + 1) / warm
    if o.decay == "cosine":
        return o.lr * (1 + math.cos(math.pi * (step - warm) / (total - warm))) / 2
    return o.lr


def atomically(path, write):
    temporary = path.with_name(path.name + ".part")
    write(temporary)
    temporary.rename(path)


def write_csv(path, rows):
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS)
        out.writerows(rows)


def main():
    start = time.monotonic()
    o = parse()
    torch.set_num_threads(1)
    if o.float64:
        torch.set_default_dtype(torch.float64)
    team = Team()
    train_set, test_set = Signals(o.samples, o.data_seed), Signals(o.eval_samples, o.data_seed + 1_000_000)
    model = synchronised(make_model(o.variant, o.seed))
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=o.lr, momentum=o.momentum, nesterov=o.nesterov)
    rows, streak, step = [], 0, 0
    checkpoint = o.out / "checkpoint.pt"
    if o.resume and checkpoint.is_file():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        rows, streak, step = state["rows"], state["streak"], state["step"]
    per_epoch = -(-o.samples // o.batch)

    while len(rows) < o.epochs and streak < 2:
        began, epoch = time.monotonic(), len(rows)
        numbers = order(o.samples, o.seed, epoch).tolist()
        loss_sum = 0.0
        model.train()
        for first in range(0, o.samples, o.batch):
            batch = numbers[first : first + o.batch]
            x, y = train_set.batch(team.own(batch))
            loss = F.cross_entropy(model(x), y, reduction="sum")
            grads = torch.autograd.grad(loss, params)
            # The sum over the whole batch, by one collective; divided by its size it is the mean.
            flat = team.sum(torch.cat([g.flatten() for g in grads])).div_(len(batch))
            for p, g in zip(params, flat.split([p.numel() for p in params]), strict=True):
                p.grad = g.view_as(p)
            lr = lr_at(o, step, per_epoch)
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()
            loss_sum += loss.item()
            step += 1

        model.eval()
        right = asked = 0
        mine = team.own(range(o.eval_samples))
        with torch.no_grad():
            for first in range(0, len(mine), 256):
                x, y = test_set.batch(mine[first : first + 256])
                right += int((model(x).argmax(1) == y).sum())
                asked += len(y)
        up = o.seconds is not None and time.monotonic() - start > o.seconds
        sums = team.sum(torch.tensor([loss_sum, right, asked, up], dtype=torch.float64)).tolist()
        right, asked = int(sums[1]), int(sums[2])
        rows.append([epoch, (epoch + 1) * o.samples, step, lr, sums[0] / o.samples, right, asked])
        rows[-1].append(time.monotonic() - began)
        streak = streak + 1 if o.stop_at is not None and right >= o.stop_at * asked else 0
        if team.rank == 0:
            o.out.mkdir(parents=True, exist_ok=True)
            done, weights = list(rows), model.state_dict()
            atomically(o.out / "log.csv", lambda path, rows=done: write_csv(path, rows))
            atomically(o.out / f"epoch-{epoch}.pt", lambda path, weights=weights: torch.save(weights, path))
            state = {
                "model": weights,
                "optimizer": optimizer.state_dict(),
                "rows": rows,
                "streak": streak,
                "step": step,
            }
            atomically(checkpoint, lambda path, state=state: torch.save(state, path))
            print(rows[-1], flush=True)
        if sums[3] > 0:
            break
    team.leave()


if __name__ == "__main__":
    main()
