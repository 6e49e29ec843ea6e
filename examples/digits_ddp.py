"""Digits on several processes: trains what digits_single.py does.

torchrun --nproc-per-node 2 examples/digits_ddp.py
paceline verify --before examples/digits_single.py --nproc-per-node 2 examples/digits_ddp.py
"""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # dropout masks differ between ranks; DDP sends the weights of rank 0 to all
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    train_set, test_set = TensorDataset(x[:1438], y[:1438]), TensorDataset(x[1438:], y[1438:])
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=64 // world_size, sampler=sampler)
    test_loader = DataLoader(Subset(test_set, range(rank, len(test_set), world_size)), batch_size=64)

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3 * len(train_loader))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for images, labels in train_loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        model.eval()
        with torch.no_grad():
            correct = sum((model.module(images).argmax(1) == labels).sum() for images, labels in test_loader)
        dist.all_reduce(correct)
        if rank == 0:
            print(f"epoch {epoch}: test accuracy {correct.item() / len(test_set):.4f}")
    if rank == 0:
        torch.save(model.module.state_dict(), "digits.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
