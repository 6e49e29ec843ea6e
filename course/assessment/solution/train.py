"""Train the classifier of signals on W processes: one way to solve the assessment, with DistributedDataParallel.

    python train.py --epochs 6 --batch 64 --lr 0.05 --out result                                   # one process
    torchrun --standalone --nproc-per-node 3 train.py --epochs 6 --batch 64 --lr 0.05 --out result
    torchrun --standalone --nproc-per-node 2 train.py --config config.toml --name adam --out runs/adam

It writes into --out:

    log.csv         a line an epoch: epoch, samples, steps, lr, loss, right, counted, seconds
    epoch-0.pt ...  the weights after each epoch, to be read by torch.load(..., weights_only=True)
    checkpoint.pt   whatever --resume needs to go on after the last complete epoch

Read it beside the train.py that you began with. What changed, and why, stands in comments that begin with a number of
the list in TASK.md: (1) the same mathematics, (2) every sample once, and so on.
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
from signals import LENGTH, VARIANTS, Signals, make_model, order
from sync_norm import synchronised
from torch import nn
from torch.nn.parallel import DistributedDataParallel

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
    parser.add_argument("--float64", action="store_true", help="compute in float64")
    parser.add_argument("--stop-at", type=float, help="end when two epochs running had this accuracy, 0 to 1")
    parser.add_argument("--seconds", type=float, help="end with the epoch in which this time was up for any process")
    parser.add_argument("--config", type=Path, help="a file with [[runs]]")
    parser.add_argument("--name", help="which of them")
    parser.add_argument("--resume", action="store_true", help="go on where --out stopped")
    parser.add_argument("--out", type=Path, default=Path("result"))
    # Of our own. The defaults are what the task says of a run without --config: SGD with a constant rate.
    parser.add_argument("--optimizer", choices=("sgd", "adam"), default="sgd")
    parser.add_argument("--schedule", choices=("constant", "cosine"), default="constant", help="after the warm-up")
    parser.add_argument("--warmup", type=float, default=0.0, help="part of all steps in which the rate rises to --lr")
    options = parser.parse_args()
    if options.config is not None:
        runs = tomllib.loads(options.config.read_text(encoding="utf-8"))["runs"]
        chosen = next(run for run in runs if run["name"] == options.name)
        # What was said on the command line goes before what the run says.
        parser.set_defaults(**{key: value for key, value in chosen.items() if key != "name"})
        options = parser.parse_args()
    return options


def join():
    """Be one of the processes that torchrun started, or the only one: (rank, world).

    A group of one process costs nearly nothing, and everything below has one form instead of two.
    """
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return dist.get_rank(), dist.get_world_size()


def sum_over_processes(*numbers):
    """Each of the numbers, summed. One collective for all of them; float64 holds counts exactly."""
    together = torch.tensor(numbers, dtype=torch.float64)
    dist.all_reduce(together)
    return together.tolist()


def wrap(model):
    """The model, with gradients that are averaged over the processes during backward.

    (1) Batch norms are replaced before: after the wrapping it would be too late, since DDP holds the layers it found.
    Frozen parameters are no affair of DDP's, and weights that are used twice stay one parameter: nothing to be done.

    (6) DDP lays all gradients out in one buffer, and after the first backward it lays them out anew, in the order in
    which they really came. A sum over three or more processes is taken in an order that depends on the place in the
    buffer, so the very first step of a program may round otherwise than the same step in the middle of a longer
    training. A backward that nobody needs, before the first one that counts, puts this behind us: with it, a resumed
    training gives the same bits. It is in eval mode, so that it leaves no trace in the statistics of batch norms.
    """
    wrapped = DistributedDataParallel(synchronised(model), gradient_as_bucket_view=True)
    wrapped.eval()
    wrapped(torch.zeros(1, 1, LENGTH)).sum().backward()
    wrapped.zero_grad()
    return wrapped


def make_optimizer(options, model):
    """Over what is trained. The state is small, so every process holds all of it and does the same with it."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if options.optimizer == "adam":
        return torch.optim.Adam(trained, lr=options.lr)
    return torch.optim.SGD(trained, lr=options.lr, momentum=options.momentum)


def rate(options, step, steps):
    """Of step 0 to steps - 1: a straight line up to --lr, then constant or down along a cosine.

    It is a function of the step alone, so there is nothing of it to be saved or to be agreed upon.
    """
    warm = options.warmup * steps
    if step < warm:
        return options.lr * (step + 1) / (warm + 1)
    if options.schedule == "constant":
        return options.lr
    return options.lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))


def train_epoch(model, optimizer, data, batches, rates):
    """One step a batch; the sum of the losses of this process's samples."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model.train()
    total = 0.0
    for indices, lr in zip(batches, rates, strict=True):
        # (2) Neighbouring pieces of the batch, one for each process, whose sizes differ by one sample at most. A small
        # last batch leaves nothing for some: they go through the same lines with 0 samples, since the others wait for
        # their sums. A sum over nothing is 0, and its gradients are 0.
        own = indices.tensor_split(world)[rank]
        signals, labels = data.batch(own.tolist())  # a list of plain numbers is read much faster than a tensor
        loss = nn.functional.cross_entropy(model(signals), labels, reduction="sum")
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad()
        # (1) DDP divides the sum of the gradients by W. The mean of W means is the mean over the batch only where all
        # have as many samples; so take the sum of the own losses, and the factor that turns DDP's 1/W into 1/batch.
        (loss * (world / len(indices))).backward()
        optimizer.step()
        total += loss.item()
    return total


def evaluate(network, data):
    """How many answers of this process's piece of the data are right, and how many were asked.

    (2) It takes the network itself, not the wrapped one: no process waits for another here, and pieces may differ.
    """
    network.eval()
    right = counted = 0
    with torch.no_grad():
        for indices in torch.arange(len(data)).tensor_split(dist.get_world_size())[dist.get_rank()].split(256):
            signals, labels = data.batch(indices.tolist())
            right += (network(signals).argmax(dim=1) == labels).sum().item()
            counted += len(labels)
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


def good_enough(options, rows):
    """Whether the last two epochs had the accuracy: it follows from the rows, which all processes have alike."""
    if options.stop_at is None or len(rows) < 2:
        return False
    right, counted = COLUMNS.index("right"), COLUMNS.index("counted")
    return all(row[right] >= options.stop_at * row[counted] for row in rows[-2:])


def train(options, begun):
    """Train, evaluate after each epoch, save."""
    train_data = Signals(options.samples, seed=options.data_seed)
    eval_data = Signals(options.eval_samples, seed=options.data_seed + 1_000_000)
    network = make_model(options.variant, options.seed)
    optimizer_state, rows = None, []
    checkpoint = options.out / "checkpoint.pt"
    if options.resume and checkpoint.exists():
        # (6) All processes read the file. None can replace it meanwhile: that takes an epoch with everybody in it.
        held = torch.load(checkpoint, weights_only=True)
        network.load_state_dict(held["model"])
        optimizer_state, rows = held["optimizer"], held["rows"]
    model = wrap(network)  # (3) here DDP gives all processes the weights of rank 0, once
    network = model.module
    optimizer = make_optimizer(options, model)
    if optimizer_state is not None:
        optimizer.load_state_dict(optimizer_state)

    steps_of_epoch = math.ceil(len(train_data) / options.batch)
    out_of_time = False
    # A training that had stopped by its accuracy and is resumed has nothing left to do.
    while len(rows) < options.epochs and not good_enough(options, rows) and not out_of_time:
        began = time.monotonic()
        epoch = len(rows)
        batches = order(len(train_data), options.seed, epoch).split(options.batch)
        numbers = range(epoch * steps_of_epoch, (epoch + 1) * steps_of_epoch)
        rates = [rate(options, number, options.epochs * steps_of_epoch) for number in numbers]
        loss = train_epoch(model, optimizer, train_data, batches, rates)
        right, counted = evaluate(network, eval_data)
        # (4) Losses and counts of all. (5) Clocks differ: each process says whether its own time is up, and all of them
        # stop if any of them said so. Nobody decides anything from a number that only they know.
        late = options.seconds is not None and time.monotonic() - begun > options.seconds
        loss, right, counted, late = sum_over_processes(loss, right, counted, late)
        out_of_time = late > 0
        loss, seconds = loss / len(train_data), time.monotonic() - began
        steps, samples = (epoch + 1) * steps_of_epoch, (epoch + 1) * len(train_data)
        rows.append([epoch, samples, steps, rates[-1], loss, int(right), int(counted), seconds])
        if dist.get_rank() == 0:  # (4) one process writes
            write_log(options.out / "log.csv", rows)
            save(network.state_dict(), options.out / f"epoch-{epoch}.pt")
            # (6) Last, and in one file: before it is there the epoch is not complete, and is done again.
            held = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "rows": rows}
            save(held, checkpoint)
            print(f"epoch {epoch}: loss {loss:.4f}, {right:.0f} of {counted:.0f} right, {seconds:.1f} s", flush=True)


def main():
    """The group of processes around a training."""
    begun = time.monotonic()
    options = read_options()
    torch.set_num_threads(1)
    if options.float64:
        torch.set_default_dtype(torch.float64)
    options.out.mkdir(parents=True, exist_ok=True)
    join()
    try:
        train(options, begun)
    finally:
        dist.destroy_process_group()  # (7) also when something went wrong


if __name__ == "__main__":
    main()
