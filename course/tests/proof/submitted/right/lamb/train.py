"""The classifier on W processes, with LAMB written out for large batches."""

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
from torch.nn.parallel import DistributedDataParallel as DDP

COLUMNS = ("epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds")


class Lamb(torch.optim.Optimizer):
    """Adam's direction, scaled for each tensor so that its step is lr times as long as the tensor itself."""

    def __init__(self, params, lr, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            fast, slow = group["betas"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["step"] = 0
                    state["mean"] = torch.zeros_like(weight)
                    state["square"] = torch.zeros_like(weight)
                state["step"] += 1
                state["mean"].lerp_(weight.grad, 1 - fast)
                state["square"].mul_(slow).addcmul_(weight.grad, weight.grad, value=1 - slow)
                mean = state["mean"] / (1 - fast ** state["step"])
                square = state["square"] / (1 - slow ** state["step"])
                direction = mean / (square.sqrt() + group["eps"]) + group["weight_decay"] * weight
                # Biases and norms begin at 0 and 1: only matrices and kernels have a length that says something.
                trust = 1.0
                if weight.dim() > 1:
                    own, length = weight.norm().item(), direction.norm().item()
                    trust = own / length if own > 0 and length > 0 else 1.0
                weight.add_(direction, alpha=-group["lr"] * trust)


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
    options = parser.parse_args()
    extra = {"optimizer": "sgd", "weight_decay": 0.0, "warmup_steps": 0, "power": 0.0}
    if options.config is not None:
        runs = tomllib.loads(options.config.read_text())["runs"]
        chosen = {**next(run for run in runs if run["name"] == options.name)}
        extra |= {key: chosen.pop(key) for key in extra if key in chosen}
        parser.set_defaults(**{key: value for key, value in chosen.items() if key not in ("name", "workers")})
        options = parser.parse_args()
    for key, value in extra.items():
        setattr(options, key, value)
    return options


def polynomial(options, step, steps):
    """Rate of a step: linear warm-up, then (1 - progress) ** power; power 0 is constant."""
    if step < options.warmup_steps:
        return options.lr * (step + 1) / options.warmup_steps
    progress = (step - options.warmup_steps) / max(1, steps - options.warmup_steps)
    return options.lr * (1 - progress) ** options.power


def gather_state(*pairs):
    """Sums over the processes of named numbers."""
    values = torch.tensor([value for _, value in pairs], dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(values)
    return dict(zip((name for name, _ in pairs), values.tolist(), strict=True))


def write(path, content):
    new = path.with_name(f"{path.stem}.writing")
    if path.suffix == ".csv":
        with new.open("w", newline="") as file:
            csv.writer(file).writerows(content)
    else:
        torch.save(content, new)
    new.replace(path)


def main():
    begun = time.monotonic()
    options = read_options()
    torch.set_num_threads(1)
    if options.float64:
        torch.set_default_dtype(torch.float64)
    many = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if many:
        dist.init_process_group("gloo")
    rank, world = (dist.get_rank(), dist.get_world_size()) if many else (0, 1)

    train_data = Signals(options.samples, seed=options.data_seed)
    eval_data = Signals(options.eval_samples, seed=options.data_seed + 1_000_000)
    network = synchronised(make_model(options.variant, options.seed))
    # Alone there is nobody to average with. With others, buckets keep their first layout (static order of additions).
    model = DDP(network, broadcast_buffers=False, find_unused_parameters=True) if many else network
    trained = [p for p in network.parameters() if p.requires_grad]
    if options.optimizer == "lamb":
        optimizer = Lamb(trained, options.lr, weight_decay=options.weight_decay)
    else:
        optimizer = torch.optim.SGD(trained, lr=options.lr, momentum=options.momentum)
    per_epoch = math.ceil(options.samples / options.batch)
    lines, streak = [], 0
    if options.resume and (options.out / "checkpoint.pt").exists():
        held = torch.load(options.out / "checkpoint.pt", weights_only=True)
        network.load_state_dict(held["network"])
        optimizer.load_state_dict(held["optimizer"])
        lines, streak = held["lines"], held["streak"]
    if rank == 0:
        options.out.mkdir(parents=True, exist_ok=True)

    for epoch in range(len(lines), options.epochs):
        if streak >= 2:
            break
        began = time.monotonic()
        network.train()
        loss_sum, lr = 0.0, options.lr
        batches = order(options.samples, options.seed, epoch).split(options.batch)
        for number, batch in enumerate(batches):
            lr = polynomial(options, epoch * per_epoch + number, options.epochs * per_epoch)
            for group in optimizer.param_groups:
                group["lr"] = lr
            own = batch.tensor_split(world)[rank]
            signals, labels = train_data.batch(own.tolist())
            mine = nn.functional.cross_entropy(model(signals), labels, reduction="none").sum()
            optimizer.zero_grad()
            (mine * (world / len(batch))).backward()
            optimizer.step()
            loss_sum += mine.item()

        network.eval()
        right = counted = 0
        with torch.no_grad():
            for k in range(rank, options.eval_samples, world * 64):
                signals, labels = eval_data.batch(range(k, min(k + world * 64, options.eval_samples), world))
                right += (network(signals).argmax(dim=1) == labels).sum().item()
                counted += len(labels)
        late = options.seconds is not None and time.monotonic() - begun > options.seconds
        all_of = gather_state(("loss", loss_sum), ("right", right), ("counted", counted), ("late", late))
        right, counted = int(all_of["right"]), int(all_of["counted"])
        streak = streak + 1 if options.stop_at is not None and right >= options.stop_at * counted else 0
        line = [epoch, (epoch + 1) * options.samples, (epoch + 1) * per_epoch, lr, all_of["loss"] / options.samples]
        lines.append([*line, right, counted, time.monotonic() - began])
        if rank == 0:
            write(options.out / "log.csv", [COLUMNS, *lines])
            write(options.out / f"epoch-{epoch}.pt", network.state_dict())
            held = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
            write(options.out / "checkpoint.pt", held | {"lines": lines, "streak": streak})
            print(f"epoch {epoch}: {right}/{counted}", flush=True)
        if all_of["late"]:
            break

    if many:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
