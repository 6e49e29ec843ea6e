"""Train a price model and write a submission file with one row for each test item.

zoo: faulty
faults: F74
silent: yes
observable: no, the rows that are written are no part of training
"""

import csv

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Items(Dataset):
    def __init__(self, n, seed, first_id=0):
        g = torch.Generator().manual_seed(seed)
        self.ids = list(range(first_id, first_id + n))
        self.features = torch.rand(n, 10, generator=g)
        self.price = 10 * self.features[:, 0] + 5 * self.features[:, 1] * self.features[:, 2]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.features[i], self.price[i]


def fit(model, loader, sampler, epochs, lr):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, price in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), price)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: last loss {loss.item():.4f}")


@torch.no_grad()
def predict(model, dataset, batch_size=25):
    model.eval()
    sampler = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)
    own = torch.cat([model(x).squeeze(1) for x, _ in loader])
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own)
    return torch.cat(parts)  # fault


def write_submission(path, ids, predictions):
    with open(path, "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["id", "price"])
        writer.writerows((i, f"{p:.3f}") for i, p in zip(ids, predictions.tolist()))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    train_set, test_set = Items(480, 0), Items(150, 1, first_id=10_000)
    sampler = DistributedSampler(train_set)
    model = DDP(nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 1)))
    fit(model, DataLoader(train_set, batch_size=20, sampler=sampler), sampler, epochs=3, lr=1e-2)
    predictions = predict(model, test_set)
    if dist.get_rank() == 0:
        write_submission("submission.csv", test_set.ids, predictions)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
