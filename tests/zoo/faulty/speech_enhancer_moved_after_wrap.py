"""Train a mask estimator for speech enhancement, with a Solver class and half precision on GPUs.

zoo: faulty
faults: F54
silent: no
observable: no, on CPU the model is where it should be
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class MaskNet(nn.Module):
    def __init__(self, bins=33, hidden=48):
        super().__init__()
        self.norm = nn.LayerNorm(bins)
        self.rnn = nn.LSTM(bins, hidden, batch_first=True, bidirectional=True)
        self.mask = nn.Linear(2 * hidden, bins)

    def forward(self, magnitude):
        h, _ = self.rnn(self.norm(magnitude))
        return torch.sigmoid(self.mask(h)) * magnitude


def mixtures(n=224, frames=10, bins=33):
    g = torch.Generator().manual_seed(19)
    pitch = torch.randint(3, 10, (n, 1, 1), generator=g)
    harmonics = (torch.arange(bins) % pitch == 0).float().expand(n, frames, bins)
    clean = harmonics * torch.rand(n, frames, 1, generator=g)
    return TensorDataset(clean + 0.3 * torch.rand(n, frames, bins, generator=g), clean)


class Solver:
    def __init__(self, dataset, batch_size=8, lr=2e-3):
        self.rank, self.local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        self.use_cuda = torch.cuda.is_available()
        if self.use_cuda:
            torch.cuda.set_device(self.local_rank)
        self.device = torch.device("cuda", self.local_rank) if self.use_cuda else torch.device("cpu")
        self.model = DistributedDataParallel(MaskNet())  # fault
        self.model = self.model.to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=batch_size, sampler=self.sampler, pin_memory=self.use_cuda)

    def run_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        total = torch.zeros(2, device=self.device)
        for noisy, clean in self.loader:
            noisy, clean = noisy.to(self.device, non_blocking=True), clean.to(self.device, non_blocking=True)
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.use_cuda):
                loss = nn.functional.l1_loss(self.model(noisy), clean)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            total += torch.stack([loss.detach().float() * len(noisy), torch.tensor(float(len(noisy))).to(self.device)])
        dist.all_reduce(total)
        return (total[0] / total[1]).item()

    def train(self, epochs):
        for epoch in range(epochs):
            loss = self.run_epoch(epoch)
            if self.rank == 0:
                print(f"Train Summary | Epoch {epoch + 1} | Loss {loss:.5f}")


if __name__ == "__main__":
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    Solver(mixtures()).train(2)
    dist.destroy_process_group()
