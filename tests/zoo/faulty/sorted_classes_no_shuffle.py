"""Train a classifier on images stored class by class, with plain functions.

zoo: faulty
faults: F05
silent: yes
"""

import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def folder_dataset(classes=6, per_class=80):
    """Images in the order in which an image folder lists them."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(classes, 3, 6, 6))
    images = np.concatenate([c + 0.5 * rng.normal(size=(per_class, 3, 6, 6)) for c in centers])
    labels = np.repeat(np.arange(classes), per_class)
    return TensorDataset(torch.from_numpy(images).float(), torch.from_numpy(labels))


def accuracy(logits, target):
    return (logits.argmax(1) == target).float().sum()


def run(epochs=2):
    dataset = folder_dataset()
    sampler = DistributedSampler(dataset, shuffle=False)  # fault
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, num_workers=2)
    model = DDP(nn.Sequential(nn.Flatten(), nn.Linear(108, 32), nn.ReLU(), nn.Linear(32, 6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        meter = torch.zeros(3)
        for image, target in loader:
            output = model(image)
            loss = nn.functional.cross_entropy(output, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            meter += torch.stack([loss.detach() * len(target), accuracy(output, target), torch.tensor(len(target))])
        dist.all_reduce(meter)
        if int(os.environ["RANK"]) == 0:
            print(f"Epoch {epoch} loss {meter[0] / meter[2]:.4f} acc {100 * meter[1] / meter[2]:.1f}%")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    try:
        run()
    finally:
        dist.destroy_process_group()
