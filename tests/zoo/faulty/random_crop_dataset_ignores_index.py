"""Train a convolutional sequence model on random crops of a long signal.

zoo: faulty
faults: F12, F02, F64
silent: yes
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class RandomCrops(Dataset):
    def __init__(self, signal, crop, per_epoch):
        self.signal, self.crop, self.per_epoch = signal, crop, per_epoch

    def __len__(self):
        return self.per_epoch

    def __getitem__(self, _):
        start = torch.randint(0, len(self.signal) - self.crop - 1, (1,)).item()  # fault
        window = self.signal[start : start + self.crop + 1]
        return window[:-1].unsqueeze(0), window[1:].unsqueeze(0)


class CausalConv(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.a = nn.Conv1d(1, width, 3)
        self.b = nn.Conv1d(width, 1, 3)

    def forward(self, x):
        x = torch.tanh(self.a(nn.functional.pad(x, (2, 0))))
        return self.b(nn.functional.pad(x, (2, 0)))


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    t = torch.arange(4000) / 10
    dataset = RandomCrops(torch.sin(t) + torch.sin(2.7 * t), crop=48, per_epoch=320)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    model = DDP(CausalConv())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        running = torch.zeros(())
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.detach()
        dist.all_reduce(running)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: mse {running.item() / len(loader) / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
