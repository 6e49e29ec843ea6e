"""Train a small CNN on Fashion-MNIST, on one device.

This is the script that the workshop starts from: plain PyTorch, one process, one device. Its twin
`fashion_mnist_ddp.py` does the same on many devices; compare the two to see every change that this takes.

    python fashion_mnist_single.py --epochs 10 --target-accuracy 0.90

The outline: data, model, then for each epoch one pass of training, one pass of evaluation, and one line.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision import datasets, transforms

MEAN, STD = 0.2860, 0.3530  # of the training pixels, scaled to 0..1


def parse_arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description="Fashion-MNIST on one device")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the training set, at most")
    parser.add_argument("--batch-size", type=int, default=128, help="samples a step")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--data-dir", default="data", help="where the data set is, or is downloaded to")
    parser.add_argument("--target-accuracy", type=float, default=None, help="stop early at this test accuracy ...")
    parser.add_argument("--patience", type=int, default=1, help="... once it is reached in so many epochs in a row")
    parser.add_argument("--limit", type=int, default=None, help="use the first N samples of each set, for quick tries")
    parser.add_argument("--loader-workers", type=int, default=2, help="processes that prepare batches")
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


def load_data(args):
    """The training set and the test set."""
    to_input = transforms.Compose([transforms.ToTensor(), transforms.Normalize((MEAN,), (STD,))])
    train_set = datasets.FashionMNIST(args.data_dir, train=True, download=True, transform=to_input)
    test_set = datasets.FashionMNIST(args.data_dir, train=False, download=True, transform=to_input)
    if args.limit is not None:
        train_set = Subset(train_set, range(min(args.limit, len(train_set))))
        test_set = Subset(test_set, range(min(args.limit, len(test_set))))
    return train_set, test_set


def train_one_epoch(model, loader, optimizer, device):
    """One pass over the training set; returns the mean loss and the number of samples."""
    model.train()
    # Sums stay on the device: reading a number back after every step would make the GPU wait for Python.
    loss_sum = torch.zeros((), device=device)
    samples = 0
    for images, labels in loader:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        # The last batch may be smaller, so weight each batch's mean with its size.
        loss_sum += loss.detach() * len(labels)
        samples += len(labels)
    return loss_sum.item() / samples, samples


@torch.no_grad()
def evaluate(model, loader, device):
    """One pass over the test set; returns the right answers and the number of samples."""
    model.eval()
    correct = torch.zeros((), dtype=torch.int64, device=device)
    samples = 0
    for images, labels in loader:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        correct += (model(images).argmax(dim=1) == labels).sum()
        samples += len(labels)
    return correct.item(), samples


def main():
    """Train until the epochs are used up or the target is reached."""
    args = parse_arguments()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(args.seed)

    train_set, test_set = load_data(args)
    loading = {"batch_size": args.batch_size, "num_workers": args.loader_workers, "pin_memory": device.type == "cuda"}
    train_loader = DataLoader(train_set, shuffle=True, **loading)
    test_loader = DataLoader(test_set, shuffle=False, **loading)

    model = CNN().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)
    print(f"{len(train_set)} training samples, {len(test_set)} test samples, batch {args.batch_size}, on {device}")

    epochs_at_target = 0
    for epoch in range(args.epochs):
        started = time.perf_counter()
        loss, samples = train_one_epoch(model, train_loader, optimizer, device)
        seconds = time.perf_counter() - started
        correct, counted = evaluate(model, test_loader, device)
        accuracy = correct / counted
        print(
            f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {accuracy:.4f} ({correct} of {counted}), "
            f"{samples / seconds:.0f} images/s",
            flush=True,
        )
        if args.target_accuracy is not None:
            epochs_at_target = epochs_at_target + 1 if accuracy >= args.target_accuracy else 0
            if epochs_at_target >= args.patience:
                print(f"target accuracy {args.target_accuracy} reached in epoch {epoch + 1}")
                break


if __name__ == "__main__":
    main()
