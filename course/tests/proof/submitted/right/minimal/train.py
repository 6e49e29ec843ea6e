"""Train the classifier of signals, on one device or on many.

    python train.py --epochs 6 --batch 64 --lr 0.05 --out result
    torchrun --nproc-per-node 2 train.py --epochs 6 --batch 64 --lr 0.05 --out result

It writes into --out:

    log.csv         a line an epoch: epoch, samples, steps, lr, loss, right, counted, seconds
    epoch-0.pt ...  the weights after each epoch, to be read by torch.load(..., weights_only=True)
    checkpoint.pt   whatever --resume needs to go on after the last complete epoch
"""

import argparse
import csv
import time
import tomllib
from pathlib import Path

import dist_tools
import torch
from signals import VARIANTS, Signals, make_model, order
from torch import nn

COLUMNS = ("epoch", "samples", "steps", "lr", "loss", "right", "counted", "seconds")


def read_options():
    """From the command line; with --config and --name, what that run says stands in the place of the defaults."""
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
    parser.add_argument("--warmup", type=int, default=0, help="steps in which the rate rises")
    parser.add_argument("--cut", type=float, default=1.0, help="factor of the rate for the last third")
    parser.add_argument("--float64", action="store_true", help="compute in float64")
    parser.add_argument("--stop-at", type=float, help="end when two epochs running had this accuracy, 0 to 1")
    parser.add_argument("--seconds", type=float, help="end with the epoch in which this time was up for any process")
    parser.add_argument("--config", type=Path, help="a file with [[runs]]")
    parser.add_argument("--name", help="which of them")
    parser.add_argument("--resume", action="store_true", help="go on where --out stopped")
    parser.add_argument("--out", type=Path, default=Path("result"))
    options = parser.parse_args()
    if options.config is not None:
        runs = tomllib.loads(options.config.read_text(encoding="utf-8"))["runs"]
        chosen = next(run for run in runs if run["name"] == options.name)
        # What was said on the command line goes before what the run says.
        parser.set_defaults(**{key: value for key, value in chosen.items() if key != "name"})
        options = parser.parse_args()
    return options


def rate(options, step, steps):
    """Of one step."""
    rise = min(1.0, (step + 1) / (options.warmup + 1))
    return options.lr * rise * (options.cut if 3 * step >= 2 * steps else 1.0)


def train_epoch(model, optimizer, data, batches, rates):
    """One step a batch; the mean loss over the epoch's samples."""
    model.train()
    total = samples = 0
    for indices, lr in zip(batches, rates, strict=True):
        signals, labels = data.batch(dist_tools.mine(indices))
        loss = nn.functional.cross_entropy(model(signals), labels, reduction="sum")
        optimizer.zero_grad()
        (loss / len(indices)).backward()
        dist_tools.sum_gradients(model)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
        total += loss.item()
        samples += len(labels)
    total, samples = dist_tools.total(total, samples)
    return total / samples


def evaluate(model, data):
    """How many answers are right, and how many were asked."""
    model.eval()
    right = counted = 0
    with torch.no_grad():
        for indices in dist_tools.mine(torch.arange(len(data))).split(256):
            signals, labels = data.batch(indices)
            right += (model(signals).argmax(dim=1) == labels).sum().item()
            counted += len(labels)
    right, counted = map(int, dist_tools.total(right, counted))
    return right, counted


def write_log(path, rows):
    """All lines, whole or not at all."""
    fresh = path.with_suffix(".new")
    with fresh.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    fresh.replace(path)


def save(content, path):
    """A file that is complete whenever it is there."""
    fresh = path.with_suffix(".new")
    torch.save(content, fresh)
    fresh.replace(path)


def main():
    """Train, evaluate after each epoch, save."""
    begun = time.monotonic()
    options = read_options()
    torch.set_num_threads(1)
    dist_tools.start()
    if options.float64:
        torch.set_default_dtype(torch.float64)
    train_data = Signals(options.samples, seed=options.data_seed)
    eval_data = Signals(options.eval_samples, seed=options.data_seed + 1_000_000)
    model = dist_tools.prepare(make_model(options.variant, options.seed))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=options.lr, momentum=options.momentum)
    options.out.mkdir(parents=True, exist_ok=True)
    checkpoint = options.out / "checkpoint.pt"
    rows, steps, good = [], 0, 0
    if options.resume and checkpoint.exists():
        held = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optimizer"])
        rows, steps, good = held["rows"], held["steps"], held["good"]

    for epoch in range(len(rows), options.epochs):
        if good >= 2:
            break
        began = time.monotonic()
        batches = order(len(train_data), options.seed, epoch).split(options.batch)
        rates = [rate(options, steps + k, options.epochs * len(batches)) for k in range(len(batches))]
        loss = train_epoch(model, optimizer, train_data, batches, rates)
        right, counted = evaluate(model, eval_data)
        steps += len(batches)
        seconds = time.monotonic() - began
        rows.append([epoch, (epoch + 1) * len(train_data), steps, rates[-1], loss, right, counted, seconds])
        good = good + 1 if options.stop_at is not None and right >= options.stop_at * counted else 0
        if dist_tools.is_main():
            write_log(options.out / "log.csv", rows)
            save(model.state_dict(), options.out / f"epoch-{epoch}.pt")
            held = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save(held | {"rows": rows, "steps": steps, "good": good}, checkpoint)
            print(f"epoch {epoch}: loss {loss:.4f}, {right} of {counted} right, {seconds:.1f} s", flush=True)
        out_of_time = dist_tools.any_says(options.seconds is not None and time.monotonic() - begun > options.seconds)
        if good == 2 or out_of_time:
            break
    dist_tools.finish()


if __name__ == "__main__":
    main()
