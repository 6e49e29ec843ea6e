"""Train on W processes: sample i of a batch goes to process i mod W; DDP sums, by a hook of mine. LARS if wanted."""

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
from torch.nn.parallel import DistributedDataParallel

COLUMNS = ("epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds")


def flags():
    parser = argparse.ArgumentParser(description=__doc__)
    for flag, kind, default in (
        ("samples", int, 8192),
        ("eval-samples", int, 2003),
        ("data-seed", int, 1),
        ("seed", int, 0),
        ("epochs", int, 6),
        ("batch", int, 64),
        ("lr", float, 0.05),
        ("momentum", float, 0.9),
        ("stop-at", float, None),
        ("seconds", float, None),
        ("out", Path, Path("result")),
        ("config", Path, None),
        ("name", str, None),
        ("lars", float, 0.0),
        ("warmup-steps", int, 0),
        ("steps-down", float, 1.0),
    ):
        parser.add_argument(f"--{flag}", type=kind, default=default)
    parser.add_argument("--variant", choices=VARIANTS, default="plain")
    parser.add_argument("--float64", action="store_true")
    parser.add_argument("--resume", action="store_true")
    found = parser.parse_args()
    if found.config:
        with open(found.config, "rb") as file:
            runs = {run.pop("name"): run for run in tomllib.load(file)["runs"]}
        parser.set_defaults(**runs[found.name])
        found = parser.parse_args()
    return found


def sum_hook(order_of, bucket):
    """Sum the gradients of a bucket, without DDP's division, and laid out in the model's own order.

    DDP changes its order after the first step. A sum of three numbers depends on the place in the buffer in its last
    bit, and a training that was resumed should not differ even in that.
    """
    gradients = [grad for _, grad in sorted(zip(bucket.parameters(), bucket.gradients(), strict=True), key=order_of)]
    flat = torch.cat([grad.flatten() for grad in gradients])

    def back(future):
        for grad, part in zip(gradients, future.value()[0].split([g.numel() for g in gradients]), strict=True):
            grad.copy_(part.view_as(grad))
        return bucket.buffer()

    return dist.all_reduce(flat, async_op=True).get_future().then(back)


class Lars:
    """Around SGD: makes each kernel's gradient `trust` times as long as the kernel itself, before the step."""

    def __init__(self, sgd, trust):
        self.sgd, self.trust = sgd, trust

    @torch.no_grad()
    def step(self):
        if self.trust:
            for weight in self.sgd.param_groups[0]["params"]:
                if weight.ndim > 1:
                    length = weight.grad.norm()
                    weight.grad.mul_(torch.where(length > 0, self.trust * weight.norm() / length, 1.0))
        self.sgd.step()


def learning_rate(args, step, steps):
    """Warm-up; then the rate falls in three stairs, by --steps-down each."""
    if step < args.warmup_steps:
        return args.lr * (step + 1) / (args.warmup_steps + 1)
    return args.lr * args.steps_down ** sum(step >= part * steps for part in (0.5, 0.7, 0.9))


def main():
    clock = time.perf_counter
    begun = clock()
    args = flags()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64 if args.float64 else torch.float32)
    alone = "RANK" not in os.environ
    if alone:
        dist.init_process_group("gloo", init_method="tcp://localhost:0", rank=0, world_size=1)
    else:
        dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    args.out.mkdir(parents=True, exist_ok=True)

    signals, exam = Signals(args.samples, args.data_seed), Signals(args.eval_samples, args.data_seed + 1_000_000)
    bare = synchronised(make_model(args.variant, args.seed))
    rows = []
    path = args.out / "checkpoint.pt"
    held = torch.load(path, weights_only=True) if args.resume and path.exists() else None
    if held:
        bare.load_state_dict(held["weights"])
        rows = held["rows"]
    wrapped = DistributedDataParallel(bare)
    places = {id(weight): place for place, weight in enumerate(bare.parameters())}
    wrapped.register_comm_hook(lambda pair: places[id(pair[0])], sum_hook)
    sgd = torch.optim.SGD([p for p in bare.parameters() if p.requires_grad], lr=args.lr, momentum=args.momentum)
    if held:
        sgd.load_state_dict(held["sgd"])
    optimizer = Lars(sgd, args.lars)

    def reached(row):
        return args.stop_at is not None and row[5] >= args.stop_at * row[6]

    per_epoch = math.ceil(args.samples / args.batch)
    over = len(rows) >= 2 and reached(rows[-1]) and reached(rows[-2])
    while len(rows) < args.epochs and not over:
        epoch, start = len(rows), clock()
        wrapped.train()
        total = 0.0
        for k, batch in enumerate(order(args.samples, args.seed, epoch).split(args.batch)):
            x, y = signals.batch(batch[rank::world].tolist())
            loss = cross_entropy(wrapped(x), y, reduction="sum").div(len(batch))
            wrapped.zero_grad()
            loss.backward()
            rate = learning_rate(args, epoch * per_epoch + k, args.epochs * per_epoch)
            sgd.param_groups[0]["lr"] = rate
            optimizer.step()
            total += loss.item() * len(batch)

        bare.eval()
        right = 0
        mine = range(rank, args.eval_samples, world)
        with torch.no_grad():
            for a in range(0, len(mine), 200):
                x, y = exam.batch(mine[a : a + 200])
                right += int((bare(x).argmax(1) == y).sum())

        timeout = args.seconds is not None and clock() - begun > args.seconds
        everything = torch.tensor([[total, right, len(mine), timeout]], dtype=torch.float64)
        dist.all_reduce(everything)
        total, right, counted, timeout = everything[0].tolist()
        row = [epoch, (epoch + 1) * args.samples, (epoch + 1) * per_epoch, rate, total / args.samples]
        rows.append([*row, int(right), int(counted), clock() - start])
        over = bool(timeout) or (epoch > 0 and reached(rows[-1]) and reached(rows[-2]))
        if rank == 0:
            new = args.out / "new"
            torch.save(bare.state_dict(), new)
            new.rename(args.out / f"epoch-{epoch}.pt")
            with new.open("w", newline="") as file:
                csv.writer(file).writerows([COLUMNS, *rows])
            new.rename(args.out / "log.csv")
            torch.save({"weights": bare.state_dict(), "sgd": sgd.state_dict(), "rows": rows}, new)
            new.rename(path)
            print(f"epoch {epoch}: {right:.0f}/{counted:.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
