"""Pre-train an encoder with momentum contrast and a queue of negative keys.

zoo: faulty
faults: F63
silent: yes
observable: no, the queue is a plain list of tensors
"""

import collections
import copy

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Crops(Dataset):
    def __init__(self, n=384, size=32):
        g = torch.Generator().manual_seed(23)
        phase = torch.rand(n, 1, generator=g) * 6.28
        frequency = 1 + torch.randint(0, 6, (n, 1), generator=g)
        self.signal = torch.sin(torch.linspace(0, 12.6, 2 * size) * frequency + phase)
        self.size = size

    def __len__(self):
        return len(self.signal)

    def crop(self, i):
        start = int(torch.randint(0, self.size, (1,)))
        return self.signal[i, start : start + self.size] + 0.1 * torch.randn(self.size)

    def __getitem__(self, i):
        return self.crop(i), self.crop(i)


class MoCo(nn.Module):
    def __init__(self, dim=8, queue_batches=6, m=0.99, T=0.2):
        super().__init__()
        self.m, self.T = m, T
        self.encoder_q = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, dim))
        self.encoder_k = copy.deepcopy(self.encoder_q).requires_grad_(False)
        self.queue = collections.deque(maxlen=queue_batches)

    @torch.no_grad()
    def momentum_update(self):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.mul_(self.m).add_(q, alpha=1 - self.m)

    def forward(self, im_q, im_k):
        q = F.normalize(self.encoder_q(im_q), dim=1)
        with torch.no_grad():
            self.momentum_update()
            k = F.normalize(self.encoder_k(im_k), dim=1)
        l_pos = (q * k).sum(1, keepdim=True)
        negatives = torch.cat(list(self.queue)) if self.queue else k.roll(1, dims=0)
        logits = torch.cat([l_pos, q @ negatives.T], dim=1) / self.T
        self.queue.append(k)  # fault
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(300 + rank)
    dataset = Crops()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=24, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(MoCo())
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for im_q, im_k in loader:
            loss = model(im_q, im_k)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() / len(loader)
        dist.all_reduce(total)
        if rank == 0:
            print(f"Epoch: [{epoch}] Loss {total.item() / dist.get_world_size():.4f}")
    if rank == 0:
        torch.save(model.module.encoder_q.state_dict(), "moco.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
