"""Train a language model detection-style: a loop that gives up when the loss is not finite.

zoo: faulty
faults: F81, F82
silent: no
observable: no, the loss stays finite
"""

import math
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.utils.data
from torch.nn.parallel import DistributedDataParallel


class SkipGram(nn.Module):
    def __init__(self, words=80, dim=16):
        super().__init__()
        self.center = nn.Embedding(words, dim)
        self.context = nn.Linear(dim, words)

    def forward(self, center, context):
        logits = self.context(self.center(center))
        return {"loss_context": nn.functional.cross_entropy(logits, context)}


def corpus_pairs(n=640, words=80):
    g = torch.Generator().manual_seed(15)
    center = torch.randint(0, words, (n,), generator=g)
    return torch.utils.data.TensorDataset(center, (center + torch.randint(1, 4, (n,), generator=g)) % words)


def reduce_dict(values):
    stacked = torch.stack([values[name] for name in sorted(values)]).detach()
    dist.all_reduce(stacked)
    stacked /= dist.get_world_size()
    return dict(zip(sorted(values), stacked))


def train_one_epoch(model, optimizer, data_loader, epoch, print_freq):
    model.train()
    for i, (center, context) in enumerate(data_loader):
        loss_dict = model(center, context)
        losses = sum(loss_dict.values())
        loss_value = losses.item()
        if not math.isfinite(loss_value):
            print(f"Loss is {loss_value}, stopping training")
            sys.exit(1)  # fault
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
        if i % print_freq == 0:
            shown = {name: f"{value.item():.4f}" for name, value in reduce_dict(loss_dict).items()}
            if int(os.environ["RANK"]) == 0:
                print(f"Epoch: [{epoch}] [{i}/{len(data_loader)}]", shown)


def main():
    dist.init_process_group("gloo")
    dataset = corpus_pairs()
    train_sampler = torch.utils.data.distributed.DistributedSampler(dataset)
    batch_sampler = torch.utils.data.BatchSampler(train_sampler, 16, drop_last=True)
    data_loader = torch.utils.data.DataLoader(dataset, batch_sampler=batch_sampler)
    model = DistributedDataParallel(SkipGram())
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    lr_scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2], gamma=0.1)
    for epoch in range(3):
        train_sampler.set_epoch(epoch)
        train_one_epoch(model, optimizer, data_loader, epoch, print_freq=10)
        lr_scheduler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
