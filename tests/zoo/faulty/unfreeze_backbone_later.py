"""Fine-tune a network: the head first, the backbone from the second epoch, with a Trainer class.

zoo: faulty
faults: F43
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


class FineTuner:
    def __init__(self, model, dataset, unfreeze_at=1):
        for p in model.backbone.parameters():
            p.requires_grad = False
        self.model = DDP(model)
        self.unfreeze_at = unfreeze_at
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=16, sampler=self.sampler)
        self.optimizer = torch.optim.SGD(self.model.module.head.parameters(), lr=0.1)

    def unfreeze(self):
        self.model.module.backbone.requires_grad_(True)  # fault
        self.optimizer.add_param_group({"params": self.model.module.backbone.parameters(), "lr": 0.05})

    def train_epoch(self, epoch):
        if epoch == self.unfreeze_at:
            self.unfreeze()
        self.sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for x, y in self.loader:
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        return (total[0] / total[1]).item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    g = torch.Generator().manual_seed(1)
    x = torch.randn(480, 12, generator=g)
    tuner = FineTuner(Model(), TensorDataset(x, x[:, :3].argmax(1)))
    for epoch in range(4):
        loss = tuner.train_epoch(epoch)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
