"""Train a small CNN on Fashion-MNIST, on every device that torchrun starts a process for.

The twin of `fashion_mnist_single.py`: plain PyTorch and DistributedDataParallel (DDP), nothing else.

    torchrun --standalone --nproc-per-node 2 fashion_mnist_ddp.py --epochs 10 --target-accuracy 0.90

Every process (a *rank*) runs this whole file. What differs from the single-device script is marked with a number:

    1  join the process group, and take one device each
    2  one process fetches the data, the others wait
    3  every rank trains on its own part of the samples, in a new order each epoch
    4  DDP starts all ranks from the same weights and averages their gradients during backward
    5  numbers that describe the whole run are sums over all ranks
    6  evaluation counts every test sample exactly once
    7  all ranks decide to stop in the same epoch
    8  one process prints
    9  leave the process group

`--batch-size` is per rank, so a step uses world size times as many samples as the single-device script does. The
learning rate that suits a batch grows with it (up to a point): look at --lr again when you add ranks.
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset
from torchvision import datasets, transforms

MEAN, STD = 0.2860, 0.3530  # of the training pixels, scaled to 0..1


def parse_arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description="Fashion-MNIST on many devices")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the training set, at most")
    parser.add_argument("--batch-size", type=int, default=128, help="samples a step and rank")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--data-dir", default="data", help="where the data set is, or is downloaded to")
    parser.add_argument("--target-accuracy", type=float, default=None, help="stop early at this test accuracy ...")
    parser.add_argument("--patience", type=int, default=1, help="... once it is reached in so many epochs in a row")
    parser.add_argument("--limit", type=int, default=None, help="use the first N samples of each set, for quick tries")
    parser.add_argument("--loader-workers", type=int, default=2, help="processes that prepare batches, for each rank")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the order of the samples")
    return parser.parse_args()


class CNN(nn.Module):
    """Two convolutions, two linear layers: (batch, 1, 28, 28) -> logits (batch, 10)."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64 * 7 * 7, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )

    def forward(self, images):
        """Logits of a batch of images."""
        return self.classifier(self.features(images))


def join_process_group():
    """(1) Join the other ranks; returns this rank's device."""
    # torchrun tells each process through its environment: RANK of WORLD_SIZE, and LOCAL_RANK on this machine.
    local_rank = int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)  # before anything else touches CUDA, or every rank would use device 0 as well
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    return device


def load_data(args):
    """The training set and the test set."""
    to_input = transforms.Compose([transforms.ToTensor(), transforms.Normalize((MEAN,), (STD,))])
    # (2) One process of each machine downloads; the barrier holds the others until the files are whole.
    if int(os.environ["LOCAL_RANK"]) == 0:
        datasets.FashionMNIST(args.data_dir, train=True, download=True)
        datasets.FashionMNIST(args.data_dir, train=False, download=True)
    dist.barrier()
    train_set = datasets.FashionMNIST(args.data_dir, train=True, transform=to_input)
    test_set = datasets.FashionMNIST(args.data_dir, train=False, transform=to_input)
    if args.limit is not None:
        train_set = Subset(train_set, range(min(args.limit, len(train_set))))
        test_set = Subset(test_set, range(min(args.limit, len(test_set))))
    return train_set, test_set


def train_one_epoch(model, loader, optimizer, device):
    """One pass over this rank's part; returns the mean loss and the number of samples of all ranks."""
    model.train()
    # Sums stay on the device: reading a number back after every step would make the GPU wait for Python.
    loss_sum = torch.zeros((), device=device)
    samples = 0
    for images, labels in loader:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()  # (4) on its way back DDP averages the gradients, so that every rank makes the same step
        optimizer.step()
        # The last batch may be smaller, so weight each batch's mean with its size.
        loss_sum += loss.detach() * len(labels)
        samples += len(labels)
    # (5) Sum and count over all ranks first, divide last: a mean of the ranks' means would weight them wrongly.
    totals = torch.stack([loss_sum.double(), torch.tensor(samples, dtype=torch.float64, device=device)])
    dist.all_reduce(totals)
    return totals[0].item() / totals[1].item(), int(totals[1].item())


@torch.no_grad()
def evaluate(model, loader, device):
    """One pass over the test set by all ranks together; returns the right answers and the number of samples."""
    # (6) Use the module inside DDP. Ranks may have different numbers of batches here, and DDP's own forward would
    # wait for a partner that has already finished. Batch norm's running statistics are the one thing on which ranks
    # differ (each saw its own samples), so all take rank 0's before they judge the same model.
    module = model.module
    for buffer in module.buffers():
        dist.broadcast(buffer, src=0)
    module.eval()
    correct_and_samples = torch.zeros(2, dtype=torch.int64, device=device)
    for images, labels in loader:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        correct_and_samples[0] += (module(images).argmax(dim=1) == labels).sum()
        correct_and_samples[1] += len(labels)
    dist.all_reduce(correct_and_samples)  # (5)
    correct, samples = correct_and_samples.tolist()
    return correct, samples


def train(args, device):
    """Train until the epochs are used up or the target is reached."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)

    train_set, test_set = load_data(args)
    # (3) The sampler gives each rank a part of one common order. To let all ranks do equally many steps, it fills
    # the last places with samples from the start of that order: fewer than world size are seen twice.
    sampler = DistributedSampler(train_set, shuffle=True, seed=args.seed)
    # (6) Filling up is out of the question in evaluation: it would count samples twice. Each rank takes every
    # world_size-th sample, and some ranks take one fewer.
    test_part = Subset(test_set, range(rank, len(test_set), world_size))
    loading = {"batch_size": args.batch_size, "num_workers": args.loader_workers, "pin_memory": device.type == "cuda"}
    train_loader = DataLoader(train_set, sampler=sampler, **loading)
    test_loader = DataLoader(test_part, shuffle=False, **loading)

    # (4) DDP sends rank 0's weights to all, hooks into backward, and otherwise behaves like the module.
    model = CNN().to(device)
    model = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    if rank == 0:  # (8)
        print(
            f"{len(train_set)} training samples, {len(test_set)} test samples, "
            f"batch {args.batch_size} x {world_size} ranks = {args.batch_size * world_size}, on {device.type}"
        )

    epochs_at_target = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)  # (3) without it, every epoch has the same order
        started = time.perf_counter()
        loss, samples = train_one_epoch(model, train_loader, optimizer, device)
        seconds = time.perf_counter() - started
        correct, counted = evaluate(model, test_loader, device)
        accuracy = correct / counted
        if rank == 0:  # (8)
            print(
                f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {accuracy:.4f} ({correct} of {counted}), "
                f"{samples / seconds:.0f} images/s",
                flush=True,
            )
        # (7) `accuracy` comes from sums over all ranks, so it is the same number everywhere and so is the decision.
        # A rank that stopped alone would leave the others waiting for its gradients.
        if args.target_accuracy is not None:
            epochs_at_target = epochs_at_target + 1 if accuracy >= args.target_accuracy else 0
            if epochs_at_target >= args.patience:
                if rank == 0:  # (8)
                    print(f"target accuracy {args.target_accuracy} reached in epoch {epoch + 1}")
                break


def main():
    """Join, train, leave."""
    args = parse_arguments()
    device = join_process_group()
    try:
        train(args, device)
    finally:
        # (9) After `train` has returned, so that the model and DDP, which use the group, are gone before it is.
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
