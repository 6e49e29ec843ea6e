"""Train a tagger and compute F1 over gathered predictions, in a Trainer class.

zoo: faulty
faults: F70
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def gather(tensor):
    parts = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return torch.stack(parts, dim=1).flatten(0, 1)


def f1_score(predicted, target):
    tp = (predicted & target).sum().item()
    wrong = (predicted ^ target).sum().item()
    return 2 * tp / max(1, 2 * tp + wrong)


class Trainer:
    def __init__(self, train_set, eval_set):
        self.model = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.train_sampler = DistributedSampler(train_set)
        self.train_loader = DataLoader(train_set, batch_size=15, sampler=self.train_sampler)
        eval_sampler = DistributedSampler(eval_set, shuffle=False)
        self.eval_loader = DataLoader(eval_set, batch_size=32, sampler=eval_sampler)

    def train_epoch(self, epoch):
        self.train_sampler.set_epoch(epoch)
        self.model.train()
        for x, y in self.train_loader:
            self.optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(self.model(x).squeeze(1), y.float()).backward()
            self.optimizer.step()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        predictions, labels = [], []
        for x, y in self.eval_loader:
            predictions.append(self.model(x).squeeze(1) > 0)
            labels.append(y)
        predictions = gather(torch.cat(predictions))  # fault
        labels = gather(torch.cat(labels))
        return f1_score(predictions, labels), len(labels)


def records(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 12, generator=g)
    return TensorDataset(x, (x[:, 0] + x[:, 1].abs()) > 1)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    trainer = Trainer(records(450, 1), records(87, 2))
    for epoch in range(3):
        trainer.train_epoch(epoch)
        f1, n = trainer.evaluate()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: F1 {f1:.4f} (n={n})")
    dist.destroy_process_group()
