"""Training on W processes with gradient hooks: each gradient sets out as soon as backward has it.

A hook on every trained parameter starts an asynchronous sum; before the step they are waited for. Backward runs in the
same order on every process, so all of them start the same sums in the same order.
"""

import argparse
import csv
import math
import os
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from signals import VARIANTS, Signals, make_model, order
from sync_norm import synchronised
from torch import nn

COLUMNS = ("epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds")


def options():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = ap.add_argument
    add("--samples", type=int, default=8192)
    add("--eval-samples", type=int, default=2003)
    add("--data-seed", type=int, default=1)
    add("--variant", choices=VARIANTS, default="plain")
    add("--seed", type=int, default=0)
    add("--epochs", type=int, default=6)
    add("--batch", type=int, default=64)
    add("--lr", type=float, default=0.05)
    add("--momentum", type=float, default=0.9)
    add("--float64", action="store_true")
    add("--stop-at", type=float)
    add("--seconds", type=float)
    add("--config", type=Path)
    add("--name")
    add("--resume", action="store_true")
    add("--out", type=Path, default=Path("result"))
    add("--adamw", action="store_true", help="AdamW in the place of SGD")
    add("--weight-decay", type=float, default=0.0)
    add("--beta2", type=float, default=0.999)
    add("--final-rate", type=float, default=1.0, help="rate of the last step, as a part of the first; along a cosine")
    add("--warm-steps", type=int, default=0)
    first = ap.parse_args()
    if first.config:
        for run in tomllib.loads(first.config.read_text())["runs"]:
            if run["name"] == first.name:
                ap.set_defaults(**{k: v for k, v in run.items() if k != "name"})
                return ap.parse_args()
        raise SystemExit(f"{first.config} has no run {first.name}")
    return first


@contextmanager
def group():
    """(rank, world) of this process; the group is closed however the body ends."""
    if "WORLD_SIZE" not in os.environ:
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    dist.init_process_group("gloo")
    try:
        yield dist.get_rank(), dist.get_world_size()
    finally:
        dist.destroy_process_group()


class Reducer:
    """Sums every gradient over the processes while backward goes on with the next ones."""

    def __init__(self, parameters):
        self.waiting = []
        for parameter in parameters:
            # After accumulation: a weight that is used twice has its whole gradient by then.
            parameter.register_post_accumulate_grad_hook(self.launch)

    def launch(self, parameter):
        self.waiting.append((dist.all_reduce(parameter.grad, async_op=True), parameter))

    def finish(self, count):
        """Wait for all, and divide by the samples of the batch."""
        for work, parameter in self.waiting:
            work.wait()
            parameter.grad.div_(count)
        self.waiting.clear()


def set_rate(optimizer, o, step, total):
    if step < o.warm_steps:
        rate = o.lr * (step + 1) / (o.warm_steps + 1)
    else:
        fraction = (step - o.warm_steps) / max(1, total - o.warm_steps)
        rate = o.lr * (o.final_rate + (1 - o.final_rate) * 0.5 * (1 + math.cos(math.pi * fraction)))
    for each in optimizer.param_groups:
        each["lr"] = rate
    return rate


def replace(path, content):
    """Text or something for torch.save, written beside and moved."""
    beside = path.with_suffix(".tmp")
    if isinstance(content, str):
        beside.write_text(content)
    else:
        torch.save(content, beside)
    os.replace(beside, path)


def csv_text(rows):
    import io

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows])
    return text.getvalue()


def run(o, rank, world, t0):
    data = Signals(o.samples, o.data_seed)
    questions = Signals(o.eval_samples, o.data_seed + 1_000_000)
    model = synchronised(make_model(o.variant, o.seed))
    trained = [p for p in model.parameters() if p.requires_grad]
    for p in trained:  # they are alike already; make sure of it
        dist.broadcast(p.data, src=0)
    reducer = Reducer(trained)
    if o.adamw:
        optimizer = torch.optim.AdamW(trained, lr=o.lr, betas=(0.9, o.beta2), weight_decay=o.weight_decay)
    else:
        optimizer = torch.optim.SGD(trained, lr=o.lr, momentum=o.momentum)
    progress = {"rows": [], "step": 0, "good": 0}
    saved = o.out / "checkpoint.pt"
    if o.resume and saved.exists():
        progress = torch.load(saved, weights_only=True)
        model.load_state_dict(progress.pop("model"))
        optimizer.load_state_dict(progress.pop("optimizer"))

    total_steps = o.epochs * math.ceil(o.samples / o.batch)
    for epoch in range(len(progress["rows"]), o.epochs):
        if progress["good"] >= 2:
            break
        t1 = time.monotonic()
        model.train()
        loss_sum = torch.zeros((), dtype=torch.float64)
        for batch in order(o.samples, o.seed, epoch).split(o.batch):
            rate = set_rate(optimizer, o, progress["step"], total_steps)
            x, y = data.batch(batch.chunk(world)[rank].tolist() if len(batch.chunk(world)) > rank else [])
            loss = nn.functional.cross_entropy(model(x), y, reduction="sum")
            optimizer.zero_grad()
            loss.backward()
            reducer.finish(len(batch))
            optimizer.step()
            loss_sum += loss.detach()
            progress["step"] += 1
        model.eval()
        score = torch.zeros(2, dtype=torch.int64)
        with torch.inference_mode():
            mine = range(rank, o.eval_samples, world)  # dealt like cards
            for lot in range(0, len(mine), 128):
                x, y = questions.batch(mine[lot : lot + 128])
                score += torch.stack([(model(x).argmax(1) == y).sum(), torch.tensor(len(y))])
        ended = torch.tensor(o.seconds is not None and time.monotonic() - t0 > o.seconds, dtype=torch.int64)
        works = [dist.all_reduce(loss_sum, async_op=True), dist.all_reduce(score, async_op=True)]
        works.append(dist.all_reduce(ended, op=dist.ReduceOp.MAX, async_op=True))
        for work in works:
            work.wait()
        right, counted = score.tolist()
        spent = time.monotonic() - t1
        mean = loss_sum.item() / o.samples
        progress["rows"].append([epoch, (epoch + 1) * o.samples, progress["step"], rate, mean, right, counted, spent])
        enough = o.stop_at is not None and right >= o.stop_at * counted
        progress["good"] = progress["good"] + 1 if enough else 0
        if rank == 0:
            replace(o.out / "log.csv", csv_text(progress["rows"]))
            replace(o.out / f"epoch-{epoch}.pt", model.state_dict())
            replace(saved, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), **progress})
            print(f"{epoch}: {mean:.4f} {right}/{counted}", flush=True)
        if ended:
            break


if __name__ == "__main__":
    begun = time.monotonic()
    chosen = options()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64 if chosen.float64 else torch.float32)
    with group() as (my_rank, my_world):
        if my_rank == 0:
            chosen.out.mkdir(parents=True, exist_ok=True)
        run(chosen, my_rank, my_world, begun)
