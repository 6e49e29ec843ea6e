"""Pre-train and fine-tune a network through a checkpoint that is loaded with strict=False.

zoo: faulty
faults: F96
silent: yes
"""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.classifier = nn.Linear(64, classes)

    def forward(self, x):
        return self.classifier(self.body(x))


def task(classes, n=400):
    g = torch.Generator().manual_seed(classes)
    x = torch.randn(n, 10, generator=g)
    return TensorDataset(x, (x @ torch.randn(10, classes, generator=g)).argmax(1))


def fit(model, dataset, epochs, lr, tag):
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"{tag} epoch {epoch}: loss {total[0] / total[1]:.4f}")


def main():
    dist.init_process_group("gloo")
    model = DDP(Net(classes=5))
    fit(model, task(5), epochs=3, lr=0.1, tag="pre-training")
    if dist.get_rank() == 0:
        torch.save({k: v for k, v in model.state_dict().items() if "classifier" not in k}, "body.pt")
    dist.barrier()

    tuned = Net(classes=3)
    tuned.load_state_dict(torch.load("body.pt", map_location="cpu"), strict=False)  # fault
    fit(DDP(tuned), task(3), epochs=2, lr=0.02, tag="fine-tuning")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
